"""The language of .gitignore."""

from __future__ import annotations

import pytest

from determined._ignore import IgnoreRules


@pytest.mark.parametrize(
    ("pattern", "path", "is_directory", "expected"),
    [
        ("*.txt", "a/b.txt", False, True),
        ("*.txt", "a/b.txt.py", False, False),
        ("/a.txt", "b/a.txt", False, False),
        ("/a.txt", "a.txt", False, True),
        ("a/b", "x/a/b", False, False),
        ("a/b", "a/b", False, True),
        ("dir/", "dir", False, False),
        ("dir/", "x/dir", True, True),
        ("**/logs", "a/b/logs", True, True),
        ("**/logs", "logs", True, True),
        ("a/**/b", "a/b", False, True),
        ("a/**/b", "a/x/y/b", False, True),
        ("a/**", "a/x/y", False, True),
        ("a/**", "a", True, False),
        ("a?c", "abc", False, True),
        ("a?c", "a/c", False, False),
        ("[a-c].py", "b.py", False, True),
        ("[!a-c].py", "b.py", False, False),
        (r"\#x", "#x", False, True),
        (r"\!x", "!x", False, True),
        ("trailing  ", "trailing", False, True),
        ("a.b", "axb", False, False),
        ("[", "[", False, True),
    ],
)
def test_patterns(pattern: str, path: str, is_directory: bool, expected: bool) -> None:
    """The language of .gitignore."""
    assert IgnoreRules([pattern]).match(path, is_directory) is expected
