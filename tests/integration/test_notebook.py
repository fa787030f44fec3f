"""Training in a notebook: a real kernel, the messages it sends to the page, and what it leaves in the store."""

from __future__ import annotations

import ast
import contextlib
import dataclasses
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from jupyter_client import BlockingKernelClient, KernelManager

from determined.pytorch.display import bar
from tests import records

CELL_SECONDS = 300.0

FIRST_CELL = """
import time
import torch
from torch.utils.data import TensorDataset
from determined import pytorch

class LineTrial(pytorch.PyTorchTrial):
    def __init__(self, context):
        self.context = context
        self.model = context.wrap_model(torch.nn.Linear(1, 1))
        self.optimizer = context.wrap_optimizer(torch.optim.Adam(self.model.parameters(), lr=0.1))

    def train_batch(self, batch, epoch_idx, batch_idx):
        x, y = batch
        loss = torch.nn.functional.mse_loss(self.model(x + torch.randn_like(x)), y)
        self.context.backward(loss)
        self.context.step_optimizer(self.optimizer)
        print("batch", batch_idx)
        time.sleep(self.context.get_hparam("pause"))
        return {"loss": loss}

    def evaluate_batch(self, batch):
        x, y = batch
        return {"error": torch.nn.functional.mse_loss(self.model(x), y)}

    def build_training_data_loader(self):
        return pytorch.DataLoader(points(), batch_size=8, shuffle=True)

    def build_validation_data_loader(self):
        return pytorch.DataLoader(points(), batch_size=32)

def points():
    x = torch.linspace(-1, 1, 64).unsqueeze(1)
    return TensorDataset(x, 3 * x + 1)

def train(batches, pause, latest="none"):
    with pytorch.init(hparams={"pause": pause}, seed=5) as context:
        trial = LineTrial(context)
        pytorch.Trainer(trial, context).fit(max_length=pytorch.Batch(batches), latest_checkpoint=latest)
    return [p.tolist() for p in trial.model.parameters()]
"""


@dataclasses.dataclass
class Seen:
    """What a page would make of one cell."""

    status: str = ""
    result: str = ""
    streams: dict[str, str] = dataclasses.field(default_factory=lambda: {"stdout": "", "stderr": ""})
    lines: dict[str, list[str]] = dataclasses.field(default_factory=dict)
    """Every text that a place of the output has shown, by the place's id."""
    others: list[Any] = dataclasses.field(default_factory=list)
    seconds: float = 0.0


class Notebook:
    """A kernel, and who types into it."""

    def __init__(self, manager: KernelManager, client: BlockingKernelClient, directory: Path) -> None:
        self._manager = manager
        self._client = client
        self.directory = directory
        self.store = str(directory / "det-home" / "determined.db")

    def run(self, code: str, interrupt_at: str | None = None) -> Seen:
        """Run a cell; at a text in its output, press the button that interrupts."""
        seen, begin = Seen(), time.monotonic()
        request = self._client.execute(code)
        while True:
            message = self._client.get_iopub_msg(timeout=CELL_SECONDS)
            kind, content = message["msg_type"], message["content"]
            if message["parent_header"].get("msg_id") != request or kind == "execute_input":
                continue
            if kind == "status":
                if content["execution_state"] == "idle":
                    break
            elif kind == "stream":
                seen.streams[content["name"]] += content["text"]
                if interrupt_at is not None and interrupt_at in seen.streams["stdout"]:
                    interrupt_at = None
                    self._manager.interrupt_kernel()
            elif kind == "execute_result":
                seen.result = content["data"]["text/plain"]
            elif kind in ("display_data", "update_display_data") and set(content["data"]) == {"text/plain"}:
                place = content["transient"]["display_id"]
                assert (kind == "update_display_data") == (place in seen.lines), "shown once, and then replaced"
                seen.lines.setdefault(place, []).append(content["data"]["text/plain"])
            else:
                seen.others.append(message)
        reply = self._client.get_shell_msg(timeout=CELL_SECONDS)
        while reply["parent_header"]["msg_id"] != request:  # to a question of wait_for_ready()
            reply = self._client.get_shell_msg(timeout=CELL_SECONDS)
        seen.status, seen.seconds = reply["content"]["status"], time.monotonic() - begin
        return seen


@pytest.fixture(scope="module")
def notebook(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Notebook]:
    """One kernel for all tests here; nobody has told it the notebook's path."""
    directory = tmp_path_factory.mktemp("kernel") / "digits"
    directory.mkdir()
    # ipykernel looks at the first, and then does not listen to what is written below Python.
    hidden = ("PYTEST_CURRENT_TEST", "JPY_SESSION_NAME", "DET_PROGRESS", "DET_QUIET", "DET_STORE")
    environment = {name: value for name, value in os.environ.items() if name not in hidden}
    environment |= {"DET_HOME": str(directory / "det-home"), "OMP_NUM_THREADS": "1", "IPYTHONDIR": str(directory / "i")}
    with contextlib.ExitStack() as stack:
        manager = KernelManager(connection_file=str(directory / "connection.json"))
        manager.start_kernel(env=environment, cwd=str(directory))
        stack.callback(manager.cleanup_resources)
        stack.callback(manager.shutdown_kernel, now=True)
        client = manager.client()
        client.start_channels(stdin=False, hb=False)
        stack.callback(client.stop_channels)
        client.wait_for_ready(timeout=CELL_SECONDS)
        found = Notebook(manager, client, directory)
        assert found.run(FIRST_CELL).status == "ok"
        yield found


def test_training_in_a_kernel(notebook: Notebook) -> None:
    """Issue 12: the bar is one line, without ipywidgets; prints are recorded, frames are not; runs have a name."""
    seen = notebook.run("weights = train(60, 0.02)")
    assert seen.status == "ok"
    assert seen.others == []
    ((_, frames),) = seen.lines.items()
    assert 2 < len(frames) <= 3 + seen.seconds / bar.NOTEBOOK_SECONDS, "it moves, and does not flood the page"
    assert not any(set(frame) & set("\n\r\x1b") for frame in frames)
    assert "60/60" in frames[-1]
    assert "val error " in frames[-1]
    assert seen.streams["stdout"] == "".join(f"batch {number}\n" for number in range(60))
    assert "\x1b" not in seen.streams["stderr"]
    printed = [row["text"] for row in records.table("logs", notebook.store) if row["stdtype"] == "stdout"]
    assert printed == [f"batch {number}" for number in range(60)]
    assert not any("60/60" in line or "\x1b" in line for line in records.lines(notebook.store))
    (experiment,) = records.table("experiments", notebook.store)
    assert (experiment["name"], experiment["script"]) == ("digits", None)


@pytest.mark.parametrize("is_path_known", [False, True])
def test_interrupt_and_go_on(is_path_known: bool, notebook: Notebook) -> None:
    """Issue 12: the first interrupt saves and leaves, and the next fit goes on bit for bit.

    Where the notebook's path is known the run is called after it, and goes on as the same trial, as a script does.
    """
    path, pause = str(notebook.directory / "ablation.ipynb"), 0.03 if is_path_known else 0.02
    if is_path_known:
        assert notebook.run(f"__vsc_ipynb_file__ = {path!r}").status == "ok"
    before = len(records.table("experiments", notebook.store))
    stopped = notebook.run(f"train(50, {pause})", interrupt_at="batch 12\n")
    assert stopped.status == "ok"
    assert "asked to stop by Ctrl-C." in stopped.streams["stderr"]
    assert 'To go on: pass latest_checkpoint="latest" to fit(), and run the cell again.' in stopped.streams["stderr"]
    assert len(stopped.lines) == 1
    batches = records.table("trials", notebook.store)[-1]["total_batches"]
    assert 12 < batches < 50
    resumed = notebook.run(f"train(50, {pause}, 'latest')")
    assert resumed.status == "ok"
    assert f"at batch {batches} " in resumed.streams["stderr"]
    assert "another version of" not in resumed.streams["stderr"]
    assert resumed.streams["stdout"].startswith(f"batch {batches}\n")
    whole = notebook.run(f"train(50, {pause})")
    assert ast.literal_eval(resumed.result) == ast.literal_eval(whole.result)
    made = records.table("experiments", notebook.store)[before:]
    if is_path_known:
        assert [(row["name"], row["script"]) for row in made] == [("digits/ablation", path)] * 2
    else:
        assert [(row["name"], row["script"]) for row in made] == [("digits", None)] * 3


def test_two_fits_in_one_cell(notebook: Notebook) -> None:
    """Each has a line of its own, and leaves streams and signals as it found them."""
    seen = notebook.run(
        "import signal, sys\n"
        "def things(): return [signal.getsignal(signal.SIGINT), sys.stdout.write, sys.stderr.write]\n"
        "before = things()\n"
        "first, second = train(5, 0), train(5, 0)\n"
        "first == second, things() == before"
    )
    assert (seen.status, seen.result) == ("ok", "(True, True)")
    assert [frames[-1].count("5/5") for frames in seen.lines.values()] == [1, 1]


def test_a_run_over_several_cells(notebook: Notebook) -> None:
    """What is printed is recorded in each cell until the run is closed, and in none after that."""
    cells = [
        "from determined import core; run = core.init(name='cells'); run.__enter__(); print('in the first')",
        "print('in the second'); words = 'in the third'",
        "print(words); run.__exit__(None, None, None); print('after it')",
        "print('later')",
    ]
    for cell in cells:
        seen = notebook.run(cell)
        assert seen.status == "ok"
    assert seen.streams["stdout"] == "later\n"
    printed = [text for text in records.lines(notebook.store) if not text.startswith(("batch ", "\n"))]
    assert printed[-3:] == ["in the first", "in the second", "in the third"]


def test_how_a_notebook_is_known(notebook: Notebook) -> None:
    """Issue 12: VS Code's variable, else Jupyter's, unless that is the title of a console; links stay as they are."""
    seen = notebook.run(
        "import os; from determined._notebook import notebook_path\n"
        "globals().pop('__vsc_ipynb_file__', None); found = [notebook_path()]\n"
        "for name in ('/lab/a.ipynb', 'b.ipynb', 'Console 1'):\n"
        "    os.environ['JPY_SESSION_NAME'] = name; found.append(notebook_path())\n"
        "__vsc_ipynb_file__ = '/lab/c.ipynb'; found.append(notebook_path())\n"
        "del os.environ['JPY_SESSION_NAME'], __vsc_ipynb_file__; found"
    )
    here = str(notebook.directory / "b.ipynb")
    assert ast.literal_eval(seen.result) == [None, "/lab/a.ipynb", here, None, "/lab/c.ipynb"]
