"""Patterns of log policies."""

from __future__ import annotations

import pytest

from determined.experiment.log_pattern import compiled


@pytest.mark.parametrize(
    ("pattern", "line", "matches"),
    [
        (".*CUDA out of memory.*", "RuntimeError: CUDA out of memory", True), ("^a", "ba", False), (r"\d+", "x5", True),
        (r"[[:alpha:]_]+:", "ab_:", True), (r"[^[:digit:]]", "5", False), (r"\Qa.b\E+", "a.b+", True),
        (r"\Qa.b\E", "axb", False), (r"end\z", "end", True), ("(?i)oom", "OOM", True), ("(?P<x>a)", "a", True),
        ("(?<x>a)", "a", True), ("[*+]+", "*", True), ("[(?=]", "?", True), (r"\++", "+", True), ("[]a]", "]", True),
        (r"[\]+]", "+", True), (r"\w", "\u00e9", False), (r"a{2}", "aa", True), ("[[]", "[", True),
        ("[a||b]", "|", True),
    ],
)  # fmt: skip
def test_re2_patterns_match(pattern: str, line: str, matches: bool) -> None:
    """platform 1.4: RE2 syntax, searched anywhere in a line."""
    assert bool(compiled(pattern).search(line)) == matches


@pytest.mark.parametrize(
    "pattern",
    ["(", "[a", "*a", "a(?=b)", "a(?!b)", "(?<=a)b", "(?<!a)b", r"(a)\1", "(?P<x>a)(?P=x)", "a++", "(?>a)", r"\pL",
     "[[:nothing:]]", "(?#comment)", "a{2}+", r"\u0041", r"\N{DASH}", "[" * 50_000, "a" * 1001],
)  # fmt: skip
def test_what_re2_does_not_have_is_refused(pattern: str) -> None:
    """platform 1.4: a pattern that does not compile is a mistake; so is one that only Python would take."""
    with pytest.raises(ValueError, match=r"\."):
        compiled(pattern)
