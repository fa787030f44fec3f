"""Fork, continue and search dialogs, with the checks of `det experiment create`."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from typing import Literal

from fastapi import APIRouter

from determined import errors
from determined._redact import redacted
from determined.client import Experiment
from determined.client._listing import section
from determined.client._session import Session
from determined.experiment.config.experiment_config import ExperimentConfig
from determined.experiment.config.experiment_file import ConfigFile
from determined.experiment.config.positions import positions
from determined.experiment.config.problems import config_path
from determined.experiment.simulation.preview import preview
from determined.experiment.submission import continuation, submit
from determined.experiment.submission import draft as drafts
from determined.server import search_form
from determined.server.answers.submissions import (
    Checked,
    Continue,
    Draft,
    Fork,
    PreviewRow,
    ProblemAnswer,
    SearchForm,
    StartText,
    Submitted,
    Written,
)
from determined.server.depends import Client, StoreSession
from determined.server.rules import CHANGES, READS
from determined.store import experiments, trials
from determined.store.experiments import ExperimentRow
from determined.store.trials import TrialRow

router = APIRouter(tags=["submissions"])

UNUSABLE = (errors.LinkUnavailable, errors.StoreError)  # of the store, not of what was typed
SAYS_LINE = re.compile(r"\bline (\d+)")


@router.get("/experiments/{experiment_id}/draft", **READS)
def draft(
    session: StoreSession,
    experiment_id: int,
    purpose: Literal["fork", "continue", "search"] = "fork",
    trial_id: int | None = None,
) -> StartText:
    """Return the text that a dialog starts with; with a trial, its hyperparameters are constants.

    `continue` with a trial is a new experiment that begins with the trial's last checkpoint: it is submitted as a fork.
    """
    row, trial = _read(session, experiment_id, trial_id)
    file = drafts.of_experiment(row)
    if purpose == "continue" and trial is None:
        is_single = section(row.config, "searcher").get("name") == "single"
        return StartText(config=file.text if is_single else "", name=row.name)
    name = _name(row, purpose, trial)
    if trial is not None:
        file = drafts.of_trial(file, trial.id, redacted(trial.hparams), is_continued=purpose == "continue")
    form = _form(session, row, name, trial) if purpose == "search" else None
    return StartText(config=drafts.with_name(file, name).text, name=name, form=form)


def _read(session: Session, experiment_id: int, trial_id: int | None) -> tuple[ExperimentRow, TrialRow | None]:
    with session.read() as conn:
        row = experiments.get(conn, experiment_id)
        trial = None if trial_id is None else trials.get(conn, trial_id)
    if trial is not None and trial.experiment_id != experiment_id:
        raise errors.NotFound(f"Trial {trial_id} is one of experiment {trial.experiment_id}, not {experiment_id}.")
    return row, trial


def _name(row: ExperimentRow, purpose: str, trial: TrialRow | None) -> str:
    old = row.name.removeprefix("Fork of ").removeprefix("Search from ")
    which = old if trial is None else f"{old}, trial {trial.id}"
    return {"fork": f"Fork of {which}", "search": f"Search from {which}"}.get(purpose, f"{which} continued")


def _form(session: Session, row: ExperimentRow, name: str, trial: TrialRow | None) -> SearchForm:
    if trial is None:
        with session.read() as conn:
            longest = trials.of_experiment(conn, row.id, sort_by="batches", descending=True, limit=1)
    else:
        longest = [trial]
    length = longest[0].total_batches if longest else 0
    values = None if trial is None else redacted(trial.hparams)
    return search_form.filled(redacted(row.config or {}), name, length, values)


@router.post("/experiments/{experiment_id}/check", **READS)
def check(client: Client, session: StoreSession, experiment_id: int, draft: Draft) -> Checked:
    """Check a configuration without submitting it."""
    client.get_experiment(experiment_id)  # says that there is none
    try:
        file = drafts.read_text(draft.config)
        if draft.purpose == "continue":
            config = continuation.check_continuation(session.store, experiment_id, file)
            said = f"Experiment {experiment_id} can be continued."
            return Checked(is_fine=True, problems=[], warnings=config.warnings, preview=[], trials=None, said=said)
        request = continuation.fork_request(session.store, experiment_id, session.user, file)
        ready = submit.check(session.store, request)
    except UNUSABLE:
        raise
    except errors.DeterminedError as error:
        found = list(_problems(error, draft.config))
        said = "1 problem." if len(found) == 1 else f"{len(found)} problems."
        return Checked(is_fine=False, problems=found, warnings=[], preview=[], trials=None, said=said)
    rows = _counted(ready.config)
    counted = sum(row.trials for row in rows) if rows else None
    return Checked(is_fine=True, problems=[], warnings=ready.warnings, preview=rows, trials=counted, said=_said(rows))


def _problems(error: errors.DeterminedError, text: str) -> Iterator[ProblemAnswer]:
    """Yield each thing that is wrong, with its line where the text shows it."""
    problems: Sequence[tuple[str, str]] = getattr(error, "problems", ())
    if not problems:
        yield ProblemAnswer(line=_line(str(error), text), path=config_path(""), reason=str(error))
    lines = getattr(error, "lines", ()) or [None] * len(problems)
    for (path, reason), line in zip(problems, lines, strict=True):
        yield ProblemAnswer(line=line, path=config_path(path), reason=reason)


def _line(message: str, text: str) -> int | None:
    """Return the line that a message names, or that of the key which it begins with."""
    begins = message.removeprefix(f"{drafts.TYPED}: ")
    if said := SAYS_LINE.search(message.partition(":")[0]):
        return int(said[1])
    return positions(text).get(begins.split(" ")[0].rstrip(":,"), (None,))[0]


def _counted(config: ExperimentConfig) -> list[PreviewRow]:
    searcher = {key: value for key, value in config.effective()["searcher"].items() if value is not None}
    return [PreviewRow(trials=count, units=units) for count, units in preview(searcher, config.space)]


def _said(rows: Sequence[PreviewRow]) -> str:
    if not rows:
        return "A custom search decides as it goes, so nothing can be counted beforehand."
    count = sum(row.trials for row in rows)
    parts = ", ".join(f"{row.trials:,} {row.units}" for row in rows)
    return f"{count:,} {'trial' if count == 1 else 'trials'}: {parts}."


@router.post("/experiments/{experiment_id}/search-config", **READS)
def search_config(session: StoreSession, experiment_id: int, form: SearchForm) -> Written:
    """Write the configuration of a search from a form."""
    row, _ = _read(session, experiment_id, None)
    file = drafts.of_experiment(row)
    known = file.values.get("searcher")
    searcher = search_form.section(form, known if isinstance(known, dict) else {})
    found = drafts.with_search(file, searcher, search_form.declarations(form, row.config or {}))
    return Written(config=drafts.with_name(found, form.name.strip()).text if form.name else found.text)


@router.post("/experiments/{experiment_id}/fork", **CHANGES)
def fork(client: Client, experiment_id: int, asked: Fork) -> Submitted:
    """Submit its code again, as a new experiment."""
    experiment, file = client.get_experiment(experiment_id), drafts.read_text(asked.config)
    name = (asked.name or "").strip()
    if file is None:
        settings = [f"name={json.dumps(name, ensure_ascii=False)}"] if name else []
        made = experiment.fork(settings=settings, paused=asked.paused)
    else:
        made = experiment.fork(_named(file, name), paused=asked.paused)
    return _submitted(made, f"Created experiment {made.id}, a fork of experiment {experiment_id}.")


def _named(file: ConfigFile, name: str) -> ConfigFile:
    return drafts.with_name(file, name) if name else file


def _submitted(made: Experiment, said: str) -> Submitted:
    return Submitted(experiment_id=made.id, warnings=made.warnings, said=said)


@router.post("/experiments/{experiment_id}/continue", **CHANGES)
def continue_experiment(client: Client, experiment_id: int, asked: Continue) -> Submitted:
    """Let it go on after its end."""
    client.get_experiment(experiment_id).continue_(text=asked.config)
    return Submitted(experiment_id=experiment_id, warnings=[], said=f"Continued experiment {experiment_id}.")
