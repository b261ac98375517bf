# SPDX-License-Identifier: GPL-3.0-or-later
"""Files that the program owns."""

from __future__ import annotations

from pathlib import Path

import pytest

from ollmsandbox.paths import write_atomically

pytestmark = pytest.mark.anybody


def test_what_could_not_be_written_leaves_nothing_behind(tmp_path: Path) -> None:
    file = tmp_path / "file"
    write_atomically(file, "old")
    with pytest.raises(UnicodeEncodeError):
        write_atomically(file, "half a character: \udcff")
    assert file.read_text() == "old"
    assert list(tmp_path.iterdir()) == [file]
    folder = tmp_path / "folder"
    (folder / "inside").mkdir(parents=True)
    with pytest.raises(OSError, match="folder"):
        write_atomically(folder, "new")
    assert sorted(tmp_path.iterdir()) == [file, folder]
