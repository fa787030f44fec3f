"""Reading experiment files: every kind of odd YAML is either read as YAML 1.2 says or refused with its line."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from determined.errors import ConfigError
from determined.experiment.config import experiment_file, yaml_values
from determined.experiment.config.experiment_file import load, parse, read


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e-4", 1e-4), ("1E5", 1e5), (".5", 0.5), ("-3.", -3.0), ("12", 12), ("-0x1F", "-0x1F"), ("0x1F", 31),
        ("0o17", 15), ("017", 17), ("1_000", "1_000"), ("1:30", "1:30"), ("2024-01-01", "2024-01-01"),
        ("true", True), ("FALSE", False), ("yes", "yes"), ("off", "off"), ("~", None), ("null", None), ("", None),
        ("'5'", "5"), ("!!str 5", "5"), ("!!float 3", 3.0), ("! 5", "5"), ("-.inf", -math.inf), ("=", "="),
        ("|\n   two\n   lines", "two\nlines"), (str(10**400), 10**400),
    ],
)  # fmt: skip
def test_scalars_are_those_of_yaml_1_2(text: str, value: Any) -> None:
    """platform 1.1: YAML, of which JSON is a part: 1e-4 is a number, dates and yes are text."""
    found = parse(f"a: {text}").values["a"]
    assert (found, type(found)) == (value, type(value))


def test_not_a_number_is_read() -> None:
    """NaN is YAML; that a configuration cannot hold it is said later, with the path."""
    assert math.isnan(parse("a: .nan").values["a"])


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("a: 1\nb: 2\na: 3", r"line 3, column 1: the key 'a' was already given on line 1"),
        ("s:\n  a: 1\n  a: 2", r"line 3, column 3: the key 'a'"),
        ('{"a": 1, "a": 2}', r"line 1, column 10: the key 'a'"),
        ("x: &a {p: 1}\ny:\n  <<: *a\n  <<: *a", r"line 4, column 3: the key '<<'"),
        ("1: a", r'line 1, column 1: the key 1 is not text. Write it in quotes: "1"'),
        ("true: a", r"the key true is not text"),
        ("null: a", r"the key null is not text"),
        ("1.5: a", r"the key 1.5 is not text"),
        ("? [a]\n: b", r"line 1, column 3: .*cannot be a key"),
        ("a: !!python/object/apply:os.system [ls]", r"line 1, column 4: the tag .* is not taken"),
        ("a: !!timestamp 2024-01-01", r"the tag .* is not taken"),
        ("a: !!set {b}", r"the tag .* is not taken"),
        ("a: !!int x", r"'x' is not a YAML int"),
        ("a: &x [*x]", r"line 1, column 8: \*x stands inside"),
        ("a: *nothing", r"line 1, column 4: \*nothing refers to nothing"),
        ("a: {<<: 5}", r"'<<' takes a mapping"),
        ("a:\n\tb: 1", r"line 2, column 1: a tab"),
        ("a: b: c", r"line 1, column 5: .*quotes"),
        ("a: [1, 2", r"line \d, column 1: "),
        ("a: 'x", r"line 1, column \d: "),
        ("--- {a: 1}\n--- {b: 2}", r"line 2, column 1: a second document"),
        ("x: 1\na: \x00", r"line 2: the character #x0000"),
        ("a: " + "9" * 5000, r"line 1, column 4: a number of 5000 digits"),
        ("a: 0" + "7" * 5000, r"line 1, column 4: a number of 5001 digits"),
        ("a: 0x" + "f" * 4000, r"line 1, column 4: a number of 4002 digits"),
        ("", "is empty"),
        ("# nothing", "is empty"),
        ("- a", "is a list"),
        ("text", "is a str"),
    ],
)
def test_refusals_say_where(text: str, reason: str) -> None:
    """platform 1.1: what is not plain YAML is one sentence with line and column; duplicate keys say both lines."""
    with pytest.raises(ConfigError, match=rf"^experiment\.yaml.*{reason}") as caught:
        parse(text, "experiment.yaml")
    assert "\n" not in str(caught.value)


def test_alias_bombs_do_not_go_off() -> None:
    """A file of ten lines that stands for a billion values is refused, quickly."""
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]" for i in range(1, 10)]
    with pytest.raises(ConfigError, match="more than 100000 values"):
        parse("\n".join(lines))


@pytest.mark.parametrize("opening", ["[", "{a: ", '{"a":', "- "])
def test_deep_nesting_is_refused(opening: str) -> None:
    """No depth exhausts the stack, in YAML or JSON."""
    closing = {"[": "]", "{a: ": "1}" + "}" * 2999, '{"a":': "1" + "}" * 3000, "- ": "1"}[opening]
    with pytest.raises(ConfigError, match="nested more than 64 deep"):
        load(opening * 3000 + closing)


def test_the_deepest_that_is_taken() -> None:
    """64 levels are enough for anybody, and work."""
    text = "[" * yaml_values.DEEPEST + "]" * yaml_values.DEEPEST
    assert load(text).values == json.loads(text)


def test_merge_keys() -> None:
    """`<<` brings in what is not written out; the first of several wins; quoted, it is a key."""
    text = "base: &a {p: 1, q: 2}\nx:\n  <<: *a\n  p: 3\ny:\n  <<: [*a, {q: 9, r: 4}]\nz: {'<<': 1}\n"
    values = parse(text).values
    assert values["x"] == {"p": 3, "q": 2}
    assert values["y"] == {"p": 1, "q": 2, "r": 4}
    assert values["z"] == {"<<": 1}


def test_words_of_old_yaml_are_noted() -> None:
    """`off` was false and 017 was 15 once; whoever writes them is told."""
    notes = parse("a: off\nb: 017\nc: 'off'\non: 1").notes
    assert [note.partition(":")[0] for note in notes] == ["line 1", "line 2"]


def test_json_is_read_as_json() -> None:
    """platform 1.1: JSON is accepted, with tabs and surrogate escapes that YAML does not take."""
    assert parse('{\n\t"a": 1e5, "b": "\\ud83d\\ude00"\n}').values == {"a": 1e5, "b": "\U0001f600"}


def test_text_is_kept_byte_for_byte(tmp_path: Path) -> None:
    """P-08: comments, line ends and a byte order mark are in the stored text."""
    content = "\ufeff# mine\r\nname: ä  # note\r\n\r\n".encode()
    path = tmp_path / "experiment.yaml"
    path.write_bytes(content)
    found = read(path)
    assert found.text.encode() == content
    assert found.values == {"name": "ä"}


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    """Absent, a directory, not UTF-8, too large: one sentence each, with the name."""
    large, other = tmp_path / "large.yaml", tmp_path / "other.yaml"
    large.write_text("#" + "é" * (experiment_file.LARGEST_FILE // 2))  # fewer characters than bytes
    other.write_bytes("name: ä".encode("utf-16"))
    reasons = {tmp_path / "absent": "No such file", tmp_path: "directory", large: "1024 KiB", other: "UTF-8"}
    for path, reason in reasons.items():
        with pytest.raises(ConfigError, match=reason) as caught:
            read(path)
        assert str(path) in str(caught.value)
    with pytest.raises(ConfigError, match="1024 KiB"):
        parse("#" * (experiment_file.LARGEST_FILE + 1))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


@settings(max_examples=100, deadline=None)
@given(JSON)
def test_all_json_is_read(value: Any) -> None:
    """platform 1.1: whatever JSON holds is read as it is."""
    assert load(json.dumps({"a": value})).values == {"a": value}


@settings(max_examples=300, deadline=None)
@given(st.text(alphabet="ab1:-?*&!<>|'\"{}[], \n\t#%@`~", max_size=40))
def test_any_text_is_read_or_refused(text: str) -> None:
    """Nothing but ConfigError ever leaves the reader."""
    try:
        assert isinstance(parse(text).values, dict)
    except ConfigError as error:
        message = str(error)
        assert "\n" not in message
