"""The code of an experiment over the API: the tree, a file, the archive; nothing leads out of it."""

from __future__ import annotations

import gzip
import io
import tarfile
from pathlib import Path

import pytest

from determined import errors
from determined.client import Determined
from determined.experiment.submission import code_archive
from determined.store.control import code
from tests.asking import Asker
from tests.history import History


def stored(history: History, content: bytes) -> int:
    with history.store.write() as conn:
        snapshot = code.add(conn, content)
    return history.experiment("submitted", unmanaged=False, state="COMPLETED", code_snapshot_id=snapshot.id)


def packed(*members: tuple[tarfile.TarInfo, bytes]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for info, content in members:
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return buffer.getvalue()


def link(name: str, target: str, kind: bytes = tarfile.SYMTYPE) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, target
    return info


@pytest.fixture
def submitted(history: History, tmp_path: Path) -> int:
    """An experiment with a small directory of code, one file that is no text, and a large one."""
    place = tmp_path / "model"
    (place / "parts").mkdir(parents=True)
    (place / "train.py").write_text("print('é')\n")
    (place / "parts" / "<b>net<b>.py").write_text("x = 1\n")
    (place / "weights.bin").write_bytes(b"\x00\x01\x02")
    (place / "long.txt").write_text("é" * (1 << 20))
    return stored(history, code_archive.pack(place).content)


def test_the_tree_and_a_file(page: Asker, submitted: int) -> None:
    """8.2: all files with their sizes by path, and the text of one; names are text, whatever they hold."""
    tree = page.get(f"/experiments/{submitted}/code")
    assert [(file["path"], file["size"]) for file in tree["files"]] == [
        ("long.txt", 1 << 21), ("parts/<b>net<b>.py", 6), ("train.py", 12), ("weights.bin", 3)
    ]  # fmt: skip
    assert tree["said"] == ""
    file = page.get(f"/experiments/{submitted}/code/file", path="train.py")
    assert file == {"path": "train.py", "size": 12, "text": "print('é')\n", "is_whole": True, "is_text": True}


def test_what_is_no_text_or_too_long(page: Asker, submitted: int) -> None:
    """8.2: a file that is no text shows none, and of a long one the first MiB, without half a character at its end."""
    binary = page.get(f"/experiments/{submitted}/code/file", path="weights.bin")
    assert (binary["is_text"], binary["text"], binary["size"]) == (False, "", 3)
    long = page.get(f"/experiments/{submitted}/code/file", path="long.txt")
    assert (long["is_text"], long["is_whole"], long["size"]) == (True, False, 1 << 21)
    assert long["text"] == "é" * (1 << 19)


@pytest.mark.parametrize("path", ["../runs.db", "/etc/passwd", "", ".", "parts", "train.py/", "a" * 1500, "train.py\0"])
def test_paths_do_not_leave_the_archive(page: Asker, submitted: int, path: str) -> None:
    """Issue 15: only names that the archive holds are found, and they are looked for nowhere else."""
    with pytest.raises(errors.NotFound, match="There is no file"):
        page.get(f"/experiments/{submitted}/code/file", path=path)


def test_links_and_odd_names_are_not_shown(history: History, page: Asker) -> None:
    """Issue 15: of a hostile archive neither links nor devices nor names that lead out are listed or followed."""
    content = packed(
        (tarfile.TarInfo("fine.py"), b"fine"),
        (tarfile.TarInfo("../out.py"), b"out"),
        (tarfile.TarInfo("/root.py"), b"root"),
        (tarfile.TarInfo("a/../../b.py"), b"b"),
        (link("passwd", "/etc/passwd"), b""),
        (link("hard", "fine.py", tarfile.LNKTYPE), b""),
        (link("device", "", tarfile.CHRTYPE), b""),
    )
    ident = stored(history, content)
    assert [file["path"] for file in page.get(f"/experiments/{ident}/code")["files"]] == ["fine.py"]
    for path in ("../out.py", "/root.py", "a/../../b.py", "passwd", "hard", "device"):
        with pytest.raises(errors.NotFound):
            page.get(f"/experiments/{ident}/code/file", path=path)


def test_a_damaged_archive_is_said(history: History, page: Asker) -> None:
    """Issue 15: what is no archive is an error of the store, in a sentence."""
    ident = stored(history, gzip.compress(b"no tar" * 100)[:40])
    with pytest.raises(errors.StoreError, match="cannot be read"):
        page.get(f"/experiments/{ident}/code")


def test_the_archive_is_an_attachment(page: Asker, runs: Determined, submitted: int) -> None:
    """8.1: the code comes as a file with a name of ours, byte for byte as it is stored."""
    answer = page.ask("GET", f"/experiments/{submitted}/code/download")
    assert answer.headers["content-disposition"] == f'attachment; filename="exp-{submitted}_model_def.tar.gz"'
    assert answer.headers["content-type"] == "application/gzip"
    assert answer.content == runs.get_experiment(submitted).packed_code()


def test_a_plain_run_says_where_its_code_is(history: History, page: Asker) -> None:
    """8.2: a run that was not submitted has no snapshot: its script, its commit, and where else a copy may be."""
    run = history.run("mine", checkpoints=[100], environment={"git": {"commit": "4f1c22"}})
    tree = page.get(f"/experiments/{run.experiment_id}/code")
    assert tree["files"] == []
    assert "It ran /home/ada/train.py at git commit 4f1c22. Its checkpoints may hold a copy" in tree["said"]
    with pytest.raises(errors.Refused, match="no copy of its code"):
        page.get(f"/experiments/{run.experiment_id}/code/file", path="train.py")
