"""Code snapshots become working directories, and stay inside of them."""

from __future__ import annotations

import io
import stat
import tarfile
from pathlib import Path
from typing import Any

import pytest

from determined import errors
from determined.experiment.attempt import working_directory
from determined.store.control import code
from determined.store.database.connection import Store


def packed(*members: tuple[str, bytes, str]) -> bytes:
    """An archive of (name, type, content or link) triples."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as tar:
        for name, kind, text in members:
            member = tarfile.TarInfo(name)
            member.type, member.mode = kind, 0o755
            if kind == tarfile.REGTYPE:
                member.size = len(text)
                tar.addfile(member, io.BytesIO(text.encode()))
            else:
                member.linkname = text
                tar.addfile(member)
    return out.getvalue()


def add(store: Store, *members: tuple[str, bytes, str]) -> int:
    with store.write() as conn:
        return code.add(conn, packed(*members)).id


FILE, LINK = tarfile.REGTYPE, tarfile.SYMTYPE


def test_the_store_is_waited_for(sqlite_store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Issue 16: a server that restarts just now is no failure of a trial that is about to start."""
    ident = add(sqlite_store, ("run.sh", FILE, "echo"))
    real, trouble = sqlite_store.read, [errors.StoreUnavailable("the server restarts")] * 2

    def read() -> Any:
        if trouble:
            raise trouble.pop()
        return real()

    monkeypatch.setattr(sqlite_store, "read", read)
    working_directory.fill(tmp_path / "work", str(tmp_path), sqlite_store, ident)
    assert (tmp_path / "work" / "run.sh").read_text() == "echo"


def test_files_modes_and_links_are_there(sqlite_store: Store, tmp_path: Path) -> None:
    """Files, execute bits, empty directories and links inside the code arrive; nothing of an earlier attempt stays."""
    ident = add(
        sqlite_store,
        ("run.sh", FILE, "echo"),
        ("a/b/model.py", FILE, "x = 1"),
        ("empty", tarfile.DIRTYPE, ""),
        ("a/latest.py", LINK, "b/model.py"),
    )
    place = working_directory.of(str(tmp_path), "1.x.1")
    place.mkdir(parents=True)
    (place / "of an earlier attempt").touch()
    for _ in range(2):
        working_directory.fill(place, str(tmp_path), sqlite_store, ident)
        assert sorted(path.name for path in place.iterdir()) == ["a", "empty", "run.sh"]
        assert (place / "a" / "latest.py").read_text() == "x = 1"
        assert (place / "run.sh").stat().st_mode & stat.S_IXUSR
        (place / "a" / "b" / "model.py").write_text("changed")


def test_without_a_snapshot_the_directory_is_empty(sqlite_store: Store, tmp_path: Path) -> None:
    """An experiment without code has an empty working directory of its own."""
    place = working_directory.of(str(tmp_path), "1.x.1")
    working_directory.fill(place, str(tmp_path), sqlite_store, None)
    assert list(place.iterdir()) == []


@pytest.mark.parametrize(
    "members",
    [
        [("../out.py", FILE, "x")],
        [("/out.py", FILE, "x")],
        [("a/../../out.py", FILE, "x")],
        [("out.py", LINK, "/etc/passwd")],
        [("out.py", LINK, "../x")],
        [("a/b", LINK, ".."), ("a/b/out.py", LINK, "../x")],
        [("x", tarfile.LNKTYPE, "/etc/passwd")],
        [("x", tarfile.FIFOTYPE, "")],
    ],
)
def test_a_path_that_leads_out_is_refused(
    sqlite_store: Store, tmp_path: Path, members: list[tuple[str, bytes, str]]
) -> None:
    """An archive cannot write, or point, outside of its directory; nothing of it stays."""
    ident = add(sqlite_store, *members)
    with pytest.raises((errors.StoreError, OSError)):
        working_directory.fill(tmp_path / "work", str(tmp_path), sqlite_store, ident)
    assert not list(tmp_path.rglob("out.py"))
    assert list((tmp_path / "code").iterdir()) == []


def test_directories_that_cannot_be_written_to_are_removed(tmp_path: Path) -> None:
    """A trial may leave read-only directories, and data of others behind links: those go, these stay."""
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "kept").touch()
    place = working_directory.of(str(tmp_path), "1.x.1")
    (place / "locked").mkdir(parents=True)
    (place / "locked" / "file").touch()
    (place / "locked").chmod(0o500)
    (place / "link").symlink_to(tmp_path / "data")
    working_directory.remove(str(tmp_path), "1.x.1")
    assert not place.exists()
    assert (tmp_path / "data" / "kept").exists()


def test_a_mount_does_not_replace_code(tmp_path: Path) -> None:
    """A name that the code has already is not replaced by a mount, and a sentence says so."""
    (tmp_path / "model.py").touch()
    said = list(working_directory.mount(tmp_path, [{"host_path": "/data", "container_path": "model.py"}]))
    assert len(said) == 1
    assert "model.py" in said[0]
    assert not (tmp_path / "model.py").is_symlink()
