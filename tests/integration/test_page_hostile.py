"""Names, logs and notes that attack: the page shows text, runs nothing, asks nobody else, keeps its shape."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pytest

from determined._home import data_directory
from determined.store import experiments, models, workspaces
from tests.browsers import Server, settled
from tests.history import History

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = pytest.mark.slow

SCRIPT = "<script>window.pwned=1</script>"
CORPUS = [
    SCRIPT,
    "<img src=x onerror=window.pwned=2>",
    "<svg onload=window.pwned=3><animate onbegin=window.pwned=3 attributeName=x>",
    "\"><iframe srcdoc='<script>parent.pwned=4</script>'></iframe>",
    "javascript:window.pwned=5",
    "{{constructor.constructor('window.pwned=6')()}} ${window.pwned=6} <%= 1 %>",
    "\x1b]8;;javascript:window.pwned=7\x1b\\link\x1b]8;;\x1b\\ \x1b[31mred\x1b[0m \x1b[2J\x1b]0;title\x07",
    "a\x00b \u202egpj.exe \u2066\u200b\ufeff",
    "\U0001f468\u200d\U0001f469\u200d\U0001f467 \U0001f1e9\U0001f1ea e\u0301\u0302\u0303 \u5b9f\u9a13 \u0627\u062e",
    "w" * 300,
    "'; DROP TABLE experiments; --",
    "__proto__",
    "  spaces   and\ttabs ",
]
NOTES = f"""# Notes {SCRIPT}
{SCRIPT}
<img src="https://example.com/a.png" onerror="window.pwned=8"> ![far](https://example.com/far.png)
[one](javascript:window.pwned=9) [two](JaVaScRiPt&#58;window.pwned=9) <javascript:window.pwned=9>
[three](data:text/html,<script>window.pwned=9</script>) [four](https://example.com "good")
<iframe src="https://example.com"></iframe><style>body{{display:none}}</style>
{"w" * 400}
| a | b |
|---|---|
| {"x" * 300} | <svg onload=window.pwned=10> |
"""
HPARAMS = {text.replace("\x00", ""): text for text in CORPUS} | {
    "nested": {SCRIPT: [SCRIPT, {"<b>": "</td>"}]},
    "lr": 0.1,
}
METRICS = {text.replace("\x00", ""): 0.5 for text in CORPUS}
LINES = [*CORPUS, *NOTES.splitlines(), "y" * 100_000, f"ERROR: {SCRIPT}"]
NAME = "<img src=x onerror=window.pwned=11>"  # names of models and projects hold no slash


def made(root: Path) -> None:
    """A store in which every text that a user can write is hostile."""
    with History(root, data_directory() / "determined.db") as history:
        history.catch_up()  # home shows what ended in the last day
        for place, text in enumerate(CORPUS):
            config = {"name": text, "description": NOTES, "data": {text: text}, "labels": [text]}
            what = {"owner": text, "labels": CORPUS, "script": f"/home/{text}.py", "description": text}
            state = "ERROR" if place % 2 else "COMPLETED"
            hparams = {**HPARAMS, "lr": 0.1 * (place + 1)}
            run = history.run(
                text, config=config, state=state, hparams=hparams, training={1: METRICS}, validation={1: METRICS},
                lines=LINES, checkpoints=[1], environment={text: text}, **what,
            )  # fmt: skip
        space = {SCRIPT: {"type": "categorical", "vals": CORPUS}, "lr": {"type": "double", "minval": 0, "maxval": 1}}
        searcher = {"name": "random", "metric": SCRIPT, "max_trials": 9}
        config = {"searcher": searcher, "hyperparameters": space}
        search = history.experiment(SCRIPT, config=config, unmanaged=False, metric=SCRIPT, state="COMPLETED")
        for place, text in enumerate(CORPUS):
            history.trial(search, hparams={SCRIPT: text, "lr": place / 20}, validation={1: {SCRIPT: place}})
        with history.store.write() as conn:
            experiments.update(conn, 1, notes=NOTES)
            workspace = workspaces.create_workspace(conn, NAME)
            project = workspaces.create_project(conn, NAME, NAME, NOTES)
            workspaces.update_project(conn, project, notes=[{"name": SCRIPT, "contents": NOTES}])
            assert workspace
            model = models.create(conn, NAME, owner=SCRIPT, description=NOTES, labels=CORPUS, metadata={SCRIPT: SCRIPT})
            models.update(conn, model.id, notes=NOTES)
            models.register(
                conn, model.id, run.uuids[0], owner=SCRIPT, name=SCRIPT, comment=NOTES, notes=NOTES, labels=CORPUS
            )


SEARCH = len(CORPUS) + 1
SHOWN = {
    "/": SCRIPT,
    "/experiments?q=pwned": SCRIPT,
    "/trials": SCRIPT,
    "/experiments/1": SCRIPT,
    f"/experiments/{SEARCH}": SCRIPT,
    f"/experiments/{SEARCH}/trials": SCRIPT,
    "/trials/1": SCRIPT,
    "/trials/1/metrics": SCRIPT,
    "/trials/1/hyperparameters": SCRIPT,
    "/trials/1/checkpoints": SCRIPT,
    "/trials/1/logs": SCRIPT,
    "/trials/1/profiler": SCRIPT,
    "/trials/1/code": SCRIPT,
    "/trials/1/notes": "four",
    "/compare?experiments=1,2,3": SCRIPT,
    "/compare?experiments=1,2,3&compare=differences": SCRIPT,
    "/compare?experiments=1,2,3&compare=parallel": SCRIPT,
    "/compare?experiments=1,2,3&compare=details": SCRIPT,
    "/models": NAME,
    "/models/1": NAME,
    "/projects": NAME,
    "/projects/2": NAME,
    "/projects/2/notes": "four",
    "/queue": "",
}

HARM = """() => ({
    pwned: window.pwned ?? null,
    links: [...document.querySelectorAll('a[href]')].map(a => a.protocol).filter(p => !/^(https?|blob):/.test(p)),
    far: [...document.querySelectorAll('main :is(img, iframe, object, embed)')].map(e => e.src),
    markup: document.querySelectorAll('main script, main iframe, main style, main svg[onload], main animate').length,
    wide: document.documentElement.scrollWidth - window.innerWidth,
})"""


def lasting_harm(page: Page) -> dict[str, Any] | None:
    """What is wrong with a page once it is drawn: after a resize that takes some frames, more on a busy machine."""
    for _ in range(300):
        page.wait_for_timeout(100)
        harm: dict[str, Any] = page.evaluate(HARM)
        if harm == {"pwned": None, "links": [], "far": [], "markup": 0, "wide": min(0, harm["wide"])}:
            return None
    return harm


def test_hostile_text_is_only_text(
    page_server: Callable[..., Server], open_page: Callable[..., Page], tmp_path: Path
) -> None:
    """Whatever users, scripts and logs wrote is text on every page: nothing runs, loads or breaks the layout."""
    made(tmp_path)
    server = page_server()
    page = open_page(server, "/settings")
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    found = {}
    for path, text in SHOWN.items():
        page.goto(f"{server.address}{path}")
        settled(page)
        if text:
            page.get_by_text(text).first.wait_for(state="attached")
        for width in (1280, 390):
            page.set_viewport_size({"width": width, "height": 800})
            if (harm := lasting_harm(page)) is not None:
                found[path, width] = harm
        page.set_viewport_size({"width": 1280, "height": 800})
    assert found == {}
    host = urlsplit(server.address).netloc
    others = {url for url in asked if urlsplit(url).netloc != host and not url.startswith(("data:", "blob:"))}
    assert others == set()
