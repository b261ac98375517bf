# SPDX-License-Identifier: GPL-3.0-or-later
"""A root file system that the user prepared is used in place and stays unchanged."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from support.person import Person
from support.rootfs import VERSION

from ollmsandbox import loop
from ollmsandbox.errors import RootfsError
from ollmsandbox.sandbox.rootfs.rootfs import Rootfs
from ollmsandbox.sandbox.rootfs.store import Installed, need_rootfs


def test_a_prepared_folder_is_used_where_it_is_named(person: Person, alpine: Installed) -> None:
    person.environ["ROOTFS_DIR"] = alpine.folder
    given = need_rootfs(person.paths, person.environ)
    assert given.is_given
    rootfs = Rootfs(person.paths, person.environ)
    assert loop.run(rootfs.prepare()).installed == given
    with pytest.raises(RootfsError, match="not managed"):
        loop.run(rootfs.remove())
    assert person.run("cat /etc/alpine-release", rootfs=given).stdout.text == f"{VERSION}\n"


@pytest.mark.ordinary
@pytest.mark.parametrize("given", ["relative", "/nowhere/at/all", "/proc"])
def test_a_folder_that_is_no_system_is_refused(person: Person, given: str) -> None:
    person.environ["ROOTFS_DIR"] = given
    with pytest.raises(RootfsError, match="ROOTFS_DIR is not a root file system"):
        need_rootfs(person.paths, person.environ)


def test_mount_points_that_a_prepared_folder_lacks_are_added_by_a_layer(
    person: Person, alpine: Installed, tmp_path: Path
) -> None:
    bare = tmp_path / "bare"
    shutil.copytree(alpine.folder, bare, symlinks=True, copy_function=os.link)
    for name in ("workspace", "playground", "var/tmp"):
        (bare / name).rmdir()
    person.environ["ROOTFS_DIR"] = str(bare)
    (person.project / "file").write_text("content")
    result = person.run(
        "cat file; echo x >/playground/x", rootfs=need_rootfs(person.paths, person.environ)
    )
    assert result.stdout.text == "content", result.stderr.text
    assert (person.playground / "x").exists()
    assert not (bare / "workspace").exists()
