"""The page in the repo is built from its sources, and describes the API that the server has."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).parents[3]
BUNDLE = ROOT / "src" / "determined" / "server" / "webui"


def tool(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, ROOT / "tools" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_bundle_is_that_of_the_sources() -> None:
    """Whoever changes the page also builds it: a fresh checkout shows the page without Node."""
    assert tool("webui").is_current(), "Build the page with: make ui"


def test_the_fingerprint_changes_with_a_source(tmp_path: Path) -> None:
    """A changed, added or renamed file of the page makes the bundle stale."""
    webui = tool("webui")
    webui.SOURCES = tmp_path
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "a.ts").write_text("1")
    seen = [webui.fingerprint()]
    for change in (lambda: (tmp_path / "src" / "a.ts").write_text("2"),
                   lambda: (tmp_path / "src" / "b.ts").write_text(""),
                   lambda: (tmp_path / "src" / "b.ts").rename(tmp_path / "src" / "c.ts")):  # fmt: skip
        change()
        seen.append(webui.fingerprint())
    assert len(set(seen)) == len(seen)


def test_the_document_is_that_of_the_routes() -> None:
    """The checked-in OpenAPI document, of which the page's types are made, is that of the server."""
    openapi = tool("openapi")
    assert openapi.PLACE.read_text(encoding="utf-8") == openapi.document(), "Write it with: make ui"


def test_the_page_loads_nothing_from_other_hosts() -> None:
    """The page names no other host to load from: it works offline, and tells nobody that it is looked at."""
    index = (BUNDLE / "index.html").read_text(encoding="utf-8")
    assert re.findall(r"""(?:src|href)=["'](?:https?:)?//""", index) == []
    styles = [path.read_text(encoding="utf-8") for path in BUNDLE.rglob("*.css")]
    assert [found for style in styles for found in re.findall(r"url\(\s*['\"]?(?:https?:)?//", style)] == []
    assert "<script>" not in index


def test_no_file_of_the_page_is_large() -> None:
    """Every file of the bundle is under a megabyte, so that the repo stays light."""
    assert [path.name for path in BUNDLE.rglob("*") if path.is_file() and path.stat().st_size > 1_000_000] == []
