# SPDX-License-Identifier: GPL-3.0-or-later
"""The user's lists of hosts."""

from __future__ import annotations

from pathlib import Path

import pytest

from ollmsandbox.errors import SandboxError
from ollmsandbox.sandbox.network.hosts import HostRule, HostUse, Trouble, hosts_text
from ollmsandbox.sandbox.network.lists import (
    FILE,
    HostListError,
    NamedHosts,
    hosts_for_list,
    load_host_lists,
    remove_host_list,
    save_host_list,
)

pytestmark = pytest.mark.ordinary


def test_a_list_is_saved_replaced_and_removed(tmp_path: Path) -> None:
    assert load_host_lists(tmp_path) == {}
    save_host_list(tmp_path, "python", [HostRule("pypi.example"), HostRule("files.example", 8443)])
    save_host_list(tmp_path, "db", [HostRule("localhost", 5432)])
    save_host_list(tmp_path, "python", [HostRule("other.example", None, has_star=True)])
    assert load_host_lists(tmp_path) == {
        "python": (HostRule("other.example", None, has_star=True),),
        "db": (HostRule("localhost", 5432),),
    }
    remove_host_list(tmp_path, "python")
    assert list(load_host_lists(tmp_path)) == ["db"]
    remove_host_list(tmp_path, "db")
    assert load_host_lists(tmp_path) == {}


def test_hosts_are_named_singly_and_by_lists(tmp_path: Path) -> None:
    (tmp_path / FILE).write_text("python: [pypi.example, www.example]\nempty-comment: [a.example]")
    named = NamedHosts(["www.example", "@python", "www.example"], tmp_path)
    assert named.texts == ("www.example", "pypi.example")
    assert str(named) == "www.example, @python (pypi.example, www.example)"


@pytest.mark.parametrize("lists", ["", "python: [pypi.example]"])
def test_an_unknown_list_is_an_error_that_names_the_others(tmp_path: Path, lists: str) -> None:
    (tmp_path / FILE).write_text(lists)
    with pytest.raises(HostListError, match="no list of hosts named 'node'") as caught:
        NamedHosts(["@node"], tmp_path)
    assert ("python" if lists else "hosts save") in caught.value.remedy
    with pytest.raises(HostListError, match="no list of hosts"):
        remove_host_list(tmp_path, "node")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("python: [https://pypi.example/]", "line 1, key python: .*is not a host"),
        ("python: ['@other']", "is not a host"),
        ("python: []", "needs a host"),
        ("python: pypi.example", "expected a list"),
        ("a b: [pypi.example]", "is not a name"),
        ("python: [localhost]", "is this computer"),
        ("python: ['*.org']", "too many"),
        ("- pypi.example", "expected keys"),
    ],
)
def test_a_mistake_in_the_file_is_explained(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / FILE).write_text(text)
    with pytest.raises(HostListError, match=said) as caught:
        load_host_lists(tmp_path)
    assert FILE in str(caught.value)


@pytest.mark.parametrize("name", ["", "Python", "a b", "@x", "../x", "a" * 41, "x\n"])
def test_a_name_is_short_and_plain(tmp_path: Path, name: str) -> None:
    with pytest.raises(SandboxError, match="is not a name"):
        save_host_list(tmp_path, name, [HostRule("pypi.example")])
    assert not (tmp_path / FILE).exists()


def test_only_allowed_hosts_become_a_list() -> None:
    uses = [
        HostUse("evil.example", 443, allowed=False),
        HostUse("late.example", 443),
        HostUse("www.example", 80, allowed=True),
        HostUse("www.example", 443, allowed=True),
        HostUse("git.example", 22, allowed=True),
        HostUse("localhost", 80, allowed=True),
    ]
    found = [str(rule) for rule in hosts_for_list(uses)]
    assert found == ["www.example", "git.example:22", "localhost:80"]
    assert [str(HostRule.parse(text)) for text in found] == found


def test_what_became_of_a_host_is_recorded_and_read_again() -> None:
    use = HostUse("www.example", 8443, True, Trouble.UNREACHABLE, "", 12, 3456)
    assert HostUse.from_document(use.document()) == use
    refused = HostUse("evil.example", 443)
    line = "Hosts: www.example:8443 (12 bytes sent, 3,456 received), evil.example (refused)"
    assert hosts_text([use, refused]) == line
    assert hosts_text([refused] * 500).endswith(", and 470 more")
