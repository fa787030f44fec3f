"""The copy of the code: what is in it, and what is not."""

from __future__ import annotations

import logging
import sys
import types
from pathlib import Path

import pytest

from determined.pytorch.code import copying
from determined.pytorch.code.copying import CodeCopy
from tests.unit.pytorch.code_trees import fill, imported

SENTINEL = "SENTINEL-4711"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "work").mkdir()
    return tmp_path / "work"


def test_imported_modules_are_copied_and_nothing_else(root: Path) -> None:
    """Issue 12, 4: the files of the modules that the run imported from the tree; no data, no other scripts."""
    fill(root, "train.py", "pkg/__init__.py", "pkg/model.py", "other.py", "data.csv", "README.md", "conf/a.yaml")
    modules = imported(root, __main__="train.py", pkg="pkg/__init__.py", **{"pkg.model": "pkg/model.py"})
    copy = CodeCopy(root, modules=modules)
    assert sorted(copy.read()) == ["pkg/__init__.py", "pkg/model.py", "train.py"]
    assert copy.script == "train.py"


def test_modules_lie_where_importing_them_finds_them(root: Path) -> None:
    """A script in a directory of its own, and a module found through another path entry, are top-level in the copy."""
    fill(root, "src/train.py", "src/model.py", "lib/shared/__init__.py", "lib/shared/a.py", "odd/config_3.py")
    modules = imported(
        root,
        __main__="src/train.py",
        model="src/model.py",
        shared="lib/shared/__init__.py",
        my_config="odd/config_3.py",
        **{"shared.a": "lib/shared/a.py"},
    )
    expected = ["model.py", "odd/config_3.py", "shared/__init__.py", "shared/a.py", "train.py"]
    assert sorted(CodeCopy(root, modules=modules).read()) == expected


def test_a_script_run_as_a_module_keeps_its_package(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`python -m pkg.train`: the tree is the directory that holds the package."""
    fill(root, "pkg/__init__.py", "pkg/train.py", "pkg/model.py")
    modules = imported(root, __main__="pkg/train.py", pkg="pkg/__init__.py", **{"pkg.model": "pkg/model.py"})
    modules["__main__"].__spec__ = types.SimpleNamespace(name="pkg.train")  # type: ignore[assignment]  # what it needs
    monkeypatch.chdir(root.parent)
    copy = CodeCopy(modules=modules)
    assert sorted(copy.read()) == ["pkg/__init__.py", "pkg/model.py", "pkg/train.py"]
    assert copy.script == "pkg/train.py"


def test_without_a_script_the_modules_of_the_current_directory(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A notebook has no script: what it imported from the current directory is copied."""
    fill(root, "model.py")
    fill(root.parent, "elsewhere.py")
    modules = imported(root, model="model.py") | imported(root.parent, elsewhere="elsewhere.py")
    modules["__main__"] = types.ModuleType("__main__")
    monkeypatch.chdir(root)
    copy = CodeCopy(modules=modules)
    assert sorted(copy.read()) == ["model.py"]
    assert copy.script is None


def test_what_is_installed_is_not_copied(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Environments, packages, Python's own library and this package are not the user's code, wherever they lie."""
    fill(root, "env/pyvenv.cfg", "env/extra/a.py", "vendor/site-packages/b.py", ".venv/c.py", "train.py")
    own = imported(root, a="env/extra/a.py", b="vendor/site-packages/b.py", c=".venv/c.py", train="train.py")
    assert list(CodeCopy(root, modules=own).read()) == ["train.py"]
    monkeypatch.chdir("/")
    assert not [path for path in CodeCopy(modules=dict(sys.modules)).read() if "determined" in path or "torch/" in path]


def test_files_are_read_when_first_seen(root: Path) -> None:
    """Every checkpoint of a run holds each file as it was first seen, with its mode; later imports are added."""
    fill(root, "train.py", "later.py")
    (root / "train.py").chmod(0o755)
    modules = imported(root, __main__="train.py")
    copy = CodeCopy(root, modules=modules)
    first = dict(copy.read())
    (root / "train.py").write_text("changed")
    modules |= imported(root, later="later.py")
    second = copy.read()
    assert sorted(second) == ["later.py", "train.py"]
    assert second["train.py"] is first["train.py"]
    assert second["train.py"].content == b"train.py"
    assert second["train.py"].mode == 0o555


def test_detinclude_names_more(root: Path) -> None:
    """Files that are not modules come along if .detinclude names them, in the language of .gitignore."""
    fill(root, "train.py", "conf/a.yaml", "conf/b.yaml", "data/x.csv", "lazy.py", ".git/config", "old/.artifacts/m")
    fill(root, "old/conf/c.yaml", "deep/conf/d.yaml")
    (root / ".detinclude").write_text("# mine\n/conf/\n!conf/b.yaml\nlazy.py\n**/conf/*.yaml\n!conf/b.yaml\nconfig\n")
    copy = CodeCopy(root, modules=imported(root, __main__="train.py"))
    assert sorted(copy.read()) == ["conf/a.yaml", "deep/conf/d.yaml", "lazy.py", "train.py"]


def test_ignore_files_are_honoured(root: Path, caplog: pytest.LogCaptureFixture) -> None:
    """.gitignore (of the repository's top, and of each directory) and .detignore; .detinclude has the last word."""
    fill(root, ".git/HEAD", "work/pkg/local.py", "work/pkg/kept.py", "work/mine.py", "work/train.py", "work/again.py")
    (root / ".gitignore").write_text("local.py\nagain.py\n*.tmp\n")
    (root / "work" / "pkg" / ".gitignore").write_text("*.py\n!kept.py\n")
    (root / "work" / ".detignore").write_text("mine.py\n")
    (root / "work" / ".detinclude").write_text("again.py\n")
    modules = imported(root / "work", local="pkg/local.py", kept="pkg/kept.py", mine="mine.py", again="again.py")
    copy = CodeCopy(root / "work", modules=modules | imported(root / "work", __main__="train.py"))
    assert sorted(copy.read()) == ["again.py", "kept.py", "train.py"]
    copy.say()
    assert "Checkpoints hold no copy of 'local.py', 'mine.py', because .gitignore or .detignore names" in caplog.text


SECRET_FILES = [
    "server.pem", "deploy.KEY", "id_rsa", "id_ed25519.pub", ".env", ".env.local", "cert.p12", "credentials.json",
    "Credentials", ".netrc", ".npmrc", ".pypirc", "kubeconfig", "secrets.yaml", ".aws/config", "app_secret.json",
]  # fmt: skip
SECRET_CONTENTS = {
    "key.txt": f"-----BEGIN RSA PRIVATE KEY-----\n{SENTINEL}\n",
    "openssh.txt": f"-----BEGIN OPENSSH PRIVATE KEY-----\n{SENTINEL}\n",
    "aws.py": f"# {SENTINEL}\nKEY = 'AKIAABCDEFGHIJKLMNOP'\n",
    "hub.py": f"# {SENTINEL}\nTOKEN = 'ghp_{'a1B2' * 9}'\n",
    "url.txt": f"{SENTINEL} postgresql://me:hunter2@db.example.com/runs\n",
    "jwt.txt": f"{SENTINEL} eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.dozjgNryP4J3jVmNHl0w5N\n",
}


def test_secrets_are_never_copied(root: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Issue 11, 4: no key file and no file with a key in it, even if it is imported or named; and it is said."""
    fill(root, "train.py", *SECRET_FILES)
    for name in SECRET_FILES:
        (root / name).write_text(SENTINEL)
    for name, content in SECRET_CONTENTS.items():
        (root / name).write_text(content)
    (root / ".detinclude").write_text("*\n!.detinclude\n")
    (root / ".detignore").write_text("!.env\n!*.pem\n")
    (root / "innocent.txt").symlink_to(root / "id_rsa")
    modules = imported(root, __main__="train.py", aws="aws.py", hub="hub.py")
    (root / "train.py").write_text("URL = f'postgresql://{user}:{password}@{host}/runs?key={key}'\n")
    copy = CodeCopy(root, modules=modules)
    assert sorted(copy.read()) == [".detignore", "train.py"]
    copy.say()
    assert "'aws.py', 'hub.py'" in caplog.text
    assert "look like keys or secrets" in caplog.text
    assert SENTINEL not in caplog.text


def test_links_do_not_lead_out_or_in_circles(root: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Issue 11, 4: what a link points to outside of the tree is never copied; one to a file inside is that file."""
    fill(root.parent / "outside", "big.csv", "shared.py")
    fill(root, "pkg/model.py", "train.py")
    (root / "data").symlink_to(root.parent / "outside")
    (root / "shared.py").symlink_to(root.parent / "outside" / "shared.py")
    (root / "alias.py").symlink_to(root / "pkg" / "model.py")
    for name, target in {"up": root, "itself": root / "itself", "gone": root / "nothing"}.items():
        (root / name).symlink_to(target)
    (root / ".detinclude").write_text("*\n!.detinclude\n")
    copy = CodeCopy(
        root, modules=imported(root, shared="shared.py", alias="alias.py", **{"data.shared": "data/shared.py"})
    )
    assert sorted(copy.read()) == ["alias.py", "pkg/model.py", "train.py"]
    copy.say()
    assert "'shared.py', 'data/shared.py', because they are links that lead out" in caplog.text


def test_large_files_are_left_out_with_a_line(root: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A data file is not code, even if it is named; the log says what is missing."""
    fill(root, "train.py")
    with (root / "data.bin").open("wb") as file:
        file.truncate(copying.LARGEST_FILE + 1)
    (root / ".detinclude").write_text("data.bin\n")
    copy = CodeCopy(root, modules=imported(root, __main__="train.py"))
    assert list(copy.read()) == ["train.py"]
    copy.say()
    copy.say()
    assert [record.message for record in caplog.records] == [
        "Checkpoints hold no copy of 'data.bin', because they have more than 4 MB."
    ]


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere no file can have such a name")
def test_names_that_no_storage_keeps_are_left_out(root: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Decision 6: a stray file must not cost the checkpoint."""
    fill(root, "train.py", "back\\slash.py", "c:drive.py", "über.py")
    (root / "bad\udcffname.py").touch()
    (root / ".detinclude").write_text("*.py\n")
    copy = CodeCopy(root, modules={})
    assert sorted(copy.read()) == ["train.py", "über.py"]
    copy.say()
    assert r"'back\\slash.py', 'bad\udcffname.py', 'c:drive.py'" in caplog.text


def test_too_many_files_stop_the_copy(
    root: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A data set of many files neither fills checkpoints nor holds them up, and code near the top gets in."""
    fill(root, "a/1.png", "a/2.png", "a/3.png", "train.py")
    (root / ".detinclude").write_text("*\n")
    monkeypatch.setattr(copying, "MOST_FILES", 2)
    copy = CodeCopy(root, modules={})
    assert sorted(copy.read()) == [".detinclude", "train.py"]
    copy.say()
    assert "the copy would pass" in caplog.text
    monkeypatch.setattr(copying, "MOST_FILES", 100)
    monkeypatch.setattr(copying, "MOST_LOOKED_AT", 2)
    assert sorted(CodeCopy(root, modules={}).read()) == [".detinclude", "train.py"]


def test_our_own_places_are_left_out(root: Path) -> None:
    """Checkpoints in the working directory do not end up in checkpoints."""
    fill(root, "train.py", "checkpoints/1/code/train.py")
    (root / ".detinclude").write_text("*.py\n")
    assert list(CodeCopy(root, modules={}, without=[root / "checkpoints"]).read()) == ["train.py"]


def test_a_current_directory_that_was_deleted(
    root: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """W43: training somewhere that is gone goes on; its checkpoints hold no code, and that is said once."""
    monkeypatch.chdir(root)
    root.rmdir()
    copy = CodeCopy()
    assert copy.read() == copy.read() == {}
    copy.say()
    copy.say()
    assert [record.message for record in caplog.records if record.levelno >= logging.WARNING] == [
        "The current directory has been deleted, so checkpoints hold no copy of the code."
    ]


def test_modules_that_import_on_demand_are_not_asked(root: Path) -> None:
    """Looking at modules imports nothing: some answer every attribute, by importing or by raising."""

    class Lazy(types.ModuleType):
        def __getattr__(self, name: str) -> str:
            raise RuntimeError(f"{name} was asked for")

    fill(root, "train.py")
    odd = {"lazy": Lazy("lazy"), "none": None, "number": 7}
    assert list(CodeCopy(root, modules=odd | imported(root, __main__="train.py")).read()) == ["train.py"]  # type: ignore[arg-type,operator]  # what sys.modules may hold
