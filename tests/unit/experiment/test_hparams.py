"""The search space: declarations, draws and grids, to the digit."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from determined.experiment.generator import Generator
from determined.experiment.hparams import Space, parse


def space(value: Any, **options: Any) -> Space:
    made, problems = parse(value, **options)
    assert problems == []
    return made


def problems(value: Any, **options: Any) -> list[str]:
    return [str(problem) for problem in parse(value, **options)[1]]


def axis(declaration: dict[str, Any]) -> list[Any]:
    return [point["x"] for point in space({"x": declaration}, needs_count=True).grid()]


def ranged(kind: str, minval: float, maxval: float, **more: Any) -> dict[str, Any]:
    return {"type": kind, "minval": minval, "maxval": maxval, **more}


TABLE = {
    "batch": {"type": "categorical", "vals": [16, 32, 64]},
    "dropout": ranged("double", 0.2, 0.5),
    "global_batch_size": 64,
    "layers": ranged("int", 1, 3),
    "lr": ranged("log", -4, -1, base=10),
}


class TestDeclarations:
    def test_equal_bounds_are_refused(self) -> None:
        """P-19: Given `{type: int, minval: 3, maxval: 3}`, then refused."""
        found = problems({"n": ranged("int", 3, 3)})
        assert found == ["<config>.hyperparameters.n: minval is 3 and maxval is 3; minval must be below maxval."]

    def test_an_unknown_type_is_refused(self) -> None:
        """P-28: Given `optimizer: {type: adam}`, then refused with the list of types."""
        (found,) = problems({"optimizer": {"type": "adam"}})
        assert found.startswith("<config>.hyperparameters.optimizer.type: is 'adam'")
        assert "const, int, double, log, categorical" in found

    def test_grid_needs_counts(self) -> None:
        """P-26: Given grid with a double without count two levels deep, then the error names the dotted path."""
        declared = {"a": {"b": {"c": ranged("double", 0, 1)}}}
        (found,) = problems(declared, needs_count=True)
        assert found.startswith("<config>.hyperparameters.a.b.c: ")
        assert "count: 5" in found
        assert problems(declared) == []

    @pytest.mark.parametrize(
        ("declaration", "path", "words"),
        [
            ({"type": "int", "minval": 1}, ".maxval", "missing"),
            (ranged("int", 1, None), ".maxval", "missing"),
            ({"type": "const"}, ".val", "missing"),
            ({"type": "const", "val": 1, "x": 2}, ".x", "not a key"),
            (ranged("double", 1, 2, base=10), ".base", "not a key"),
            (ranged("int", 1.5, 3), ".minval", "whole number"),
            (ranged("int", True, 3), ".minval", "whole number"),
            (ranged("double", "1e-3", 3), ".minval", "expected a number"),
            (ranged("double", 0, math.inf), ".maxval", "finite"),
            (ranged("double", -1.7e308, 1.7e308), "", "double holds"),
            (ranged("double", 0, 10**400), ".maxval", "finite"),
            (ranged("log", 0, 1, base=0), ".base", "above 0"),
            (ranged("log", 0, 1, base=-10), ".base", "above 0"),
            (ranged("log", 0, 400, base=10), "", "exponents"),
            (ranged("int", 0, 9, count=0), ".count", "at least 1"),
            (ranged("int", 0, 9, count=2.5), ".count", "at least 1"),
            (ranged("double", 2, 1), "", "below maxval"),
            ({"type": "categorical", "vals": []}, ".vals", "at least one"),
            ({"type": "categorical", "vals": "abc"}, ".vals", "list"),
            ({"type": ["int"]}, ".type", "types are"),
        ],
    )
    def test_mistakes_say_where_and_what(self, declaration: Any, path: str, words: str) -> None:
        """2.1: each validation of the table; the path is the declaration's, the reason says what is expected."""
        (found,) = problems({"x": declaration})
        assert found.startswith(f"<config>.hyperparameters.x{path}: ")
        assert words in found

    def test_all_mistakes_are_collected(self) -> None:
        """P-03: independent mistakes are all listed, those of one declaration too."""
        declared = {"a": ranged("int", 2, 1), "b": {"c": {"type": "adam"}}, "d": ranged("log", "x", "y", base="z")}
        assert [found.split(":")[0].removeprefix("<config>.hyperparameters.") for found in problems(declared)] == [
            "a", "b.c.type", "d.base", "d.minval", "d.maxval"
        ]  # fmt: skip

    @pytest.mark.parametrize("value", [[], "x", 3])
    def test_the_section_is_a_mapping(self, value: Any) -> None:
        """2.1: hyperparameters that are no mapping are one problem, not many."""
        assert problems(value) == [f"<config>.hyperparameters: is {value!r}; expected a mapping from name to value."]

    def test_nothing_is_an_empty_space(self) -> None:
        """1.1: `hyperparameters: null` is the same as no hyperparameters."""
        assert space(None).effective() == {}
        assert space(None).is_constant()

    def test_null_and_whole_floats_are_what_json_means(self) -> None:
        """1.1: `count: null` is absent; 3.0 and 3 are one number."""
        assert axis(ranged("int", 0.0, 2.0, count=3.0)) == [0, 1, 2]
        assert space({"x": ranged("int", 0, 2, count=None)}).effective() == {"x": ranged("int", 0, 2)}

    def test_the_effective_form_is_explicit(self) -> None:
        """2.1: the effective config writes implicit constants as `{type: const, val: X}`; it reads back the same."""
        declared = {"a": 1, "b": [1, 2], "c": None, "d": {"e": "x", "f": {}}, **TABLE}
        effective = space(declared).effective()
        assert effective["a"] == {"type": "const", "val": 1}
        assert effective["b"] == {"type": "const", "val": [1, 2]}
        assert effective["c"] == {"type": "const", "val": None}
        assert effective["d"] == {"e": {"type": "const", "val": "x"}, "f": {}}
        assert effective["lr"] == TABLE["lr"]
        assert space(effective).effective() == effective


class TestSampling:
    @pytest.mark.parametrize(
        ("seed", "rows"),
        [
            (0, [
                (16, 0.37785338546750546, 1, 0.0064311720501319895, "c3767d8b-677d-45d8-89a4-746cd3dea19f", 626610453),
                (64, 0.3312761633788077, 3, 0.0001479581634542288, "8ccdcc45-3a39-4962-8142-487ae67daeca", 1340754471),
                (64, 0.3704133683281797, 2, 0.03222821784787407, "48985f56-091b-4e16-9497-eea573082d05", 1581585360),
            ]),
            (42, [
                (64, 0.4389628960580698, 3, 0.015702970884055385, "bcae4199-142c-4b98-a6d6-f02779182272", 669991378),
                (64, 0.21742508365045984, 1, 0.006358358856676252, "973e44b5-82a0-40a6-9506-450534fd700e", 2018247425),
            ]),
        ],
    )  # fmt: skip
    def test_the_table_of_vectors(self, seed: int, rows: list[tuple[Any, ...]]) -> None:
        """P-23: Given the space of 2.3 and seed 0 (and 42), then the table's rows."""
        generator, where = Generator(seed), space(TABLE)
        for batch, dropout, layers, lr, request_id, trial_seed in rows:
            assert where.sample(generator) == {
                "batch": batch, "dropout": dropout, "global_batch_size": 64, "layers": layers, "lr": lr
            }  # fmt: skip
            assert (generator.uuid4(), generator.trial_seed()) == (request_id, trial_seed)

    def test_a_list_is_one_constant(self) -> None:
        """P-20: Given a list value, when sampled, then the trial gets the same list, and may change its own copy."""
        where = space({"layers": [64, 32], "c": {"type": "const", "val": {"type": "adam"}}})
        drawn = where.sample(Generator(0))
        assert drawn == {"c": {"type": "adam"}, "layers": [64, 32]}
        drawn["layers"].append(1)  # type: ignore[union-attr]
        assert where.sample(Generator(0))["layers"] == [64, 32]

    def test_constants_draw_nothing(self) -> None:
        """2.2: a constant consumes no randomness."""
        generator, other = Generator(1), Generator(1)
        space({"a": 1, "b": {"c": [2]}}).sample(generator)
        assert generator.word() == other.word()

    def test_whole_numbers_are_uniform(self) -> None:
        """P-21: Given 1000 draws of int 1..3, then only 1, 2, 3, each within 5 sigma of a third."""
        generator, where = Generator(5), space({"n": ranged("int", 1, 3)})
        drawn = [where.sample(generator)["n"] for _ in range(1000)]
        assert set(drawn) == {1, 2, 3}
        sigma = math.sqrt(1000 * (1 / 3) * (2 / 3))
        assert all(abs(drawn.count(n) - 1000 / 3) < 5 * sigma for n in (1, 2, 3))

    def test_exponents_are_uniform(self) -> None:
        """P-22: Given log base 10 -4..-1, then all draws in [1e-4, 1e-1) and log10 is uniform."""
        generator, where = Generator(6), space({"lr": TABLE["lr"]})
        drawn: list[Any] = [where.sample(generator)["lr"] for _ in range(3000)]
        assert all(1e-4 <= lr < 1e-1 for lr in drawn)
        thirds = [math.floor(math.log10(lr)) for lr in drawn]
        sigma = math.sqrt(3000 * (1 / 3) * (2 / 3))
        assert all(abs(thirds.count(k) - 1000) < 5 * sigma for k in (-4, -3, -2))

    def test_nested_names_are_drawn_in_sorted_order(self) -> None:
        """P-24, D4: the same seed gives the same values, nested ones too, however they were written down."""
        one = {"b": {"y": ranged("double", 0, 1), "x": ranged("int", 0, 9)}, "a": ranged("double", 0, 1)}
        other = {"a": one["a"], "b": {"x": one["b"]["x"], "y": one["b"]["y"]}}
        drawn = space(one).sample(Generator(9))
        assert drawn == space(other).sample(Generator(9))
        generator = Generator(9)
        assert drawn == {
            "a": generator.uniform(), "b": {"x": generator.integer(9), "y": generator.uniform()}
        }  # fmt: skip


class TestGrid:
    @pytest.mark.parametrize(
        ("declaration", "values"),
        [
            (ranged("int", 0, 20, count=3), [0, 10, 20]),
            (ranged("int", 0, 4, count=5), [0, 1, 2, 3, 4]),
            (ranged("int", 1, 3, count=100), [1, 2, 3]),
            (ranged("int", -4, -2, count=3), [-4, -3, -2]),
            (ranged("int", 0, 10, count=4), [0, 3, 7, 10]),
            (ranged("int", 16, 128, count=4), [16, 53, 91, 128]),
            (ranged("int", 0, 5, count=1), [3]),
            (ranged("int", -5, -2, count=1), [-4]),
            (ranged("double", 0.2, 0.5, count=4), [0.2, 0.3, 0.4, 0.5]),
            (ranged("double", 0, 2, count=1), [1.0]),
            (ranged("log", -5, -3, base=10, count=3), [1e-5, 1e-4, 1e-3]),
            (ranged("log", -4, -1, base=10, count=1), [0.0031622776601683794]),
            (ranged("log", 0, 4, base=2, count=5), [1, 2, 4, 8, 16]),
            ({"type": "categorical", "vals": ["b", "a", None]}, ["b", "a", None]),
            ({"type": "const", "val": [1, 2]}, [[1, 2]]),
        ],
    )
    def test_the_table_of_axes(self, declaration: dict[str, Any], values: list[Any]) -> None:
        """P-25: Given the tables of 2.4, then equal axes (doubles within 1e-12)."""
        found = axis(declaration)
        assert len(found) == len(values)
        for ours, theirs in zip(found, values, strict=True):
            assert ours == pytest.approx(theirs, abs=1e-12) if isinstance(theirs, float) else ours == theirs
            assert type(ours) is int or declaration["type"] != "int"

    def test_the_worked_grid(self) -> None:
        """P-25: a int 0..20 count 3, b.c int 0..10 count 3: nine points in this order, the last axis fastest."""
        grid = space({"b": {"c": ranged("int", 0, 10, count=3)}, "a": ranged("int", 0, 20, count=3)}).grid()
        order = [(0, 0), (0, 5), (0, 10), (10, 0), (10, 5), (10, 10), (20, 0), (20, 5), (20, 10)]
        assert list(grid) == [{"a": a, "b": {"c": c}} for a, c in order]
        assert grid[-1] == {"a": 20, "b": {"c": 10}}
        assert grid[1:3] == [grid[1], grid[2]]
        with pytest.raises(IndexError):
            grid[9]

    @pytest.mark.parametrize(("counts", "size"), [([2, 3, 4], 24), ([2, 2, 3, 3, 4, 5], 720), ([], 1)])
    def test_sizes_multiply(self, counts: list[int], size: int) -> None:
        """2.4: counts [2,3,4] give 24; [2,2,3,3,4,5] give 720."""
        where = space({f"x{i}": ranged("double", 0, 1, count=count) for i, count in enumerate(counts)})
        assert len(where.grid()) == size

    def test_sizes_of_nested_axes(self) -> None:
        """2.4: two binary axes nested two deep plus one double count 2 and one log count 2 give 16."""
        binary = {"type": "categorical", "vals": [False, True]}
        declared = {
            "a": {"b": {"c": binary, "d": binary}},
            "e": ranged("double", 0, 1, count=2),
            "f": ranged("log", 0, 1, base=10, count=2),
        }
        assert len(space(declared).grid()) == 16

    def test_an_empty_group_stays(self) -> None:
        """P-27: Given grid with an empty nested mapping, then every trial has that key with an empty mapping."""
        grid = space({"a": ranged("int", 0, 1, count=2), "b": {}, "c": {"d": {}}}).grid()
        assert list(grid) == [{"a": 0, "b": {}, "c": {"d": {}}}, {"a": 1, "b": {}, "c": {"d": {}}}]

    def test_a_huge_grid_costs_nothing(self) -> None:
        """A grid of 10^120 points is as cheap as a small one: points are computed when asked for."""
        grid = space({f"x{i}": ranged("double", 0, 1, count=1000) for i in range(40)}).grid()
        assert grid.size == 1000**40
        assert grid[grid.size - 1] == {f"x{i}": 1.0 for i in range(40)}

    @settings(max_examples=50, deadline=None)
    @given(st.integers(-1000, 1000), st.integers(1, 500), st.integers(1, 600))
    def test_whole_axes_are_distinct_and_rounded(self, low: int, span: int, count: int) -> None:
        """2.4: clamped to maxval-minval+1, ascending, no value twice, each the nearest to its exact place."""
        values = axis(ranged("int", low, low + span, count=count))
        assert len(values) == min(count, span + 1)
        assert values == sorted(set(values))
        steps = max(len(values) - 1, 1)
        exact = [low + i * span / steps for i in range(len(values))] if len(values) > 1 else [low + span / 2]
        assert all(abs(ours - theirs) <= 0.5 + 1e-9 for ours, theirs in zip(values, exact, strict=True))
