"""Printing the log of a trial, for `det trial logs` and `det experiment logs`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

from determined._wording import visible
from determined.cli.output import terminal
from determined.cli.output.values import plain

if TYPE_CHECKING:
    from determined.client import Trial


def show_logs(trial: Trial, *, follow: bool, head: int | None, tail: int | None, as_json: bool, **filters: Any) -> None:
    """Print the lines that pass the filters; with `follow`, until the trial has ended and all is printed."""
    if sum((follow, head is not None, tail is not None)) > 1:
        raise click.UsageError("Give at most one of --head, --tail and --follow.", click.get_current_context())
    chosen = {
        "rank_ids": list(filters["rank_id"]) or None,
        "node_ids": list(filters["node_id"]) or None,
        "sources": list(filters["source"]) or None,
        "stdtypes": list(filters["stdtype"]) or None,
        "min_level": _level(filters["level"]),
        "timestamp_before": filters["timestamp_before"],
        "timestamp_after": filters["timestamp_after"],
        "search_text": filters["search"],
    }
    is_silent = not any(value is not None for value in (head, tail, *chosen.values()))
    for line in trial.iter_log_rows(follow=follow, head=head, tail=tail, **chosen):
        is_silent = False
        if as_json:
            terminal.write(json.dumps(plain(line.to_dict()), sort_keys=True, ensure_ascii=False) + "\n")
        else:
            text = str(line).replace("\n", "\\n")  # one row is one line, whatever is in it
            terminal.write(f"{visible(text, lines=True, colours=True)}\n", colours=True)
        if follow:
            terminal.flush()
    if is_silent:
        terminal.say(f"Trial {trial.id} printed nothing between `init()` and its end, which is what is kept.")
    terminal.hint(f"Open this log again with: det trial logs {trial.id}")


def _level(name: str | None) -> Any:
    if name is None:
        return None
    from determined.client import LogLevel

    return LogLevel(name.upper())
