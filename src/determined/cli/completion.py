"""`det completion`: what a shell needs to complete commands, options and ids."""

from __future__ import annotations

import click

from determined.cli.groups import HELP_NAMES
from determined.cli.output import terminal

INSTALLED = {
    "bash": "det completion bash >> ~/.bashrc",
    "zsh": "det completion zsh >> ~/.zshrc",
    "fish": "det completion fish > ~/.config/fish/completions/det.fish",
}


@click.command(context_settings=HELP_NAMES)
@click.argument("shell", type=click.Choice(list(INSTALLED)))
def completion(shell: str) -> None:
    """Print the completion of SHELL.

    \b
    det completion bash >> ~/.bashrc
    det completion zsh >> ~/.zshrc
    det completion fish > ~/.config/fish/completions/det.fish
    """
    from click.shell_completion import get_completion_class

    root = click.get_current_context().find_root()
    found = get_completion_class(shell)
    assert found is not None, "click knows these three"
    script = found(root.command, {}, "det", "_DET_COMPLETE")
    terminal.write(script.source_template % script.source_vars())
    terminal.hint(f"To have it in every shell: {INSTALLED[shell]}")
