"""ExperimentConfig: layers of plain values in, checked values with defaults out. `experiment_file` reads files."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from pydantic import PrivateAttr, ValidationError

from determined._redact import redacted
from determined.errors import ConfigError
from determined.experiment import hparams
from determined.experiment.config import explain, legacy, rules
from determined.experiment.config.fields import DEFAULT_LOG_POLICIES, Fields
from determined.experiment.config.layers import merged, plain, without_nulls
from determined.experiment.config.problems import Problem, listed, refusal, shown
from determined.experiment.config.searcher import ALIASES
from determined.experiment.config.storage import default_storage


class ExperimentConfig(Fields):
    """An experiment's configuration, checked and complete; its sections are attributes.

    Example::

        searcher = {"name": "single", "metric": "loss"}
        config = ExperimentConfig.parse({"entrypoint": "python3 train.py", "searcher": searcher})
        config.resources.slots_per_trial  # 1
        config.effective()["max_restarts"]  # 5
    """

    _space: hparams.Space = PrivateAttr(default_factory=hparams.Space)
    _warnings: tuple[str, ...] = PrivateAttr(default=())

    @classmethod
    def parse(cls, *layers: Mapping[str, Any], managed: bool = True) -> ExperimentConfig:
        """Merge `layers`, the strongest first, over the built-in defaults, and check the result.

        Args:
            layers: Overrides, the submitted file, a template, and so on.
            managed: Whether we start the trials, and so need an entrypoint.

        Raises:
            ConfigError: It cannot work. All problems of the first check that fails are listed: shape, then
                completeness, then currency.
        """
        problems: list[Problem] = []
        values = _merged(layers, problems)
        fields = _shaped(values, problems)
        space, found = _space(values)
        listed_paths = {problem.path for problem in problems}  # a value with a problem looks as if it were missing
        problems += [*(problem for problem in found if problem.path not in listed_paths), *rules.contradictions(values)]
        _refuse(problems)
        assert fields is not None

        complete = legacy.with_derived(fields)
        _refuse(rules.missing(complete, managed=managed))
        _refuse(rules.outdated(complete))
        config = cls.model_construct(
            complete.model_fields_set, **{k: getattr(complete, k) for k in Fields.model_fields}
        )
        config._space = space
        config._warnings = (*legacy.warnings(fields), *_search_warnings(values, space), *_missing_types(space))
        return config

    @property
    def space(self) -> hparams.Space:
        """The hyperparameters that the search may choose from."""
        return self._space

    @property
    def warnings(self) -> list[str]:
        """What the user should know about a configuration that works, one sentence each."""
        return list(self._warnings)

    def effective(self) -> dict[str, Any]:
        """Return all keys, all defaults, as plain JSON values; secrets included, for the trial."""
        return {**self.model_dump(mode="json", by_alias=True), "hyperparameters": self._space.effective()}

    def masked(self) -> dict[str, Any]:
        """Return the effective configuration as people and logs may see it."""
        return redacted(self.effective())

    def __repr_args__(self) -> Iterable[tuple[str | None, Any]]:
        return self.masked().items()


def built_in() -> dict[str, Any]:
    """Return the weakest layer: defaults that merge with what the file says."""
    return {"log_policies": list(DEFAULT_LOG_POLICIES), "checkpoint_storage": default_storage()}


def _merged(layers: Iterable[Mapping[str, Any]], problems: list[Problem]) -> dict[str, Any]:
    """Return all layers as one mapping of plain values, without nulls."""
    cleaned = []
    for layer in layers:
        if not isinstance(layer, Mapping):
            raise ConfigError(listed([Problem("", f"is {shown(layer)}, and has to be a mapping of keys to values.")]))
        cleaned.append(without_nulls(plain(layer, "", problems)))
    values = merged([*cleaned, built_in()])
    searcher = values.get("searcher")
    if isinstance(searcher, dict) and isinstance(searcher.get("name"), str):
        values["searcher"] = {**searcher, "name": ALIASES.get(searcher["name"], searcher["name"])}
    return values


def _shaped(values: Mapping[str, Any], problems: list[Problem]) -> Fields | None:
    try:
        return Fields.model_validate({**values, "hyperparameters": {}})
    except ValidationError as e:
        problems += explain.problems(e, Fields)
        return None


def _space(values: Mapping[str, Any]) -> tuple[hparams.Space, list[Problem]]:
    return hparams.parse(values.get("hyperparameters", {}), needs_count=_method(values) == "grid")


def _method(values: Mapping[str, Any]) -> Any:
    searcher = values.get("searcher")
    return searcher.get("name") if isinstance(searcher, dict) else None


def _search_warnings(values: Mapping[str, Any], space: hparams.Space) -> list[str]:
    if _method(values) == "single" and not space.is_constant():
        return ["searcher is single, and hyperparameters are not all constant: one sample is drawn, and no more."]
    return []


def _missing_types(space: hparams.Space) -> Iterator[str]:
    paths = dict.fromkeys(path for path, _ in space.parameters())
    for *group, last in paths:
        if group and last == "minval" and (*group, "maxval") in paths:
            name = ".".join(("hyperparameters", *group))
            yield f"{name} has minval and maxval but no type, so it is a group of constants. Add one, say type: int."


def _refuse(problems: Iterable[Problem]) -> None:
    if found := [Problem(_on_one_line(path), _on_one_line(reason)) for path, reason in dict.fromkeys(problems)]:
        raise refusal(found)


def _on_one_line(text: str) -> str:
    """Escape what is not printable: keys may hold anything, and a problem is one line."""
    return text if text.isprintable() else "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)
