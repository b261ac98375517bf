# SPDX-License-Identifier: GPL-3.0-or-later
"""Explain why something is missing on this machine, and what the user can do about it."""

from __future__ import annotations

import contextlib
import os
import stat
from pathlib import Path

from ...errors import Sentence
from ..plan.host import mount_table
from .environment import find_surroundings

# English for the cache and other programs, translated for the user.
_ = Sentence

# How each family of distributions installs a package, and names that differ there.
_INSTALL = {
    "debian": "sudo apt install {}",
    "fedora": "sudo dnf install {}",
    "arch": "sudo pacman -S {}",
    "suse": "sudo zypper install {}",
}
_PACKAGES = {"bubblewrap": {}, "libseccomp": {"debian": "libseccomp2", "suse": "libseccomp2"}}
_ALLOW = (
    "sudo apt install apparmor-profiles && sudo ln -s "
    "/usr/share/apparmor/extra-profiles/bwrap-userns-restrict /etc/apparmor.d/ && "
    "sudo systemctl reload apparmor"
)
_CLONE = "kernel.unprivileged_userns_clone"
_MOST = "user.max_user_namespaces"
_SET = "echo {} | sudo tee /etc/sysctl.d/60-userns.conf && sudo sysctl --system"
_UNCONFINED = "--security-opt seccomp=unconfined --security-opt systempaths=unconfined"
# Mounted on the host, too.
_USUAL_IN_PROC = ("/proc/sys/fs/binfmt_misc", "/proc/fs/nfsd")


def find_remedy(key: str, bwrap: str) -> tuple[Sentence, Sentence]:
    """Return cause and remedy of a finding. The kernel's settings tell the cause."""
    if key == "surroundings":
        return (
            _("This program runs in a Flatpak, where it cannot start a sandbox of its own."),
            _("Install the program without Flatpak to run commands in a sandbox."),
        )
    if key == "bwrap" and not bwrap:
        return (_("bubblewrap is not installed."), install("bubblewrap"))
    if key == "bwrap":
        return (
            _("{program} does not work.", program=bwrap),
            _("Reinstall bubblewrap. `bwrap --version` should print a version."),
        )
    if key == "seccomp":
        return (_("libseccomp is missing, or the kernel refuses filters."), install("libseccomp"))
    if key == "sandbox" and os.stat(bwrap).st_mode & stat.S_ISUID:
        return (
            _("{program} has the setuid bit, which newer versions refuse.", program=bwrap),
            _("Remove it: {command}", command=f"sudo chmod u-s {bwrap}"),
        )
    if key in ("sandbox", "network", "namespaces"):
        return _namespaces()
    if key == "overlay":
        return (
            _(
                "Cannot mount overlays on your home folder: the kernel is older than 5.11, or the "
                "file system or a security module does not allow it."
            ),
            _(
                "In a container, set XDG_CACHE_HOME to a folder on a volume; elsewhere, a newer "
                "kernel may help. Without overlays, commands can read the project but write only "
                "to the playground."
            ),
        )
    if key == "overlay-bwrap":
        return (
            _("This version of bubblewrap cannot mount overlays, or is not allowed to."),
            _("Not needed if this program can. Bubblewrap 0.11 and newer support it."),
        )
    if key == "caches":
        return (
            _("Cannot mount another overlay above the one of your home folder."),
            _(
                "Commands cannot write to caches such as ~/.npm. Set XDG_CACHE_HOME to a folder on "
                "another disk, or use a newer kernel."
            ),
        )
    if key == "time":
        return (
            _("The machine took too long to start a program."),
            _("Try again when it is less busy."),
        )
    if key == "systemd":
        return (
            _("systemd's user manager is not running."),
            _("This program watches memory itself instead, and reacts a moment later."),
        )
    return (Sentence(""), Sentence(""))


def install(package: str) -> Sentence:
    """Return how to install a package on this distribution."""
    family = _family()
    if family not in _INSTALL:
        return _("Install {package} with your distribution's package manager.", package=package)
    name = _PACKAGES.get(package, {}).get(family, package)
    return _("Install it: {command}", command=_INSTALL[family].format(name))


def _namespaces() -> tuple[Sentence, Sentence]:
    if _setting("kernel/apparmor_restrict_unprivileged_userns") == "1":
        return (
            _("Ubuntu's AppArmor policy does not allow user namespaces."),
            _("Allow them for bubblewrap: {command}", command=_ALLOW),
        )
    if _setting("kernel/unprivileged_userns_clone") == "0":
        return (
            _("The kernel setting {setting} is off.", setting=_CLONE),
            _("Turn it on: {command}", command=_SET.format(f"{_CLONE}=1")),
        )
    if _setting("user/max_user_namespaces") == "0":
        return (
            _("The kernel setting {setting} is 0.", setting=_MOST),
            _("Raise it: {command}", command=_SET.format(f"{_MOST}=10000")),
        )
    if find_surroundings(os.environ) != "host" or _is_proc_covered():
        return (
            _("The container or sandbox around this program does not allow another one inside."),
            _(
                "Start the container with {options}, or use the program outside it.",
                options=_UNCONFINED,
            ),
        )
    return (
        _("The kernel ({version}) refuses user namespaces.", version=os.uname().release),
        _(
            "Use kernel 5.11 or newer with CONFIG_USER_NS, or ask your administrator whether a "
            "security module forbids them."
        ),
    )


def _is_proc_covered() -> bool:
    """Return whether a part of /proc is hidden, as all container engines do it. The kernel then
    allows no /proc of a sandbox's own."""
    covered = [mount.path for mount in mount_table() if mount.path.startswith("/proc/")]
    return any(path not in _USUAL_IN_PROC for path in covered)


def _setting(name: str) -> str:
    with contextlib.suppress(OSError):
        return Path("/proc/sys", name).read_text(encoding="ascii").strip()
    return ""


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
