# SPDX-License-Identifier: GPL-3.0-or-later
"""Steps on files and a snapshot of a tree, which the oracle runs inside and outside the sandbox.
Standard library only: it is passed as text, because the sandbox may not see this file."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import stat
import sys
from collections.abc import Callable, Iterator

Step = list[str | int]
Seen = dict[str, tuple[str, int, str]]


def look(folder: str) -> Seen:
    """Return type, mode and content of everything; "." is the folder itself. Times, owners and link
    counts are left out."""
    seen: Seen = {}
    waiting = ["."]
    while waiting:
        path = waiting.pop()
        full = os.path.join(folder, path)
        found = os.lstat(full)
        mode = stat.S_IMODE(found.st_mode)
        if stat.S_ISDIR(found.st_mode):
            seen[path] = ("folder", mode, "")
            waiting += [name if path == "." else f"{path}/{name}" for name in os.listdir(full)]
        elif stat.S_ISLNK(found.st_mode):
            seen[path] = ("link", 0o777, os.readlink(full))
        elif stat.S_ISREG(found.st_mode):
            with open(full, "rb") as file:
                data = file.read()
            shown = f"{len(data)} bytes {data[:40]!r} {hashlib.sha256(data).hexdigest()[:16]}"
            seen[path] = ("file", mode, shown)
        else:
            seen[path] = (f"special {stat.S_IFMT(found.st_mode):o}", mode, "")
    return seen


class Steps:
    """Steps in one folder, never outside of it: a step that would leave it is skipped."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self.real = os.path.realpath(folder)

    def run(self, steps: list[Step]) -> list[str]:
        return [self.one(step) for step in steps]

    def one(self, step: Step) -> str:
        kind, *arguments = step
        perform: Callable[..., object] = getattr(self, f"do_{kind}")
        try:
            return str(perform(*arguments) or "done")
        except OSError as error:
            return errno.errorcode.get(error.errno or 0, "?")

    def at(self, path: str, *, follow: bool = False) -> str:
        around, _, name = f"{self.folder}/{path}".rpartition("/")
        real = os.path.realpath(around)
        if follow:
            real = os.path.realpath(f"{real}/{name}")
        if not f"{real}/".startswith(f"{self.real}/"):
            raise PermissionError(errno.EREMOTE, "outside")
        return f"{around}/{name}"

    # --- files ----------------------------------------------------------------------------------

    def do_write(self, path: str, text: str, times: int) -> None:
        with open(self.at(path, follow=True), "wb", 0) as file:
            file.write(text.encode() * times)

    def do_append(self, path: str, text: str, times: int) -> None:
        with open(self.at(path, follow=True), "ab", 0) as file:
            file.write(text.encode() * times)

    def do_patch(self, path: str, text: str, where: int) -> None:
        with open(self.at(path, follow=True), "r+b", 0) as file:
            file.seek(where)
            file.write(text.encode())

    def do_truncate(self, path: str, size: int) -> None:
        os.truncate(self.at(path, follow=True), size)

    def do_rewrite(self, path: str) -> None:
        """Write a file's own content to it again."""
        full = self.at(path, follow=True)
        with open(full, "rb") as file:
            data = file.read()
        with open(full, "wb", 0) as file:
            file.write(data)

    def do_save(self, path: str, text: str) -> None:
        """Save a file as editors do."""
        temporary = self.at(f"{path[:100]}~")
        with open(temporary, "xb", 0) as file:
            file.write(text.encode())
        os.rename(temporary, self.at(path))

    def do_touch(self, path: str) -> None:
        full = self.at(path, follow=True)
        os.close(os.open(full, os.O_WRONLY | os.O_CREAT, 0o666))
        os.utime(full)

    def do_sparse(self, path: str, size: int) -> None:
        with open(self.at(path, follow=True), "wb", 0) as file:
            file.truncate(size)
            file.seek(size // 2)
            file.write(b"middle")

    def do_read(self, path: str) -> str:
        with open(self.at(path, follow=True), "rb") as file:
            return hashlib.sha256(file.read()).hexdigest()

    def do_unlink(self, path: str) -> None:
        os.unlink(self.at(path))

    def do_symlink(self, path: str, target: str) -> None:
        os.symlink(target.replace("{here}", self.folder), self.at(path))

    def do_link(self, source: str, path: str) -> None:
        os.link(self.at(source), self.at(path), follow_symlinks=False)

    def do_chmod(self, path: str, mode: int) -> None:
        os.chmod(self.at(path, follow=True), mode)

    def do_xattr(self, path: str, name: str) -> str:
        try:
            os.setxattr(self.at(path, follow=True), name, b"y")
        except OSError as error:
            # Not every file system has them; the tree must be the same all the same.
            return "refused" if error.errno in (errno.ENOTSUP, errno.EPERM) else _raise(error)
        return ""

    # --- folders --------------------------------------------------------------------------------

    def do_mkdir(self, path: str, mode: int) -> None:
        os.mkdir(self.at(path), mode)

    def do_makedirs(self, path: str) -> None:
        os.makedirs(self.at(path), exist_ok=True)

    def do_rmdir(self, path: str) -> None:
        os.rmdir(self.at(path))

    def do_list(self, path: str) -> str:
        return json.dumps(sorted(os.listdir(self.at(path, follow=True))))

    def do_remove(self, path: str) -> str:
        """Remove as `rm -r` does: what cannot be removed stays, the rest goes."""
        full = self.at(path)
        if not stat.S_ISDIR(os.lstat(full).st_mode):
            os.unlink(full)
            return ""
        failed = ""
        try:
            names = sorted(os.listdir(full))
        except OSError as error:
            names, failed = [], errno.errorcode[error.errno or 0]
        for name in names:
            try:
                failed = self.do_remove(f"{path}/{name}") or failed
            except OSError as error:
                failed = errno.errorcode[error.errno or 0]
        if not failed:
            os.rmdir(full)
        return failed

    def do_become(self, path: str, kind: str) -> str:
        """Replace a path by something of another type."""
        with contextlib.suppress(FileNotFoundError):
            if failed := self.do_remove(path):
                return failed
        full = self.at(path)
        if kind == "file":
            self.do_write(path, "became", 1)
        elif kind == "link":
            os.symlink("became", full)
        else:
            os.mkdir(full)
            if kind == "deep":
                os.makedirs(f"{full}/a/b")
                os.mkdir(f"{full}/b")
            elif kind == "full":
                self.do_write(f"{path}/a", "inside", 1)
        return ""

    def do_rename(self, source: str, path: str) -> None:
        self._rename(self.at(source), self.at(path))

    def _rename(self, source: str, target: str) -> None:
        try:
            os.rename(source, target)
            return
        except OSError as error:
            if error.errno != errno.EXDEV:
                raise
        # An overlay refuses this for a folder of the lower layer, and programs move what is in it.
        with contextlib.suppress(FileNotFoundError):
            os.rmdir(target)
        mode = stat.S_IMODE(os.lstat(source).st_mode)
        os.chmod(source, 0o700)
        os.mkdir(target, 0o700)
        for name in sorted(os.listdir(source)):
            inner = f"{source}/{name}"
            before = os.lstat(inner)
            closed = stat.S_ISDIR(before.st_mode) and not before.st_mode & stat.S_IWUSR
            if closed:
                os.chmod(inner, 0o700)
            self._rename(inner, f"{target}/{name}")
            if closed:
                os.chmod(f"{target}/{name}", stat.S_IMODE(before.st_mode))
        os.rmdir(source)
        os.chmod(target, mode)

    def do_separate(self) -> None:
        """Give each name a file of its own. An overlay does not know that two names of the lower
        layer are one file; what is linked while it is mounted stays so."""
        self._separate(self.folder)

    def _separate(self, folder: str) -> None:
        with _opened(folder, 0o700):
            for name in sorted(os.listdir(folder)):
                full = f"{folder}/{name}"
                found = os.lstat(full)
                if stat.S_ISDIR(found.st_mode):
                    self._separate(full)
                elif found.st_nlink > 1:
                    self._copy(full, found)

    def _copy(self, full: str, found: os.stat_result) -> None:
        temporary = f"{os.path.dirname(full)}/.separate"
        if stat.S_ISLNK(found.st_mode):
            os.symlink(os.readlink(full), temporary)
        else:
            with _opened(full, 0o400), open(full, "rb") as file:
                data = file.read()
            with open(temporary, "wb") as file:
                file.write(data)
            os.chmod(temporary, stat.S_IMODE(found.st_mode))
        os.rename(temporary, full)


def _raise(error: OSError) -> str:
    raise error


@contextlib.contextmanager
def _opened(path: str, needed: int) -> Iterator[None]:
    mode = stat.S_IMODE(os.lstat(path).st_mode)
    if mode & needed == needed:
        yield
        return
    os.chmod(path, mode | needed)
    try:
        yield
    finally:
        os.chmod(path, mode)


def main() -> None:
    what, folder, given = sys.argv[1:4]
    if what == "look":
        answer: object = look(folder)
    else:
        programs: dict[str, list[Step]] = json.loads(given)
        for name in programs:
            with contextlib.suppress(FileExistsError):
                os.mkdir(f"{folder}/{name}")
        answer = {n: Steps(f"{folder}/{n}").run(steps) for n, steps in programs.items()}
    print(json.dumps(answer))


if __name__ == "__main__":
    main()
