# SPDX-License-Identifier: GPL-3.0-or-later
"""Serve a package named `thing` on loopback to npm and pip; print the port.

Commands start it themselves, with the system's Python: there is no other network in the sandbox.
"""

import base64
import hashlib
import http.server
import io
import json
import tarfile
import zipfile


def tarball(files: dict[str, str]) -> bytes:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w:gz") as archive:
        for name, text in files.items():
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(text), 0o755
            archive.addfile(entry, io.BytesIO(text.encode()))
    return made.getvalue()


def wheel() -> bytes:
    made = io.BytesIO()
    about = "thing-1.0.0.dist-info"
    files = {
        "thing.py": "def main():\n    print('thing of python')\n",
        f"{about}/METADATA": "Metadata-Version: 2.1\nName: thing\nVersion: 1.0.0\n",
        f"{about}/WHEEL": "Wheel-Version: 1.0\nTag: py3-none-any\n",
        f"{about}/entry_points.txt": "[console_scripts]\nthing = thing:main\n",
        f"{about}/RECORD": "",
    }
    with zipfile.ZipFile(made, "w") as archive:
        for name, text in files.items():
            # The same bytes each time: without the date of today.
            archive.writestr(zipfile.ZipInfo(name), text)
    return made.getvalue()


MANIFEST = {"name": "thing", "version": "1.0.0", "main": "main.js", "bin": {"thing": "bin.js"}}
PACKAGE = tarball(
    {
        "package/package.json": json.dumps(MANIFEST),
        "package/main.js": "module.exports = () => 'thing of node';\n",
        "package/bin.js": "#!/usr/bin/env node\nconsole.log('ran', ...process.argv.slice(2));\n",
    }
)
WHEEL = "thing-1.0.0-py3-none-any.whl"


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        kind, content = "application/octet-stream", b""
        if self.path == "/thing":
            digest = base64.b64encode(hashlib.sha512(PACKAGE).digest()).decode()
            source = f"http://{self.headers['Host']}/thing/-/thing-1.0.0.tgz"
            dist = {"tarball": source, "integrity": f"sha512-{digest}"}
            versions = {"1.0.0": {**MANIFEST, "dist": dist}}
            known = {"name": "thing", "dist-tags": {"latest": "1.0.0"}, "versions": versions}
            kind, content = "application/json", json.dumps(known).encode()
        elif self.path.endswith(".tgz"):
            content = PACKAGE
        elif self.path == "/simple/thing/":
            kind, content = "text/html", f"<a href='/{WHEEL}'>{WHEEL}</a>".encode()
        elif self.path == f"/{WHEEL}":
            content = wheel()
        self.send_response(200 if content else 404)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(content)))
        self.send_header("Cache-Control", "max-age=600")
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_words: object) -> None:
        pass


if __name__ == "__main__":
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    print(server.server_port, flush=True)
    server.serve_forever()
