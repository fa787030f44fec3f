"""From the `searcher` section to a search method: one of ours by its name, or a class in the user's own code."""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Mapping
from typing import Any

from determined import errors
from determined._import_path import import_from_path
from determined.experiment.hparams import Space
from determined.experiment.search.adaptive_asha import AdaptiveAsha, halving
from determined.experiment.search.base import SearchMethod
from determined.experiment.search.older import OlderMethod
from determined.experiment.search.older import SearchMethod as OlderSearchMethod
from determined.experiment.search.optuna import OptunaSearch
from determined.experiment.search.simple import GridSearch, RandomSearch, SingleSearch

METHODS: dict[Any, Callable[[Mapping[str, Any], Space], SearchMethod]] = {
    "single": lambda _, __: SingleSearch(),
    "random": lambda searcher, _: RandomSearch(searcher),
    "grid": GridSearch,
    "async_halving": lambda searcher, _: halving(searcher),
    "asha": lambda searcher, _: halving(searcher),  # another name of it
    "adaptive_asha": lambda searcher, _: AdaptiveAsha(searcher),
    "optuna": OptunaSearch,
}


def build(searcher: Mapping[str, Any], space: Space, custom: SearchMethod | None = None) -> SearchMethod:
    """Return the method that a checked `searcher` section names.

    Raises:
        SearchError: The name is unknown, or the search is custom and `custom` was not given.

    Example::

        build({"name": "random", "metric": "loss", "max_trials": 8}, Space())  # RandomSearch
    """
    name = searcher.get("name")
    if name == "custom":
        if custom is None:
            raise errors.SearchError("searcher.name is custom, but no method was given. Load it with methods.load().")
        return custom
    if name not in METHODS:
        raise errors.SearchError(f"searcher.name is {name!r}; expected one of {', '.join([*METHODS, 'custom'])}.")
    return METHODS[name](searcher, space)


def load(searcher: Mapping[str, Any], directory: os.PathLike[str] | str) -> SearchMethod:
    """Return the method of a `name: custom` search: `method` names it, `args` are its keyword arguments.

    In the file it may also be called `class` or `entrypoint`.

    The module is imported from the context directory; it may import its neighbours at its top, not inside functions.

    Args:
        searcher: The `searcher` section.
        directory: The context directory, which holds the user's code.

    Raises:
        SearchError: `method` does not name a search method, or the class does not take `args`.

    Example::

        # searcher: {name: custom, metric: loss, method: "my_search:FirstGood", args: {threshold: 0.1}}
        Searcher(searcher, space, seed, custom=load(searcher, context_directory))
    """
    named = searcher.get("method") or searcher.get("class") or searcher.get("entrypoint")
    if not isinstance(named, str) or named.count(":") != 1 or not all(named.split(":")):
        raise errors.SearchError(f"searcher.method is {named!r}; expected module:Class, as in my_search:MySearch.")
    module_name, class_name = named.split(":")
    with import_from_path(directory):
        try:
            module = importlib.import_module(module_name)
        except ModuleNotFoundError as error:
            if error.name is None or not f"{module_name}.".startswith(f"{error.name}."):
                raise  # the module is there; what it imports is not
            raise errors.SearchError(
                f"searcher.method is {named!r}, but {directory} has no module {module_name!r}. "
                "Put it next to the experiment's other code."
            ) from error
        return adopt(_made(module, class_name, named, searcher.get("args") or {}), searcher.get("unit"))


def adopt(method: object, unit: str | None = None) -> SearchMethod:
    """A search method as the searcher takes it; one of the older kind is given a translator.

    Args:
        method: An instance of the user's class.
        unit: In what older methods measure training: batches, epochs, records; None is batches.
    """
    if isinstance(method, SearchMethod):
        return method
    if isinstance(method, OlderSearchMethod):
        return OlderMethod(method, unit)
    raise errors.SearchError(
        f"{type(method).__name__} is no search method. Derive it from determined.experiment.search.base.SearchMethod, "
        "or from determined.searcher.SearchMethod."
    )


def _made(module: object, class_name: str, named: str, arguments: Mapping[str, Any]) -> object:
    kind: object = module
    for name in class_name.split("."):
        kind = getattr(kind, name, None)
    if not isinstance(kind, type):
        raise errors.SearchError(f"searcher.method is {named!r}, but that module has no class {class_name!r}.")
    try:
        return kind(**arguments)
    except TypeError as error:
        raise errors.SearchError(f"{class_name} does not take searcher.args {dict(arguments)!r}: {error}.") from error
