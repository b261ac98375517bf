# SPDX-License-Identifier: GPL-3.0-or-later
"""Programs that people use reach hosts with real TLS, and without any variable for proxies."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from support.servers.world import in_world

# For all runs of the tests: newer versions of Go bring their library as source, and to compile it
# takes minutes on a busy machine.
GO_CACHE = str(Path(__file__).resolve().parents[3] / "build" / "go-cache")
BUNDLE = "/etc/ssl/certs/ca-certificates.crt"
PAGE = "https://www.example.org/page"

URLLIB = f"""
import urllib.request
print(urllib.request.urlopen("{PAGE}").read().decode())
"""
# pip has the whole of it.
REQUESTS = f"""
from pip._vendor import requests
answer = requests.get("{PAGE}", verify="{BUNDLE}")
answer.raise_for_status()
print(answer.text)
"""
NODE = f"""
fetch("{PAGE}").then(a => a.text()).then(t => console.log(t)).catch(e => process.exit(1))
"""
GO = f"""
package main
import ("fmt"; "io"; "net/http"; "os")
func main() {{
    answer, err := http.Get("{PAGE}")
    if err != nil {{ fmt.Fprintln(os.Stderr, err); os.Exit(1) }}
    text, _ := io.ReadAll(answer.Body)
    fmt.Println(string(text))
}}
"""
JAVA = f"""
import java.net.URI;
import java.net.URL;
import java.net.http.*;
class Program {{
    public static void main(String[] arguments) throws Exception {{
        var request = HttpRequest.newBuilder(URI.create("{PAGE}")).build();
        var handler = HttpResponse.BodyHandlers.ofString();
        System.out.println(HttpClient.newHttpClient().send(request, handler).body());
        try (var stream = new URL("{PAGE}").openStream()) {{
            System.out.println(new String(stream.readAllBytes()));
        }}
    }}
}}
"""
# With the C library of Alpine, which asks for names in its own way.
MUSL = """
#include <netdb.h>
#include <stdio.h>
#include <unistd.h>
int main(void) {
    struct addrinfo hint = { .ai_socktype = SOCK_STREAM }, *found;
    if (getaddrinfo("www.example.org", "80", &hint, &found)) return 1;
    int s = socket(found->ai_family, SOCK_STREAM, 0);
    if (connect(s, found->ai_addr, found->ai_addrlen)) return 1;
    char page[2000];
    dprintf(s, "GET /page HTTP/1.0\\r\\n\\r\\n");
    ssize_t size = read(s, page, sizeof page);
    return size < 12 || page[9] != '2';
}
"""
# A method of apt talks by messages, and ends together with its input.
APT = """
import os, subprocess, sys
method = subprocess.Popen(["/usr/lib/apt/methods/http"], stdin=subprocess.PIPE,
                          stdout=subprocess.PIPE, text=True)
method.stdin.write(
    "601 Configuration\\nConfig-Item: APT::Sandbox::User=\\n\\n"
    f"600 URI Acquire\\nURI: http://www.example.org/page\\nFilename: {os.getcwd()}/got\\n\\n")
method.stdin.flush()
for line in method.stdout:
    if line.startswith(("201", "400")):
        sys.exit(line.startswith("400"))
"""
CLIENTS = {
    "curl": f"curl -fsS {PAGE}",
    "wget": f"wget -qO- --tries=1 {PAGE}",
    "pip": "/usr/bin/python3 -m pip --isolated --disable-pip-version-check download "
    f"--no-deps --no-cache-dir --retries 0 --cert {BUNDLE} -d /tmp https://www.example.org/hello-1.0-py3-none-any.whl",
    "npm": f"npm install --cafile {BUNDLE} --no-audit --no-fund --no-update-notifier "
    "--cache /tmp/npm --fetch-retries 0 --allow-remote=all https://www.example.org/hello-1.0.0.tgz",
    "git": "git clone -q https://www.example.org/repository.git /tmp/got",
    "apt": "/usr/bin/python3 program",
    "urllib": "/usr/bin/python3 program",
    "requests": "/usr/bin/python3 program",
    "node": f"NODE_EXTRA_CA_CERTS={BUNDLE} node program",
    "go": "./program",
}
# Not every distribution has the first; the other is too large to be installed for this.
if shutil.which("musl-gcc"):
    CLIENTS["musl"] = "./program"
# Programs that run for a moment are not worth a second compiler and several threads.
QUICK = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
if shutil.which("keytool"):
    CLIENTS["java"] = (
        f"java {QUICK} -Djavax.net.ssl.trustStore=authorities "
        "-Djavax.net.ssl.trustStorePassword=secret Program"
    )
PROGRAMS = {
    "apt": ("program", APT),
    "urllib": ("program", URLLIB),
    "requests": ("program", REQUESTS),
    "node": ("program", NODE),
    "go": ("program.go", GO),
    "musl": ("program.c", MUSL),
    "java": ("Program.java", JAVA),
}
# Compiled once, and not in each sandbox.
COMPILERS = {
    "go": f"GOCACHE='{GO_CACHE}' GOFLAGS=-mod=mod go build -o program program.go",
    "musl": "musl-gcc -static -o program program.c",
    "java": f"export JAVA_TOOL_OPTIONS='{QUICK}'; javac Program.java && "
    f"keytool -importcert -file {BUNDLE} -keystore authorities -noprompt -storepass secret",
}

PREPARE = """
import io, tarfile, zipfile
from support.servers import world
certificate = serve_https(PUBLIC, ["www.example.org"])
# The only authority in this world.
world._check(world._libc.mount(os.fsencode(certificate), b"/etc/ssl/certs/ca-certificates.crt",
                               None, world._MS_BIND, None))
www = world._folder / "www"
www.mkdir()
with zipfile.ZipFile(www / "hello-1.0-py3-none-any.whl", "w") as wheel:
    wheel.writestr("hello.py", "")
    for name, text in (("METADATA", "Metadata-Version: 2.1\\nName: hello\\nVersion: 1.0\\n"),
                       ("WHEEL", "Wheel-Version: 1.0\\nGenerator: test\\n"
                        "Root-Is-Purelib: true\\nTag: py3-none-any\\n"), ("RECORD", "")):
        wheel.writestr(f"hello-1.0.dist-info/{name}", text)
with tarfile.open(www / "hello-1.0.0.tgz", "w:gz") as package:
    text = b'{"name": "hello", "version": "1.0.0"}'
    entry = tarfile.TarInfo("package/package.json")
    entry.size = len(text)
    package.addfile(entry, io.BytesIO(text))
git = ["git", "-c", "user.name=me", "-c", "user.email=me@example.org", "-C"]
source = world._folder / "source"
subprocess.run(["git", "init", "-q", source], check=True)
(source / "file").write_text("hello")
subprocess.run([*git, source, "add", "file"], check=True)
subprocess.run([*git, source, "commit", "-qm", "one"], check=True)
subprocess.run(["git", "clone", "-q", "--bare", source, www / "repository.git"], check=True)
subprocess.run(["git", "-C", www / "repository.git", "update-server-info"], check=True)
"""


# Root tries one half, and others the other one.
@pytest.mark.parametrize("client", list(CLIENTS)[os.getuid() == 0 :: 2])
def test_a_client_is_asked_about_and_allowed_or_refused(tmp_path: Path, client: str) -> None:
    in_world(
        tmp_path,
        f"""
exec({PREPARE!r})
project = world._folder / "project"
source, text = {PROGRAMS.get(client, ("program", ""))!r}
(project / source).write_text(text)
subprocess.run({COMPILERS.get(client, "true")!r}, cwd=project, shell=True, check=True)
command = {CLIENTS[client]!r} + " && echo REACHED"
question = "Allow it? [y/N] "
for answer, is_reached in (("y", True), ("n", False)):
    screen = at_terminal(["run", "--network", "-c", command], question, answer + "\\n")
    assert ("REACHED" in screen) is is_reached, screen
    # Once, however often it tries again.
    assert screen.count(question) == 1, screen
""",
    )


def test_a_question_that_nobody_answers_stops_no_clock(tmp_path: Path) -> None:
    in_world(
        tmp_path,
        """
tries = "exec 3<>/dev/tcp/allowed.example/80"
command = f"setsid sh -c 'while sleep 0.1; do :; done' & {tries}; cat <&3"
screen = at_terminal(["run", "--timeout", "2", "--network", "-c", command], "nothing", "")
assert "Allow it? [y/N] " in screen, screen
assert "Exceeded the time limit" in screen, screen
""",
    )
