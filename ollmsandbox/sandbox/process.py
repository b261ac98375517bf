# SPDX-License-Identifier: GPL-3.0-or-later
"""A running command, with its streams and its limits, and the result of a finished one."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable
from enum import Enum
from typing import TYPE_CHECKING, Self

from .. import N_
from ..errors import Sentence
from ..record import Record
from .output import Capture, OutputReader, OutputStream, Sink, wait_readable

if TYPE_CHECKING:
    from .network.hosts import HostUse


class Stop(Enum):
    """Why a command was ended early. The values appear in records and in `run --json`."""

    TIME = "time"
    PERSON = "person"
    DISK = "disk"
    FULL = "full"
    MEMORY = "memory"
    PROCESSES = "processes"

    @property
    def sentence(self) -> Sentence:
        """The reason for users and models, without a full stop."""
        return Sentence(_REASONS[self])


_REASONS = {
    Stop.TIME: N_("Exceeded the time limit"),
    Stop.PERSON: N_("Stopped"),
    Stop.DISK: N_("Exceeded the disk limit"),
    Stop.FULL: N_("The disk is almost full"),
    Stop.MEMORY: N_("Exceeded the memory limit"),
    Stop.PROCESSES: N_("Exceeded the process limit"),
}


class Result(Record):
    """How a command ended, and what it wrote."""

    exit_code: int
    stdout: Capture
    stderr: Capture
    duration: float
    stop: Stop | None = None
    # How many processes were still running when the command had ended. They were ended, too.
    left_running: int = 0
    # What the sandbox refused, as far as the output shows it.
    refusals: tuple[Sentence, ...] = ()
    # The hosts that it tried to reach.
    hosts: tuple[HostUse, ...] = ()

    @property
    def remarks(self) -> list[str]:
        """Return sentences about the run that its output does not contain, for a model or a
        user."""
        found: list[str] = [*self.refusals]
        if self.left_running == 1:
            found.insert(0, "1 process was still running and was ended.")
        elif self.left_running:
            text = f"{self.left_running:,} processes were still running and were ended."
            found.insert(0, text)
        return found

    @property
    def timed_out(self) -> bool:
        return self.stop is Stop.TIME

    @property
    def signal(self) -> int | None:
        """The signal that ended the command, by the shell's convention of 128 + n."""
        number = self.exit_code - 128
        return number if number in set(signal.Signals) else None

    @property
    def truncated(self) -> bool:
        return self.stdout.truncated or self.stderr.truncated

    def printed(self) -> str:
        """Return output, then errors, as text."""
        from ..text.ansi import harmless  # not needed by a command line that shows all output

        return _in_paragraphs([harmless(self.stdout.text), harmless(self.stderr.text)])

    def for_model(self) -> str:
        """Return what was printed, then the status if it is not 0, then the remarks."""
        parts = [self.printed()]
        if self.stop is not None:
            parts.append(f"The command did not finish. {self.stop.sentence}.")
        if self.exit_code != 0:
            parts.append(f"Exit status: {self.exit_code}")
        return _in_paragraphs([*parts, *self.remarks])


def _in_paragraphs(parts: list[str]) -> str:
    return "\n".join(part.rstrip("\n") for part in parts if part.strip())


class Sinks(Record):
    """Callbacks that receive output as it arrives, besides the capture. Threads call them."""

    stdout: Sink | None = None
    stderr: Sink | None = None
    # Called with the id of the outermost process when that has started.
    started: Callable[[int], None] | None = None
    # Called when the command has ended and all output was received, before changes are settled.
    ended: Callable[[], None] | None = None


class Running:
    """A started command. `ended` is a descriptor that is readable once it has ended, and `kill`
    kills it. Any thread may stop it. At the end of its context it has ended in any case."""

    def __init__(
        self,
        *,
        stdout: int,
        stderr: int,
        ended: int,
        kill: Callable[[], None],
        capture: int,
        sinks: Sinks,
    ) -> None:
        self._ended = ended
        self._kill = kill
        self._report_end = sinks.ended
        self._stop: Stop | None = None
        self._is_open = True
        self._stopping = threading.RLock()
        self._started = time.monotonic()
        self._stdout = Capture(capture, capture)
        self._stderr = Capture(capture, capture)
        self._streams = [
            OutputStream(stdout, self._stdout, sinks.stdout),
            OutputStream(stderr, self._stderr, sinks.stderr),
        ]
        # Not before `wait`: nothing is shown before the caller knows of this.
        self._reader: OutputReader | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        if not wait_readable(self._ended, seconds=0):
            self.stop(Stop.PERSON)
            wait_readable(self._ended)
        self.close()

    def stop(self, why: Stop) -> None:
        """Kill the command. The first reason is the one that is reported."""
        with self._stopping:
            self.note(why)
            # After `close`, the process id may belong to another process.
            if self._is_open:
                self._kill()

    def note(self, why: Stop) -> None:
        """Record why the command was ended by something else."""
        if self._stop is None:
            self._stop = why

    def wait(self, watch: Callable[[threading.Event], Stop | None]) -> None:
        """Read the output, and wait for the end of the process. `watch` runs in a thread; it
        returns a limit that is exceeded, or None once its event is set."""
        self._reader = OutputReader(self._streams, self._sink_failed)
        over = threading.Event()
        failures: list[BaseException] = []

        def work() -> None:
            failure: BaseException | None = None
            try:
                found = watch(over)
            except BaseException as error:  # noqa: BLE001 - raised below
                # The command must not run without limits.
                found, failure = Stop.PERSON, error
            # It may have ended by itself meanwhile.
            if found is not None and not wait_readable(self._ended, seconds=0):
                self.stop(found)
                failures.extend([failure] if failure else [])

        watching = threading.Thread(target=work, daemon=True)
        watching.start()
        try:
            wait_readable(self._ended)
        except BaseException:
            # Such as Ctrl+C in a program that calls this in its main thread.
            self.stop(Stop.PERSON)
            wait_readable(self._ended)
            raise
        finally:
            over.set()
            watching.join()
        if failures:
            raise failures[0]

    def drain(self, seconds: float | None = None) -> None:
        """Wait for the end of the streams, `seconds` at most: a process that outlived the
        command may still have them open."""
        if self._reader is not None:
            self._reader.join(seconds)
        self.close()
        if self._report_end is not None:
            self._report_end()

    def close(self) -> None:
        with self._stopping:
            self._is_open = False
        if self._reader is not None:
            self._reader.close()

    def _sink_failed(self) -> None:
        # The output cannot be shown any more.
        self.stop(Stop.PERSON)

    def result(self, exit_code: int) -> Result:
        if self._stop is Stop.TIME:
            exit_code = 124
        elif self._stop is not None:
            exit_code = 137
        duration = time.monotonic() - self._started
        return Result(exit_code, self._stdout, self._stderr, duration, self._stop)


# Threads. A measurement of a build with more is short of some.
_MOST_MEASURED = 500


def tasks_below(pid: int, most: int) -> tuple[list[int], int]:
    """Return `pid` with all its descendants, and their number of threads. Stop after `most`."""
    found, threads = [pid], 0
    for one in found:
        with contextlib.suppress(OSError):
            tasks = os.listdir(f"/proc/{one}/task")
            threads += len(tasks)
            for task in tasks:
                with open(f"/proc/{one}/task/{task}/children", "rb") as file:
                    found += map(int, file.read().split())
        if threads > most:
            break
    return found, threads


def read_status(pid: int, *names: str, file: str = "status") -> dict[str, list[int]]:
    """Return the numbers in these lines of /proc/PID/status, or of another file in its format.
    There are none if the process has ended."""
    found: dict[str, list[int]] = {}
    # A process may give itself a name that is not UTF-8.
    with (
        contextlib.suppress(OSError),
        open(f"/proc/{pid}/{file}", encoding="utf-8", errors="replace") as opened,
    ):
        for line in opened:
            name, _, value = line.partition(":")
            if name in names:
                found[name] = [int(word) for word in value.split() if word.isdigit()]
    return found


def read_stat(pid: int) -> list[str]:
    """Return the fields of /proc/PID/stat, from the state on. Raise OSError if it has ended."""
    with open(f"/proc/{pid}/stat", "rb") as file:
        # The second field is a name, which may contain spaces and brackets.
        return file.read().rpartition(b")")[2].decode("ascii").split()


class ProcessUsage(Record):
    """Seconds of processor time, with those of children that have ended, and bytes of memory."""

    cpu: float
    memory: int


def usage_below(pid: int) -> ProcessUsage | None:
    """Return what `pid` and the processes below it use, or None if they have ended."""
    ticks = pages = count = 0
    for one in tasks_below(pid, _MOST_MEASURED)[0]:
        # One that ends between the two files counts with its parent from now on.
        with contextlib.suppress(OSError, IndexError):
            fields = read_stat(one)
            with open(f"/proc/{one}/statm", "rb") as file:
                pages += int(file.read().split()[1])
            ticks += sum(map(int, fields[11:15]))
            count += 1
    if not count:
        return None
    return ProcessUsage(ticks / os.sysconf("SC_CLK_TCK"), pages * os.sysconf("SC_PAGE_SIZE"))


def disk_bytes_below(pid: int) -> int:
    """Return what the processes below `pid` have written to a disk, without `pid` itself: it is our
    own, and has prepared the command's files."""
    total = 0
    for one in tasks_below(pid, _MOST_MEASURED)[0][1:]:
        # It may have ended just now, or belong to another user.
        with contextlib.suppress(OSError), open(f"/proc/{one}/io", "rb") as file:
            total += sum(int(line.split()[1]) for line in file if line.startswith(b"write_bytes"))
    return total
