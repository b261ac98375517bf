# SPDX-License-Identifier: GPL-3.0-or-later
"""Run tests in several processes, which are copies of one that has collected them: each would need
as long for that as for a hundred tests."""

from __future__ import annotations

import atexit
import json
import os
import random
import selectors
import struct
import sys
import threading
import traceback
from collections.abc import Iterator
from itertools import groupby
from typing import Any, NoReturn

import pytest

# As many tests of a file as one process takes at a time: few enough that none is late at the end,
# enough that what a file's tests share is rarely made twice.
_AT_A_TIME = 8
# The first and the last test of a share, in a pipe that all processes read from.
_SHARE = struct.Struct("HH")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--workers", type=int, default=0, help="run tests in so many processes")


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool | None:
    number: int = session.config.getoption("workers")
    if not number or session.config.option.collectonly or session.testsfailed:
        return None
    from support import cli_server

    cli_server.server()  # one for all
    shares, mine = os.pipe()
    # All at once, because it fits into a pipe: nobody has to wait for more.
    os.write(mine, b"".join(_SHARE.pack(*share) for share in _shares(session.items)))
    os.close(mine)
    # Tests of many files take turns.
    session.config.pluginmanager.getplugin("terminalreporter").showfspath = False
    sys.stdout.flush()
    session.config._tmp_path_factory.getbasetemp()  # type: ignore[attr-defined]  # which empties it
    workers = [_Worker(session, number, shares) for number in range(number)]
    os.close(shares)
    with selectors.DefaultSelector() as waiting:
        for worker in workers:
            waiting.register(worker.reports, selectors.EVENT_READ, worker)
        while waiting.get_map() and not session.shouldfail:
            for key, _events in waiting.select():
                if not key.data.pass_on():
                    waiting.unregister(key.fileobj)
    for worker in workers:
        worker.end()
    if session.shouldfail:
        raise session.Failed(session.shouldfail)
    if missing := len(session.items) - sum(worker.finished for worker in workers):
        raise session.Interrupted(f"{missing} tests were not run to their end")
    return True


def _shares(items: list[pytest.Item]) -> Iterator[tuple[int, int]]:
    for _file, tests in groupby(range(len(items)), lambda number: items[number].path):
        numbers = list(tests)
        for first in range(0, len(numbers), _AT_A_TIME):
            share = numbers[first : first + _AT_A_TIME]
            yield share[0], share[-1]


class _Worker:
    """A process that runs tests, as seen by the one that shows their results."""

    def __init__(self, session: pytest.Session, number: int, shares: int) -> None:
        self._session = session
        self.reports, writer = os.pipe()
        self._process = os.fork()
        if not self._process:
            os.close(self.reports)
            _run(session, number, shares, writer)
        os.close(writer)
        self.finished = 0
        self._begun = b""
        self._running: tuple[str, tuple[str, int | None, str]] | None = None

    def pass_on(self) -> bool:
        """Show the results that have come. Return False when no more can."""
        data = os.read(self.reports, 1 << 16)
        *lines, self._begun = (self._begun + data).split(b"\n")
        for line in lines:
            self._show(json.loads(line))
        if not data and self._running:
            words = "The process that ran this test ended."
            report = pytest.TestReport(*self._running, {}, "failed", words, "call")
            self._session.config.hook.pytest_runtest_logreport(report=report)
        return bool(data)

    def _show(self, data: Any) -> None:
        hook, config = self._session.config.hook, self._session.config
        if isinstance(data, list):
            self._running = data[0], tuple(data[1])
            return
        report = hook.pytest_report_from_serializable(config=config, data=data)
        hook.pytest_runtest_logreport(report=report)
        if report.when == "teardown":
            hook.pytest_runtest_logfinish(nodeid=report.nodeid, location=report.location)
            self._running = None
            self.finished += 1

    def end(self) -> None:
        """Wait until the process has ended, which it does when nobody listens any more."""
        os.close(self.reports)
        os.waitpid(self._process, 0)


# --- the other side ------------------------------------------------------------------------------


class _Teller:
    """Pass the results on to the process that shows them."""

    def __init__(self, config: pytest.Config, results: int) -> None:
        self._config = config
        self._results = open(results, "wb")  # noqa: SIM115 - as long as the process lives

    def pytest_runtest_logstart(self, nodeid: str, location: object) -> None:
        self._tell([nodeid, location])

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        hook = self._config.hook
        self._tell(hook.pytest_report_to_serializable(config=self._config, report=report))

    def _tell(self, data: object) -> None:
        self._results.write(json.dumps(data).encode() + b"\n")
        self._results.flush()


def _run(session: pytest.Session, number: int, shares: int, results: int) -> NoReturn:
    code = 1
    try:
        config = session.config
        plugins = config.pluginmanager
        # What a test prints goes into files that the copies would share.
        capture = plugins.getplugin("capturemanager")
        capture.stop_global_capturing()
        capture.start_global_capturing()
        for plugin in (plugins.getplugin("terminalreporter"), *_reports(config)):
            plugins.unregister(plugin)
        plugins.register(_Teller(config, results))
        random.seed()
        factory = config._tmp_path_factory  # type: ignore[attr-defined]
        factory._basetemp = factory.getbasetemp() / f"w{number}"
        factory._basetemp.mkdir()
        numbers = _numbers(shares)
        current = next(numbers, None)
        while current is not None:
            following = next(numbers, None)
            item = session.items[current]
            then = None if following is None else session.items[following]
            config.hook.pytest_runtest_protocol(item=item, nextitem=then)
            current = following
        vars(threading)["_shutdown"]()
        atexit._run_exitfuncs()
        code = 0
    except BaseException:  # noqa: BLE001 - it must not go on as the other side
        traceback.print_exc()
    finally:
        os._exit(code)


def _reports(config: pytest.Config) -> list[object]:
    from _pytest.junitxml import xml_key

    report = config.stash.get(xml_key, None)
    return [] if report is None else [report]


def _numbers(shares: int) -> Iterator[int]:
    while share := os.read(shares, _SHARE.size):
        first, last = _SHARE.unpack(share)
        yield from range(first, last + 1)
