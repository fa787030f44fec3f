"""Groups of commands: each is imported when it is typed, may have short names, and may act when nothing follows it."""

from __future__ import annotations

import dataclasses
import importlib
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import click

from determined._wording import instead

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

HELP_NAMES = {"help_option_names": ["-h", "--help"]}


@dataclasses.dataclass(frozen=True)
class Late:
    """A command that lives in another module, and what the list of commands says about it until it is imported."""

    target: str  # "package.module:name"
    about: str
    aliases: tuple[str, ...] = ()

    def load(self) -> click.Command:
        """Import it."""
        module, _, name = self.target.partition(":")
        command: click.Command = getattr(importlib.import_module(module), name)
        return command


class Group(click.Group):
    """A click group that knows aliases, loads late, and says in one line what it does not know.

    Args:
        late: Commands that are imported when they are typed, in the order they are listed.
        default: The command that runs when no other is named.
        left_out: Commands of earlier releases, and what replaces each.

    Example::

        @click.group(cls=Group, default="list")
        def trial() -> None:
            "Trials: one training of one model."
    """

    def __init__(
        self,
        *args: Any,
        late: Mapping[str, Late] | None = None,
        default: str | None = None,
        left_out: Mapping[str, str] | None = None,
        **settings: Any,
    ) -> None:
        settings.setdefault("context_settings", HELP_NAMES)
        settings["no_args_is_help"] = False
        super().__init__(*args, **settings)
        self._late = dict(late or {})
        self._default = default
        self._left_out = dict(left_out or {})
        self._aliases = {alias: name for name, entry in self._late.items() for alias in entry.aliases}

    def verb(self, name: str, *aliases: str, **settings: Any) -> Callable[[Callable[..., Any]], click.Command]:
        """Add a command, under its own name and under shorter ones."""
        settings.setdefault("context_settings", HELP_NAMES)
        self._aliases.update(dict.fromkeys(aliases, name))
        return self.command(name, **settings)

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        """Return all names, in the order of definition."""
        return [*(name for name in self.commands if name not in self._late), *self._late]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        """Return the command of this name or alias, imported if it was not yet."""
        name = self._aliases.get(cmd_name, cmd_name)
        if name not in self.commands and name in self._late:
            self.commands[name] = self._late[name].load()
        return self.commands.get(name)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Nothing typed after a noun means its default command, or help."""
        if not args and not ctx.resilient_parsing:
            args = [self._default or "--help"]
        return super().parse_args(ctx, args)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command that the first argument names; a near miss is named in the error."""
        typed = args[0]
        if typed in self._left_out:
            raise click.UsageError(f"{ctx.command_path} {typed} is left out: {self._left_out[typed]}")
        if self.get_command(ctx, typed) is None and not ctx.resilient_parsing and not typed.startswith("-"):
            ctx.fail(f"No such command {typed!r}.{self._suggestion(ctx, typed)}")
        return super().resolve_command(ctx, args)

    def _suggestion(self, ctx: click.Context, typed: str) -> str:
        near = instead(typed, [*self.list_commands(ctx), *self._aliases])
        return near if "mean" in near else ""

    def _listing(self) -> list[tuple[str, str, str]]:
        """(name, aliases, what it does) of each command, importing none of them."""
        shorter: dict[str, list[str]] = {}
        for alias, name in self._aliases.items():
            shorter.setdefault(name, []).append(alias)
        rows = []
        for name in [*(name for name in self.commands if name not in self._late), *self._late]:
            if name in self._late:
                about = self._late[name].about
            elif self.commands[name].hidden:
                continue
            else:
                about = self.commands[name].get_short_help_str(200)
            rows.append((name, ", ".join(shorter.get(name, ())), about))
        return rows

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """List the commands with their aliases, without importing them."""
        rows = [(f"{name} ({short})" if short else name, about) for name, short, about in self._listing()]
        if rows:
            with formatter.section("Commands"):
                formatter.write_dl(rows)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Commands that begin so; then the options of the group."""
        from click.shell_completion import CompletionItem

        found = [CompletionItem(name, help=about) for name, _, about in self._listing() if name.startswith(incomplete)]
        return found + click.Command.shell_complete(self, ctx, incomplete)
