"""Secrets of submitted experiments: in a file of their own, and back in the configuration of a trial."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any

import pytest

from determined._redact import redacted
from determined.experiment.submission import secret_values

CONFIG: dict[str, Any] = {
    "data": {"secrets": {"t": "abc", "n": 5}, "path": "/x"},
    "environment": {"environment_variables": {"cpu": ["WANDB_API_KEY=k", "PLAIN=1"], "cuda": []}},
    "checkpoint_storage": {"type": "s3", "secret_key": "sk", "bucket": "b"},
    "hyperparameters": {"lr": {"type": "const", "val": 0.1}, "password": {"type": "const", "val": "p"}},
    "entrypoint": ["python3", "train.py", "--api-key", "hunter2"],
}


def test_what_the_store_hides_comes_back(tmp_path: Path) -> None:
    """P-09: the store has ********, the trial has `abc`; variables, keys of storages and commands too."""
    ident = str(uuid.uuid4())
    assert secret_values.keep(CONFIG, ident, tmp_path)
    stored = redacted(CONFIG)
    assert stored["data"]["secrets"] == {"t": "********", "n": "********"}
    assert secret_values.restore(stored, ident, tmp_path) == CONFIG
    assert stored == redacted(CONFIG), "the given one is left as it is"


def test_only_its_user_reads_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Mode 0600 in a directory of mode 0700, and gone when the experiment is."""
    monkeypatch.setenv("DET_HOME", str(tmp_path / "home"))
    ident = str(uuid.uuid4())
    secret_values.keep(CONFIG, ident)
    place = tmp_path / "home" / "secrets" / f"{ident}.json"
    assert place.stat().st_mode & 0o777 == 0o600
    assert place.parent.stat().st_mode & 0o777 == 0o700
    assert [path.name for path in place.parent.iterdir()] == [place.name]
    secret_values.forget(ident)
    secret_values.forget(ident)
    assert not place.exists()


def test_without_secrets_there_is_no_file(tmp_path: Path) -> None:
    """A configuration without secrets comes back as it is; one that lost its secrets loses its file."""
    ident = str(uuid.uuid4())
    secret_values.keep(CONFIG, ident, tmp_path)
    plain = {"data": {"path": "/x"}}
    assert not secret_values.keep(plain, ident, tmp_path)
    assert list((tmp_path / "secrets").iterdir()) == []
    assert secret_values.restore(plain, ident, tmp_path) == plain


def test_a_changed_configuration_takes_what_still_fits(tmp_path: Path) -> None:
    """A key that is gone since is not brought back."""
    ident = str(uuid.uuid4())
    secret_values.keep(CONFIG, ident, tmp_path)
    changed = {"data": {"secrets": {"t": "********"}}, "entrypoint": "python3 train.py"}
    assert secret_values.restore(changed, ident, tmp_path)["data"] == {"secrets": {"t": "abc", "n": 5}}


def test_hyperparameters_of_a_trial() -> None:
    """Constants that the store redacted in a trial's row are those of the configuration."""
    stored = {"lr": 0.1, "password": "********", "other": "********"}
    assert secret_values.restore_hparams(stored, CONFIG) == {"lr": 0.1, "password": "p", "other": "********"}


def test_ids_are_no_paths(tmp_path: Path) -> None:
    """Nothing but a UUID names a file."""
    with pytest.raises(ValueError, match="is not the UUID"):
        secret_values.restore({}, "../../etc/passwd", tmp_path)


@pytest.mark.parametrize(
    ("typed", "expected"),
    [
        ({"key": "********"}, {"key": "abc"}),
        ({"key": "other"}, {"key": "other"}),
        ({"new": "********"}, {"new": "********"}),
        ({"list": ["N=0", "T=********", "A=1"]}, {"list": ["N=0", "T=xyz", "A=1"]}),
        ({"list": ["T=********, U=********"]}, {"list": ["T=********, U=********"]}),
        ({"lr": "********"}, {"lr": "k1"}),
        ({"lr": {"type": "const", "val": "********"}}, {"lr": {"type": "const", "val": "k1"}}),
        ({"lr": {"type": "categorical", "vals": ["********"]}}, {"lr": {"type": "categorical", "vals": ["********"]}}),
        ({"deep": {"key": "********", "n": 2}}, {"deep": {"key": "d", "n": 2}}),
        ({"deep": "********"}, {"deep": "********"}),
    ],
)
def test_masks_that_were_left_are_the_secrets_again(typed: dict[str, Any], expected: dict[str, Any]) -> None:
    """A masked value that a person left where it was shown is the secret; other stars stay what they are."""
    whole = {"key": "abc", "list": ["A=1", "T=xyz"], "lr": {"type": "const", "val": "k1"}, "deep": {"key": "d", "n": 1}}
    masked = {
        "key": "********",
        "list": ["A=1", "T=********"],
        "lr": {"type": "const", "val": "********"},
        "deep": {"key": "********", "n": 1},
    }
    assert secret_values.unmasked(typed, masked, whole) == expected
