"""`python -m determined.cli`: the `det` command, where no script of that name is on the path."""

from determined.cli.main import main

main(prog_name="det")
