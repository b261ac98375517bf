# SPDX-License-Identifier: GPL-3.0-or-later
"""Find out what this machine can do, by trying it.

Version numbers and the words of error messages decide nothing: they differ between releases.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import stat
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ... import N_
from ...errors import OllmSandboxError, Sentence, in_words
from ...files.atomic import write_atomically
from ...i18n import _
from ...paths import MAKE_WRITABLE, Paths, is_inside, make_folder, real_path
from ...record import Record
from ..limits import scope_command
from ..plan import mask_layer
from ..plan.caches import needs_base
from ..plan.host import MountPoint, mount_table
from ..plan.mounts import (
    BindMounts,
    MaskedFolder,
    OverlaidFolder,
    OverlayMethod,
    OverlayMount,
    OverlayPoint,
)
from ..seccomp import FilterRules, open_filter
from ..starter.client import StartOrder, start_process
from .environment import cache_key, find_program, find_surroundings
from .remedies import find_remedy

_PROGRAMS = ("bwrap", "systemd-run")
# As long as a run waits for bwrap: a machine with much to do needs seconds to start a program.
_TIMEOUT = 15.0
_TRY_AGAIN = 600.0
_OLD = 7 * 86400
_BASIC = (
    *("--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc"),
    *("--unshare-user", "--unshare-pid", "--unshare-ipc", "--unshare-uts"),
    *("--die-with-parent", "--new-session", "--cap-drop", "ALL"),
)


class Finding(Record):
    """One line of the checklist, in English, with cause and remedy if it is not `ok`."""

    key: str
    title: str
    ok: bool
    needed: bool
    detail: str = ""
    cause: str = ""
    remedy: str = ""


class Capabilities(Record):
    """The result of the probe: the programs and the kernel features that a sandbox can use here."""

    findings: tuple[Finding, ...]
    bwrap: str
    # bwrap is started in these: we can mount there, later mounts of the host do not appear, and
    # everything dies with the first process. Root needs no user namespace for that.
    namespaces: tuple[str, ...]
    overlay: OverlayMethod
    systemd_run: str
    surroundings: str

    @property
    def can_wrap(self) -> bool:
        return all(finding.ok for finding in self.findings if finding.needed)

    @property
    def missing(self) -> tuple[Finding, ...]:
        return tuple(f for f in self.findings if f.needed and not f.ok)

    @property
    def can_cache(self) -> bool:
        """Whether overlays with layers of caches can be mounted."""
        return any(finding.key == "caches" and finding.ok for finding in self.findings)

    def translated(self, finding: Finding) -> Finding:
        """Return a finding in the user's language. The cache and other programs get English."""
        cause, remedy = self._explain(finding)
        return finding._replace(
            title=_(finding.title), cause=cause.translated(_), remedy=remedy.translated(_)
        )

    def why_not(self) -> tuple[Sentence, Sentence]:
        """Return cause and remedy of the first finding that is missing."""
        return self._explain(self.missing[0])

    def _explain(self, finding: Finding) -> tuple[Sentence, Sentence]:
        # Cached texts are plain English; new ones can be translated.
        cause, remedy = find_remedy(finding.key, self.bwrap)
        if finding.ok or not cause:
            return Sentence(finding.cause), Sentence(finding.remedy)
        return cause, remedy


def probe(
    paths: Paths,
    environ: Mapping[str, str],
    *,
    fresh: bool = False,
    writable: Sequence[str] = (),
    mounts: Sequence[MountPoint] | None = None,
) -> Capabilities:
    """Return what this machine can do. A good result is cached until something it depends on
    changes.

    Programs in folders that commands can write to do not count: a project's own `bin` may be in
    PATH, and a `bwrap` that a command left there would be no sandbox.
    """
    writable = [real_path(folder) for folder in (*writable, str(paths.playground))]
    programs = _programs(environ, writable)
    file = cache_file(paths, environ, programs, mounts)
    if not fresh:
        with contextlib.suppress(OSError, ValueError, TypeError, KeyError):
            written = file.stat().st_mtime
            kept = _from_json(json.loads(file.read_text(encoding="utf-8")))
            # Overlays may have failed for a temporary reason.
            if kept.overlay is not OverlayMethod.NONE or time.time() - written < _TRY_AGAIN:
                return kept
    found = _Probe(paths, environ, programs).run()
    # A failure is not cached: the user is about to fix it and tries again.
    if found.can_wrap:
        with contextlib.suppress(OllmSandboxError, OSError):  # then the next start probes again
            for old in paths.cache.glob("probe-*.json"):
                # From another boot, kernel or program.
                if time.time() - old.stat().st_mtime > _OLD:
                    old.unlink(missing_ok=True)
            write_atomically(file, json.dumps(found, default=_to_json))
    else:
        with contextlib.suppress(OSError):
            file.unlink(missing_ok=True)
    return found


def cache_file(
    paths: Paths,
    environ: Mapping[str, str],
    programs: Mapping[str, str] | None = None,
    mounts: Sequence[MountPoint] | None = None,
) -> Path:
    """Return the file with the cached result for this machine and user."""
    programs = programs or _programs(environ, (os.path.realpath(paths.playground),))
    mounts = mount_table() if mounts is None else mounts
    return paths.cache / f"probe-{cache_key(paths, environ, programs, mounts)}.json"


def _programs(environ: Mapping[str, str], writable: Sequence[str]) -> dict[str, str]:
    return {name: find_program(name, environ, writable) for name in _PROGRAMS}


def _written(made: str, upper: str, work: str, point: OverlayPoint) -> OverlaidFolder:
    below = f"{made}/below"
    return OverlaidFolder(below, (below,), f"{made}/{upper}", f"{made}/{work}", "", point)


class _Probe:
    def __init__(
        self, paths: Paths, environ: Mapping[str, str], programs: Mapping[str, str]
    ) -> None:
        self._paths = paths
        self._environ = environ
        self._systemd_run = programs["systemd-run"]
        self._findings: list[Finding] = []
        self._bwrap = programs["bwrap"]

    def run(self) -> Capabilities:
        surroundings = find_surroundings(self._environ)
        self._note("surroundings", N_("Environment"), surroundings != "flatpak", surroundings)
        namespaces: tuple[str, ...] = ()
        overlay = OverlayMethod.NONE
        systemd_run = ""
        try:
            if surroundings != "flatpak" and self._find_bwrap():
                self._try("network", N_("Network can be switched off"), (*_BASIC, "--unshare-net"))
                self._find_filter()
                namespaces = self._find_namespaces()
                overlay = self._find_overlay(namespaces)
                systemd_run = self._find_systemd()
        # That says nothing about what the machine can do, so it must not be kept.
        except subprocess.TimeoutExpired:
            self._note("time", N_("Programs start in time"), ok=False)
        return Capabilities(
            findings=tuple(self._findings),
            bwrap=self._bwrap,
            namespaces=namespaces,
            overlay=overlay,
            systemd_run=systemd_run,
            surroundings=surroundings,
        )

    def _find_bwrap(self) -> bool:
        if not self._bwrap:
            self._note("bwrap", N_("Bubblewrap is installed"), ok=False)
            return False
        answer = None
        with contextlib.suppress(subprocess.TimeoutExpired):
            answer = self._answer([self._bwrap, "--version"])
        setuid = bool(os.stat(self._bwrap).st_mode & stat.S_ISUID)
        detail = f"{(answer or '').strip()} at {self._bwrap}{', setuid' if setuid else ''}"
        self._note("bwrap", N_("Bubblewrap is installed"), bool(answer), detail)
        return bool(answer) and self._try("sandbox", N_("A sandbox starts"), _BASIC)

    def _find_filter(self) -> None:
        title = N_("System calls can be filtered")
        try:
            descriptor = open_filter(FilterRules(), self._paths.cache)
        except (OllmSandboxError, OSError) as error:
            self._note("seccomp", title, ok=False, detail=str(error))
            return
        try:
            options = (*_BASIC, "--seccomp", str(descriptor))
            self._try("seccomp", title, options, descriptors=(descriptor,))
        finally:
            os.close(descriptor)

    def _find_namespaces(self) -> tuple[str, ...]:
        users = self._starter_can(("user", "mount", "pid"), (), "true", "/")
        self._note("namespaces", N_("User namespaces"), users, needed=False)
        # Root mounts without a user namespace: overlays then can copy up files of other users.
        if os.getuid() == 0 and self._starter_can(("mount", "pid"), (), "true", "/"):
            return ("mount", "pid")
        return ("user", "mount", "pid") if users else ()

    def _find_overlay(self, namespaces: tuple[str, ...]) -> OverlayMethod:
        """Try both methods over the real home folder, with the writes going to the cache: not every
        file system can be the lower layer, and fewer can be the upper one."""
        import tempfile

        runtime = self._paths.runtime
        try:
            cache = make_folder(self._paths.cache)
            with tempfile.TemporaryDirectory(dir=cache, prefix="probe-") as made:
                for name in ("below", "above", "work", "above2", "work2", "above3", "work3"):
                    os.mkdir(f"{made}/{name}")
                folder = self._paths.real_home
                below = {m.path for m in mount_table() if is_inside(m.path, folder)} - {folder}
                if namespaces != ("mount", "pid") and below:
                    # This folder cannot get an overlay, but others can.
                    folder = f"{made}/below"
                spec = mask_layer.spec_for(folder, (".ollmsandbox-probe",), ("playground",))
                mask_layer.prepare(runtime, spec)
                for number in range(3):
                    mask_layer.prepare_mount_point(self._point(OverlayMethod.UNSHARE, number).path)
                by_starter = bool(namespaces) and self._starter_mounts(namespaces, spec, made)
                by_bwrap = self._bwrap_mounts(spec, made)
                can_cache = by_starter and self._starter_stacks(namespaces, spec, made)
            if by_bwrap and not by_starter:
                can_cache = self._bwrap_caches()
        except (OllmSandboxError, OSError) as error:
            cause = error.message if isinstance(error, OllmSandboxError) else in_words(error)
            title = N_("The program's own folders")
            found = Finding("folders", title, ok=False, needed=True, cause=cause)
            self._findings.append(found._replace(remedy=MAKE_WRITABLE))
            return OverlayMethod.NONE
        self._note("overlay", N_("Overlays mounted by this program"), by_starter, needed=False)
        self._note("overlay-bwrap", N_("Overlays mounted by bubblewrap"), by_bwrap, needed=False)
        self._note("caches", N_("Writable caches"), can_cache, needed=False)
        if by_starter:
            return OverlayMethod.UNSHARE
        return OverlayMethod.BWRAP if by_bwrap else OverlayMethod.NONE

    def _starter_mounts(
        self, namespaces: tuple[str, ...], spec: mask_layer.LayerSpec, made: str
    ) -> bool:
        layered = MaskedFolder(spec, self._point(OverlayMethod.UNSHARE, 0))
        written = _written(made, "above", "work", self._point(OverlayMethod.UNSHARE, 1))
        test = "test -d merged0/playground && echo x >merged1/file"
        mounts = [*layered.overlay_mounts(), *written.overlay_mounts()]
        return self._starter_can(namespaces, mounts, test, self._paths.runtime)

    def _starter_stacks(
        self, namespaces: tuple[str, ...], spec: mask_layer.LayerSpec, made: str
    ) -> bool:
        """Try an overlay above the home folder's: the kernel does not stack more than two."""
        base = MaskedFolder(spec, self._point(OverlayMethod.UNSHARE, 0))
        below: tuple[str, ...] = (*base.layers, spec.folder)
        mounted = [mount.path for mount in mount_table() if mount.path != spec.folder]
        if needs_base(real_path(made), spec.folder, mounted):
            below = (base.point.path,)
        options, upper, work = "userxattr,volatile", f"{made}/above3", f"{made}/work3"
        target = self._point(OverlayMethod.UNSHARE, 2).path
        caches = OverlayMount(below, target, options, upper, work)
        test = "echo x >merged2/playground/file"
        mounts = [*base.overlay_mounts(), caches]
        return self._starter_can(namespaces, mounts, test, self._paths.runtime)

    def _point(self, method: OverlayMethod, number: int) -> OverlayPoint:
        return OverlayPoint(method, str(self._paths.runtime), number)

    def _bwrap_caches(self) -> bool:
        """Try whether the program's data folder can be above the home folder's caches."""
        import tempfile

        with tempfile.TemporaryDirectory(
            dir=make_folder(self._paths.data), prefix="probe-"
        ) as made:
            for name in ("below", "above", "work"):
                os.mkdir(f"{made}/{name}")
            written = _written(made, "above", "work", self._point(OverlayMethod.BWRAP, 1))
            test = ("--", "/bin/sh", "-c", 'echo x >"$1/file"', "sh", written.folder)
            return self._works([self._bwrap, *_BASIC, *written.args(), *test])

    def _bwrap_mounts(self, spec: mask_layer.LayerSpec, made: str) -> bool:
        written = _written(made, "above2", "work2", self._point(OverlayMethod.BWRAP, 1))
        masked = MaskedFolder(spec, self._point(OverlayMethod.BWRAP, 0))
        tried = (
            (masked.args(), 'test -d "$1/playground"', spec.folder),
            (written.args(), 'echo x >"$1/file"', written.folder),
        )
        return all(
            self._works([self._bwrap, *_BASIC, *args, "--", "/bin/sh", "-c", test, "sh", folder])
            for args, test, folder in tried
        )

    def _starter_can(
        self,
        namespaces: tuple[str, ...],
        mounts: Sequence[OverlayMount | BindMounts],
        test: str,
        folder: Path | str,
    ) -> bool:
        """Return whether the starter can make these namespaces and mounts, and the test passes."""
        reader, writer = os.pipe()
        with open(reader, "rb") as answer, open(os.devnull, "r+b") as nothing:
            order = StartOrder(
                argv=["/bin/sh", "-c", f"{test} && echo yes >&3"],
                folder=str(folder),
                namespaces=namespaces,
                mounts=mounts,
            )
            given = [*[nothing.fileno()] * 3, writer]
            try:
                started = start_process(order, given)
            except OllmSandboxError:
                return False
            finally:
                os.close(writer)
            with open(started.pidfd, "rb") as pidfd:
                if not select.select([pidfd], [], [], _TIMEOUT)[0]:
                    raise subprocess.TimeoutExpired(order.argv, _TIMEOUT)
                return answer.read() == b"yes\n"

    def _find_systemd(self) -> str:
        program = self._systemd_run
        lent = scope_command(program, 1 << 40, self._environ)
        ok = False
        # It may wait for a service that never answers.
        with contextlib.suppress(subprocess.TimeoutExpired):
            ok = bool(program) and self._works([*lent, "/bin/sh", "-c", "exec true"])
        self._note("systemd", N_("Memory limit by systemd"), ok, needed=False)
        return program if ok else ""

    def _try(
        self, key: str, title: str, options: Sequence[str], descriptors: Sequence[int] = ()
    ) -> bool:
        ok = self._works([self._bwrap, *options, "--", "/bin/sh", "-c", "exec true"], descriptors)
        self._note(key, title, ok)
        return ok

    def _note(
        self, key: str, title: str, ok: bool, detail: str = "", *, needed: bool = True
    ) -> None:
        cause, remedy = ("", "") if ok else find_remedy(key, self._bwrap)
        self._findings.append(Finding(key, title, ok, needed, detail, cause, remedy))

    def _works(self, argv: Sequence[str], descriptors: Sequence[int] = ()) -> bool:
        return self._answer(argv, descriptors) is not None

    def _answer(self, argv: Sequence[str], descriptors: Sequence[int] = ()) -> str | None:
        """Return what the program prints, or None if it fails. Raise TimeoutExpired if it does not
        come back."""
        try:
            done = subprocess.run(
                argv,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="replace",
                pass_fds=descriptors,
                cwd="/",
                # The user's variables may name libraries in a project.
                env={},
                timeout=_TIMEOUT,
                check=False,
            )
        except OSError:
            return None
        return done.stdout if done.returncode == 0 else None


def _to_json(value: OverlayMethod | Record) -> object:
    return value.value if isinstance(value, OverlayMethod) else tuple(value)


def _from_json(given: list[Any]) -> Capabilities:
    found = Capabilities(*given)
    return found._replace(
        findings=tuple(Finding(*finding) for finding in found.findings),
        overlay=OverlayMethod(found.overlay),
        namespaces=tuple(found.namespaces),
    )
