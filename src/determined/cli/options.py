"""Options that many commands share: the form of output, paging, filters of logs, ids that complete themselves."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from determined._wording import visible

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

F = TypeVar("F", bound=Callable[..., Any])

OFFERED_IDS = 50


LAUNCHERS = ("local", "ray")
launcher = click.option(
    "--launcher",
    type=click.Choice(LAUNCHERS),
    help="Where trials run: on this machine, or on the Ray cluster of RAY_ADDRESS. [env DET_LAUNCHER; default: local]",
)


def forms(function: F) -> F:
    """Adds --csv and --json; the command is called with `form`."""

    @click.option("--csv", "as_csv", is_flag=True, help="Comma-separated values, header first.")
    @click.option("--json", "as_json", is_flag=True, help="JSON.")
    @functools.wraps(function)
    def command(*args: Any, as_csv: bool, as_json: bool, **options: Any) -> Any:
        if as_csv and as_json:
            raise click.UsageError("--csv and --json exclude each other.", click.get_current_context())
        return function(*args, form="csv" if as_csv else "json" if as_json else "table", **options)

    return command  # type: ignore[return-value]  # wraps() keeps the signature that click reads


def paging(default: int = 200) -> Callable[[F], F]:
    """Adds --limit, --offset and --pages; the command is called with `limit` (None: all) and `offset`."""

    def decorate(function: F) -> F:
        @click.option("--limit", type=click.IntRange(min=1), default=default, show_default=True, help="Rows per page.")
        @click.option("--offset", type=click.IntRange(min=0), default=0, help="Rows to pass over.")
        @click.option("--pages", type=click.Choice(["1", "all"]), default="all", show_default=True)
        @functools.wraps(function)
        def command(*args: Any, limit: int, offset: int, pages: str, **options: Any) -> Any:
            return function(*args, limit=limit if pages == "1" else None, offset=offset, **options)

        return command  # type: ignore[return-value]  # as above

    return decorate


yes = click.option("-y", "--yes", is_flag=True, help="Do not ask.")
quiet = click.option("-q", "--quiet", is_flag=True, help="No progress bar, no table: only the path.")


class Ids(click.ParamType):  # type: ignore[type-arg]  # generic only since click 8.4
    """Ids as people type them: `3`, or several in one word: `3,5,8`."""

    name = "id"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if isinstance(value, (list, tuple)):
            return value
        try:
            return [int(part) for part in str(value).split(",")]
        except ValueError:
            self.fail(f"{value!r} is not an id. Ids are whole numbers: 3, or several: 3,5,8.", param, ctx)


class Time(click.ParamType):  # type: ignore[type-arg]  # as above
    """A time as logs are searched by."""

    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the time, aware; without an offset it is UTC."""
        from determined.client._logs import moment

        try:
            return moment(value)
        except ValueError:
            self.fail(f"{value!r} is no time. Write it like 2026-01-31T12:00:00Z.", param, ctx)


class State(click.ParamType):  # type: ignore[type-arg]  # as above
    """A state of an experiment, in capitals or not."""

    name = "state"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the state as the store writes it."""
        from determined.client import ExperimentState

        if (state := str(value).upper()) not in ExperimentState.__members__:
            self.fail(f"{value!r} is none of {', '.join(ExperimentState.__members__)}.", param, ctx)
        return state

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """Return the states that begin so."""
        from determined.client import ExperimentState

        return _offer(ctx, param, incomplete.upper(), lambda: [(name, "") for name in ExperimentState.__members__])


def experiment_ids(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete ids of the newest experiments."""

    def find() -> list[tuple[str, str]]:
        from determined.cli import connection, finding

        with connection.connect() as client:
            return [(str(e.id), e.name) for e in reversed(finding.newest_experiments(client, OFFERED_IDS))]

    return _offer(ctx, param, incomplete, find)


def trial_ids(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete ids of the newest trials."""

    def find() -> list[tuple[str, str]]:
        from determined.cli import connection, finding

        with connection.connect() as client:
            newest = finding.trials(client, experiment_id=None, last=OFFERED_IDS)
            return [(str(t.id), f"experiment {t.experiment_id}") for t in reversed(newest)]

    return _offer(ctx, param, incomplete, find)


def metrics(*, plain: bool = True, dotted: bool = True) -> Callable[..., list[CompletionItem]]:
    """Complete metrics of the typed trials or experiments, else of the newest: `loss`, `training.loss`."""

    def complete(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        def find() -> list[tuple[str, str]]:
            known = _reported(ctx)
            groups = sorted(known, key=lambda group: (group != "validation", group != "training", group))
            names = [(name, group) for group in groups for name in known[group] if plain]
            names += [(f"{group}.{name}", "") for group in groups for name in known[group] if dotted]
            return list({word: (word, about) for word, about in reversed(names)}.values())[::-1]

        return _offer(ctx, param, incomplete, find)

    return complete


def groups(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete the groups of metrics that the typed trial reported."""
    return _offer(ctx, param, incomplete, lambda: [(group, "") for group in _reported(ctx)])


def _reported(ctx: click.Context) -> dict[str, list[str]]:
    """Return names of metrics by group, of the trials or experiment that were typed, or of the newest trials."""
    from determined.cli import connection, finding

    # An option that still lacks its value keeps click from sorting what was typed into arguments.
    typed = [int(part) for word in ctx.args for part in word.split(",") if part.isdigit()]
    with connection.connect() as client:
        if typed and any(param.name == "experiment_id" for param in ctx.command.params):
            return client.get_experiment(typed[0]).metric_names()
        newest = [] if typed else finding.trials(client, experiment_id=None, last=OFFERED_IDS)
        return client.metric_names(typed or [trial.id for trial in newest])


def _offer(
    ctx: click.Context, param: click.Parameter, incomplete: str, find: Callable[[], list[tuple[str, str]]]
) -> list[CompletionItem]:
    from click.shell_completion import CompletionItem

    del ctx, param
    try:
        found = find()
    except Exception:  # noqa: BLE001  completion that fails offers nothing; the command itself will say why
        return []
    offered = [(visible(word), visible(about)) for word, about in found]
    return [CompletionItem(word, help=about) for word, about in offered if word.startswith(incomplete)]


experiment_id = click.argument("experiment_id", metavar="ID", type=int, shell_complete=experiment_ids)
trial_id = click.argument("trial_id", metavar="ID", type=int, shell_complete=trial_ids)


def log_filters(function: F) -> F:
    """Adds what `logs` takes: -f, --head, --tail and the filters."""
    options = [
        click.option("-f", "--follow", is_flag=True, help="Go on until the trial has ended."),
        click.option("--head", type=click.IntRange(min=0), metavar="N", help="Only the first N lines."),
        click.option("--tail", type=click.IntRange(min=0), metavar="N", help="Only the last N lines."),
        click.option("--level", type=click.Choice(LEVELS, case_sensitive=False), help="This level or worse."),
        click.option("--rank-id", type=int, multiple=True, metavar="N", help="Only this rank. Repeat for several."),
        click.option("--node-id", multiple=True, metavar="HOST", help="Only this machine. Repeat for several."),
        click.option("--source", multiple=True, help="Only `trial` or `controller`."),
        click.option("--stdtype", multiple=True, type=click.Choice(["stdout", "stderr"]), help="Only this stream."),
        click.option("--timestamp-before", type=Time(), metavar="TIME", help="RFC 3339, such as 2026-01-31T12:00:00Z."),
        click.option("--timestamp-after", type=Time(), metavar="TIME", help="RFC 3339, such as 2026-01-31T12:00:00Z."),
        click.option("--search", metavar="TEXT", help="Only lines that contain this."),
        click.option("--json", "as_json", is_flag=True, help="One JSON object per line."),
    ]
    for option in reversed(options):
        function = option(function)
    return function


LEVELS = ["TRACE", "DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL"]
