# SPDX-License-Identifier: GPL-3.0-or-later
"""For pip: what is no code goes into the package, where the program finds it, and PyGObject is
asked for in a version that can be built here. All else about the package is in pyproject.toml."""

import shutil
import subprocess
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py
from setuptools.command.egg_info import egg_info

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
        schema = folder / "io.github.ollmsandbox.OllmSandbox.gschema.xml"
        shutil.copy(TREE / "data" / schema.name, schema)
        compiler = shutil.which("glib-compile-schemas")
        if compiler is None:
            raise SystemExit("glib-compile-schemas is missing (Debian: libglib2.0-bin).")
        subprocess.run([compiler, "--strict", folder], check=True)

    def _compile_translations(self, folder: Path) -> None:
        compiler = shutil.which("msgfmt")
        for source in sorted((TREE / "po").glob("*.po")) if compiler else ():
            target = folder / source.stem / "LC_MESSAGES" / f"{DOMAIN}.mo"
            target.parent.mkdir(parents=True)
            subprocess.run([compiler, "--output-file", target, source], check=True)


class RequireWhatCanBeBuilt(egg_info):
    def run(self) -> None:
        # PyGObject 3.52 and newer need the girepository that came into GLib with 2.80.
        if not _has("girepository-2.0") and _has("gobject-introspection-1.0"):
            wanted = [
                f"{name},<3.52" if name.startswith("PyGObject>") else name
                for name in map(str, self.distribution.install_requires)
            ]
            self.distribution.install_requires = wanted
            # Newer versions of setuptools read it there.
            self.distribution.metadata.install_requires = wanted
        super().run()


def _has(library: str) -> bool:
    pkg_config = shutil.which("pkg-config")
    return bool(pkg_config) and subprocess.run([pkg_config, "--exists", library]).returncode == 0


def _only(pattern: str):
    def ignored(folder: str, names: list[str]) -> list[str]:
        return [
            name
            for name in names
            if not Path(name).match(pattern) and not Path(folder, name).is_dir()
        ]

    return ignored


setup(cmdclass={"build_py": BuildWithData, "egg_info": RequireWhatCanBeBuilt})
