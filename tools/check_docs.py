"""Keep the docs true: links lead somewhere, and code shown from an example is that example's code.

A fenced block after a line `<!-- from examples/digits/train.py -->` must stand in that file, line by line; it may be
indented less. `python tools/check_docs.py` lists what is wrong and exits with 1.
"""

from __future__ import annotations

import re
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
FENCE = re.compile(r"^```.*?^```[^\S\n]*$", re.MULTILINE | re.DOTALL)
INCLUDED = re.compile(r"^<!-- from (\S+) -->\n+```\w*\n(.*?)^```", re.MULTILINE | re.DOTALL)


def pages(root: Path) -> Iterator[Path]:
    """All Markdown that we wrote."""
    for top in ("*.md", "docs/**/*.md", "examples/*/README.md", "changelog.d/*.md"):
        yield from sorted(root.glob(top))


def problems(page: Path, root: Path = ROOT) -> Iterator[str]:
    """One sentence for each thing that is wrong on a page."""
    text = page.read_text()
    name = page.relative_to(root)
    for target in LINK.findall(FENCE.sub("", text)):
        if target.startswith(("http://", "https://", "mailto:", "#")):
            continue
        path, _, anchor = target.partition("#")
        found = page.parent / path
        if not found.exists():
            yield f"{name}: the link to {target} leads nowhere."
        elif anchor and anchor not in anchors(found.read_text()):
            yield f"{name}: {path} has no heading #{anchor}."
    for source, code in INCLUDED.findall(text):
        if not (root / source).is_file():
            yield f"{name}: {source} is not there."
        elif not stands_in(code, (root / source).read_text()):
            first = code.strip().partition("\n")[0]
            yield f"{name}: the code that begins {first!r} is not in {source} (any more)."


def anchors(text: str) -> set[str]:
    """The headings of a page, as links name them."""
    headings = re.findall(r"^#+ (.*)$", FENCE.sub("", text), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def stands_in(code: str, source: str) -> bool:
    """Whether the lines of `code` follow each other in `source`, at one depth; a line `...` skips some."""
    rest = source.splitlines()
    for part in re.split(r"^[^\S\n]*\.\.\.\n", code, flags=re.MULTILINE):
        lines = textwrap.dedent(part).strip("\n").splitlines()
        found = next(
            (
                i + len(lines)
                for i in range(len(rest) - len(lines) + 1)
                if textwrap.dedent("\n".join(rest[i : i + len(lines)])).splitlines() == lines
            ),
            None,
        )
        if found is None:
            return False
        rest = rest[found:]
    return True


def main() -> int:
    checked = list(pages(ROOT))
    found = [problem for page in checked for problem in problems(page)]
    for problem in found:
        print(problem, file=sys.stderr)
    print(f"{len(checked)} pages, {len(found)} problems")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
