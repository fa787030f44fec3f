"""Every exception we raise on purpose.

Each derives from `DeterminedError` and, where one fits, from a builtin too, so that `except ValueError` keeps working::

    DeterminedError
    ├── InvalidHP                       the trial found its hyperparameters unusable; the process ends with status 0
    ├── InvalidExperimentException      wrong use of the trial or context API
    │   ├── InvalidConfigurationException
    │   │   └── ConfigError      ValueError     ... for the reasons listed, all of them at once
    │   ├── InvalidDataTypeException
    │   └── InvalidModelException
    ├── InternalException               asked too early, for example for the batch before the first batch
    ├── LauncherError        KeyError   the launcher did not set what this process needs
    ├── CollectiveError      RuntimeError   ranks did not meet in a collective call
    │   └── CollectiveTimeout  TimeoutError    ... in time
    ├── StorageConfigError   ValueError     checkpoint_storage cannot be understood
    │   └── UnknownStorageType  TypeError
    ├── UnsafePath           ValueError     a path that would leave its checkpoint
    ├── CheckpointNotFound              no checkpoint of that id
    ├── CheckpointDamaged    RuntimeError   its files are not the ones that were saved
    ├── InvalidCheckpointException      a checkpoint that cannot be mapped to a model
    ├── CheckpointStateException  RuntimeError  its files are gone, or not yet there
    ├── NoDirectStorageAccess           no credentials, or access denied
    ├── MissingPackage       ImportError    an optional package is not installed
    ├── SearchError          ValueError     a search was asked, or answered, something that cannot be
    ├── NotFound             LookupError    no experiment, trial, checkpoint, ... of that id or name in this store
    ├── Refused              RuntimeError   the store's own rules forbid it; nothing was changed
    │   ├── IllegalMove                     an experiment or trial cannot go there from the state it is in
    │   ├── NoController                    nobody is there who could do it
    │   └── StaleAttempt                    a process reports for a trial that a newer process has taken over
    ├── InvalidValue         ValueError     a name, a label or a piece of metadata that the store cannot keep
    │   └── MetricConflict                  a metric was reported twice for one step, with different values
    ├── StoreError           RuntimeError   the store cannot be used
    │   ├── StoreDamaged                    its file is not what was written to it
    │   └── StoreTooNew                     it was written by a later version of this package
    └── LinkUnavailable      ConnectionError  the place reports go to cannot be reached now; they are kept and retried
        └── StoreUnavailable            ... because the database is locked, full, read-only or gone for now
"""

from __future__ import annotations


class DeterminedError(Exception):
    """Root of everything this package raises on purpose."""


class InvalidHP(DeterminedError):  # the name users' code says
    """Raise it when the hyperparameters cannot be trained: the trial ends early and cleanly.

    Example::

        if hparams["hidden"] % hparams["heads"]:
            raise determined.InvalidHP("hidden must be a multiple of heads")
    """

    def __init__(self, msg: str = "...") -> None:
        if not isinstance(msg, str):
            raise TypeError(f"InvalidHP takes a str, not {type(msg).__name__}: {msg!r}.")
        super().__init__(msg)
        self.msg = msg


class InvalidExperimentException(DeterminedError):
    """The trial, its context or its configuration is used in a way that cannot work."""


class InvalidConfigurationException(InvalidExperimentException):
    """The experiment configuration cannot work."""


class ConfigError(InvalidConfigurationException, ValueError):
    """An experiment file, or a value given for it, that cannot be used. The message lists every reason there is."""

    problems: tuple[tuple[str, str], ...] = ()
    """Where each of several reasons is (`searcher.max_trials`), and the reason; empty if the message says it all."""
    lines: tuple[int | None, ...] = ()
    """The line of each of them in the file that was read, or None; empty if there is no such file."""


class InvalidDataTypeException(InvalidExperimentException):
    """Data of a type that cannot be trained on."""


class InvalidModelException(InvalidExperimentException):
    """A model that cannot be trained."""


class InternalException(DeterminedError):
    """Something was asked for before it exists, or we have a bug."""


class LauncherError(DeterminedError, KeyError):
    """The environment lacks what a launcher would have set."""

    def __str__(self) -> str:  # KeyError would show the message in quotes
        return str(self.args[0]) if self.args else ""


class CollectiveError(DeterminedError, RuntimeError):
    """The ranks did not meet in one collective call."""


class CollectiveTimeout(CollectiveError, TimeoutError):
    """A rank did not arrive in time."""


class StorageConfigError(DeterminedError, ValueError):
    """`checkpoint_storage` cannot be understood."""


class UnknownStorageType(StorageConfigError, TypeError):
    """`checkpoint_storage` names a type, or has a Python type, that we do not know."""


class UnsafePath(DeterminedError, ValueError):
    """A name that would reach outside its checkpoint, or that no file system could hold."""


class CheckpointNotFound(DeterminedError):
    """There is no checkpoint of that id in this storage."""


class CheckpointDamaged(DeterminedError, RuntimeError):
    """The stored files are not the ones that were saved."""


class InvalidCheckpointException(DeterminedError):
    """A checkpoint that cannot be mapped to a model."""


class CheckpointStateException(DeterminedError, RuntimeError):
    """A checkpoint whose files are gone, or not there yet, was asked for them."""


class NoDirectStorageAccess(DeterminedError):
    """The storage refused us: no credentials, or access denied."""


class MissingPackage(DeterminedError, ImportError):
    """An optional package is needed for this and is not installed. The message says what to type."""


class SearchError(DeterminedError, ValueError):
    """A search was given something it cannot work with, or a search method of the user's returned such a thing."""


class LinkUnavailable(DeterminedError, ConnectionError):
    """The place that reports go to cannot be reached now. Reports are kept and retried; training goes on."""


class StoreUnavailable(LinkUnavailable):
    """The store cannot be used now: locked, read-only, out of space, or its server cannot be reached. It may pass."""


class StoreError(DeterminedError, RuntimeError):
    """The store cannot be used, and waiting does not help."""


class StoreDamaged(StoreError):
    """The store's file is not what was written to it."""


class StoreTooNew(StoreError):
    """The store was written by a later version of this package."""


class NotFound(DeterminedError, LookupError):
    """There is no such thing in this store."""


class Refused(DeterminedError, RuntimeError):
    """The rules of the store forbid it; nothing was changed."""


class IllegalMove(Refused):
    """An experiment or trial cannot go there from the state it is in."""


class NoController(Refused):
    """An experiment was asked to do what only a controller could do, and none runs it."""


class StaleAttempt(Refused):
    """A newer attempt of the trial has begun, so this one can no longer report."""


class InvalidValue(DeterminedError, ValueError):
    """A name, a label or a piece of metadata that the store cannot keep."""


class MetricConflict(InvalidValue):
    """A metric was reported twice for one step, with different values; the first is kept."""
