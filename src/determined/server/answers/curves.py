"""Curves as charts need them: in as many buckets as there are pixels, with the lowest and highest value of each."""

from __future__ import annotations

from determined.server.answers.common import Answer, Number


class OddPoint(Answer):
    """A point that was NaN or infinite: a mark on the axis, a gap in the line."""

    steps: int
    value: Number


class Envelope(Answer):
    """One curve in buckets, as columns. Where points are few, each has a bucket of its own.

    x of a bucket is its last step (`ends`); epochs and seconds are at the same places (seconds since the trial began).
    Samples that belong to no step, such as those of the profiler, have whole seconds for steps, in `first` and `last`
    of the question too.
    """

    trial_id: int
    group: str
    name: str
    steps: list[int]  # first step of each bucket
    ends: list[int]  # last step of each bucket
    epochs: list[float | None]
    seconds: list[float | None]
    min: list[float | None]
    mean: list[float | None]
    max: list[float | None]
    odd: list[OddPoint]  # at most 100
    shown: int  # buckets
    points: int  # in the range that was asked for
    total: int  # of the whole curve
    is_sampled: bool  # over time: its steps are seconds


class Curves(Answer):
    """Several curves."""

    curves: list[Envelope]


class SeriesAnswer(Answer):
    """A curve that a trial, or one of several, has."""

    group: str
    name: str
    chart: str  # base name: training and validation curves of one base name share a chart
    points: int
    trials: int
    is_sampled: bool  # over time only: samples that belong to no step


class SeriesList(Answer):
    """All curves that there are, by chart."""

    series: list[SeriesAnswer]
