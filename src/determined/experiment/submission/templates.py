"""Templates: parts of experiment files that several experiments share, kept by name in the data directory."""

from __future__ import annotations

import re
from pathlib import Path

from determined import errors
from determined._home import data_directory, make_data_directory
from determined._wording import instead
from determined.experiment.config import experiment_file
from determined.experiment.config.experiment_config import ExperimentConfig
from determined.experiment.config.experiment_file import ConfigFile
from determined.experiment.config.positions import located

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,79}")
ENDING = ".yaml"


def find(name: str) -> ConfigFile:
    """Return a template by its name, or the file of that path.

    Raises:
        NotFound: There is no such template.

    Example::

        find("defaults").values["checkpoint_storage"]
    """
    if NAME.fullmatch(name) and _path(name).is_file():
        return experiment_file.read(_path(name))
    if Path(name).is_file():
        return experiment_file.read(name)
    raise errors.NotFound(f"There is no template {name!r}, and no such file.{instead(name, names())}")


def names() -> list[str]:
    """Return the names of all templates, sorted."""
    return sorted(path.stem for path in (data_directory() / "templates").glob(f"*{ENDING}"))


def save(name: str, path: str) -> None:
    """Keep a file as a template; one of the same name is replaced.

    Raises:
        ConfigError: It is not a part of an experiment file.
    """
    if not NAME.fullmatch(name):
        raise errors.InvalidValue(
            f"{name!r} is no name of a template: use letters, digits, dots, dashes and underscores, at most 80."
        )
    file = experiment_file.read(path)
    _check(file)
    place = _path(name)
    make_data_directory()
    place.parent.mkdir(mode=0o700, exist_ok=True)
    unfinished = place.with_suffix(".part")
    unfinished.write_text(file.text, encoding="utf-8")
    unfinished.replace(place)


def remove(name: str) -> None:
    """Remove a template.

    Raises:
        NotFound: There is none of this name.
    """
    if not NAME.fullmatch(name) or not _path(name).is_file():
        raise errors.NotFound(f"There is no template {name!r}.{instead(name, names())}")
    _path(name).unlink()


def _path(name: str) -> Path:
    return data_directory() / "templates" / f"{name}{ENDING}"


def _check(file: ConfigFile) -> None:
    """Refuse what could not be a part of any experiment; what is missing comes from the experiment's own file."""
    stand_in = {"entrypoint": "true", "searcher": {"name": "single", "metric": "loss"}}
    given = {key: value for key, value in file.values.items() if value is not None}
    if "searcher" in given:  # it may be a part of one; the experiment's own file names the method
        given.pop("searcher")
    pair = {"workspace", "project"} & given.keys()
    missing = {key: "x" for key in ("workspace", "project") if pair and key not in given}
    try:
        ExperimentConfig.parse(given, {**stand_in, **missing})
    except errors.ConfigError as error:
        raise located(error, file.text, file.name) from None
