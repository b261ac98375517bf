# SPDX-License-Identifier: GPL-3.0-or-later
"""Fixtures for all tests, and the rule that nothing is skipped in CI."""

from __future__ import annotations

import faulthandler
import gc
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import ollmsandbox.ui  # noqa: F401  names Gtk's version before a test imports it

if TYPE_CHECKING:
    from support.portal import Flatpak
    from support.screen import Screen
    from support.tools import Agent

    from ollmsandbox.project.projects import ProjectManager
    from ollmsandbox.project.records.folder import Folder
    from ollmsandbox.project.review import Review
    from ollmsandbox.sandbox.rootfs.store import Installed
from support.person import Person, Start, cli_argv, make_person
from support.timing import leave_the_disk_to_the_kernel


@pytest.fixture
def person(tmp_path: Path) -> Person:
    return make_person(tmp_path)


@pytest.fixture
def start(person: Person) -> Iterator[Start]:
    """Start the command line in a new Python process; end what is left at the end."""
    started = []

    def starter(*arguments: str, **options: Any) -> subprocess.Popen[bytes]:
        options = {
            "cwd": person.project,
            "env": person.environ,
            "stdin": subprocess.DEVNULL,
            "stdout": subprocess.PIPE,
            "stderr": subprocess.PIPE,
            **options,
        }
        started.append(subprocess.Popen(cli_argv(*arguments), **options))
        return started[-1]

    yield starter
    for process in started:
        process.kill()
        process.communicate()


@pytest.fixture(scope="module")
def shared_person(tmp_path_factory: pytest.TempPathFactory) -> Person:
    """One user for all tests of a file that leave nothing behind."""
    return make_person(tmp_path_factory.mktemp("shared"))


@pytest.fixture(scope="session")
def alpine(tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """A small root file system like Alpine's, which no test may change."""
    from support.rootfs import built  # here, because most tests know nothing of it

    return built(tmp_path_factory)


@pytest.fixture
def manager(person: Person) -> Iterator[ProjectManager]:
    from ollmsandbox.project.projects import ProjectManager

    manager = ProjectManager(person.paths)
    yield manager
    manager.close()


@pytest.fixture
def review(person: Person) -> Iterator[Review]:
    from ollmsandbox.project.review import Review

    review = Review(person.paths)
    yield review
    review.close()


@pytest.fixture
def agent(person: Person) -> Agent:
    """A model's tools, and a scripted user."""
    from support.tools import Agent  # here and below, because most tests know nothing of it

    return Agent(person)


@pytest.fixture
def folder(person: Person) -> Iterator[Folder]:
    """The project's folder, with its records."""
    from support.folder import opened

    with opened(person) as folder:
        yield folder


@pytest.fixture
def flatpak(person: Person) -> Iterator[Flatpak]:
    from support.portal import portal

    with portal(person) as found:
        yield found


@pytest.fixture
def screen() -> Iterator[Screen]:
    """Show real widgets; an exception in a callback or a warning of GLib fails the test."""
    from support.screen import Screen  # here, because most tests know nothing of Gtk

    with Screen() as screen:
        yield screen
    screen.check()


def pytest_configure() -> None:
    # What is compared is in English and has the modes of the usual umask, whatever the user who
    # runs the tests prefers.
    os.environ["LC_ALL"] = "C.UTF-8"
    os.environ.pop("LANGUAGE", None)
    os.umask(0o022)
    leave_the_disk_to_the_kernel()
    # A shell ignores both for what it runs in the background, and every child would inherit that.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGQUIT, signal.SIG_DFL)
    os.register_at_fork(after_in_child=_limit_child)
    # Python has decided already, by the locale it was started in.
    if sys.getfilesystemencoding() != "utf-8":
        raise pytest.UsageError("The tests need a UTF-8 locale. Set LC_ALL=C.UTF-8.")


def _limit_child() -> None:
    """End a forked child that hangs, and show where. It would keep open the pipe by which pytest
    hears of its parent's end, and nobody would end the tests."""
    faulthandler.register(signal.SIGALRM, file=2, chain=True)
    signal.alarm(200)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if {"anybody", "ordinary"} <= {mark.name for mark in item.iter_markers()}:
            raise pytest.UsageError(f"{item.nodeid} would run neither as root nor as a user.")


def pytest_collection_finish() -> None:
    # Modules and tests stay until the end. To look through them at every collection of garbage took
    # a third of the time of a window test.
    gc.collect()
    gc.freeze()


_skipped: list[str] = []


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.skipped:
        _skipped.append(report.nodeid)


@pytest.hookimpl(wrapper=True)
def pytest_sessionfinish(session: pytest.Session) -> Iterator[None]:
    # CI has everything a test may need, so a skipped test proves nothing there.
    if _skipped and os.environ.get("CI") and not hasattr(session.config, "workerinput"):
        print(f"\nskipped although this is CI: {', '.join(_skipped)}")
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
    yield
