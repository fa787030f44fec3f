"""The functions of `determined.client`: methods of a `Determined` that is created when the first of them is called."""

from __future__ import annotations

import functools
import inspect
import os
import threading
from collections.abc import Callable
from typing import Concatenate, ParamSpec, TypeVar

from determined._home import data_directory
from determined.client._determined import Determined

P = ParamSpec("P")
T = TypeVar("T")

_lock = threading.Lock()
_logged_in: Determined | None = None
_local: tuple[tuple[str, str], Determined] | None = None  # the place of the default store, and its client


def login(
    master: str | None = None,
    user: str | None = None,
    password: str | None = None,
    cert_path: str | None = None,
    cert_name: str | None = None,
    noverify: bool = False,
    *,
    store: str | os.PathLike[str] | None = None,
) -> None:
    """Choose the store that the functions of this module use. Optional: by default it is the one of this machine.

    Args:
        master: A store, for older scripts.
        user: Who works here, for what is made.
        password: Ignored, like the next three: a store needs no login of ours.
        cert_path: Ignored.
        cert_name: Ignored.
        noverify: Ignored.
        store: The store: a file, or `postgresql://...`.

    Raises:
        ValueError: It was called before. Use a `Determined` of its own for a second store.

    Example::

        client.login(store="postgresql://lab/runs")
        client.list_experiments()
    """
    global _logged_in
    with _lock:
        if _logged_in is not None:
            raise ValueError("login() was called before. For another store use Determined(store=...) and its methods.")
        _logged_in = Determined(master, user, password, cert_path, cert_name, noverify, store=store)


def connect(store: str | os.PathLike[str] | None = None) -> Determined:
    """Return a client of a store; without one, the client that the functions of this module use.

    Example::

        connect().list_experiments()
    """
    return _default() if store is None else Determined(store=store)


def _default() -> Determined:
    global _local
    with _lock:
        if _logged_in is not None:
            return _logged_in
        place = (os.environ.get("DET_STORE", ""), str(data_directory()))
        if _local is None or _local[0] != place:  # a notebook may set DET_STORE in between
            if _local is not None:
                _local[1].close()  # what came from it opens it again when it is used
            _local = (place, Determined())
        return _local[1]


def _function(method: Callable[Concatenate[Determined, P], T]) -> Callable[P, T]:
    """Return a function that calls a method of the default client; it has the method's docstring and signature."""

    @functools.wraps(method)
    def function(*args: P.args, **kwargs: P.kwargs) -> T:
        return method(_default(), *args, **kwargs)

    _, *parameters = inspect.signature(method).parameters.values()
    function.__signature__ = inspect.signature(method).replace(parameters=parameters)  # type: ignore[attr-defined]  # mypy knows none on functions
    function.__module__, function.__qualname__ = __name__, method.__name__
    return function


create_experiment = _function(Determined.create_experiment)
get_experiment = _function(Determined.get_experiment)
list_experiments = _function(Determined.list_experiments)
get_trial = _function(Determined.get_trial)
get_checkpoint = _function(Determined.get_checkpoint)
iter_trials_metrics = _function(Determined.iter_trials_metrics)
create_model = _function(Determined.create_model)
get_model = _function(Determined.get_model)
list_models = _function(Determined.list_models)
get_model_labels = _function(Determined.get_model_labels)
get_workspace = _function(Determined.get_workspace)
list_workspaces = _function(Determined.list_workspaces)
create_workspace = _function(Determined.create_workspace)
delete_workspace = _function(Determined.delete_workspace)

# What older scripts call these.
get_models = list_models
stream_trials_metrics = iter_trials_metrics
stream_trials_training_metrics = _function(Determined.stream_trials_training_metrics)
stream_trials_validation_metrics = _function(Determined.stream_trials_validation_metrics)
