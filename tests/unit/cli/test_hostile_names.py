"""Text that would take over a terminal: planted everywhere in a store, and nowhere in what the commands print."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

import click
import pytest
import sqlalchemy as sa
import yaml
from click.testing import CliRunner, Result

from determined.cli.main import main
from determined.store import models, schema, values, workspaces
from tests.history import History

RED = "\x1b[31m"
# A window title (OSC), a colour, C1's CSI, NUL, BEL, backspace, CR, DEL, NEL, overrides of direction, no width.
HOSTILE = f"x\x1b]0;owned\x07{RED}\x9b2J\x00\b\r\x7f\x85\u202egpj\u2066\u200f\u061c\u200b\u2028\ufeff\t\ny"
STORED = values.clean(HOSTILE)
CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff]")

# Words that programs compare, and what rows are joined by; their values are never free text.
FIXED = {
    "state", "type", "kind", "stdtype", "source", "uuid", "task_id", "allocation_id", "checkpoint_uuid", "fingerprint",
    "metric_group", "warm_start_checkpoint_uuid", "sha256", "rollup", "body", "last",
    "searcher_metric", "summary_metrics",
}  # fmt: skip
FIXED_TABLES = {"store_facts", "metric_series", "metrics", "storage_backends"}

LISTED = [
    "e ls -a {form}", "e ls -a --show-project {form}", "e ls -a -m {metric} {form}", "e describe 1,2 {form}",
    "e describe 1 --metrics {form}", "e config 1", "e lt 1 {form}", "e lc 1 {form}", "t ls {form}",
    "t describe 1 {form}", "t describe 1 --metrics {form}", "t describe 1 --metrics-summary {form}",
    "t metrics 1 {form}",
    "t plot 1 2 -m {metric}", "e plot 1 -m {metric}", "c ls {form}", "c describe {uuid} {form}", "c verify {uuid}",
    "compare 1 2 {form}", "compare 1 2 --all {form}", "m ls {form}", "m describe {model} {json}", "m lv {model} {form}",
    "w ls {form}", "w lp {workspace} {form}", "p ls {workspace} {form}", "p le {workspace} {project} {form}",
    "store info {form}", "store check", "tb ls {form}", "ui ls {form}", "version",
    "e best 1 {form}", "e metrics 1 {form}", "e watch 1", "e rungs 1 {form}", "j ls {form}", "s ls {form}",
    "controller status {form}", "controller logs", "template ls", "template describe lab",
]  # fmt: skip
WRONG = [
    "m describe {hostile}", "w lp {hostile}", "p ls {hostile}", "t metrics 1 -m {hostile}", "t plot 1 -m {hostile}",
    "e ls -a -m {hostile}", "c describe {hostile}", "t download 1 --uuid {hostile}", "{hostile}", "e {hostile}",
    "e ls --state {hostile}", "e describe {hostile}", "t plot 1 -o {hostile}", "e download 1 --sort-by {hostile}",
    "e plot 1 -m {hostile}", "e plot 1 -m {metric} --hparam {hostile}",
    "preview-search {hostile}", "e validate {hostile}", "e label remove 1 {hostile}",
]  # fmt: skip
LOGS = ["t logs 1", "e logs 1", "t logs 1 --tail 1", "t logs 1 --json"]
# These change something or start something; what they say is made of the same parts.
CHANGING = {
    "activate", "pause", "cancel", "kill", "archive", "unarchive", "delete", "undelete", "set", "label", "move", "stop",
    "create", "register-version", "rm", "start", "open", "vacuum", "export", "import", "download", "wait",
    "download-model-def", "schema", "completion", "validate", "preview-search", "update",
    "fork", "continue", "remove",
}  # fmt: skip


def poisoned(value: Any) -> Any:
    """The JSON value with hostile text in every text of it, and under a hostile name."""
    if isinstance(value, dict):
        is_sizes = value and all(isinstance(inner, int) for inner in value.values())
        return {**{key: poisoned(inner) for key, inner in value.items()}, HOSTILE: 7 if is_sizes else HOSTILE}
    if isinstance(value, list):
        return [*map(poisoned, value), HOSTILE]
    return value + HOSTILE if isinstance(value, str) else value


@pytest.fixture(scope="module")
def names(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """A store whose texts are all hostile: two runs, a model and a project. Returns what they are called."""
    metric = {HOSTILE: 0.5, f"other {HOSTILE}": f"text {HOSTILE}"}
    with History(tmp_path_factory.mktemp("hostile")) as history:
        runs = [
            history.run(
                "run",
                metric=STORED,
                labels=["label"],
                hparams={"lr": lr, HOSTILE: f"{lr}{HOSTILE}"},
                training={10: metric, 20: metric},
                validation={10: metric, 20: metric},
                checkpoints=[10],
                lines=["printed"],
                environment={"git": {"commit": "c"}, "arguments": [f"--lr {lr}"]},
            )
            for lr in (0.1, 0.2)
        ]
        for run in runs:
            history.report(run, STORED, {10: metric})
        with history.store.write() as conn:
            workspace = workspaces.create_workspace(conn, "workspace")
            project = workspaces.create_project(conn, workspace, "project")
            conn.execute(schema.experiments.update().values(project_id=project))
            models.register(conn, models.create(conn, "model", owner="ada").id, runs[0].uuids[0], owner="ada")
            plant(conn)
        with history.store.read() as conn:
            called = {
                table.name: conn.execute(sa.select(table.c.name).order_by(table.c.id.desc())).scalars().first()
                for table in (schema.workspaces, schema.projects, schema.models)
            }
        return {
            "place": str(history.place),
            "uuid": runs[0].uuids[0],
            "metric": STORED,
            "hostile": HOSTILE,
            **{table.removesuffix("s"): str(name) for table, name in called.items()},
        }


def plant(conn: sa.Connection) -> None:
    """Write hostile text into every free text of every row, past everything that would make it harmless."""
    for table in schema.metadata.sorted_tables:
        for column in table.columns if table.name not in FIXED_TABLES else ():
            where, to = f"{table.name} SET {column.name}", "WHERE rowid = :key"
            if column.name in FIXED or isinstance(column.type, schema.Moment):
                continue
            if isinstance(column.type, sa.JSON):
                for key, value in conn.execute(sa.select(sa.literal_column("rowid"), column).select_from(table)).all():
                    text = json.dumps(poisoned(value))
                    conn.execute(sa.text(f"UPDATE {where} = :text {to}"), {"key": key, "text": text})
            elif isinstance(column.type, (sa.Text, schema.Words)):
                extended = f"UPDATE {where} = coalesce({column.name}, '') || :text || rowid"
                conn.execute(sa.text(extended), {"text": STORED})


def det(line: str, names: dict[str, str], form: str = "") -> Result:
    """Run a command; its words are those of the line, with names put in."""
    known = {**names, "form": form, "json": form if form == "--json" else ""}
    typed = [text for word in line.split(" ") if (text := word.format(**known))]
    return CliRunner().invoke(main, ["--store", names["place"], *typed])


FORMS = {"{form}": ["", "--csv", "--json"], "{json}": ["", "--json"]}


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A data directory of the test's own, with a hostile template."""
    monkeypatch.setenv("DET_HOME", str(tmp_path))
    (tmp_path / "templates").mkdir()
    (tmp_path / "templates" / "lab.yaml").write_text(f"name: {json.dumps(HOSTILE)}\n# \u202egpj\n", encoding="utf-8")


@pytest.mark.parametrize(
    ("line", "form"), [(line, form) for line in LISTED for form in FORMS.get(line.split()[-1], [""])]
)
def test_no_control_character_is_printed(line: str, form: str, names: dict[str, str]) -> None:
    """Whatever names a store holds, what a command prints has no control character in it, and JSON is JSON."""
    shown = det(line, names, form)
    assert shown.exit_code == 0, shown.output
    assert not CONTROL.findall(shown.stdout + shown.stderr)
    if form == "--json":
        json.loads(shown.stdout)


@pytest.mark.parametrize("line", WRONG)
def test_an_error_repeats_nothing_raw(line: str, names: dict[str, str]) -> None:
    """An error that repeats what was typed, or says what there is, makes it visible too."""
    shown = det(line, names)
    assert shown.exit_code in (1, 2), shown.output
    assert not CONTROL.findall(shown.stdout + shown.stderr)


def test_every_command_that_shows_something_is_tried() -> None:
    """A command that is added has to be put on one of the lists here."""

    def leaves(group: click.Group, path: str) -> list[str]:
        context = click.Context(group)
        found = []
        for name in group.list_commands(context):
            command = group.get_command(context, name)
            inner = isinstance(command, click.Group) and name not in CHANGING
            found += leaves(command, f"{path} {name}") if inner else [f"{path} {name}"]  # type: ignore[arg-type]
        return found

    tried = set()
    for line in [*LISTED, *LOGS]:
        typed = [word for word in line.split(" ") if "{" not in word and not word.startswith("-")]
        context, command, path = click.Context(main), main, ""
        for word in typed:
            if isinstance(command, click.Group) and (found := command.get_command(context, word)):
                path, command = f"{path} {found.name}", found  # type: ignore[assignment]
        tried.add(path)
    tried |= {" tensorboard logs", " ui logs"}  # of a process that has to run first
    tried.add(" experiment verify")  # of an experiment that a controller drove
    assert {path for path in leaves(main, "") if path.split()[-1] not in CHANGING} <= tried


@pytest.mark.parametrize("line", LOGS)
def test_logs_keep_colours_and_nothing_else(line: str, names: dict[str, str]) -> None:
    """A program's colours are shown with its lines; the rest is visible text, and a colour ends with its line."""
    shown = det(line, names)
    assert shown.exit_code == 0, shown.output
    assert not CONTROL.findall(shown.stdout.replace(RED, "").replace("\x1b[0m", "") + shown.stderr)
    if "--json" not in line:
        assert RED in shown.stdout
        assert all(each.endswith("\x1b[0m") for each in shown.stdout.splitlines())


@pytest.mark.parametrize("kind", ["svg", "html", "png"])
def test_pictures_are_well_formed(kind: str, names: dict[str, str], tmp_path: Path) -> None:
    """A picture of metrics with hostile names opens; an SVG is well-formed XML."""
    file = tmp_path / f"curves.{kind}"
    assert det(f"t plot 1 2 -m {{metric}} -o {file}", names).exit_code == 0
    if kind == "svg":
        ElementTree.fromstring(file.read_text())
    if kind != "png":
        assert not CONTROL.findall(file.read_text())
        assert "owned" in file.read_text()


def test_yaml_keeps_its_meaning(names: dict[str, str]) -> None:
    """What `det e config` prints is read back as what the store holds."""
    found = yaml.safe_load(det("e config 1", names).stdout)
    assert found == {HOSTILE: HOSTILE}


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_shell_completes_nothing_raw(shell: str, names: dict[str, str]) -> None:
    """The names beside ids that a shell offers are visible text."""
    environment = {"_DET_COMPLETE": f"{shell}_complete", "COMP_WORDS": "det e describe ", "COMP_CWORD": "3"}
    if shell == "fish":
        environment["COMP_CWORD"] = ""
    result = CliRunner().invoke(main, [], env={**environment, "DET_STORE": names["place"]}, prog_name="det")
    assert "2" in result.stdout
    assert not CONTROL.findall(result.stdout + result.stderr)
