"""Checkpoints that were damaged after they left their storage: downloaded, or copied by hand."""

from __future__ import annotations

import contextlib
import io
import json
import os
import random
import shutil
import struct
import tracemalloc
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from determined import artifacts, errors, pytorch
from determined.artifacts import CARRIED
from determined.core import CheckpointContext
from determined.pytorch import Batch, load_trial_from_checkpoint_path
from determined.pytorch.checkpoint import torch_archive
from tests.trials import OneWeightTrial, train

Damage = Callable[[Path], None]


@pytest.fixture
def stored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkpoint in its storage, with code."""
    (tmp_path / "work" / "lib").mkdir(parents=True)
    (tmp_path / "work" / ".detinclude").write_text("lib/**\n")
    (tmp_path / "work" / "lib" / "part.py").write_text("SIZE = 3\n" * 20)
    monkeypatch.chdir(tmp_path / "work")
    run = train(max_length=Batch(2), checkpoint_policy="all")
    return Path(run.context.core_context.checkpoint.location) / run.checkpoint


@pytest.fixture
def downloaded(stored: Path, tmp_path: Path) -> Path:
    """The same, as `download` leaves it."""
    storage = artifacts.open_storage(str(stored.parent))
    storage.fetch(stored.name, tmp_path / "downloaded", carries_manifest=True)
    return tmp_path / "downloaded"


@pytest.fixture
def copied(stored: Path, tmp_path: Path) -> Path:
    """The same, as `cp -r` leaves it: without a manifest."""
    shutil.copytree(stored, tmp_path / "copied")
    return tmp_path / "copied"


@pytest.fixture
def fit() -> Iterator[Callable[[Path], None]]:
    """Goes on from a directory, or refuses to."""
    with pytorch.init(seed=7) as context:
        trainer = pytorch.Trainer(OneWeightTrial(context), context)
        yield lambda path: trainer.fit(max_length=Batch(3), latest_checkpoint=str(path), checkpoint_policy="none")


def load(path: Path) -> None:
    load_trial_from_checkpoint_path(str(path), trial_class=OneWeightTrial)


def files(directory: Path) -> list[str]:
    return [name for name in artifacts.list_tree(directory) if not name.endswith("/")]


def flip(name: str, bit: int) -> Damage:
    def damage(home: Path) -> None:
        content = bytearray((home / name).read_bytes())
        content[bit // 8] ^= 1 << bit % 8
        (home / name).write_bytes(content)

    return damage


def cut(name: str, size: int) -> Damage:
    return lambda home: os.truncate(home / name, size)


def replace(name: str, make: Damage) -> Damage:
    def damage(home: Path) -> None:
        (home / name).replace(home.parent / "was")
        make(home / name)

    return damage


def linked(path: Path) -> None:
    """A link to the very same content, outside."""
    path.symlink_to(next(parent.parent for parent in path.parents if parent.name == "victim") / "was")


def damages(home: Path, name: str, flips: int, seed: int = 5) -> Iterator[tuple[str, Damage]]:
    """Ways to damage one file, with what to call them."""
    size = (home / name).stat().st_size
    draw = random.Random(f"{seed} {name}")
    for bit in draw.sample(range(size * 8), min(flips, size * 8)):
        yield f"{name}: bit {bit}", flip(name, bit)
    for length in sorted({0, draw.randrange(size), size - 1}):
        yield f"{name}: cut to {length}", cut(name, length)
    yield f"{name} as a directory", replace(name, Path.mkdir)
    yield f"{name} as a pipe", replace(name, lambda path: os.mkfifo(path))
    yield f"{name} as a link", replace(name, linked)
    if name != CARRIED:  # without it, it is a copy by hand
        yield f"{name} missing", lambda home: (home / name).unlink()


def accepted(home: Path, tried: Iterator[tuple[str, Damage]], use: Callable[[Path], None]) -> list[str]:
    """Which damages were not refused with CheckpointDamaged."""
    found = []
    for label, damage in tried:
        victim = home.parent / "victim"
        shutil.copytree(home, victim)
        damage(victim)
        try:
            use(victim)
        except errors.CheckpointDamaged:
            pass
        except Exception as other:
            found.append(f"{label}: {type(other).__name__}: {other}")
        else:
            found.append(label)
        shutil.rmtree(victim)
        (home.parent / "was").unlink(missing_ok=True)
    return found


def test_every_damage_of_a_download_is_refused(downloaded: Path) -> None:
    """Decision 6: one bit, a byte less, a missing file, or something else in its place, in any file there is."""
    load(downloaded)
    assert {CARRIED, "state_dict.pth", "metadata.json", "load_data.json", "code/lib/part.py"} <= set(files(downloaded))
    tried = (each for name in files(downloaded) for each in damages(downloaded, name, flips=12))
    assert accepted(downloaded, tried, load) == []


def test_fit_refuses_every_damage_of_a_download(downloaded: Path, fit: Callable[[Path], None]) -> None:
    """Decision 6: fit(latest_checkpoint=...) refuses a downloaded checkpoint with any kind of damage."""
    fit(downloaded)
    tried = (each for name in files(downloaded) for each in damages(downloaded, name, flips=2))
    assert accepted(downloaded, tried, fit) == []


def test_without_a_manifest_the_archive_is_checked(copied: Path, fit: Callable[[Path], None]) -> None:
    """Every bit of state_dict.pth counts, in a tensor, in a header, or in between; it vouches for the other files."""
    assert CARRIED not in files(copied)
    load(copied)
    fit(copied)
    assert accepted(copied, damages(copied, "state_dict.pth", flips=150), load) == []
    assert accepted(copied, damages(copied, "state_dict.pth", flips=10), fit) == []
    others = [name for name in files(copied) if name not in ("state_dict.pth", "metadata.json")]
    assert {"trial_state.pkl", "load_data.json", "code/lib/part.py"} <= set(others)
    for use in (load, fit):
        assert accepted(copied, (each for name in others for each in damages(copied, name, flips=6)), use) == []


def test_without_a_manifest_what_metadata_says_is_checked(copied: Path, fit: Callable[[Path], None]) -> None:
    """A bit of metadata.json that changes what it says is refused; one that only changes white space is not."""
    before = json.loads((copied / "metadata.json").read_text())
    for use in (load, fit):
        for label in accepted(copied, damages(copied, "metadata.json", flips=40), use):
            bit = int(label.rpartition(" ")[2])
            content = bytearray((copied / "metadata.json").read_bytes())
            content[bit // 8] ^= 1 << bit % 8
            assert json.loads(content) == before, label


def test_fit_refuses_what_is_no_file_in_the_storage(stored: Path, fit: Callable[[Path], None]) -> None:
    """By its id too, and by its metadata alone: a pipe is not waited for, and 57 MB are not read."""
    checkpoints = CheckpointContext(storage=artifacts.open_storage(str(stored.parent)))
    places: list[Damage] = [Path.mkdir, lambda path: os.mkfifo(path), Path.touch]
    (stored / "metadata.json").unlink()
    for make in places:
        make(stored / "metadata.json")
        if (stored / "metadata.json").is_file():
            os.truncate(stored / "metadata.json", 57_000_000)
        for use in (fit, load):
            with pytest.raises(errors.CheckpointDamaged, match=r"metadata\.json"):
                use(stored)
        with pytest.raises(errors.CheckpointDamaged, match=r"metadata\.json"):
            checkpoints.get_metadata(stored.name)
        with pytest.raises(errors.CheckpointDamaged, match=r"metadata\.json"):
            checkpoints.download(stored.name, stored.parent.parent / "target")
        with contextlib.suppress(IsADirectoryError):
            (stored / "metadata.json").unlink()
        shutil.rmtree(stored / "metadata.json", ignore_errors=True)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b'{"steps_completed": ' + b"1" * 5000 + b"}", "a number of 5000 digits"),
        (b'{"a": ' * 100_000 + b"1" + b"}" * 100_000, "nested more than 100 levels deep"),
        (b'{"a": ' * 300 + b"1" + b"}" * 300, "nested more than 100 levels deep"),
        (None, "57000000 bytes"),
        (b"[]", "holds a list"),
        (b"\xff", "is not JSON"),
    ],
    ids=["digits", "deep", "deeper than ours", "large", "list", "no text"],
)
def test_absurd_metadata_is_refused_cheaply(
    copied: Path, fit: Callable[[Path], None], content: bytes | None, says: str
) -> None:
    """A few megabytes of memory, and a sentence."""
    for name, use in (("metadata.json", fit), ("load_data.json", load)):
        if content is None:
            os.truncate(copied / name, 57_000_000)
        else:
            (copied / name).write_bytes(content)
        tracemalloc.start()
        try:
            with pytest.raises(errors.CheckpointDamaged, match=f"{name}.* {says}"):
                use(copied)
            assert tracemalloc.get_traced_memory()[1] < 8 << 20
        finally:
            tracemalloc.stop()


def compressed(path: Path) -> None:
    """The archive in `path` with a tensor of zeros more."""
    with zipfile.ZipFile(path, "a", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(f"{archive.namelist()[0].split('/')[0]}/data/99", bytes(64 << 20))


def overlapping(path: Path) -> None:
    """An archive whose entries are all about the same bytes."""
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("archive/data/0", bytes(100_000))
        for number in range(1, 40):
            again = zipfile.ZipInfo(f"archive/data/{number}")
            again.file_size, again.compress_size, again.header_offset, again.CRC = 100_000, 100_000, 0, 0
            archive.filelist.append(again)


@pytest.mark.parametrize("has_manifest", [True, False])
def test_an_archive_that_unpacks_to_more_than_it_is(downloaded: Path, has_manifest: bool) -> None:
    """It is refused before it is unpacked, also if a manifest says that it was saved like this."""
    for make, says in ((compressed, "a compressed record"), (overlapping, "would unpack to 4000000 bytes")):
        make(downloaded / "state_dict.pth")
        if has_manifest:
            storage = artifacts.open_storage(str(downloaded.parent / f"another {says}"))
            draft = storage.draft("id")
            draft.publish(draft.put(downloaded, [name for name in files(downloaded) if name != CARRIED]))
            home = storage.directory("id")
        else:
            home = downloaded
            (home / CARRIED).unlink(missing_ok=True)
        with pytest.raises(errors.CheckpointDamaged, match=says):
            load(home)


def test_the_header_of_a_record_of_more_than_4_gib() -> None:
    """As torch 2.13 wrote it, with the size in a field of 64 bits; every bit of it counts."""
    header = struct.pack("<4s5H3I2H", b"PK\x03\x04", 0, 2056, 0, 0, 0, 0, 0, 0, 10, 66)
    content = header + b"one/data/0" + struct.pack("<2H2Q", 1, 16, 4_600_000_000, 0) + b"FB*\0" + b"Z" * 42
    record = torch_archive._Record(b"one/data/0", (0, 2056, 0, 0, 0), (0, 0, 0), 1, 4_600_000_000, 0)
    assert torch_archive._check_header(io.BytesIO(content), record) == len(content)
    for bit in range(len(content) * 8):
        changed = bytearray(content)
        changed[bit // 8] ^= 1 << bit % 8
        with pytest.raises((torch_archive._Wrong, struct.error)):
            torch_archive._check_header(io.BytesIO(changed + bytes(70_000)), record)


def test_checksums_are_saved_whatever_torch_was_told(tmp_path: Path) -> None:
    """A copy by hand has no others."""
    torch.serialization.set_crc32_options(False)
    try:
        run = train(max_length=Batch(1), checkpoint_policy="all")
        assert torch.serialization.get_crc32_options() is False
    finally:
        torch.serialization.set_crc32_options(True)
    home = Path(run.context.core_context.checkpoint.location) / run.checkpoint
    assert zipfile.ZipFile(home / "state_dict.pth").testzip() is None


def test_an_archive_without_checksums_is_read(copied: Path) -> None:
    """torch can be told to leave them out; then there is nothing to compare."""
    state = torch.load(copied / "state_dict.pth", weights_only=True)
    torch.serialization.set_crc32_options(False)
    try:
        torch.save(state, copied / "state_dict.pth")
    finally:
        torch.serialization.set_crc32_options(True)
    load(copied)


def test_what_was_changed_on_purpose(downloaded: Path) -> None:
    """The message says how to keep the change: stored anew, the checkpoint is loaded."""
    described: dict[str, Any] = json.loads((downloaded / "load_data.json").read_text())
    (downloaded / "load_data.json").write_text(json.dumps({**described, "hparams": {"lr": 3}}))
    with pytest.raises(errors.CheckpointDamaged, match=r"on purpose, store the directory anew with .*upload\(\)"):
        load(downloaded)
    checkpoints = CheckpointContext()
    storage_id = checkpoints.upload(downloaded, {"steps_completed": 2})
    load(Path(checkpoints.location) / storage_id)
