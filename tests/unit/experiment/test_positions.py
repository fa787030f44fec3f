"""Line and column of what is wrong in an experiment file."""

from __future__ import annotations

import pytest

from determined.errors import ConfigError
from determined.experiment.config.experiment_config import ExperimentConfig
from determined.experiment.config.experiment_file import parse
from determined.experiment.config.layers import from_settings
from determined.experiment.config.positions import located, positions

BAD = """# three mistakes, and one more
entrypoint: python3 train.py
searchr: 1
searcher: {name: single, metric: loss}
resources:
  slots_per_trial: -1
log_policies:
  - name: a
  - {name: b, pattern: "("}
"""


def refused(text: str, settings: list[str] | None = None) -> str:
    file = parse(text, "e.yaml")
    typed = from_settings(settings or [], file.values)
    with pytest.raises(ConfigError) as raised:
        ExperimentConfig.parse(typed, file.values)
    return str(located(raised.value, text, "e.yaml", typed))


def test_every_mistake_has_its_place() -> None:
    """P-03, issue 14: each of several mistakes is listed with line and column."""
    heading, *lines = refused(BAD).splitlines()
    assert heading == "e.yaml: invalid experiment configuration"
    assert sorted(line.split(":")[0] + line[line.rindex(" (line") :] for line in lines) == [
        "<config>.log_policies[1].pattern (line 9, column 15)",
        "<config>.resources.slots_per_trial (line 6, column 3)",
        "<config>.searchr (line 3, column 1)",
    ]


def test_what_is_missing_has_the_place_of_its_section() -> None:
    """A missing key of a section points to the section; one of the file to nothing."""
    said = refused("searcher:\n  name: random\n  metric: m\n")
    assert "<config>.entrypoint: is missing" in said
    assert 'python3 train.py".\n' in said
    assert said.endswith("(line 1, column 1)")


def test_what_was_typed_is_not_in_the_file() -> None:
    """A value of --config is said to be one, also where the file has another."""
    said = refused("entrypoint: x\nsearcher: {name: single, metric: m}\nmax_restarts: 1\n", ["max_restarts=-1"])
    assert said.endswith("(in --config)")


def test_positions() -> None:
    """Keys of mappings, entries of lists, JSON, merged mappings, and what is no YAML at all."""
    assert positions("a: 1\nb:\n- 2\n- {c: 3}\n") == {
        "a": (1, 1),
        "b": (2, 1),
        "b[0]": (3, 3),
        "b[1]": (4, 3),
        "b[1].c": (4, 4),
    }
    assert positions('{"a": {"b": 1}}')["a.b"] == (1, 8)
    merged = positions("base: &b {x: 1, y: 2}\nuse: {y: 3, <<: *b}\n")
    assert (merged["use.x"], merged["use.y"]) == ((1, 11), (2, 7))
    assert positions('{\t"a": [}') == {}
    assert positions("") == {}


def test_lines_can_be_read_off_the_error() -> None:
    """8.2: an editor marks the line of each problem; what is in no file has none."""
    with pytest.raises(ConfigError) as raised:
        ExperimentConfig.parse({"max_restarts": -1}, {"searcher": {"name": "single", "metrik": 1}})
    error = located(raised.value, "name: x\nsearcher:\n  name: single\n  metrik: 1\n", "e.yaml", {"max_restarts": -1})
    assert dict(zip([path for path, _ in error.problems], error.lines, strict=True)) == {
        "searcher.metrik": 4,
        "max_restarts": None,
    }
