"""The archive of the code: what gets in, what never does, and that the same content gives the same bytes."""

from __future__ import annotations

import io
import os
import socket
import tarfile
import tempfile
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from determined.errors import ConfigError
from determined.experiment.submission.code_archive import CodeArchive, pack, paths_in

KEY = "-----BEGIN PRIVATE KEY-----\nMIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSjAgEAAoIBAQ\n-----END PRIVATE KEY-----\n"
NAMES = st.text("abcdé-_ .", min_size=1, max_size=6).filter(lambda name: name.strip(" .") == name)
TREES = st.dictionaries(
    st.lists(NAMES, min_size=1, max_size=3).map("/".join), st.tuples(st.binary(max_size=40), st.booleans()), max_size=8
)


def write(root: Path, files: dict[str, str]) -> Path:
    for name, content in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(content)
    return root


def contents(archive: CodeArchive) -> dict[str, bytes]:
    with tarfile.open(fileobj=io.BytesIO(archive.content)) as opened:
        return {info.name: opened.extractfile(info).read() for info in opened if info.isfile()}  # type: ignore[union-attr]


@given(tree=TREES)
@settings(max_examples=50, deadline=None)
def test_the_same_content_gives_the_same_bytes(tree: dict[str, tuple[bytes, bool]]) -> None:
    """4.3: two directories with the same files, written in any order at any time, are one snapshot."""
    packed = []
    for order in (sorted(tree), sorted(tree, reverse=True)):
        with tempfile.TemporaryDirectory() as made:
            for number, name in enumerate(order):
                path = Path(made, name)
                try:
                    path.parent.mkdir(parents=True, exist_ok=True)
                    path.write_bytes(tree[name][0])
                except OSError:  # one name is both a file and a directory
                    return
                path.chmod(0o755 if tree[name][1] else 0o640)
                os.utime(path, (number, number))
            packed.append(pack(made))
    assert packed[0] == packed[1]
    assert contents(packed[0]) == {name: content for name, (content, _) in tree.items()}


@given(
    ignored=st.sets(st.sampled_from(["a.txt", "b/c.bin", "d/e/f.py", "g.py"]), max_size=4),
    built_in=st.sampled_from(["__pycache__/x.py", ".git/config", "m.pyc", "p/.idea/x", ".mypy_cache/1", "q.pyo"]),
)
@settings(max_examples=30, deadline=None)
def test_what_is_ignored_is_never_in(ignored: set[str], built_in: str) -> None:
    """4.3: neither what .detignore names, nor the file itself, nor the built-in list."""
    files = ["a.txt", "b/c.bin", "d/e/f.py", "g.py"]
    with tempfile.TemporaryDirectory() as made:
        write(Path(made), {**dict.fromkeys([*files, built_in], "x"), ".detignore": "\n".join(f"/{i}" for i in ignored)})
        assert pack(made).paths == tuple(name for name in files if name not in ignored)


def test_ignore_files_speak_gitignore(tmp_path: Path) -> None:
    """4.3: patterns, exceptions, and files deeper down; .gitignore does not count."""
    write(tmp_path, {"a.bin": "", "keep.bin": "", "sub/b.log": "", "sub/c.bin": "", "data/x": "", "t.py": ""})
    write(tmp_path, {".detignore": "*.bin\n!keep.bin\ndata/\n", "sub/.detignore": "*.log\n", ".gitignore": "t.py\n"})
    assert pack(tmp_path).paths == (".gitignore", "keep.bin", "t.py")


def test_environments_and_our_own_data_are_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Issue 14: virtual environments, checkpoints and the data directory are not code."""
    write(
        tmp_path, {"t.py": "", "env/pyvenv.cfg": "", "env/lib/x.py": "", "ck/1/.artifacts/manifest": "", "ck/1/w": ""}
    )
    write(tmp_path, {"home/logs/x": "", "here/ckpt/x": "", "runs.db": "", "old/determined.db": ""})
    monkeypatch.setenv("DET_HOME", str(tmp_path / "home"))
    archive = pack(tmp_path, without=[tmp_path / "here" / "ckpt", tmp_path / "runs.db"])
    assert archive.paths == ("t.py",)
    assert archive.warnings == ()


def test_a_data_directory_among_the_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Issue 14: with DET_HOME=. the code is taken, and nothing that det keeps beside it."""
    write(
        tmp_path, {"t.py": "", "determined.db": "", "secrets/1.json": "abc", "logs/controller.log": "", "lib/m.py": ""}
    )
    monkeypatch.setenv("DET_HOME", str(tmp_path))
    assert pack(tmp_path).paths == ("lib/m.py", "t.py")


def test_secrets_are_left_out_and_said(tmp_path: Path) -> None:
    """Issue 14: keys by name or by content are not stored; one warning names them."""
    write(tmp_path, {"t.py": "", ".env": "A=1", "deploy.pem": "x", "sub/odd.txt": KEY, ".ssh/config": ""})
    archive = pack(tmp_path)
    assert archive.paths == ("t.py",)
    assert set(archive.withheld) == {".env", "deploy.pem", "sub/odd.txt", ".ssh/"}
    (warning,) = archive.warnings
    assert all(name in warning for name in archive.withheld)


def test_links(tmp_path: Path) -> None:
    """Files behind links are copied; a link out of the directory is left out with a hint; one that loops ends."""
    outside = tmp_path / "big"
    write(tmp_path, {"big/data.bin": "x", "lib.py": "y", "code/t.py": "", "code/pkg/m.py": ""})
    code = tmp_path / "code"
    (code / "data").symlink_to(outside)
    (code / "lib.py").symlink_to(tmp_path / "lib.py")
    (code / "again").symlink_to(code / "pkg")
    (code / "pkg" / "up").symlink_to(code)
    (code / "gone").symlink_to("nowhere")
    (code / "self").symlink_to("self")
    archive = pack(code)
    assert archive.paths == ("again/m.py", "lib.py", "pkg/m.py", "t.py")
    assert contents(archive)["lib.py"] == b"y"
    assert f"host_path: {outside}, container_path: data" in archive.warnings[0]


def test_execute_bits_and_empty_directories_are_kept(tmp_path: Path) -> None:
    """A script stays executable, an empty directory is there; owner and time are nobody's; a socket is not a file."""
    write(tmp_path, {"run.sh": "x"})
    (tmp_path / "run.sh").chmod(0o700)
    (tmp_path / "out").mkdir()
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(os.path.relpath(tmp_path / "s"))
        archive = pack(tmp_path)
    with tarfile.open(fileobj=io.BytesIO(archive.content)) as opened:
        members = {info.name: info for info in opened}
    assert {name: (info.mode, info.isdir(), info.mtime, info.uid) for name, info in members.items()} == {
        "out": (0o755, True, 0, 0),
        "run.sh": (0o755, False, 0, 0),
    }
    assert paths_in(archive.content) == ("run.sh",)


def test_includes_come_under_their_base_name(tmp_path: Path) -> None:
    """4.3: a file, a directory, each under its own name; a clash of top-level names is refused."""
    write(tmp_path, {"code/t.py": "", "lib/m.py": "", "lib/x.pyc": "", "conf/a.yaml": "", "other/t.py": ""})
    archive = pack(tmp_path / "code", [tmp_path / "lib", tmp_path / "conf" / "a.yaml"])
    assert archive.paths == ("a.yaml", "lib/m.py", "t.py")
    assert pack(None, [tmp_path / "lib"]).paths == ("lib/m.py",)
    with pytest.raises(ConfigError, match=r"would be called t\.py, and there is a t\.py"):
        pack(tmp_path / "code", [tmp_path / "other" / "t.py"])
    with pytest.raises(ConfigError, match="is not there"):
        pack(tmp_path / "code", [tmp_path / "nothing"])


def test_too_much_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """4.3: over the limit, one sentence names .detignore and what is largest; the limit can be set."""
    write(tmp_path, {"t.py": "x", "data/a": "x" * 900_000, "data/b": "x" * 500_000, "c.bin": "x" * 10})
    with pytest.raises(ConfigError, match=r"at most 1 MiB are taken\. Largest: data/ \(1\.3 MiB\), .*\.detignore"):
        pack(tmp_path, limit_mib=1)
    monkeypatch.setenv("DET_CODE_LIMIT_MB", "0.5")
    with pytest.raises(ConfigError, match=r"at most 0\.5 MiB"):
        pack(tmp_path)
    monkeypatch.setenv("DET_CODE_LIMIT_MB", "much")
    with pytest.raises(ConfigError, match="DET_CODE_LIMIT_MB is 'much'"):
        pack(tmp_path)
    monkeypatch.delenv("DET_CODE_LIMIT_MB")
    assert len(pack(tmp_path).paths) == 4


def test_a_directory_that_is_none(tmp_path: Path) -> None:
    """Issue 14: a missing directory and a file are one sentence each."""
    (tmp_path / "t.py").write_text("")
    with pytest.raises(ConfigError, match=r"There is no directory .*nothing"):
        pack(tmp_path / "nothing")
    with pytest.raises(ConfigError, match=r"t\.py is a file"):
        pack(tmp_path / "t.py")


def test_time_does_not_matter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The archive of tomorrow is that of today."""
    write(tmp_path, {"t.py": "x"})
    first = pack(tmp_path).content
    monkeypatch.setattr(time, "time", lambda: 4e9)
    assert pack(tmp_path).content == first
