"""import_from_path(): a checkpoint's code is imported, and the process's own modules are unharmed."""

from __future__ import annotations

import sys
import threading
from pathlib import Path

import pytest

import determined


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory on sys.path that holds `resolute_model`, version "here"."""
    path = tmp_path / "here"
    path.mkdir()
    (path / "resolute_model.py").write_text("VERSION = 'here'\n")
    monkeypatch.syspath_prepend(str(path))
    monkeypatch.delitem(sys.modules, "resolute_model", raising=False)
    return path


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    path = tmp_path / "saved"
    (path / "resolute_pkg").mkdir(parents=True)
    (path / "resolute_model.py").write_text("import resolute_pkg.part as part\nVERSION = 'saved'\n")
    (path / "resolute_pkg" / "part.py").write_text("NAME = 'part'\n")
    return path


def test_the_path_comes_first_and_the_old_module_is_back(here: Path, saved: Path) -> None:
    """pytorch.md 1.3: imports resolve from the path; same-named modules are hidden, then restored."""
    import resolute_model as mine

    with determined.import_from_path(saved):
        import resolute_model as theirs

        assert (theirs.VERSION, theirs.part.NAME) == ("saved", "part")
    assert sys.modules["resolute_model"] is mine
    assert "resolute_pkg" not in sys.modules
    assert str(saved) not in sys.path
    import resolute_model as again

    assert again.VERSION == "here"
    assert theirs.VERSION == "saved"


def test_no_bytecode_is_written(here: Path, saved: Path) -> None:
    """pytorch.md 1.3: the directory stays as it was."""
    before = sys.dont_write_bytecode
    with determined.import_from_path(saved):
        import resolute_model  # noqa: F401 - importing is the point
    assert list(saved.rglob("__pycache__")) == []
    assert sys.dont_write_bytecode == before


def test_everything_is_restored_after_an_error(here: Path, saved: Path) -> None:
    """An error inside leaves the process as it was."""
    import resolute_model as mine

    def fail_inside() -> None:
        with determined.import_from_path(saved):
            import resolute_model  # noqa: F401 - importing is the point

            raise KeyError

    with pytest.raises(KeyError):
        fail_inside()
    assert sys.modules["resolute_model"] is mine
    with determined.import_from_path(saved):
        pass


def test_blocks_do_not_nest(saved: Path) -> None:
    """pytorch.md 1.3: nesting, and a second thread, is a RuntimeError."""
    caught: list[BaseException] = []

    def enter() -> None:
        try:
            with determined.import_from_path(saved):
                pass
        except RuntimeError as error:
            caught.append(error)

    with determined.import_from_path(saved):
        enter()
        other = threading.Thread(target=enter)
        other.start()
        other.join()
    assert len(caught) == 2


def test_a_missing_directory_is_named(tmp_path: Path) -> None:
    """A path that is no directory is refused before anything changes."""
    with (
        pytest.raises(NotADirectoryError, match="nothing-here"),
        determined.import_from_path(tmp_path / "nothing-here"),
    ):
        pass
