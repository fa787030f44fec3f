"""JSON text that holds everything a metric can be."""

from __future__ import annotations

import json
import math

import hypothesis
import hypothesis.strategies as st
import pytest

from determined.store import values

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text()
    | st.sampled_from(["NaN", "~NaN", "Infinity", "-Infinity", "~~-Infinity", "+Infinity"]),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@hypothesis.settings(max_examples=200, deadline=None)
@hypothesis.given(JSON)
def test_values_come_back_exactly(value: object) -> None:
    """P-73: NaN and Infinity too, and text that only looks so stays text."""
    text = values.dump(value)
    json.loads(text, parse_constant=pytest.fail)  # plain JSON that every database takes
    assert repr(values.load(text)) == repr(value)


def test_the_spelling_is_what_people_expect() -> None:
    """Other programs read these rows, too."""
    written = values.dump({"loss": math.nan, "up": [math.inf, -math.inf], "note": "NaN"})
    assert json.loads(written) == {"loss": "NaN", "up": ["Infinity", "-Infinity"], "note": "~NaN"}


def test_text_is_cleaned_of_what_no_database_holds() -> None:
    """A NUL and halves of characters are replaced; everything else stays."""
    assert values.clean("a\0b\ud800\udfffc é 🙂") == "a\ufffdb\ufffd\ufffdc é 🙂"
