# SPDX-License-Identifier: GPL-3.0-or-later
"""Why something is missing, and what a person does about it, in plain words."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from ...errors import Sentence

# English for what is kept and for other programs, and translated for a person.
_ = Sentence

# How each family of distributions installs a package, and what ours is called there.
_INSTALL = {
    "debian": "sudo apt install {}",
    "fedora": "sudo dnf install {}",
    "arch": "sudo pacman -S {}",
    "suse": "sudo zypper install {}",
}
_PACKAGES = {
    "bubblewrap": {},
    "libseccomp": {"debian": "libseccomp2", "suse": "libseccomp2"},
}
_ALLOW = (
    "sudo apt install apparmor-profiles && sudo ln -s "
    "/usr/share/apparmor/extra-profiles/bwrap-userns-restrict /etc/apparmor.d/ && "
    "sudo systemctl reload apparmor"
)
_CLONE = "kernel.unprivileged_userns_clone"
_MOST = "user.max_user_namespaces"
_SET = "echo {} | sudo tee /etc/sysctl.d/60-userns.conf && sudo sysctl --system"
_UNCONFINED = "--security-opt seccomp=unconfined --security-opt systempaths=unconfined"


def find_remedy(key: str, bwrap: str) -> tuple[Sentence, Sentence]:
    """Cause and remedy of a miss; the cause is looked for in the kernel's own settings."""
    if key == "surroundings":
        return (
            _("The program runs in a Flatpak, in which no sandbox of its own can start."),
            _("Use the program outside of Flatpak to have commands sandboxed."),
        )
    if key == "bwrap" and not bwrap:
        return (_("bubblewrap is not installed."), install("bubblewrap"))
    if key == "bwrap":
        return (
            _("{program} is there but does not answer.", program=bwrap),
            _("Reinstall bubblewrap; `bwrap --version` should print a version at once."),
        )
    if key == "seccomp":
        return (
            _("libseccomp is missing, or the kernel refuses filters."),
            install("libseccomp"),
        )
    if key in ("sandbox", "network", "namespaces"):
        return _namespaces()
    if key == "overlay":
        return (
            _(
                "Overlays cannot be mounted over your home folder here: the kernel is older than "
                "5.11, the home folder's file system does not allow it, or a security module does "
                "not."
            ),
            _(
                "A newer kernel may help. Without overlays commands can read the project, but "
                "write to the playground only."
            ),
        )
    if key == "overlay-bwrap":
        return (
            _("This bubblewrap does not mount overlays, or may not."),
            _("It need not, if the program can. Bubblewrap 0.11 and newer know how."),
        )
    if key == "systemd":
        return (
            _("systemd's user manager does not answer here."),
            _("Memory is watched by the program itself instead, which reacts a moment later."),
        )
    return (Sentence(""), Sentence(""))


def install(package: str) -> Sentence:
    """The command that installs a package on this distribution."""
    family = _family()
    if family not in _INSTALL:
        return _("Install {package} with your distribution's package manager.", package=package)
    name = _PACKAGES.get(package, {}).get(family, package)
    return _("Install it: {command}", command=_INSTALL[family].format(name))


def _namespaces() -> tuple[Sentence, Sentence]:
    if _setting("kernel/apparmor_restrict_unprivileged_userns") == "1":
        return (
            _("Ubuntu's AppArmor rule keeps programs from making user namespaces."),
            _("Allow it for bubblewrap: {command}", command=_ALLOW),
        )
    if _setting("kernel/unprivileged_userns_clone") == "0":
        return (
            _("The kernel setting {setting} is off.", setting=_CLONE),
            _("Switch it on: {command}", command=_SET.format(f"{_CLONE}=1")),
        )
    if _setting("user/max_user_namespaces") == "0":
        return (
            _("The kernel setting {setting} is 0.", setting=_MOST),
            _("Raise it: {command}", command=_SET.format(f"{_MOST}=10000")),
        )
    if _in_container():
        return (
            _("The container or sandbox around this program does not allow another one in it."),
            _(
                "Start the container with {options}, or use the program outside of it.",
                options=_UNCONFINED,
            ),
        )
    return (
        _("The kernel ({version}) refuses user namespaces.", version=os.uname().release),
        _(
            "Use a kernel of 5.11 or newer with CONFIG_USER_NS, or ask who looks after this "
            "machine whether a security module forbids them."
        ),
    )


def _setting(name: str) -> str:
    with contextlib.suppress(OSError):
        return Path("/proc/sys", name).read_text(encoding="ascii").strip()
    return ""


def _in_container() -> bool:
    with contextlib.suppress(OSError):
        if Path("/proc/1/comm").read_text(encoding="utf-8", errors="replace") == "bwrap\n":
            return True
    return os.path.exists("/.dockerenv") or os.path.exists("/run/.containerenv")


def _family() -> str:
    names: list[str] = []
    with contextlib.suppress(OSError):
        for line in Path("/etc/os-release").read_text(encoding="utf-8").splitlines():
            key, _equals, value = line.partition("=")
            if key in ("ID", "ID_LIKE"):
                names += value.strip("\"'").split()
    known = {"debian": "debian", "ubuntu": "debian", "fedora": "fedora", "rhel": "fedora"}
    known |= {"arch": "arch", "suse": "suse", "opensuse": "suse"}
    return next((known[name] for name in names if name in known), "")
