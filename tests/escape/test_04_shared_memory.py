# SPDX-License-Identifier: GPL-3.0-or-later
"""Attempts to get at memory, messages and keys that programs outside share."""

from __future__ import annotations

import ctypes
import os
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.escape.attack import NUMBERS, attempt, refusal, works_outside
from support.person import Person

SECRET = "correct horse battery staple"

libc = ctypes.CDLL(None, use_errno=True)


@pytest.fixture
def key() -> int:
    return 0x6F6C0000 | os.getpid() & 0xFFFF


SHARED = {
    "memory": ("shmget", "call('shmget', KEY, 0, 0)", (4096, 0o1600), "shmctl"),
    "semaphores": ("semget", "call('semget', KEY, 0, 0)", (1, 0o1600), "semctl"),
    "messages": ("msgget", "call('msgget', KEY, 0)", (0o1600,), "msgctl"),
}


@pytest.mark.parametrize("what", SHARED)
def test_system_v(person: Person, key: int, what: str) -> None:
    create, code, arguments, control = SHARED[what]
    number = libc.syscall(NUMBERS[create], key, *arguments)
    assert number >= 0
    try:
        attack = attempt(code.replace("KEY", str(key)))
        assert refusal(person, attack) == "ENOENT"
        assert works_outside(person, attack)
        listing = "cut -c1-11 /proc/sysvipc/* | sort -u"
        assert str(key) not in person.run(listing).stdout.text
        assert str(key) in person.run_outside(listing).stdout
    finally:
        remove = (number, 0, 0) if control == "semctl" else (number, 0, None)
        assert getattr(libc, control)(*remove) == 0


def test_shared_memory_by_its_number(person: Person, key: int) -> None:
    number = libc.syscall(NUMBERS["shmget"], key, 4096, 0o1600)
    try:
        attack = attempt(f"call('shmat', {number}, 0, 0)")
        assert refusal(person, attack) == "EINVAL"
        assert works_outside(person, attack)
    finally:
        libc.shmctl(number, 0, None)


def test_message_queues(person: Person) -> None:
    name = f"evil-{os.getpid()}".encode()
    queue = libc.syscall(NUMBERS["mq_open"], name, os.O_CREAT | os.O_RDWR, 0o600, None)
    assert queue >= 0
    try:
        attack = attempt(f"call('mq_open', {name!r}, os.O_RDWR, 0, None)")
        assert refusal(person, attack) == "ENOENT"
        assert works_outside(person, attack)
    finally:
        os.close(queue)
        assert libc.mq_unlink(b"/" + name) == 0


def test_posix_shared_memory(person: Person) -> None:
    file = Path("/dev/shm", f"evil-{os.getpid()}")
    file.write_text("mine")
    try:
        attack = attempt(f"open('{file}', 'r+').write('evil')")
        assert refusal(person, attack) == "ENOENT"
        assert person.run(f"echo evil > {file}").exit_code == 0
        assert file.read_text() == "mine"
        assert works_outside(person, attack)
    finally:
        file.unlink()


KEYRINGS = {
    "adding": "call('add_key', b'user', NAME, b'evil', 4, RING)",
    "asking": "call('request_key', b'user', NAME, None, RING)",
    "searching": "call('keyctl', 10, RING, b'user', NAME, 0)",
    "reading": """
        buffer = ctypes.create_string_buffer(100)
        call('keyctl', 11, call('keyctl', 10, RING, b'user', NAME, 0), buffer, 100)
        """,
    "joining a session": "call('keyctl', 1, None)",
    "clearing": "call('keyctl', 7, RING)",
}
USER_KEYRING = -4


@pytest.fixture
def kept_key() -> Iterator[bytes]:
    """The name of a key in the user's keyring."""
    name = f"ollmsandbox-test-{os.getpid()}".encode()
    secret = SECRET.encode()
    number = libc.syscall(NUMBERS["add_key"], b"user", name, secret, len(secret), USER_KEYRING)
    assert number > 0
    yield name
    keyctl_unlink = 9
    libc.syscall(NUMBERS["keyctl"], keyctl_unlink, number, USER_KEYRING)


@pytest.mark.parametrize("how", KEYRINGS)
def test_keyrings(person: Person, kept_key: bytes, how: str) -> None:
    code = textwrap.dedent(KEYRINGS[how])
    attack = attempt(code.replace("NAME", repr(kept_key)).replace("RING", str(USER_KEYRING)))
    assert refusal(person, attack) == "EPERM"
    # Clearing would take keys of the user's own.
    if how != "clearing":
        assert works_outside(person, attack)


def test_names_of_keys(person: Person, kept_key: bytes) -> None:
    assert kept_key.decode() in person.run_outside("cat /proc/keys").stdout
    assert kept_key.decode() not in person.run("cat /proc/keys").stdout.text
