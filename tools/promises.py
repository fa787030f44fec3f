"""Write docs/promises.md: every promise that a test keeps, in the words of the test's docstring, by its number.

`python tools/promises.py` writes the page. `--check` writes nothing: it lists what is wrong and exits with 1 when the
page is not what the tests say, when a test has no docstring, and when a docstring has little more than a number.
"""

from __future__ import annotations

import argparse
import ast
import re
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGE = Path("docs/promises.md")
FEWEST_WORDS = 4

HEADER = """\
# Promises

<!-- Written by tools/promises.py from the docstrings of the tests. Change the docstring, then: make promises -->

Every promise that a test keeps, in one or two sentences, with the test that fails when it is broken.
Tests cite promises by number; look one up by searching this page for it, for example `T46`.

| number | what it is about |
| --- | --- |
| `T1`, `T2`, ... | training: the trial, its context, `Trainer.fit()`, metrics, callbacks, checkpoints and resuming |
| `W1`, `W2`, ... | training: what earlier releases of `determined` did wrong ("warts") and what is done instead (FIX) |
| `C-01`, `C-02`, ... | core: the Core API, the processes of a trial, storage of checkpoints, launching |
| `D-01`, `D-02`, ... | data: loaders, samplers, batches to a device, reducers, loading a trial from a checkpoint |
| `P-01`, `P-02`, ... | platform: the experiment file, searches, the store, the command line, the Python SDK |
| `D1`, `D2`, ... (no dash) | where the platform differs on purpose from earlier releases of `determined` |
| `Decision 3`, ... | what was settled for the whole project: \
3 running locally lacks nothing, 4 runs are recorded in one SQL store, 5 a resume is exact, \
6 a checkpoint is whole and verified, 7 the loop adds no cost per batch, 8 few dependencies and fast imports, \
9 what is left out on purpose |

A docstring may also begin with a section, such as `4.8` or `Contract 2.5 Better`, or with `Issue 12` or `style.md 6`.
These say where the promise was first written down; there is nothing more to look up than the sentence itself.
"""

# A heading, and the numbers that are listed below it.
SUBJECTS = {
    "Training": r"[TW]\d+",
    "Core": r"C-\d+",
    "Data and reducers": r"D-\d+",
    "Platform": r"P-\d+|D\d+",
    "Decisions": r"Decision \d+",
}
NUMBER = "|".join(SUBJECTS.values())
SECTION = (
    r"(?:[Dd]ata contract|[Cc]ontract|[Cc]ore contract|[Pp]latform(?:\.md)?|pytorch\.md|core\.md|[Ss]tyle(?:\.md)?) ?"
)
CITED = rf"(?:FIX |[Ww]art |{SECTION}|[Dd]ecisions? |[Ii]ssues? |[Rr]ows? |appendix |point |section )*"
CITED += r"(?:[TW]\d+|[CDP]-\d+|D\d+|\d+(?:\.\d+)*|B\b)(?: Better)?"
PREFIX = re.compile(rf"(?:{CITED}(?:, | and |; |(?=[ :.])))+(?:and Better|with W\d+ fixed)?(?: \([TW]\d+\))?[:.]? *")


@dataclass(frozen=True)
class Promise:
    """What one test promises: the numbers and sections that its docstring begins with, and the text after them."""

    file: str
    name: str
    cited: str
    text: str

    @property
    def numbers(self) -> list[str]:
        cited = re.sub("decision", "Decision", self.cited + self.text)
        return list(dict.fromkeys(re.findall(rf"\b(?:{NUMBER})\b", cited)))

    @property
    def needs_words(self) -> bool:
        return len(self.text.split()) < (FEWEST_WORDS if self.cited else 1)


def promises(tests: Path) -> Iterator[Promise]:
    """Read the docstring of every test below `tests`; the text is empty where there is none."""
    for path in sorted(tests.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
                text = " ".join((ast.get_docstring(node) or "").split())
                found = PREFIX.match(text)
                end = found.end() if found else 0
                yield Promise(path.relative_to(tests).as_posix(), node.name, text[:end], text[end:])


def page(found: Iterable[Promise]) -> str:
    """Return the text of the page: by number where there is one, by test file where there is none."""
    numbered: dict[str, set[str]] = {}
    others: dict[str, set[str]] = {}
    for promise in found:
        link = f"[{promise.name}](../tests/{promise.file})"
        for number in promise.numbers:
            numbered.setdefault(number, set()).add(f"- **{number}** {sentence(promise.text)} {link}")
        if not promise.numbers:
            text = sentence(promise.cited + promise.text)
            others.setdefault(promise.file, set()).add(f"- {text} (`{promise.name}`)")
    lines = [HEADER]
    for subject, pattern in SUBJECTS.items():
        lines += [f"## {subject}", ""]
        for number in sorted((n for n in numbered if re.fullmatch(pattern, n)), key=by_value):
            lines += sorted(numbered[number])
        lines.append("")
    lines += ["## Promises without a number", ""]
    for file in sorted(others):
        lines += [f"### [{file}](../tests/{file})", "", *sorted(others[file]), ""]
    return "\n".join(lines)


def by_value(number: str) -> tuple[str, int]:
    """Sort T9 before T10."""
    letters, digits = re.fullmatch(r"(.*?)(\d+)", number).groups()  # type: ignore[union-attr]  # SUBJECTS end with \d+
    return letters, int(digits)


def sentence(text: str) -> str:
    """Begin with a capital unless it is code, and escape what Markdown would read as its own."""
    text = re.sub(r"(`[^`]*`)|([\[\]<>|*])", lambda match: match[1] or "\\" + match[2], text)
    return text[:1].upper() + text[1:] if re.match(r"[a-z]+[ ,:]", text) else text


def problems(root: Path) -> list[str]:
    """Name each test whose docstring promises nothing readable, and the page if the tests say something else."""
    found = list(promises(root / "tests"))
    listed = [
        f"tests/{p.file}: the docstring of {p.name} is {p.cited + p.text!r}. Say in a sentence what is promised."
        for p in found
        if p.needs_words
    ]
    stored = root / PAGE
    if not stored.exists() or stored.read_text() != page(found):
        listed.append(f"{PAGE} is not what the tests say. Write it with: make promises")
    return listed


def main(arguments: list[str] | None = None, root: Path = ROOT) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing, and fail if the page is stale")
    if not parser.parse_args(arguments).check:
        (root / PAGE).write_text(page(promises(root / "tests")))
    found = problems(root)
    for problem in found:
        print(problem, file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
