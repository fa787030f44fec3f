"""Patterns of `log_policies`: RE2 syntax, read with Python's `re`.

RE2 matches in linear time and so has no look-around and no back references. They are refused here, so that a file that
works keeps working wherever RE2 itself does the matching. The few spellings that only RE2 has are rewritten.
"""

from __future__ import annotations

import re
import warnings
from functools import lru_cache

POSIX = {
    "alnum": "0-9A-Za-z", "alpha": "A-Za-z", "ascii": r"\x00-\x7f", "blank": r"\t ", "cntrl": r"\x00-\x1f\x7f",
    "digit": "0-9", "graph": "!-~", "lower": "a-z", "print": " -~", "punct": r"!-/:-@\[-`{-~", "space": r"\t\n\v\f\r ",
    "upper": "A-Z", "word": "0-9A-Za-z_", "xdigit": "0-9A-Fa-f",
}  # fmt: skip
NOT_RE2 = {
    "(?=": "a look-ahead", "(?!": "a look-ahead", "(?<=": "a look-behind", "(?<!": "a look-behind",
    "(?P=": "a back reference", "(?>": "an atomic group", "(?(": "a condition", "(?#": "a comment",
}  # fmt: skip
TOKEN = re.compile(
    r"\\Q(?P<literal>.*?)(?:\\E|$)|\\(?P<escape>.)"
    r"|(?P<set>\[\^?\]?(?:\\.|\[:\^?[a-z]+:\]|[^\]\\])*\])"
    r"|(?P<group>\(\?(?:P=|<=|<!|[=!>(#]))|(?P<named>\(\?<)|(?P<possessive>[*+?}]\+)",
    re.DOTALL,
)
LONGEST = 1000  # characters; beyond, compiling takes minutes
IN_SET = re.compile(r"\\(?P<escape>.)|\[:(?P<negated>\^?)(?P<posix>[a-z]+):\]|\[", re.DOTALL)


@lru_cache(maxsize=256)
def compiled(pattern: str) -> re.Pattern[str]:
    """A pattern to search log lines with.

    Raises:
        ValueError: It is not RE2 syntax; the sentence says what is wrong.

    Example::

        compiled(r".*CUDA out of memory.*").search("RuntimeError: CUDA out of memory")
    """
    if len(pattern) > LONGEST:
        raise ValueError(f"is {pattern[:50]!r}..., and has {len(pattern)} characters; {LONGEST} are the most.")
    try:
        with warnings.catch_warnings():  # of meanings that Python may give to "--" or "||" in a set one day
            warnings.simplefilter("ignore", FutureWarning)
            return re.compile(TOKEN.sub(_rewritten, pattern), re.ASCII)
    except re.error as e:
        raise ValueError(f"is {pattern!r}, which is not a regular expression: {e}.") from None
    except (OverflowError, RecursionError):
        raise ValueError(f"is {pattern[:50]!r}, which is too large a regular expression.") from None


def _rewritten(token: re.Match[str]) -> str:
    if token["literal"] is not None:
        return re.escape(token["literal"])
    if token["escape"] is not None:
        return _escape(token["escape"])
    if token["set"] is not None:
        return token["set"][0] + IN_SET.sub(_in_set, token["set"][1:])
    if token["named"]:
        return "(?P<"
    what = NOT_RE2.get(token["group"] or "", "a possessive quantifier")
    raise ValueError(f"is {token.string!r}, which has {what} ({token[0]!r}); RE2 patterns do without.")


def _escape(letter: str) -> str:
    if letter == "z":
        return r"\Z"
    if letter.isdigit() and letter != "0":
        raise ValueError(f"has a back reference (\\{letter}); RE2 patterns do without.")
    if letter in "pPCZuUN":
        raise ValueError(f"has \\{letter}, which is not taken here. Use classes such as [A-Za-z].")
    return f"\\{letter}"


def _in_set(token: re.Match[str]) -> str:
    """Part of a set such as `[[:alpha:]_]`."""
    if token["escape"] is not None:
        return _escape(token["escape"])
    if token["posix"] is None:
        return r"\["  # Python wants to give it a meaning one day
    if token["posix"] not in POSIX or token["negated"]:
        raise ValueError(f"has the class {token[0]}, which is not taken. Use one of {', '.join(sorted(POSIX))}.")
    return POSIX[token["posix"]]
