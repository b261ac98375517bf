# SPDX-License-Identifier: GPL-3.0-or-later
"""Attempts to get at memory, messages and keys that programs outside share."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.escape.attack import NUMBERS, attempt, refusal, refusals, work_outside, works_outside
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


def test_system_v(person: Person, key: int) -> None:
    numbers = {
        what: libc.syscall(NUMBERS[create], key, *arguments)
        for what, (create, _, arguments, _) in SHARED.items()
    }
    try:
        codes = {what: code.replace("KEY", str(key)) for what, (_, code, _, _) in SHARED.items()}
        codes["memory by its number"] = f"call('shmat', {numbers['memory']}, 0, 0)"
        refused = {**dict.fromkeys(SHARED, "ENOENT"), "memory by its number": "EINVAL"}
        assert refusals(person, codes) == refused
        assert work_outside(person, codes) == dict.fromkeys(codes, True)
        listing = f"cut -c1-11 /proc/sysvipc/* | grep -c {key}"
        assert person.run(listing).stdout.text == "0\n"
        assert person.run_outside(listing).stdout == "3\n"
    finally:
        for what, (_, _, _, control) in SHARED.items():
            remove = (0, 0) if control == "semctl" else (0, None)
            assert getattr(libc, control)(numbers[what], *remove) == 0


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


def test_keyrings(person: Person, kept_key: bytes) -> None:
    codes = {
        how: code.replace("NAME", repr(kept_key)).replace("RING", str(USER_KEYRING))
        for how, code in KEYRINGS.items()
    }
    assert refusals(person, codes) == dict.fromkeys(codes, "EPERM")
    # Clearing would take keys of the user's own.
    del codes["clearing"]
    assert work_outside(person, codes) == dict.fromkeys(codes, True)


def test_names_of_keys(person: Person, kept_key: bytes) -> None:
    assert kept_key.decode() in person.run_outside("cat /proc/keys").stdout
    assert kept_key.decode() not in person.run("cat /proc/keys").stdout.text
