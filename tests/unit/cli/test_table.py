"""Tables, CSV and JSON."""

from __future__ import annotations

import csv
import datetime
import io
import json
import math
from typing import Any

import pytest

from determined.cli.output import terminal
from determined.cli.output.table import Column, Table
from determined.cli.output.values import Bytes, Percent, to_json

NOON = datetime.datetime(2026, 1, 31, 12, 0, 0, 123456, tzinfo=datetime.timezone.utc)


@pytest.fixture
def wide_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    _pretend(monkeypatch, 200)


def _pretend(monkeypatch: pytest.MonkeyPatch, columns: int) -> None:
    """A terminal of so many columns that shows no colours."""
    monkeypatch.setattr(terminal, "is_terminal", lambda stream=None: True)
    monkeypatch.setattr(terminal, "has_unicode", lambda stream=None: True)
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("COLUMNS", str(columns))


def shown(capsys: pytest.CaptureFixture[str], columns: list[str], rows: list[tuple[Any, ...]], form: str) -> str:
    Table([Column(title) for title in columns], rows).show(form)
    return capsys.readouterr().out


def test_a_piped_table_is_the_one_scripts_know(capsys: pytest.CaptureFixture[str]) -> None:
    """platform.md 3.10, 6.1: header, dashed rule with +, cells joined by ` | `, numbers to the right."""
    rows = [(7, "train for 200 batches"), (3, "train for 1000 batches")]
    assert shown(capsys, ["Trials", "Training Time"], rows, "table") == (
        "   Trials | Training Time\n"
        "----------+------------------------\n"
        "        7 | train for 200 batches\n"
        "        3 | train for 1000 batches\n"
    )


def test_cells_say_times_percents_and_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    """platform.md 6.1: times to the second in UTC, percent with one decimal, missing is empty."""
    text = shown(capsys, ["A", "B", "C", "D", "E"], [(NOON, Percent(0.12345), None, Bytes(1536), {"b": 1})], "table")
    cells = [cell.strip() for cell in text.splitlines()[2].split("|")]
    assert cells == ["2026-01-31 12:00:00+0000", "12.3%", "", "1.5 KiB", "b=1"]


def test_csv_holds_every_digit(capsys: pytest.CaptureFixture[str]) -> None:
    """platform.md 6.1: CSV has commas and its header first; nothing is rounded, and texts survive."""
    text = shown(capsys, ["A", "B"], [(1 / 3, 'a, "b"\nc')], "csv")
    assert list(csv.reader(io.StringIO(text))) == [["A", "B"], [repr(1 / 3), 'a, "b"\nc']]


def test_json_is_strict_and_sorted() -> None:
    """platform.md 6.1: two spaces, sorted keys; P-73: NaN and infinities keep their names, and any reader takes it."""
    text = to_json({"b": math.nan, "a": [math.inf, -math.inf], "t": NOON})
    assert text.startswith('{\n  "a": [\n')
    strict = json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))
    assert strict == {"a": ["Infinity", "-Infinity"], "b": "NaN", "t": NOON.isoformat()}


def test_json_of_a_table_has_names_for_programs(capsys: pytest.CaptureFixture[str]) -> None:
    """Columns have keys that a program can write."""
    assert json.loads(shown(capsys, ["# of Batches", "Trial ID"], [(5, 1)], "json")) == [
        {"of_batches": 5, "trial_id": 1}
    ]


@pytest.mark.parametrize("columns", [40, 60, 80, 132])
def test_a_table_fits_the_terminal(
    columns: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """No line is longer than the terminal is wide; what is cut says so."""
    _pretend(monkeypatch, columns)
    rows = [(i, "a name that goes on " * 4, {"lr": 0.1, "hidden": 64, "layers": 3}, "日本語" * 9) for i in range(3)]
    lines = shown(capsys, ["ID", "Name", "H-Params", "Notes"], rows, "table").splitlines()
    assert max(map(_columns, lines)) <= columns
    assert all("…" in line for line in lines[2:])


def _columns(line: str) -> int:
    return sum(2 if ord(c) > 0x2E80 else 1 for c in line)


def test_one_row_that_is_too_wide_is_turned_on_its_side(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A description loses nothing on a narrow terminal."""
    _pretend(monkeypatch, 40)
    Table([Column("ID"), Column("Name")], [(1, "word " * 30)], is_description=True).show()
    text = capsys.readouterr().out
    assert text.count("word") == 30
    assert max(map(len, text.splitlines())) <= 40


def test_a_table_on_a_terminal_has_no_needless_air(capsys: pytest.CaptureFixture[str], wide_terminal: None) -> None:
    """On a terminal, columns are as wide as what they hold."""
    assert shown(capsys, ["ID", "Name"], [(1, "a"), (2, "b")], "table").splitlines()[0] == " ID | Name"


def test_an_empty_table_still_has_its_header(capsys: pytest.CaptureFixture[str]) -> None:
    """A list of nothing is a header, in every form."""
    assert shown(capsys, ["ID"], [], "table") == " ID\n------\n"
    assert shown(capsys, ["ID"], [], "csv") == "ID\n"
    assert shown(capsys, ["ID"], [], "json") == "[]\n"


def test_an_empty_table_fits_too(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Issue 6: output fits the terminal, also where there is nothing to list and the ids would be shortened."""
    _pretend(monkeypatch, 20)
    first, rule = shown(capsys, ["# of Batches", "Checkpoint UUID"], [], "table").splitlines()
    assert max(len(first), len(rule)) <= 20
