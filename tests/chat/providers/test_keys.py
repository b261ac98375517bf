# SPDX-License-Identifier: GPL-3.0-or-later
"""Keys in a keyring, on a D-Bus session bus that the test starts."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest
from support.person import ROOT, Person
from support.provider import KEY
from support.timing import PATIENCE

from ollmsandbox.chat.providers.keys import KeyStorage, KeyStore

pytestmark = pytest.mark.anybody

# libsecret keeps one connection to the bus for the whole program: each test is one.
PROGRAM = """
import asyncio, os, sys
sys.path.insert(0, sys.argv[1])
from ollmsandbox import loop
from ollmsandbox.chat.providers.base import ProviderError
from ollmsandbox.chat.providers.keys import KeyStorage, KeyStore
from ollmsandbox.paths import Paths

paths = Paths.from_environ(os.environ)
"""


@contextmanager
def bus(*arguments: str) -> Iterator[str]:
    """The address of a bus, with a keyring on it if there are arguments for one."""
    # A socket's path must be short.
    with tempfile.TemporaryDirectory(dir="/tmp") as folder, _bus(Path(folder), *arguments) as found:
        yield found


@contextmanager
def _bus(folder: Path, *arguments: str) -> Iterator[str]:
    config = folder / "bus.conf"
    # It knows no user names: the user who runs the tests may have none.
    config.write_text(
        f"<busconfig><type>session</type><listen>unix:path={folder}/bus</listen>"
        "<auth>ANONYMOUS</auth><allow_anonymous/><policy context='default'>"
        "<allow send_destination='*' eavesdrop='true'/><allow eavesdrop='true'/><allow own='*'/>"
        "</policy></busconfig>"
    )
    daemon = subprocess.Popen(
        ["dbus-daemon", f"--config-file={config}", "--nofork", "--print-address"],
        stdout=subprocess.PIPE,
        # It would like to have more files open than it may.
        stderr=subprocess.DEVNULL,
        text=True,
    )
    service = None
    try:
        assert daemon.stdout is not None
        address = daemon.stdout.readline().strip()
        if arguments:
            service = subprocess.Popen(
                [sys.executable, str(ROOT / "tests/support/servers/secret_service.py"), *arguments],
                env={"DBUS_SESSION_BUS_ADDRESS": address},
                stdout=subprocess.PIPE,
                text=True,
            )
            assert service.stdout is not None
            assert service.stdout.readline() == "ready\n"
        yield address
    finally:
        for process in (service, daemon):
            if process is not None:
                process.kill()
                process.communicate()


def run(person: Person, address: str, code: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM + code, str(ROOT), KEY],
        env={**person.environ, "DBUS_SESSION_BUS_ADDRESS": address},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert KEY not in done.stderr
    return done.stdout.split()


def test_a_key_is_kept_in_the_keyring_and_in_no_file(person: Person, tmp_path: Path) -> None:
    kept = tmp_path / "kept.json"
    with bus(str(kept)) as address:
        code = """
async def main():
    keys = KeyStore(paths, os.environ)
    print((await keys.put("work", sys.argv[2])).value)
    print(await keys.get("work", KeyStorage.KEYRING) == sys.argv[2])
loop.run(main())
"""
        assert run(person, address, code) == ["keyring", "True"]
        assert json.loads(kept.read_text()) == {"work": KEY}
        assert not (person.paths.config / "keys.yaml").exists()
        code = """
async def main():
    keys = KeyStore(paths, os.environ)
    # Many at once: they stand in a row.
    found = await asyncio.gather(*(keys.get("work", KeyStorage.KEYRING) for _ in range(20)))
    print(set(found) == {sys.argv[2]})
    await keys.remove("work", KeyStorage.KEYRING)
    try:
        await keys.get("work", KeyStorage.KEYRING)
    except ProviderError as error:
        print(error.message.split()[-1])
loop.run(main())
"""
        assert run(person, address, code) == ["True", "'work'."]
        assert json.loads(kept.read_text()) == {}


@pytest.mark.parametrize("service", [[], ["--silent"]], ids=["no keyring", "a silent one"])
def test_where_no_keyring_answers_a_file_is_used(person: Person, service: list[str]) -> None:
    code = """
async def main():
    keys = KeyStore(paths, os.environ, patience=0.5)
    place = await keys.put("work", sys.argv[2])
    print(place.value, await keys.get("work", place) == sys.argv[2])
    try:
        await keys.get("work", KeyStorage.KEYRING)
    except ProviderError as error:
        print(error.message)
loop.run(main())
"""
    with bus(*service) as address:
        words = run(person, address, code)
    assert words[:4] == ["file", "True", "The", "keyring"]
    file = person.paths.config / "keys.yaml"
    assert file.stat().st_mode & 0o777 == 0o600


def test_programs_that_store_keys_at_once_lose_none(person: Person) -> None:
    environ = {"HOME": person.environ["HOME"]}  # without a bus
    names = [f"key {number}" for number in range(40)]

    def store(name: str) -> None:
        asyncio.run(KeyStore(person.paths, environ).put(name, KEY))

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(store, names))
    keys = KeyStore(person.paths, environ)
    assert [asyncio.run(keys.get(name, KeyStorage.FILE)) for name in names] == [KEY] * 40
