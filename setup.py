# SPDX-License-Identifier: GPL-3.0-or-later
"""For pip: what is no code goes into the package, where the program finds it. All else about the
package is in pyproject.toml."""

import shutil
import subprocess
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

TREE = Path(__file__).resolve().parent
DOMAIN = "ollmsandbox"


class BuildWithData(build_py):
    def run(self) -> None:
        # What an earlier build left there would be installed, too.
        shutil.rmtree(self.build_lib, ignore_errors=True)
        super().run()
        if self.editable_mode:
            return
        data = Path(self.build_lib) / "ollmsandbox" / "data"
        shutil.copytree(TREE / "data" / "ui", data / "ui", ignore=_only("*.ui"))
        shutil.copytree(TREE / "data" / "icons", data / "icons")
        shutil.copy(TREE / "data" / "style.css", data)
        self._compile_schema(data)
        self._compile_translations(data / "locale")

    def _compile_schema(self, folder: Path) -> None:
        """Without it, preferences are kept in a file."""
        schema = folder / "io.github.ollmsandbox.OllmSandbox.gschema.xml"
        shutil.copy(TREE / "data" / schema.name, schema)
        compiler = shutil.which("glib-compile-schemas")
        if compiler:
            subprocess.run([compiler, "--strict", folder], check=True)

    def _compile_translations(self, folder: Path) -> None:
        compiler = shutil.which("msgfmt")
        for source in sorted((TREE / "po").glob("*.po")) if compiler else ():
            target = folder / source.stem / "LC_MESSAGES" / f"{DOMAIN}.mo"
            target.parent.mkdir(parents=True)
            subprocess.run([compiler, "--output-file", target, source], check=True)


def _only(pattern: str):
    def ignored(folder: str, names: list[str]) -> list[str]:
        return [name for name in names if not Path(name).match(pattern)]

    return ignored


setup(cmdclass={"build_py": BuildWithData})
