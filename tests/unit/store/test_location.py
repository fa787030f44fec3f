"""Where a store is, as users write it: an address in a file of their own, and nothing of it shown."""

from __future__ import annotations

import traceback
from pathlib import Path

import pytest

from determined import errors
from determined.store.database import postgresql
from determined.store.database.connection import open_store
from determined.store.database.location import find_place

ADDRESS = "postgresql://ada:hunter2@127.0.0.1:1/runs"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A file with an address that its owner alone may read."""
    path = tmp_path / "my store"
    path.touch(mode=0o600)
    path.write_text(f"{ADDRESS}?sslmode=require\n")
    return path


def test_an_address_in_a_file(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Issue 16: DET_STORE=file:PATH is the address that a file of mode 0600 holds. Others are told all of it."""
    monkeypatch.setenv("DET_STORE", f"file:{file}")
    place = find_place()
    assert place.address == "postgresql+psycopg://ada:hunter2@127.0.0.1:1/runs?sslmode=require"
    assert place == find_place(place.address) == find_place(f"file://{file}")
    monkeypatch.setenv("HOME", str(file.parent))
    assert find_place("file:~/my store") == place


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620])
def test_a_file_that_others_may_use_is_refused(file: Path, mode: int) -> None:
    """Issue 16: one sentence says what to type, and shows nothing of the address."""
    file.chmod(mode)
    with pytest.raises(errors.StoreError, match=rf"mode {mode:04o}.*chmod 600 '.*my store'") as caught:
        open_store(f"file:{file}")
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize("text", ["", "hunter2", f"{ADDRESS}\n{ADDRESS}", "x" * 5000, "postgresql://ada:hunter2@h:x/y"])
def test_a_file_without_an_address_is_refused(file: Path, text: str) -> None:
    """A file with something else is refused in a sentence that says what to write; what it holds is not shown."""
    file.write_text(text)
    with pytest.raises(errors.StoreError, match="postgresql://user:password@host:5432/name") as caught:
        find_place(f"file:{file}")
    assert "hunter2" not in "".join(traceback.format_exception(caught.value))


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    """The sentence names the file."""
    with pytest.raises(errors.StoreError, match="gone: No such file"):
        find_place(f"file:{tmp_path}/gone")


@pytest.mark.parametrize(
    "address",
    [ADDRESS, "postgresql://127.0.0.1:1/runs?user=ada&password=hunter2", "postgresql://ada:hunter2@127.0.0.1:x/runs"],
)
def test_no_password_is_shown(address: str) -> None:
    """No error, with all that it is caused by, and no repr has the password."""
    with pytest.raises(errors.DeterminedError) as caught:
        open_store(address)
    assert "hunter2" not in "".join(traceback.format_exception(caught.value))
    assert "hunter2" not in repr(find_place(ADDRESS))
    assert "hunter2" not in repr(find_place("postgresql:///runs?password=hunter2"))


def test_the_address_has_the_last_word(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Issue 16: what the address says goes to libpq; files beside us are found from other directories, too."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "ca.pem").touch()
    query = "sslmode=verify-full&sslrootcert=ca.pem&sslcert=system&connect_timeout=3"
    place = find_place(f"postgresql://db/runs?{query}")
    engine = postgresql.make_engine(place, 1.0, {})
    told: dict[str, object] = {}
    engine.dialect.connect = lambda *_, **given: told.update(given) or 1 / 0  # type: ignore[method-assign]
    with pytest.raises(ZeroDivisionError):
        engine.connect()
    assert {name: told[name] for name in ("sslmode", "sslrootcert", "sslcert", "connect_timeout")} == {
        "sslmode": "verify-full",
        "sslrootcert": str(tmp_path / "ca.pem"),
        "sslcert": "system",
        "connect_timeout": "3",
    }
    assert told["application_name"] == "resolute"
