"""From YAML text to plain values, by the rules of YAML 1.2: what JSON can hold, and nothing else.

Values are put together from the parser's events, without recursion and without constructors, so that no tag can build
an object, no alias can grow without limit, and every refusal knows its line. Files are opened in `experiment_file`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

import yaml

from determined.errors import ConfigError

MOST_VALUES = 100_000
DEEPEST = 64
LONGEST_NUMBER = 3000  # characters; Python writes no integer of more than 4300 decimal digits
CORE = "tag:yaml.org,2002:"
LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # only its parser is used

NULL = re.compile(r"~|null|Null|NULL|")
BOOL = re.compile(r"true|True|TRUE|false|False|FALSE")
INT = re.compile(r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+")
FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
NOT_FINITE = re.compile(r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)")
OLD_BOOL = re.compile(r"yes|no|on|off", re.IGNORECASE)  # true and false in YAML 1.1
OLD_OCTAL = re.compile(r"[-+]?0[0-7]+")


@dataclass
class Loaded:
    """The values of a text, and what its writer may have meant otherwise."""

    values: Any
    notes: list[str] = field(default_factory=list)


def load(text: str) -> Loaded:
    """Read one YAML document.

    Raises:
        ConfigError: It is not YAML, or not plain values; the sentence says the line and column.

    Example::

        load("lr: 1e-4").values  # {"lr": 0.0001}
    """
    builder = _Builder()
    try:
        for event in yaml.parse(text, Loader=LOADER):
            builder.take(event)
    except yaml.reader.ReaderError as e:
        line = text.count("\n", 0, e.position) + 1
        raise ConfigError(f"line {line}: the character {_shown(e.character)} cannot stand in YAML.") from None
    except yaml.MarkedYAMLError as e:
        raise _refusal(e.problem_mark or e.context_mark, _syntax(e, text)) from None
    except UnicodeEncodeError:
        raise ConfigError("the text has half a surrogate pair in it, which no file can hold.") from None
    return Loaded(builder.root, builder.notes)


def _shown(character: Any) -> str:
    return f"#x{character:04x}" if isinstance(character, int) else ascii(character)


def _syntax(error: yaml.MarkedYAMLError, text: str) -> str:
    problem = error.problem or "this is not YAML"
    mark = error.problem_mark
    if mark is not None and mark.line < len(lines := text.splitlines()) and lines[mark.line][mark.column :][:1] == "\t":
        return "a tab cannot indent YAML. Use spaces."
    if "mapping values are not allowed" in problem:
        return "a second ': ' on this line, or wrong indentation. Put text that contains ': ' in quotes."
    context = f" {error.context}" if error.context else ""
    return f"{problem}{context}."


def _refusal(mark: Any, reason: str) -> ConfigError:
    where = f"line {mark.line + 1}, column {mark.column + 1}: " if mark is not None else ""
    return ConfigError(where + reason)


@dataclass
class _Open:
    """A list or mapping that is being read."""

    mark: Any
    anchor: str | None
    value: dict[str, Any] | list[Any]
    size: int = 1
    key: str | None = None
    is_merge: bool = False
    lines: dict[str, int] = field(default_factory=dict)
    merged: list[dict[str, Any]] = field(default_factory=list)


class _Builder:
    """Builds the value in `root` from parser events."""

    def __init__(self) -> None:
        self.root: Any = None
        self.notes: list[str] = []
        self._documents = 0
        self._open: list[_Open] = []
        self._anchors: dict[str, tuple[Any, int]] = {}

    def take(self, event: yaml.Event) -> None:
        if isinstance(event, yaml.DocumentStartEvent):
            self._documents += 1
            if self._documents > 1:
                raise _refusal(event.start_mark, "a second document begins. Keep one, and remove the '---'.")
        elif isinstance(event, yaml.ScalarEvent):
            self._finish(self._scalar(event), 1, event.anchor, event.start_mark, is_merge=_is_merge(event))
        elif isinstance(event, yaml.AliasEvent):
            self._alias(event)
        elif isinstance(event, (yaml.SequenceStartEvent, yaml.MappingStartEvent)):
            self._begin(event)
        elif isinstance(event, (yaml.SequenceEndEvent, yaml.MappingEndEvent)):
            done = self._open.pop()
            self._finish(_closed(done), done.size, done.anchor, done.mark)

    def _begin(self, event: yaml.SequenceStartEvent | yaml.MappingStartEvent) -> None:
        is_list = isinstance(event, yaml.SequenceStartEvent)
        if event.tag not in (None, "!", CORE + ("seq" if is_list else "map")):
            raise _refusal(event.start_mark, f"the tag {event.tag!r} is not taken: a configuration is plain values.")
        if len(self._open) >= DEEPEST:
            raise _refusal(event.start_mark, f"this is nested more than {DEEPEST} deep.")
        if self._open and self._expects_key():
            raise _refusal(event.start_mark, "a list or mapping cannot be a key. Use text.")
        self._open.append(_Open(event.start_mark, event.anchor, [] if is_list else {}))

    def _expects_key(self) -> bool:
        parent = self._open[-1]
        return isinstance(parent.value, dict) and parent.key is None and not parent.is_merge

    def _alias(self, event: yaml.AliasEvent) -> None:
        if event.anchor not in self._anchors:
            is_open = any(node.anchor == event.anchor for node in self._open)
            reason = "stands inside what it refers to" if is_open else "refers to nothing above it"
            raise _refusal(event.start_mark, f"*{event.anchor} {reason}.")
        value, size = self._anchors[event.anchor]
        self._finish(value, size, None, event.start_mark)

    def _finish(self, value: Any, size: int, anchor: str | None, mark: Any, *, is_merge: bool = False) -> None:
        """Add a complete value to the list or mapping that holds it."""
        if anchor is not None:
            self._anchors[anchor] = (value, size)
        if not self._open:
            self.root = value
            return
        parent = self._open[-1]
        parent.size += size
        if parent.size > MOST_VALUES:
            raise _refusal(mark, f"with its aliases written out, this has more than {MOST_VALUES} values.")
        if isinstance(parent.value, list):
            parent.value.append(value)
        elif self._expects_key():
            self._key(parent, value, mark, is_merge)
        elif parent.is_merge:
            parent.merged += _mergeable(value, mark)
            parent.is_merge = False
        else:
            assert parent.key is not None
            parent.value[parent.key] = value
            parent.key = None

    def _key(self, parent: _Open, key: Any, mark: Any, is_merge: bool) -> None:
        if not isinstance(key, str):
            shown = str(key).lower() if isinstance(key, bool) else "null" if key is None else key
            raise _refusal(mark, f'the key {shown} is not text. Write it in quotes: "{shown}".')
        if key in parent.lines:
            raise _refusal(mark, f"the key {key!r} was already given on line {parent.lines[key]}. Keep one of them.")
        parent.lines[key] = mark.line + 1
        parent.is_merge = is_merge
        parent.key = None if is_merge else key

    def _scalar(self, event: yaml.ScalarEvent) -> Any:
        text, tag = event.value, event.tag
        if tag is None and event.implicit[0]:
            return self._plain(text, event.start_mark)
        if tag in (None, "!", CORE + "str"):
            return text
        kinds = {"null": NULL, "bool": BOOL, "int": INT, "float": FLOAT}
        kind = kinds.get(tag.removeprefix(CORE)) if tag.startswith(CORE) else None
        if kind is None:
            raise _refusal(event.start_mark, f"the tag {tag!r} is not taken: a configuration is plain values.")
        if not kind.fullmatch(text):
            raise _refusal(event.start_mark, f"{text!r} is not a YAML {tag.removeprefix(CORE)}.")
        value = self._plain(text, event.start_mark)
        return float(value) if kind is FLOAT else value

    def _plain(self, text: str, mark: Any) -> Any:
        """Return the value of unquoted text."""
        if NULL.fullmatch(text):
            return None
        if BOOL.fullmatch(text):
            return text.lower() == "true"
        if INT.fullmatch(text):
            return self._int(text, mark)
        if FLOAT.fullmatch(text):
            return float(text)
        if NOT_FINITE.fullmatch(text):
            return float(text.replace(".", "", 1))
        if OLD_BOOL.fullmatch(text) and self._open and not self._expects_key():
            self.notes.append(
                f"line {mark.line + 1}: {text} is text, not true or false. Write true, false or '{text}'."
            )
        return text

    def _int(self, text: str, mark: Any) -> int:
        if len(text) > LONGEST_NUMBER:
            raise _refusal(mark, f"a number of {len(text)} digits is too long.")
        if OLD_OCTAL.fullmatch(text):
            self.notes.append(f"line {mark.line + 1}: {text} is read as the decimal number {int(text)}.")
        return int(text, {"0o": 8, "0x": 16}.get(text[:2], 10))


def _is_merge(event: yaml.ScalarEvent) -> bool:
    return event.value == "<<" and event.tag is None and bool(event.implicit[0])


def _mergeable(value: Any, mark: Any) -> list[dict[str, Any]]:
    found = value if isinstance(value, list) else [value]
    if not all(isinstance(part, dict) for part in found):
        raise _refusal(mark, "'<<' takes a mapping, or a list of mappings, such as <<: *defaults.")
    return found


def _closed(done: _Open) -> dict[str, Any] | list[Any]:
    """Return the value with the keys that `<<` adds; keys written out win, then the mapping merged first."""
    if not done.merged or isinstance(done.value, list):
        return done.value
    merged: dict[str, Any] = {}
    for part in reversed(done.merged):
        merged.update(part)
    return {**merged, **done.value}
