"""Nothing that a name can say leads out of a checkpoint: a corpus against upload, download, selector, metadata."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path

import pytest

from determined import artifacts, errors
from determined.core import CheckpointContext
from tests.contracts.storage import UNSAFE_PATHS

ENCODED = ["%2e%2e%2fx", "..%2fx", "%252e%252e/x", "&#46;&#46;/x"]
STEPS = {"steps_completed": 1}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "inside" / "checkpoints"


@pytest.fixture
def checkpoints(root: Path) -> CheckpointContext:
    return CheckpointContext(storage=artifacts.open_storage(str(root)))


@pytest.fixture
def stored(checkpoints: CheckpointContext, tmp_path: Path) -> str:
    (tmp_path / "source").mkdir()
    (tmp_path / "source" / "f").write_text("1")
    return checkpoints.upload(tmp_path / "source", STEPS)


def everything(path: Path) -> dict[str, bytes]:
    return {str(p): p.read_bytes() for p in path.rglob("*") if p.is_file()}


@pytest.mark.parametrize("name", [*UNSAFE_PATHS, *ENCODED])
def test_an_id_cannot_lead_out(checkpoints: CheckpointContext, stored: str, tmp_path: Path, name: str) -> None:
    """Issue 2: restore, download, metadata and delete of a hostile id are refused; nothing is written or removed."""
    before = everything(tmp_path)
    for call in (
        lambda: checkpoints.download(name, tmp_path / "target"),
        lambda: checkpoints.get_metadata(name),
        lambda: checkpoints.restore_path(name).__enter__(),
    ):
        with pytest.raises((errors.UnsafePath, errors.CheckpointNotFound)):
            call()
    with contextlib.suppress(errors.UnsafePath):  # or it is a name that no checkpoint has: that is no error
        checkpoints.delete(name)
    assert everything(tmp_path) == before
    assert not (tmp_path / "target").exists()


@pytest.mark.parametrize("link", ["../../../secret", "/etc"])
def test_links_are_followed_into_copies_and_never_stored(
    checkpoints: CheckpointContext, root: Path, tmp_path: Path, link: str
) -> None:
    """3.9 Better: one rule for links when uploading: what they point at is copied; no link gets into storage."""
    (tmp_path / "secret").mkdir()
    (tmp_path / "secret" / "s").write_text("s")
    source = tmp_path / "a" / "b" / "source"
    source.mkdir(parents=True)
    (source / "f").write_text("1")
    (source / "loop").symlink_to(source)
    (source / "here").symlink_to(tmp_path / "secret")
    storage_id = checkpoints.upload(source, STEPS)
    assert (root / storage_id / "here" / "s").read_text() == "s"
    assert [p for p in (root / storage_id).rglob("*") if p.is_symlink()] == []


def test_a_link_planted_in_storage_is_refused(
    checkpoints: CheckpointContext, stored: str, root: Path, tmp_path: Path
) -> None:
    """A stored file that was replaced by a link to a secret is not handed out."""
    (tmp_path / "secret").write_text("1")
    (root / stored / "f").unlink()
    (root / stored / "f").symlink_to(tmp_path / "secret")
    with pytest.raises((errors.UnsafePath, errors.CheckpointDamaged)):
        checkpoints.download(stored, tmp_path / "target")


def test_a_link_planted_in_the_target_is_not_followed(
    checkpoints: CheckpointContext, tmp_path: Path, root: Path
) -> None:
    """A download does not write through a link that leads out of its target."""
    source, target, outside = tmp_path / "source", tmp_path / "target", tmp_path / "outside"
    for path in (source / "sub", target, outside):
        path.mkdir(parents=True)
    (source / "sub" / "f").write_text("1")
    storage_id = checkpoints.upload(source, STEPS)
    (target / "sub").symlink_to(outside)
    with pytest.raises(errors.UnsafePath):
        checkpoints.download(storage_id, target)
    assert list(outside.iterdir()) == []


@pytest.mark.parametrize("name", [*UNSAFE_PATHS, *ENCODED])
def test_a_hostile_manifest_is_refused(
    checkpoints: CheckpointContext, stored: str, root: Path, tmp_path: Path, name: str
) -> None:
    """A manifest that names a path outside is refused before anything is written; encodings are plain names."""
    manifest = root / ".artifacts" / "manifests" / f"{stored}.json"
    content = json.loads(manifest.read_text())
    content["files"][name] = {"size": 1, "sha256": "0" * 64}
    manifest.write_text(json.dumps(content))
    before = everything(root)
    with pytest.raises((errors.UnsafePath, errors.CheckpointDamaged)):
        checkpoints.download(stored, tmp_path / "target")
    assert everything(root) == before
    assert {p.name for p in tmp_path.iterdir()} <= {"inside", "source", "target", "det-home"}


def test_a_selector_only_selects(checkpoints: CheckpointContext, stored: str, tmp_path: Path) -> None:
    """A selector that says yes to everything gets only what is there; its answers are never used as paths."""
    asked: list[str] = []

    def selector(path: str) -> bool:
        asked.append(path)
        return True

    checkpoints.download(stored, tmp_path / "target", selector=selector)
    assert set(asked) == {"f", "metadata.json"}
    assert {p.name for p in (tmp_path / "target").iterdir()} == {"f", "metadata.json", artifacts.CARRIED}


@pytest.mark.parametrize("text", ["{", "[1, 2", '{"a": NaN', "\x00"])
def test_broken_metadata_is_said(checkpoints: CheckpointContext, stored: str, root: Path, text: str) -> None:
    """metadata.json that was tampered with is refused by its checksum."""
    (root / stored / "metadata.json").write_text(text)
    with pytest.raises(errors.CheckpointDamaged, match=r"metadata\.json"):
        checkpoints.get_metadata(stored)


@pytest.mark.parametrize("key", ["../../x", "/etc/passwd", "a\0b", "x" * 10_000])
def test_metadata_keys_are_just_text(checkpoints: CheckpointContext, tmp_path: Path, stored: str, key: str) -> None:
    """Names inside metadata are data: any text is kept and becomes no path."""
    storage_id = checkpoints.upload(tmp_path / "source", {**STEPS, key: 1})
    assert checkpoints.get_metadata(storage_id)[key] == 1
