"""Show names to people: escape characters that cannot be seen, and suggest known names for unknown ones."""

from __future__ import annotations

import re
from collections.abc import Iterable

# Control characters (C0 and C1), marks of writing direction, characters without width, halves of surrogate pairs.
# The joiners of emoji and of some scripts are shown as they are.
_UNSEEN = (
    "\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff0-\ufffb\ufffe\uffff"
    "\ud800-\udfff\U000e0000-\U000e007f"
)
_IN_LINES = re.compile(f"[{_UNSEEN}]")
_IN_A_LINE = re.compile(f"[\t\n{_UNSEEN}]")
_COLOUR = re.compile(r"(\x1b\[[0-9;:]*m)")
_SHORT = {"\t": "\\t", "\n": "\\n", "\r": "\\r"}


def visible(text: str, *, lines: bool = False, colours: bool = False) -> str:
    """Return the text with control characters, which a terminal would obey, written as `\\u001b`, as JSON does.

    Args:
        text: Any text, such as a name that a user chose.
        lines: Keep ends of lines and tabs.
        colours: Keep colours, and end them with the text.

    Example::

        assert visible("a\\x1b]0;b") == "a\\\\u001b]0;b"
    """
    if colours and "\x1b[" in text:
        parts = _COLOUR.split(text)
        parts[::2] = [visible(part, lines=lines) for part in parts[::2]]
        is_coloured = len(parts) > 1 and parts[-2] not in ("\x1b[0m", "\x1b[m")
        return "".join(parts) + ("\x1b[0m" if is_coloured else "")
    return (_IN_LINES if lines else _IN_A_LINE).sub(_escaped, text)


def _escaped(match: re.Match[str]) -> str:
    character = match[0]
    units = character.encode("utf-16-be", "surrogatepass")
    return _SHORT.get(character) or "".join(f"\\u{units[i : i + 2].hex()}" for i in range(0, len(units), 2))


def instead(given: str, known: Iterable[str], *, most: int = 12) -> str:
    """Return a hint for an unknown name: the nearest known names, else all of them; "" if there are none.

    Example::

        assert instead("acc", ["accuracy", "loss"]) == " Did you mean 'accuracy'?"
        assert instead("x", ["accuracy", "loss"]) == " There is: accuracy, loss."
    """
    import difflib

    names = list(dict.fromkeys(known))
    small = given.lower()
    near = [name for name in names if len(small) > 1 and small in name.lower()]
    by_letters = {name.lower(): name for name in names}
    near += [by_letters[name] for name in difflib.get_close_matches(small, by_letters, n=3)]
    if near := list(dict.fromkeys(name for name in near if name != given))[:3]:
        return f" Did you mean {' or '.join(map(repr, near))}?"
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return f" There is: {', '.join(names[:most])}{more}." if names else ""
