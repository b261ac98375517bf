# SPDX-License-Identifier: GPL-3.0-or-later
"""The reader of git's configuration exempts what git writes itself, and reads it as git does."""

from __future__ import annotations

import contextlib
import socket
import subprocess
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from ollmsandbox.project.held.git import config
from ollmsandbox.project.held.git.config import (
    GitSetting,
    find_hostile_setting,
    is_harmless_address,
    leads_to_module,
    leads_to_worktree,
    read_config,
)
from ollmsandbox.project.held.git.view import View

pytestmark = pytest.mark.anybody

CLONE = b"""[core]
\trepositoryformatversion = 0
\tfilemode = true
\tbare = false
\tlogallrefupdates = true
[remote "origin"]
\turl = https://example.org/project.git
\tfetch = +refs/heads/*:refs/remotes/origin/*
[branch "main"]
\tremote = origin
\tmerge = refs/heads/main
"""
OWN = (
    CLONE
    + b"""[alias]
\tx = !sh -c \\"echo \\\\\\"x\\\\\\"\\"
\ty = "!f() { git log; }; f" ; mine
[include]
\tpath = ../shared
[Core]
\teditor = vim
"""
)


class FakeView(View):
    """A project with these files."""

    def __init__(self, files: dict[str, bytes] | None = None) -> None:
        super().__init__({PROJECT: ()}, ("/home/me/.local/share/ollmchat",))
        self.files = files or {}

    def exists(self, path: str) -> bool:
        return path.endswith("/lib/HEAD") or super().exists(path)

    def read(self, path: str, most: int = 0) -> bytes | None:
        return self.files.get(path.removeprefix(f"{PROJECT}/"))


PROJECT = "/home/me/project"


def is_exempt(
    new: bytes, old: bytes | None = None, path: str = ".git/config", **files: bytes
) -> bool:
    """Ask about a configuration; without an old one, about that of a new repository."""
    view = FakeView({name.replace("__", "/"): data for name, data in files.items()})
    place = f"{PROJECT}/{path}"
    return find_hostile_setting(new, old or b"", place, view, is_new=old is None) is None


@pytest.mark.parametrize(
    "lines",
    [
        "",
        "[user]\n\tname = Jörg O'Neil\n\temail = me@example.org\n",
        '[user]\n\tname = " spaces; and # "\n',
        '[submodule "lib/one"]\n\tactive = true\n\turl = https://example.org/one.git\n',
        "[submodule]\n\tactive = .\n",
        '[branch "topic/one"]\n\tremote = origin\n\tmerge = refs/heads/topic/one\n',
        '[branch "x"]\n\tremote = .\n\trebase = true\n',
    ],
)
def test_what_git_writes_itself(lines: str) -> None:
    assert is_exempt(CLONE + lines.encode())
    assert is_exempt(OWN + lines.encode(), OWN)
    assert is_exempt(b"[CORE]\n\tFileMode=false # as elsewhere\n\n; comment\n# [alias]\n")


@pytest.mark.parametrize(
    "line",
    [
        "[core]\nbare = true\n",
        '[remote "up"]\nurl = https://example.org/\n',
        '[remote "origin"]\nurl = https://example.com/\n',
        '[remote "origin"]\npushurl = https://example.com/\n',
        '[url "https://example.com/"]\npushInsteadOf = https://example.org/\n',
        '[branch "x"]\nremote = https://example.com/\n',
        '[branch "x"]\npushRemote = origin\n',
        "[remote]\npushDefault = up\n",
    ],
)
def test_what_crosses_only_in_a_new_repository_or_never(line: str) -> None:
    assert not is_exempt(CLONE + line.encode(), CLONE)


def test_a_renamed_branch_keeps_its_settings() -> None:
    old = CLONE + b'[branch "old"]\npushRemote = fork\ndescription = "two\\nlines"\n'
    assert is_exempt(old.replace(b'"old"', b'"new"'), old)
    assert is_exempt(CLONE, old)
    assert not is_exempt(old.replace(b"fork", b"evil"), old)


def test_the_user_s_own_name_stays() -> None:
    old = CLONE + b"[user]\nname = me\n"
    assert not is_exempt(old.replace(b"= me", b"= you"), old)
    assert not is_exempt(CLONE, old)
    assert is_exempt(old + b"email = me@example.org\n", old)


@pytest.mark.parametrize(
    ("address", "crosses"),
    [
        ("https://example.org/x.git", True),
        ("git@example.org:me/project.git", True),
        ("ssh://git@example.org:22/~me/project.git", True),
        ("git://192.0.2.1/x", True),
        ("https://[2001:db8::1]/x", False),  # "::" names a program
        ("http://[2001:db8:0:0:0:0:0:1]:80/x", True),
        ("https://localhost/x", False),
        ("https://LOCALHOST.:8080/x", False),
        ("https://x.localhost/x", False),
        ("https://localhost.localdomain/x", False),
        ("git@localhost:x", False),
        ("localhost:x", False),
        ("git@127.0.0.1:x", False),
        ("ssh://127.9.9.9/x", False),
        ("ssh://127.1/x", False),
        ("ssh://2130706433/x", False),
        ("ssh://0x7f000001/x", False),
        ("ssh://0x7f.1/x", False),
        ("ssh://017700000001/x", False),
        ("ssh://0/x", False),
        ("ssh://0.0.0.0/x", False),
        ("ssh://[0:0:0:0:0:0:0:1]/x", False),
        ("ssh://[0:0:0:0:0:0:0:0]/x", False),
        ("ssh://[::1]/x", False),
        ("ssh://[::]/x", False),
        ("ssh://[0:0:0:0:0:ffff:127.0.0.1]/x", False),
        ("ssh://user@ip6-localhost/x", False),
        ("file://localhost/srv/x.git", False),
        ("FILE:///srv/x.git", False),
        ("../x.git", False),
        ("~/x.git", False),
        ("ext::sh -c x", False),
        ("/proc/self/cwd/x.git", False),
        ("/srv/there/is/none.git", False),
    ],
)
def test_addresses(address: str, crosses: bool) -> None:
    assert is_harmless_address(address, FakeView()) is crosses


def test_addresses_of_this_computer(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket(type=socket.SOCK_DGRAM) as trial:
        with contextlib.suppress(OSError):  # a computer without any network
            trial.connect(("192.0.2.1", 9))
        own = trial.getsockname()[0]
    assert not is_harmless_address(f"ssh://{own}/x", FakeView())
    monkeypatch.setattr(socket, "gethostname", lambda: "box.example.net")
    for name in ("box", "BOX.local", "box.lan", "box.example.net."):
        assert not is_harmless_address(f"ssh://me@{name}/x", FakeView())
    assert is_harmless_address("ssh://box2.example.net/x", FakeView())


def test_names_in_the_list_of_hosts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hosts = tmp_path / "hosts"
    hosts.write_text(
        "127.0.0.1 localhost Localhost4 # here\n192.0.2.7 far both\n::1 both\nodd odd\n#::1 no\n"
    )
    monkeypatch.setattr(config, "_HOSTS", str(hosts))
    for name in ("localhost4", "LOCALHOST4.", "both"):
        assert not is_harmless_address(f"ssh://me@{name}/x", FakeView())
    for name in ("far", "odd", "no", "here"):
        assert is_harmless_address(f"ssh://me@{name}/x", FakeView())
    hosts.unlink()
    assert is_harmless_address("ssh://me@both/x", FakeView())


def test_addresses_that_are_paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bare, checkout = tmp_path / "bare", tmp_path / "checkout"
    subprocess.run(["git", "init", "-q", "--bare", bare], check=True)
    subprocess.run(["git", "init", "-q", checkout], check=True)
    (tmp_path / "link").symlink_to(bare)
    (tmp_path / "worktree").mkdir()
    (tmp_path / "worktree/.git").write_text(f"gitdir: {checkout}/.git\n")
    (tmp_path / "around").mkdir()
    (tmp_path / "around/.git").symlink_to(checkout / ".git")

    def crosses(path: str, **others: str) -> bool:
        view = View({others.get("root", "/home/me"): ()}, (others.get("own", "/home/me/.cache"),))
        return is_harmless_address(path.replace("TMP", str(tmp_path)), view)

    assert not crosses("TMP/bare") or not str(tmp_path).startswith(("/tmp/", "/var/tmp/"))
    monkeypatch.setattr(config, "UNTRUSTED", ("/proc", "/dev", "/run"))
    for path in ("TMP/bare", "TMP/checkout", "file://TMP/bare", "TMP/bare/"):
        assert crosses(path), path
        assert not crosses(path, root=str(tmp_path)), path
        assert not crosses(path, own=str(tmp_path)), path
    hostile = ("TMP/link", "TMP/link/../bare", "TMP/none", "TMP/bare/../checkout", "TMP//bare")
    for path in (
        *hostile,
        "TMP/worktree",
        "TMP/around",
        "file://TMP/x/%2e%2e/bare",
        "TMP/bare/HEAD",
    ):
        assert not crosses(path), path


HOSTILE = {
    "fsmonitor": "[core]\nfsmonitor = touch x\n",
    "one line": "[core] fsmonitor=touch x\n",
    "one line that ends well": "[core] fsmonitor=touch x\n[core]\n",
    "case": "[CoRe]\n\tFSMONITOR\t=\ttouch x\n",
    "hooks": "[core]\nhooksPath = h\n",
    "ssh": "[core]\nsshCommand = touch x\n",
    "worktree": "[core]\nworktree = /home/me\n",
    "worktree of a module": "[core]\nworktree = ../..\n",
    "editor": '[core]\n"editor" = x\n',
    "no value": "[core]\nfsmonitor\n",
    "alias": "[alias]\nstatus = !touch x\n",
    "filter": '[filter "x"]\nclean = touch x\n',
    "diff": '[diff "x"]\ntextconv = touch x\n',
    "include": "[include]\npath = ../evil\n",
    "conditional include": '[includeIf "gitdir:/"]\npath = ../evil\n',
    "include in upper case": "[INCLUDE]\nPATH = ../evil\n",
    "credential": "[credential]\nhelper = !touch x\n",
    "section with a dot": "[core.x]\nfsmonitor = x\n",
    "remote with a dot": "[remote.origin]\nurl = https://example.org/\n",
    "insteadOf": '[url "ext::sh -c x"]\ninsteadOf = https://\n',
    "uploadpack": '[remote "origin"]\nuploadpack = touch x\n',
    "receivepack": '[remote "origin"]\nreceivepack = touch x\n',
    "proxy": '[remote "origin"]\nproxy = http://example.org\n',
    "vcs": '[remote "origin"]\nvcs = ext\n',
    "pushurl": '[remote "origin"]\npushurl = /home/me/playground/evil.git\n',
    "mirror": '[remote "origin"]\nfetch = +refs/*:refs/*\n',
    "ext": '[remote "x"]\nurl = ext::sh -c touch% x\n',
    "quoted ext": '[remote "x"]\nurl = "ext::sh -c x"\n',
    "helper": '[remote "x"]\nurl = foo::https://example.org/\n',
    "helper of a scheme": '[remote "x"]\nurl = foo://example.org/\n',
    "scheme in upper case": '[remote "x"]\nurl = EXT::sh\n',
    "option": '[remote "x"]\nurl = --upload-pack=touch x\n',
    "option as a host": '[remote "x"]\nurl = ssh://-oProxyCommand=x/\n',
    "option as a host after a user": '[remote "x"]\nurl = ssh://me@-oProxyCommand=x/\n',
    "option as an address": '[remote "x"]\nurl = me@-oProxyCommand=x:y\n',
    "option as a path": '[remote "x"]\nurl = me@example.org:"-x"\n',
    "line feed in an address": '[remote "x"]\nurl = "https://example.org/\\nhost=evil"\n',
    "encoded line feed": '[remote "x"]\nurl = https://example.org/%0ahost=evil\n',
    "relative path": '[remote "x"]\nurl = ../evil.git\n',
    "path in the project": '[remote "x"]\nurl = /home/me/project/link/evil.git\n',
    "file in the project": '[remote "x"]\nurl = file:///home/me/x/%2e%2e/project/link\n',
    "file on a host": '[remote "x"]\nurl = file://host/x\n',
    "branch leads to a path": '[branch "x"]\nremote = evil\n',
    "branch leads to an address": '[branch "x"]\nremote = ext::sh\n',
    "branch description": '[branch "x"]\npushRemote = origin\n',
    "module command": '[submodule "x"]\nupdate = !touch x\n',
    "continued comment": "# \\\n[core]\nfsmonitor = x\n",
    "continued value": "[user]\nname = x\\\n[core]\nfsmonitor = x\n",
    "continuation": "[core]\nfsmon\\\nitor = x\n",
    "unknown escape": '[user]\nname = "a\\bc"\n',
    "open quote": '[user]\nname = "x\n[core]\nfsmonitor = y"\n',
    "half quoted": '[user]\nname = a"b"c\n',
    "tab in a value": "[user]\nname = a\tb\n",
    "escape in a subsection": '[remote "a\\"b"]\nurl = https://example.org/\n',
    "carriage returns": "[user]\r\nname = x\r\n",
    "lone carriage return": "[user]\nname = x\r[core]\rfsmonitor = y\n",
    "NUL": "[user]\nname = x\0y\n",
    "form feed": "[user]\f\nname = x\n",
    "other line ends": "[user]\nname = x\x0b[core]\n",
    "no section": "fsmonitor = x\n",
    "format": "[core]\nrepositoryformatversion = 1\n[extensions]\nworktreeConfig = true\n",
    "partial clone": '[remote "origin"]\npromisor = true\n',
    "too long": "#" * ((1 << 16) + 1),
    "not a boolean": "[core]\nbare = maybe\n",
    "name with a slash in front": '[remote "/evil"]\nurl = https://example.org/\n',
}  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
def test_everything_else_is_held(name: str) -> None:
    text = HOSTILE[name].encode()
    assert not is_exempt(text)
    assert name in ("no section", "continued comment") or not is_exempt(CLONE + text)
    assert not is_exempt(CLONE + text, CLONE)
    assert not is_exempt(OWN + text, OWN)


@pytest.mark.parametrize("text", [b"\xef\xbb\xbf[core]\n", b"[user]\nname = \xff\n"])
def test_text_that_is_not_utf_8(text: bytes) -> None:
    assert not is_exempt(text)


def test_settings_that_were_there_before() -> None:
    for gone in (b'\ty = "!f() { git log; }; f" ; mine\n', b"\teditor = vim\n"):
        assert gone in OWN
        assert not is_exempt(OWN.replace(gone, b""), OWN)
    assert not is_exempt(OWN.replace(b"vim", b"vi"), OWN)
    assert not is_exempt(OWN, CLONE)
    editor, included = b"[core]\neditor = vi\n", b"[include]\npath = x\n"
    # What is included may override what comes before it.
    assert not is_exempt(editor + included, included + editor)
    # A comment is no setting.
    assert is_exempt(OWN.replace(b" ; mine", b""), OWN)
    assert not is_exempt(b"", CLONE)
    assert not is_exempt(CLONE.replace(b"example.org", b"example.com"), CLONE)


def test_the_worktree_of_a_module() -> None:
    config = b"[core]\n\tworktree = ../../../lib\n"
    path = ".git/modules/lib/config"
    back = b"gitdir: ../.git/modules/lib\n"
    assert is_exempt(config, None, path, **{"lib__.git": back})
    assert not is_exempt(config, None, path)
    other = b"gitdir: ../.git/modules/other\n"
    assert not is_exempt(config, None, path, **{"lib__.git": other})
    assert not is_exempt(config, None, ".git/config", **{"lib__.git": back})
    for place in (b"../../hooks", b"/home/me", b"../../../..", b"../../..", b"../../../.GIT/x"):
        config = b"[core]\n\tworktree = %s\n" % place
        assert not is_exempt(config, None, path, **{"lib__.git": back}), place


FILES = {
    ".git/modules/lib/config": b"[core]\n\tworktree = ../../../lib\n",
    ".git/worktrees/wt/gitdir": b"/home/me/project/wt/.git\n",
}


@pytest.mark.parametrize(
    ("path", "target", "is_harmless"),
    [
        ("lib", "../.git/modules/lib", True),
        ("other", "../.git/modules/lib", False),
        ("wt", "/home/me/project/.git/worktrees/wt", True),
        ("wt", "/home/me/project/.git/worktrees/wt/x", False),
        ("wt", "/home/me/other/.git/worktrees/wt", False),
        ("wt", "../.git/modules/../evil", False),
        ("wt", "../.git/objects/../worktrees/wt", False),
        ("wt", "../.GIT/worktrees/wt", False),
        ("wt", "../evil", False),
        ("wt", "../.git", False),
        ("gitdir", "/home/me/project/wt/.git", True),
        ("gitdir", "../../../wt/.git", True),
        ("gitdir", "/home/me/other/.git", False),
        ("gitdir", "/home/me/project/.git/hooks/.git", False),
        ("gitdir", "/home/me/project/wt", False),
        ("gitdir", "/home/me/project/x/../wt/.git", False),
    ],
)
def test_files_that_lead_to_a_folder(path: str, target: str, is_harmless: bool) -> None:
    view = FakeView(FILES)
    if path == "gitdir":
        folder = f"{PROJECT}/.git/worktrees/wt"
        assert leads_to_worktree(target, folder, view) is is_harmless
    else:
        assert leads_to_module(target, f"{PROJECT}/{path}", view) is is_harmless


PIECES = st.sampled_from(
    [
        "[core]", "[CORE]", '[remote "a"]', '[remote\t"a b"]', '[remote "a\\"b"]', '[a "]"]',
        "[a.b]", "[core", "]", "[", "\n", "\n", "\n", "\n\t", " ", "\t", "=", " = ", "key", "Bare",
        "u-1", "-", "true", "x y", '"', '"', '"a b"', '"a;b"', "\\", '\\"', "\\\\", "\\n", "\\t",
        "\\b", "\\x", "\\\n", "#", ";", "; c", "# c\n", "ä", "\xa0", "\u2028", "\x85", "\r\n",
        "\r", "\f", "\v", "\0", "\ufeff", "_", ".", "1",
    ]
)  # fmt: skip
LINES = st.sampled_from(
    ["[core]\n", '[remote "a"]\n', "bare = true\n", "\tkey=\n", 'k = "v" ; c\n', "k = v w # c\n"]
)
VALUES = st.tuples(st.just("\nkey = "), st.lists(PIECES, max_size=6).map("".join)).map("".join)


@settings(max_examples=400, deadline=None, suppress_health_check=list(HealthCheck))
@given(text=st.lists(st.one_of(PIECES, LINES, LINES, VALUES), max_size=14).map("".join))
@example(text='[a "b"]\nk = "" x\n')
@example(text="[a]\nk = x  \t# y\n")
@example(text="[a]\nk = a  b \nk=\n")
def test_it_is_read_as_git_does(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    data = f"[core]\n{text}".encode()
    found = read_config(data)
    if found is None:
        return
    file = tmp_path_factory.getbasetemp() / "config"
    file.write_bytes(data)
    assert [_as_git(setting) for setting in found] == git_reads(file)


def _as_git(setting: GitSetting) -> bytes:
    names = (setting.section, setting.subsection, setting.key)
    name = ".".join(name for name in names if name is not None)
    return f"{name}\n{setting.value}".encode()


def git_reads(file: Path) -> list[bytes]:
    done = subprocess.run(
        ["git", "config", "--list", "-z", "-f", file], capture_output=True, check=True
    )
    return done.stdout.split(b"\0")[:-1]


@pytest.mark.parametrize("rest", ['"', "\x7f", "\t" * 9 + "\\"])
def test_blanks_do_not_take_long(rest: str) -> None:
    # A search that tries every way to divide them would not end.
    assert read_config(f"[user]\n\tname ={' ' * 60_000}{rest}".encode()) is None
