# SPDX-License-Identifier: GPL-3.0-or-later
"""A private D-Bus daemon for a test, and a service on it."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

_CONFIG = """\
<busconfig><type>session</type><listen>unix:path={folder}/bus</listen>
  <auth>ANONYMOUS</auth><allow_anonymous/>
  <policy context="default"><allow own="*"/><allow eavesdrop="true"/>
    <allow send_destination="*" eavesdrop="true"/></policy>
</busconfig>
"""


class Bus:
    """A private bus: its address, and a method to stop it."""

    def __init__(self, daemon: subprocess.Popen[str]) -> None:
        self._daemon = daemon
        assert daemon.stdout is not None
        self.address = daemon.stdout.readline().strip()

    def kill(self) -> None:
        self._daemon.kill()
        self._daemon.wait()


@contextmanager
def private_bus() -> Iterator[Bus]:
    # A socket's path must be short.
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        config = Path(folder, "bus.conf")
        # It knows no user names: the user who runs the tests may have none.
        config.write_text(_CONFIG.format(folder=folder))
        argv = ["dbus-daemon", f"--config-file={config}", "--nofork", "--print-address"]
        with ExitStack() as ending:
            # It would like to have more files open than it may, and says so.
            daemon = ending.enter_context(
                subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
            )
            ending.callback(daemon.kill)
            yield Bus(daemon)


@contextmanager
def service_on(bus: Bus, program: Path, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """Start a program on the bus and wait for the line that it prints when ready."""
    argv = [sys.executable, str(program), *arguments]
    environ = {"DBUS_SESSION_BUS_ADDRESS": bus.address, "PATH": "/usr/local/bin:/usr/bin:/bin"}
    with subprocess.Popen(argv, env=environ, stdout=subprocess.PIPE, text=True) as service:
        try:
            assert service.stdout is not None
            assert service.stdout.readline() == "ready\n"
            yield service
        finally:
            service.kill()
