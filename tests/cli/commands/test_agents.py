# SPDX-License-Identifier: GPL-3.0-or-later
"""Whole agents in the sandbox: `ollmsandbox claude` and others. A small script plays the agent."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest
from support.person import Person
from support.servers.world import in_world

from ollmsandbox.cli.arguments import AGENTS
from ollmsandbox.paths import Paths
from ollmsandbox.sandbox.profile.agent import AgentSetup
from ollmsandbox.sandbox.profile.file import read_profile

# In the world, www.example.org is the host of the agent's model.
PRELUDE = """
import json, os, stat
top = Path.cwd()
home, project = top / "home", top / "project"
settings = home / ".claude"
programs = home / ".local/bin"
for made in (settings, programs, home / ".config/ollmchat/profiles"):
    made.mkdir(parents=True, exist_ok=True)
os.environ["PATH"] = f"{programs}:{os.environ['PATH']}"
(home / ".config/ollmchat/profiles/claude.yaml").write_text("agent: { hosts: [www.example.org] }")
(home / ".claude.json").write_text('{"userID": "me", "mcpServers": {}}')
(settings / ".credentials.json").write_text('{"claudeAiOauth": {"accessToken": "old"}, "other": 1}')

def plays(text, name="claude"):
    (programs / name).write_text("#!/bin/bash\\n" + text)
    (programs / name).chmod(0o755)

def plays_client(capabilities, arguments, then=""):
    '''An agent that calls our tool, prints what it hears, and goes on.'''
    about = {"capabilities": capabilities, "clientInfo": {"name": "fake", "version": "1"}}
    calls = [
        {"method": "initialize", "id": 1, "params": {"protocolVersion": "2025-11-25", **about}},
        {"method": "notifications/initialized"},
        {"method": "tools/call", "id": 2,
         "params": {"name": "run_command", "arguments": arguments}},
    ]
    (project / "calls").write_text(
        "".join(json.dumps({"jsonrpc": "2.0", **call}) + "\\n" for call in calls)
    )
    plays('''
    coproc bash -c "exec 3<>/dev/tcp/tools.ollmsandbox.internal/80; cat <&3 & cat >&3; kill \\$!"
    cat calls >&${COPROC[1]}
    while read -r line <&${COPROC[0]}; do
        echo "$line"; [[ $line =~ '"id": '?2 ]] && break
    done
    ''' + then)

def start(*arguments, name="claude", hosts=("www.example.org",)):
    return cli(name, *(word for host in hosts for word in ("--host", host)), *arguments)

def found(path):
    return json.loads(path.read_text())

def start_and_kill():
    '''Start an agent, wait until it asks its model's host, and kill our program.'''
    import subprocess, sys, time
    from support.servers import world
    asked, answer = [], world._Handler.do_GET
    world._Handler.do_GET = lambda self: (asked.append(self.path), answer(self))
    program = [sys.executable, "-I", str(world.ROOT / "build/ollmsandbox")]
    process = subprocess.Popen([*program, "claude", "--host", "www.example.org"], cwd=project)
    while not asked:
        assert process.poll() is None
        time.sleep(0.05)
    process.kill()
    process.wait()
    world._Handler.do_GET = answer
"""


World = Callable[[str], str]


@pytest.fixture
def world(tmp_path: Path) -> World:
    """Run code in a world with an agent."""
    return lambda code: in_world(tmp_path, PRELUDE + textwrap.dedent(code))


def test_a_refreshed_login_is_kept_and_planted_settings_are_not(world: World) -> None:
    world("""
        before = sorted(os.listdir(settings)), (home / ".claude.json").read_text()
        plays('''
        cd ~/.claude && set -e
        echo '{"claudeAiOauth": {"accessToken": "new"}, "other": 2, "evil": 3}' > new
        mv new .credentials.json
        echo '{"hooks": {"SessionStart": [{"command": "touch /tmp/evil"}]}}' > settings.json
        echo '{"userID": "me", "mcpServers": {"evil": {"command": "evil"}}}' > .claude.json
        mkdir -p commands plugins skills hooks
        echo evil | tee CLAUDE.md commands/evil.md plugins/evil.js hooks/evil.sh > skills/evil.md
        ''')
        done = start()
        assert done.returncode == 0, done
        login = {"claudeAiOauth": {"accessToken": "new"}, "other": 1}
        assert found(settings / ".credentials.json") == login
        assert stat.S_IMODE((settings / ".credentials.json").stat().st_mode) == 0o600
        assert (sorted(os.listdir(settings)), (home / ".claude.json").read_text()) == before
        # Nor does the next session in the sandbox see it.
        plays("ls -A ~/.claude; cat ~/.claude/.claude.json")
        shown = start().stdout
        assert "settings.json" not in shown and "evil" not in shown, shown
        assert '"userID": "me"' in shown
    """)


def test_a_first_login_in_the_sandbox_is_kept(world: World) -> None:
    world("""
        for file in (home / ".claude.json", settings / ".credentials.json"):
            file.unlink()
        settings.rmdir()
        plays('''
        echo '{"claudeAiOauth": {"accessToken": "first"}}' > ~/.claude/.credentials.json
        cd ~/.claude
        echo '{"oauthAccount": {"displayName": "me"}, "mcpServers": {"evil": {}}}' > .claude.json
        ''')
        assert start().returncode == 0
        assert found(settings / ".credentials.json") == {"claudeAiOauth": {"accessToken": "first"}}
        assert os.listdir(settings) == [".credentials.json"]
        assert found(home / ".claude.json") == {"oauthAccount": {"displayName": "me"}}
    """)


# Files in which an agent could leave a program for its next start.
PLANTED = {
    "codex": [".codex", "config.toml hooks.json AGENTS.md rules/evil.rules skills/evil/SKILL.md"],
    "gemini": [
        ".gemini",
        "settings.json .env GEMINI.md extensions/evil/gemini-extension.json policies/a.toml",
    ],
    "opencode": [
        ".",
        ".config/opencode/opencode.json .config/opencode/opencode.jsonc .config/opencode/AGENTS.md "
        ".config/opencode/plugin/evil.js .config/opencode/plugins/evil.js "
        ".config/opencode/tool/evil.ts .local/share/opencode/bin/rg "
        ".local/share/opencode/mcp-auth.json .local/share/opencode/plugin/evil.js",
    ],
    "qwen": [".qwen", "settings.json .env QWEN.md extensions/evil/qwen-extension.json"],
    "kimi": [
        ".kimi-code",
        "mcp.json config.toml AGENTS.md skills/evil/SKILL.md plugins/evil/plugin.json",
    ],
}


@pytest.mark.ordinary
@pytest.mark.parametrize("name", PLANTED)
def test_no_agent_can_plant_a_program(world: World, name: str) -> None:
    """Neither where the user has no such file, nor instead of the user's."""
    folder, words = PLANTED[name]
    world(f"""
        name, folder, words = {name!r}, {folder!r}, {words!r}
        files = [home / folder / word for word in words.split()]
        for content in ("", "mine"):
            for file in files if content else ():
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text(content)
            plays(f"cd ~/{{folder}}; set -e; for file in {{words}}; do"
                  " mkdir -p $(dirname $file); echo EVIL > $file.new; mv $file.new $file; done;"
                  f"cat {{words}}", name)
            assert start(name=name).stdout.count("EVIL") == len(files)
            left = [file.read_text() for file in files if file.exists()]
            assert left == ["mine"] * (len(files) if content else 0), left
            # Nor does the next session in the sandbox see it.
            plays(f"cd ~/{{folder}}; cat {{words}}", name)
            shown = start(name=name).stdout
            assert "EVIL" not in shown and shown.count("mine") == len(left), shown
    """)


def test_what_was_planted_is_gone_even_if_our_program_is_killed(world: World) -> None:
    world("""
        plays("echo EVIL > ~/.claude/settings.json; echo EVIL > ~/.claude/CLAUDE.md;"
              "curl -sS http://www.example.org/planted; sleep 1000")
        start_and_kill()
        assert os.listdir(settings) == [".credentials.json"]
        plays("ls -A ~/.claude; cat ~/.claude/settings.json ~/.claude/CLAUDE.md")
        done = start()
        assert ".credentials.json" in done.stdout, done
        assert "EVIL" not in done.stdout, done
    """)


@pytest.mark.ordinary
@pytest.mark.parametrize("ways", [("the agent", "a command"), ("caches clear", "logged out")])
def test_a_refreshed_login_is_kept_even_if_our_program_is_killed(
    world: World, ways: tuple[str, str]
) -> None:
    world(
        """
        (top / "other").mkdir()
        credentials = settings / ".credentials.json"
        for then in WAYS:
            credentials.write_text('{"claudeAiOauth": {"accessToken": "old"}, "other": 1}')
            plays('''
            cd ~/.claude
            echo '{"claudeAiOauth": {"accessToken": "new", "evil": 1}, "other": 2}' > new
            mv new .credentials.json
            echo EVIL > settings.json
            curl -sS http://www.example.org/changed; sleep 1000
            ''')
            start_and_kill()
            [note] = (home / ".cache").glob("**/*.login")
            assert stat.S_IMODE(note.stat().st_mode) == 0o600
            assert found(credentials)["claudeAiOauth"] == {"accessToken": "old"}, then
            if then == "the agent":
                # In another project, and before the agent reads it.
                plays("cat ~/.claude/.credentials.json; find / -name '*.login' 2> /dev/null")
                shown = start("--project", str(top / "other")).stdout
                assert '"new"' in shown and ".login" not in shown, shown
            elif then == "logged out":
                credentials.unlink()
                assert cli("run", "-c", "true").returncode == 0
                assert not credentials.exists()
            else:
                done = cli("caches", "clear") if "caches" in then else cli("run", "-c", "true")
                assert done.returncode == 0, done
            if then != "logged out":
                renewed = {"claudeAiOauth": {"accessToken": "new"}, "other": 1}
                assert found(credentials) == renewed, then
                assert os.listdir(settings) == [".credentials.json"]
            assert not list((home / ".cache").glob("**/*.login")), then
        """.replace("WAYS", repr(ways))
    )


def test_a_command_cannot_make_a_note_about_a_login(world: World) -> None:
    """Neither in a folder of caches, nor in one that was about to be removed."""
    world("""
        plays("true")
        assert start().returncode == 0
        [plain] = (home / ".cache").glob("ollmchat/caches/*/plain")
        note = [str(home), str(home), ["", [[".bashrc", ["a"]]], [], []], [[".bashrc", []]]]
        # Where no overlay can be mounted, commands write to this folder itself. A kill while it is
        # being removed leaves it with another name.
        for made in (plain, plain / "live-1", plain.parent / "gone-0123456789abcdef"):
            (made / "upper/x").mkdir(parents=True)
            (made / "upper/x/.bashrc").write_text('{"a": "evil"}')
            (made / "x.login").write_text(json.dumps(note))
        assert start().returncode == 0 and cli("caches", "clear").returncode == 0
        assert not (home / ".bashrc").exists()
        # Only where no command writes is it one.
        made = plain.parent / "live-1"
        (made / "upper/x").mkdir(parents=True)
        (made / "upper/x/.bashrc").write_text('{"a": "evil"}')
        (made / "x.login").write_text(json.dumps(note))
        assert start().returncode == 0 and found(home / ".bashrc") == {"a": "evil"}
    """)


@pytest.mark.ordinary
def test_settings_of_agents_in_the_project_are_pointed_out(world: World) -> None:
    """The agent would start what they name the next time, outside the sandbox."""
    world("""
        files = [".mcp.json", ".claude/settings.json", ".CLAUDE/settings.local.json",
                 "sub/.mcp.json", ".codex/config.toml", ".gemini/settings.json",
                 ".qwen/settings.json", "opencode.json", ".opencode/plugin/evil.js",
                 ".kimi-code/mcp.json"]
        plays(f"for file in {' '.join(files)}; do"
              " mkdir -p $(dirname $file); echo evil > x; mv x $file; done; echo fine > fine")
        done = start()
        fine, _, doubtful = done.stderr.partition("Worth a second look:")
        assert "fine" in fine and "fine" not in doubtful, done
        for file in files:
            assert f"{file} [can run code when you enter or open its folder]" in doubtful, done
        assert cli("undo").returncode == 0 and os.listdir(project) == []
    """)


# In the place of a login.
NO_LOGINS = {
    "no file": [
        "ln -s ~/.gitconfig .credentials.json",
        "ln -s /proc/self/environ .credentials.json",
        "mkfifo .credentials.json",
        "mkdir .credentials.json",
        ":",
    ],
    "other content": [
        "head -c 2000000 /dev/zero > .credentials.json",
        "printf '[%.0s' {1..100000} > .credentials.json",
        "echo '[\"claudeAiOauth\"]' > .credentials.json",
        'echo \'{"claudeAiOauth": {"expiresAt": NaN}}\' > .credentials.json',
        'echo \'{"claudeAiOauth": {"expiresAt": 1e999}}\' > .credentials.json',
    ],
}


@pytest.mark.ordinary
@pytest.mark.parametrize("kind", NO_LOGINS)
def test_what_is_no_login_leaves_the_user_s_as_it_was(world: World, kind: str) -> None:
    world(f"""
        (home / ".gitconfig").write_text('{{"claudeAiOauth": "not a login"}}')
        before = (settings / ".credentials.json").read_text()
        for planted in {NO_LOGINS[kind]!r}:
            plays(f"cd ~/.claude; rm .credentials.json; {{planted}}")
            done = start()
            assert done.returncode == 0, (planted, done)
            assert (settings / ".credentials.json").read_text() == before, planted
            assert os.listdir(settings) == [".credentials.json"], planted
    """)


OPENCODE = ".local/share/opencode/auth.json"
PLANTED_IN_LOGINS = [
    ("claude", ".claude/.credentials.json", {"claudeAiOauth": {"baseUrl": "http://evil"}}),
    ("claude", ".claude/.credentials.json", {"claudeAiOauth": {"accessToken": {"a": "b"}}}),
    ("claude", ".claude.json", {"oauthAccount": {"apiKeyHelper": "evil"}}),
    ("codex", ".codex/auth.json", {"tokens": {"issuer": "http://evil"}}),
    ("qwen", ".qwen/oauth_creds.json", {"resource_url": "evil"}),
    (
        *("opencode", OPENCODE),
        {"openai": {"type": "wellknown", "key": "NODE_OPTIONS", "token": "--require=evil"}},
    ),
    ("opencode", OPENCODE, {"openai": {"key": "NODE_OPTIONS"}}),
    (
        *("opencode", OPENCODE),
        {"github-copilot": {"enterpriseUrl": "evil"}, "http://evil": {"type": "wellknown"}},
    ),
]


@pytest.mark.ordinary
@pytest.mark.parametrize("before", ["", "{}"])
def test_what_is_planted_in_a_login_does_not_go_back(world: World, before: str) -> None:
    world(f"""
        before = {before!r}
        for name, file, planted in {PLANTED_IN_LOGINS!r}:
            (home / file).parent.mkdir(parents=True, exist_ok=True)
            (home / file).unlink(missing_ok=True)
            if before:
                (home / file).write_text(before)
            inside = file.replace(".claude.json", ".claude/.claude.json")
            plays(f"cat > ~/{{inside}} <<'END'\\n{{json.dumps(planted)}}\\nEND\\n", name)
            done = start(name=name)
            assert done.returncode == 0, done
            left = (home / file).read_text() if (home / file).exists() else ""
            assert left == before, planted
    """)


def test_a_link_on_the_way_to_a_login_is_not_followed(world: World) -> None:
    world("""
        kimi = home / ".kimi-code"
        (kimi / "credentials").mkdir(parents=True)
        (kimi / "credentials/kimi-code.json").write_text('{"access_token": "old"}')
        (home / ".ssh").mkdir()
        (home / ".ssh/kimi-code.json").write_text('{"access_token": "secret"}')
        plays('cd ~/.kimi-code; rm -r credentials; ln -s ~/.ssh credentials', "kimi")
        assert start(name="kimi").returncode == 0
        assert found(kimi / "credentials/kimi-code.json") == {"access_token": "old"}
        login = "~/.kimi-code/credentials/kimi-code.json"
        plays(f'echo \\'{{"access_token": "new"}}\\' > {login}', "kimi")
        assert start(name="kimi").returncode == 0
        assert found(kimi / "credentials/kimi-code.json") == {"access_token": "new"}
    """)


@pytest.mark.ordinary
def test_a_login_that_was_renewed_elsewhere_meanwhile_is_left_alone(world: World) -> None:
    world("""
        plays('''
        curl -sS http://www.example.org/wait > /dev/null
        echo '{"claudeAiOauth": {"accessToken": "inside"}}' > ~/.claude/.credentials.json
        ''')
        credentials = settings / ".credentials.json"
        def renew(self):
            credentials.write_text('{"claudeAiOauth": {"accessToken": "outside"}}')
            return answer(self)
        from support.servers import world
        answer, world._Handler.do_GET = world._Handler.do_GET, renew
        assert start().returncode == 0
        assert found(credentials) == {"claudeAiOauth": {"accessToken": "outside"}}
    """)


@pytest.mark.ordinary
def test_the_history_is_seen_by_later_runs_in_the_project_only(world: World) -> None:
    world("""
        # What was said outside, maybe in other projects, is hidden.
        (settings / "projects/other").mkdir(parents=True)
        for file in ("projects/x", "projects/other/x", "history.jsonl"):
            (settings / file).write_text("said")
        plays("mkdir -p ~/.claude/projects; echo said >> ~/.claude/projects/x;"
              "cat ~/.claude/projects/x ~/.claude/projects/*/x ~/.claude/history.jsonl")
        assert start().stdout.count("said") == 1
        again = start()
        assert again.stdout.count("said") == 2, again
        for number in range(3, 8):
            assert start().stdout.count("said") == number
        (top / "other").mkdir()
        assert start("--project", str(top / "other")).stdout.count("said") == 1
        assert (settings / "projects/x").read_text() == "said"
        assert sorted(os.listdir(settings)) == [".credentials.json", "history.jsonl", "projects"]
    """)


@pytest.mark.ordinary
def test_the_changes_of_a_session_are_one_run_that_can_be_undone(world: World) -> None:
    world("""
        (project / "old").write_text("before")
        plays("echo after > old; echo new > new; echo args: $*")
        done = start("--", "--some-option", "text")
        assert "args: --some-option text" in done.stdout, done
        assert "2 changes" in done.stderr, done
        assert (project / "old").read_text() == "after\\n"
        assert cli("undo").returncode == 0
        assert (project / "old").read_text() == "before" and not (project / "new").exists()
        assert start("--apply", "review").returncode == 0
        assert (project / "old").read_text() == "before"
        assert "old" in cli("changes").stdout
        # The long form does the same.
        done = cli("run", "--profile", "claude", "--host", "www.example.org", "--", "claude")
        assert done.returncode == 0, done
    """)


@pytest.mark.ordinary
def test_the_hosts_are_asked_about_before_the_agent_starts(world: World) -> None:
    world("""
        plays("echo START''ED; curl -sS http://www.example.org/")
        for answer, starts in (("y", True), ("n", False), ("", False)):
            screen = at_terminal(["claude"], "Start it? [y/N] ", f"{answer}\\n")
            for host in ("api.anthropic.com", "www.example.org"):
                assert host in screen, screen
            assert ("STARTED" in screen) is starts, screen
            assert ("hello from 203.0.113.5" in screen) is starts, screen
    """)


@pytest.mark.ordinary
def test_without_a_terminal_the_hosts_have_to_be_named(world: World) -> None:
    world("""
        plays("echo STARTED")
        for arguments in (("claude",), ("run", "--json", "--profile", "claude", "--", "claude")):
            done = cli(*arguments)
            assert done.returncode == 125 and "STARTED" not in done.stdout, done
            assert "--host api.anthropic.com" in done.stderr + done.stdout, done
    """)


@pytest.mark.ordinary
def test_only_the_named_hosts_are_reached(world: World) -> None:
    world("""
        plays('''for host in www other intra; do curl -sS http://$host.example.org/; done
        curl -sS http://127.0.0.1:5432/; curl -sS http://model.ollmsandbox.internal/
        curl -sS http://tools.ollmsandbox.internal/''')
        done = start()
        assert done.stdout.count("hello") == 1, done
        assert "The host other.example.org was not allowed." in done.stderr, done
    """)


def test_an_agent_sees_its_own_secrets_and_no_others(world: World) -> None:
    world("""
        for name in (".codex/auth.json", ".ssh/id", ".gemini/oauth_creds.json", "notes"):
            (home / name).parent.mkdir(exist_ok=True)
            (home / name).write_text("SECRET")
        os.environ |= {"ANTHROPIC_API_KEY": "sk-own", "OPENAI_API_KEY": "sk-other"}
        plays('''env; cat ~/.claude/.credentials.json
        cat ~/.codex/auth.json ~/.ssh/id ~/.gemini/oauth_creds.json ~/notes''')
        shown = start().stdout
        assert "sk-own" in shown and '"old"' in shown, shown
        assert "SECRET" not in shown and "sk-other" not in shown, shown
        # Other commands do not see those of the agent.
        done = cli("run", "-c", "env; cat ~/.claude/.credentials.json; cat ~/.claude.json")
        assert "sk-own" not in done.stdout and '"old"' not in done.stdout, done
    """)


def test_with_tools_the_agent_itself_cannot_write(world: World) -> None:
    world("""
        (project / "file").write_text("before")
        plays("echo evil > file; echo evil > new; rm file; mv file other; cat file; echo; echo $*")
        done = start("--tools")
        assert done.stdout.startswith("before"), done
        assert "Read-only file system" in done.stderr, done
        assert "--mcp-config" in done.stdout and "tools.ollmsandbox.internal" in done.stdout
        assert os.listdir(project) == ["file"] and (project / "file").read_text() == "before"
    """)


@pytest.mark.ordinary
def test_with_tools_ours_write_and_the_agent_cannot_answer_for_the_user(world: World) -> None:
    """It is never asked, though it says that it can be."""
    world("""
        plays_client({}, {"command": "echo ours > made"}, "cat made; echo evil > evil")
        done = start("--tools")
        assert done.stdout.endswith("ours\\n"), done
        assert sorted(os.listdir(project)) == ["calls", "made"], done
        plays_client({"elicitation": {}}, {"command": "echo ran > ran", "network": True})
        done = start("--tools")
        assert "elicitation/create" not in done.stdout, done
        assert "opens OLLM Sandbox" in done.stdout, done
        assert sorted(os.listdir(project)) == ["calls", "made"], done
    """)


@pytest.mark.ordinary
def test_an_agent_cannot_reach_the_session_bus(world: World) -> None:
    world("""
        import socket, threading
        place = str(home / "bus")
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(place)
        listener.listen()
        def hang_up():
            while True:
                listener.accept()[0].close()
        # Else our own look for systemd would wait 15 seconds for a word from it.
        threading.Thread(target=hang_up, daemon=True).start()
        socket.socket(socket.AF_UNIX).connect(place)  # outside it is there
        os.environ["DBUS_SESSION_BUS_ADDRESS"] = f"unix:path={place}"
        plays(f'''env
        for place in {place} /proc/*/root{place} /run/user/*/bus; do
            python3 -c "import socket, sys
        socket.socket(socket.AF_UNIX).connect(sys.argv[1]); print('REACHED')" "$place"
        done''')
        for options in ((), ("--tools",), ("--network",)):
            done = start(*options)
            assert "PATH=" in done.stdout and "Error" in done.stderr, done
            assert "REACHED" not in done.stdout and "DBUS_SESSION" not in done.stdout, done
    """)


def test_a_connection_is_used_without_its_key(world: World) -> None:
    world("""
        from support.servers.http import Replay, stream
        parts = [b"data: %d\\n\\n" % number for number in range(3)]
        server = Replay({"/v1/messages": stream(parts, chunked=False)}).__enter__()
        config = home / ".config/ollmchat"
        mine = {"kind": "openai", "address": f"{server.address}/v1", "model": "big", "key": "file"}
        (config / "connections.yaml").write_text(json.dumps({"connections": {"mine": mine}}))
        (config / "keys.yaml").write_text("mine: sk-REAL-KEY")
        os.environ |= {"ANTHROPIC_API_KEY": "sk-own-key"}
        plays(f"curl -sS {server.address}/v1/models;" + '''
        post() { curl -sS -H "Authorization: Bearer $ANTHROPIC_AUTH_TOKEN" -d "$2" "$@"; echo; }
        post "$ANTHROPIC_BASE_URL/v1/messages" '{"model": "x"}' -H "X-Evil: 1" \\
            -H "anthropic-version: 2023-06-01" -H "Host: evil.example.org"
        echo "model $ANTHROPIC_MODEL"
        for path in files admin/users messages/../files; do
            post --path-as-is "$ANTHROPIC_BASE_URL/v1/$path" x
        done
        curl -sS http://www.example.org/
        env; cat /proc/*/environ /proc/*/cmdline | tr '\\\\0' '\\\\n'
        cat ~/.claude/.credentials.json ~/.config/ollmchat/*.yaml
        ls -A ~/.claude
        ''')
        done = start("--connection", "mine", hosts=())
        assert done.stdout.startswith("data: 0\\n\\ndata: 1\\n\\ndata: 2"), done
        assert "model big" in done.stdout, done
        [seen] = server.seen
        assert seen.path == "/v1/messages" and seen.body == b'{"model": "x"}', seen
        assert seen.headers["authorization"] == "Bearer sk-REAL-KEY"
        assert seen.headers["x-api-key"] == "sk-REAL-KEY"
        assert seen.headers["host"] == f"127.0.0.1:{server.port}" and "x-evil" not in seen.headers
        assert done.stdout.count("is not available") == 3, done
        assert "hello" not in done.stdout
        # No key is inside, neither ours nor the one the agent would use.
        for secret in ("REAL", "sk-own", '"old"'):
            assert secret not in done.stdout + done.stderr, done
        assert ".credentials.json" not in done.stdout.splitlines()
        assert found(settings / ".credentials.json")["claudeAiOauth"] == {"accessToken": "old"}
        done = start("--connection", "yours", hosts=())
        assert done.returncode == 125 and "no connection called" in done.stderr, done
        server.__exit__()
    """)


@pytest.mark.ordinary
def test_settings_for_the_tools_are_added_to_the_user_s(world: World) -> None:
    world("""
        own = {"theme": "dark", "mcpServers": {"mine": {"command": "mine"}}}
        (home / ".gemini").mkdir()
        (home / ".gemini/settings.json").write_text(json.dumps(own))
        plays("cat ~/.gemini/settings.json", "gemini")
        shown = json.loads(start("--tools", name="gemini").stdout)
        assert shown["theme"] == "dark" and set(shown["mcpServers"]) == {"mine", "ollmsandbox"}
        assert found(home / ".gemini/settings.json") == own
    """)


@pytest.mark.ordinary
def test_an_agent_that_cannot_be_started_is_reported(person: Person) -> None:
    # Nobody is asked about the hosts of a program that is not there.
    for words in (["codex"], ["codex", "--host", "example.org"]):
        done = person.cli(*words)
        assert done.returncode == 125
        assert "codex is not installed, or not on your PATH" in done.stderr
    for words, why in ((["--tools"], "agent"), (["--profile", "claude", "--rootfs"], "Alpine")):
        done = person.cli("run", "--host", "example.org", *words, "--", "true")
        assert done.returncode == 125
        assert why in done.stderr


@pytest.mark.ordinary
def test_the_settings_cannot_be_in_the_project(world: World) -> None:
    world("""
        plays("echo STARTED")
        done = start("--project", str(settings))
        assert done.returncode == 125 and "hidden" in done.stderr, done
        os.environ["CLAUDE_CONFIG_DIR"] = f"{project}/settings"
        done = start()
        assert done.returncode == 125 and "keeps its settings" in done.stderr, done
    """)


@pytest.mark.anybody
@pytest.mark.parametrize("name", AGENTS)
def test_each_agent_has_a_profile(name: str, tmp_path: Path) -> None:
    profile = read_profile(name, tmp_path, tmp_path / "cache")
    agent = profile.agent
    assert agent is not None and agent.command == name and agent.title == AGENTS[name]
    assert agent.hosts and agent.folders and profile.limits.time is None
    values = {"URL": "http://host", "MODEL": "m/1", "BRIDGE": "a b", "FOLDER": "/home/me/.x"}
    for setup in filter(None, (agent.always, agent.tools, agent.connection)):
        filled: AgentSetup = setup.filled(values)
        texts = [*filled.arguments, *(text for _name, text in filled.environment + filled.files)]
        assert not any("$" in text for text in texts)
        for text in texts:
            if text.startswith("{"):
                json.loads(text)
    # What other commands do not see.
    folders = {
        folder.folder.partition(":-")[2].rstrip("}") or folder.folder for folder in agent.folders
    }
    for folder in folders:
        assert folder.replace("}", "") in profile.masks or "/opencode" in folder


@pytest.mark.anybody
def test_a_user_s_profile_adds_to_an_agent(tmp_path: Path) -> None:
    paths = Paths.from_environ({"HOME": str(tmp_path)})
    paths.profiles.mkdir(parents=True)
    (paths.profiles / "mine.yaml").write_text("extends: claude\nagent: { hosts: [example.org] }\n")
    agent = read_profile("mine", paths.profiles).agent
    assert agent is not None and agent.command == "claude"
    assert agent.hosts[-1] == "example.org" and "api.anthropic.com" in agent.hosts
