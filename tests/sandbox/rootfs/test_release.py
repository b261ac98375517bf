# SPDX-License-Identifier: GPL-3.0-or-later
"""Finding the newest Alpine on a mirror that may be wrong, down or unreachable."""

from __future__ import annotations

import hashlib
import io
import platform
import re
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
import requests
from support.rootfs import ARCH, Mirror, mirror

from ollmsandbox.errors import RootfsError
from ollmsandbox.net.http import Request
from ollmsandbox.sandbox.rootfs import mirror as mirror_client
from ollmsandbox.sandbox.rootfs.mirror import FLAVOR, UnreachableError
from ollmsandbox.sandbox.rootfs.release import detect_arch, find_release
from ollmsandbox.sandbox.rootfs.settings import (
    RootfsSettings,
    load_rootfs_settings,
    save_rootfs_settings,
)

pytestmark = pytest.mark.ordinary
LIST = f"/latest-stable/releases/{ARCH}/latest-releases.yaml"


@pytest.fixture
def served() -> Iterator[Mirror]:
    with mirror() as running:
        yield running


def test_the_kind_of_machine_is_named_as_alpine_names_it() -> None:
    expected = {
        **{name: name for name in ("x86_64", "aarch64", "riscv64", "ppc64le")},
        "arm64": "aarch64",
        "armv7l": "armv7",
        "armv8l": "armv7",
        "armv6l": "armhf",
        "i686": "x86",
        "i386": "x86",
    }
    assert {machine: detect_arch(machine) for machine in expected} == expected
    for machine in ("riscv128", "", "../x86_64"):
        with pytest.raises(RootfsError, match=re.escape(machine) or "unknown"):
            detect_arch(machine)


@pytest.mark.parametrize(
    ("kernel", "arch"), [("x86_64", "x86"), ("aarch64", "armv7"), ("armv7l", "armv7")]
)
def test_a_32_bit_system_on_a_64_bit_kernel_gets_32_bit_programs(
    monkeypatch: pytest.MonkeyPatch, kernel: str, arch: str
) -> None:
    monkeypatch.setattr(platform, "machine", lambda: kernel)
    monkeypatch.setattr(sys, "maxsize", (1 << 31) - 1)
    assert detect_arch() == arch


def test_the_newest_version_is_found_in_the_list(served: Mirror) -> None:
    path = served.has("3.99.7", b"tarball")
    found = find_release(served.settings, ARCH)
    assert (found.version, found.sha256) == ("3.99.7", hashlib.sha256(b"tarball").hexdigest())
    assert found.url == served.address + path
    assert found.size == 7


def test_a_list_without_the_small_system_is_an_error_that_says_so(served: Mirror) -> None:
    served.files[LIST] = b"- flavor: alpine-virt\n  version: 3.99.1\n"
    with pytest.raises(RootfsError, match="does not list alpine-minirootfs"):
        find_release(served.settings, ARCH)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("file", "../../../etc/passwd"),
        ("file", "alpine-minirootfs-3.99.1-x/../y.tar.gz"),
        ("file", "/etc/passwd"),
        ("file", "http://elsewhere/alpine-minirootfs.tar.gz"),
        ("version", "../3.99.1"),
        ("version", "''"),
        ("sha256", "none"),
        ("sha256", "'" + "0" * 63 + "'"),
    ],
)
def test_a_list_that_names_what_it_should_not_is_refused(
    served: Mirror, key: str, value: str
) -> None:
    served.has("3.99.1", b"tarball")
    head, _, entry = served.files[LIST].decode().partition("- flavor: alpine-minirootfs")
    lines = [f"  {key}: {value}" if f" {key}:" in line else line for line in entry.splitlines()]
    served.files[LIST] = (head + "- flavor: alpine-minirootfs" + "\n".join(lines)).encode()
    with pytest.raises(RootfsError, match="is not valid"):
        find_release(served.settings, ARCH)


def _nested(first: str, then: str) -> str:
    """Each of eleven names repeats the one before it nine times: billions, if expanded."""
    rows = [f"- &a0 {first}"]
    rows += [f"- &a{n} {then.format(', '.join([f'*a{n - 1}'] * 9))}" for n in range(1, 12)]
    return "\n".join(rows)


@pytest.mark.parametrize(
    "content",
    [
        *(b"", b"{", b"<html>404</html>", b"- [1, 2]\n", b"\xff\xfe\0", b"[" * 600, b"a: &a [*a]"),
        # These would swell, or are of itself or of other kinds.
        _nested("[x, x]", "[{}]") + f"\n- flavor: {FLAVOR}\n  version: *a11\n  file: *a11\n",
        _nested("{k: v}", "{{<<: [{}]}}"),
        f"- flavor: {FLAVOR}\n  version: 3.99\n  file: [x]\n  sha256: {{a: b}}\n",
        f"- &a\n  flavor: {FLAVOR}\n  version: *a\n",
        "- !!python/object/apply:os.system [exit]\n",
    ],
)
def test_an_invalid_release_list_is_refused_at_once(served: Mirror, content: str | bytes) -> None:
    served.files[LIST] = content if isinstance(content, bytes) else content.encode()
    with pytest.raises(RootfsError):
        find_release(served.settings, ARCH)


# --- where an answer may come from -------------------------------------------------------------


def test_a_mirror_may_lead_to_another(served: Mirror) -> None:
    served.has("3.99.1", b"tarball")
    served.files["/moved"] = served.files[LIST]
    with mirror() as other:
        other.redirects[LIST] = f"{served.address}/moved"
        assert find_release(other.settings, ARCH).version == "3.99.1"


@pytest.mark.parametrize(
    "leads",
    ["file:///etc/passwd", "ftp://127.0.0.1/x", "data:,x", LIST, "http://[broken", "//"],
)
def test_a_redirect_to_another_scheme_or_in_circles_is_refused(served: Mirror, leads: str) -> None:
    served.redirects[LIST] = leads
    with pytest.raises(RootfsError):
        find_release(served.settings, ARCH)
    assert len(served.asked) < 10


def test_https_is_not_redirected_to_http(monkeypatch: pytest.MonkeyPatch) -> None:
    """One step over http is too many, even if it leads back to https."""

    @contextmanager
    def redirect(request: Request, _sockets: object) -> Iterator[requests.Response]:
        made = requests.Response()
        made.status_code, made.url, made.raw = 302, request.url, io.BytesIO()
        made.headers["Location"] = "http://between.example/list"
        yield made

    monkeypatch.setattr(mirror_client, "open_response", redirect)
    with pytest.raises(RootfsError, match="not secure"):
        find_release(RootfsSettings(), ARCH)


def test_passwords_are_sent_to_whom_they_are_for(
    served: Mirror, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / ".netrc").write_text("machine 127.0.0.1 login me password secret\n")
    (tmp_path / ".netrc").chmod(0o600)
    monkeypatch.setenv("NETRC", str(tmp_path / ".netrc"))
    served.has("3.99.1", b"tarball")
    find_release(served.settings, ARCH)
    assert served.credentials == []
    with_name = served.address.replace("//", "//me:secret@")
    find_release(replace(served.settings, mirror=with_name), ARCH)
    assert served.credentials == ["Basic bWU6c2VjcmV0"]
    served.files["/moved"] = served.files[LIST]
    served.redirects[LIST] = "/moved"
    with mirror() as other:
        other.redirects[LIST] = f"{served.address}/moved"
        find_release(replace(served.settings, mirror=with_name), ARCH)
        assert served.credentials == ["Basic bWU6c2VjcmV0"] * 3
        there = other.address.replace("//", "//me:secret@")
        find_release(replace(other.settings, mirror=there), ARCH)
    assert served.credentials == ["Basic bWU6c2VjcmV0"] * 3
    del served.redirects[LIST]
    served.status[LIST] = 500
    with pytest.raises(RootfsError) as caught:
        find_release(replace(served.settings, mirror=with_name), ARCH)
    assert "secret" not in str(caught.value)


def test_a_list_without_end_is_not_read_to_the_end(served: Mirror) -> None:
    served.files[LIST] = b"# \n" * (1 << 20)
    with pytest.raises(RootfsError, match="too large"):
        find_release(served.settings, ARCH)


def test_a_server_error_is_reported_with_its_number(served: Mirror) -> None:
    served.status[LIST] = 503
    with pytest.raises(RootfsError, match="503") as caught:
        find_release(served.settings, ARCH)
    assert "rootfs-mirror" in caught.value.remedy


def test_a_version_that_is_set_is_found_although_the_list_has_a_newer_one(served: Mirror) -> None:
    served.has("3.98.9", b"newer", branch="v3.98")
    where = f"/v3.98/releases/{ARCH}/alpine-minirootfs-3.98.2-{ARCH}.tar.gz"
    served.files[f"{where}.sha256"] = f"{'a' * 64}  file.tar.gz\n".encode()
    found = find_release(replace(served.settings, version="3.98.2"), ARCH)
    assert (found.version, found.sha256) == ("3.98.2", "a" * 64)
    assert found.url == served.address + where


@pytest.mark.parametrize("version", ["3.98.2", "9.9.9"])
def test_a_version_that_the_mirror_has_not_is_named(served: Mirror, version: str) -> None:
    served.has("3.98.9", b"newer", branch="v3.98")
    with pytest.raises(RootfsError, match=f"no Alpine {version}") as caught:
        find_release(replace(served.settings, version=version), ARCH)
    assert "rootfs-version" in caught.value.remedy


def test_without_a_network_the_remedy_is_named() -> None:
    with socket.socket() as taken:
        # The port is bound, so nothing listens there.
        taken.bind(("127.0.0.1", 0))
        settings = RootfsSettings(mirror=f"http://127.0.0.1:{taken.getsockname()[1]}")
        with pytest.raises(UnreachableError, match=r"127\.0\.0\.1") as caught:
            find_release(settings, ARCH)
    assert "rootfs install --from FILE" in caught.value.remedy


def test_settings_are_kept_and_read_again(tmp_path: Path) -> None:
    assert load_rootfs_settings(tmp_path) == RootfsSettings()
    chosen = RootfsSettings().with_value("mirror", "https://example.org/alpine/")
    chosen = chosen.with_value("version", "3.22.1").with_value("tier", "1")
    save_rootfs_settings(tmp_path, chosen)
    assert load_rootfs_settings(tmp_path) == chosen
    assert chosen.mirror == "https://example.org/alpine"


@pytest.mark.parametrize(
    "text",
    ["mirror: file:///etc\n", "tier: 9\n", "version: ../x\n", "branch: x y\n", "a: b\n", "[]", "{"],
)
def test_a_mistake_in_the_settings_is_reported_with_the_file(tmp_path: Path, text: str) -> None:
    (tmp_path / "rootfs.yaml").write_text(text)
    with pytest.raises(RootfsError, match=r"rootfs\.yaml"):
        load_rootfs_settings(tmp_path)


def test_unreadable_settings_are_reported(tmp_path: Path) -> None:
    (tmp_path / "rootfs.yaml").mkdir()
    with pytest.raises(RootfsError) as caught:
        load_rootfs_settings(tmp_path)
    assert f"{tmp_path}/rootfs.yaml" in caught.value.message
