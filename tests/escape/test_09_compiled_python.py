# SPDX-License-Identifier: GPL-3.0-or-later
"""A command leaves compiled Python that is not what its source says."""

from __future__ import annotations

from support.escape.attack import python
from support.escape.copy_back import settle
from support.person import Person

from ollmsandbox.project.change import Flag
from ollmsandbox.sandbox.spec import Mode

# The header of a file that is never compared with its source, and other code.
PLANT = """
import importlib.util, marshal
file = importlib.util.cache_from_source("module.py")
file = "__pycache__/" + os.path.basename(file)
os.makedirs("__pycache__", exist_ok=True)
code = compile("print('evil')", "module.py", "exec")
with open(file, "wb") as out:
    out.write(importlib.util.MAGIC_NUMBER + struct.pack("<I", 1) + bytes(8) + marshal.dumps(code))
"""
USE = "/usr/bin/python3 -c 'import module'"


def test_a_planted_file_is_marked(person: Person) -> None:
    (person.project / "module.py").write_text("print('good')\n")
    report = settle(person, python(PLANT), Mode.AUTO)
    (planted,) = (item for item in report.changes if item.change.path.endswith(".pyc"))
    assert Flag.TOOL in planted.change.flags
    # It is run outside, as the attack wants; inside, Python looks elsewhere.
    assert person.run_outside(USE).stdout == "evil\n"
    assert person.run(USE).stdout.text == "good\n"


def test_compiled_files_are_kept_in_the_caches(person: Person) -> None:
    person.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    (person.project / "module.py").write_text("print('good')\n")
    assert settle(person, USE, Mode.AUTO).changes == ()
    where = person.run('find "$PYTHONPYCACHEPREFIX" -name "module.*.pyc"').stdout.text
    assert where.startswith(f"{person.home}/.cache/python/")
    assert not (person.home / ".cache/python").exists()
    # Also for a command with the network.
    assert person.run('ls "$PYTHONPYCACHEPREFIX"', network=True).stdout.text != ""
    person.environ["PYTHONPYCACHEPREFIX"] = "/my/own"
    assert person.run('echo "$PYTHONPYCACHEPREFIX"').stdout.text == "/my/own\n"
