"""Experiments on a real Ray cluster of several nodes on this machine: losses of all kinds, several nodes, refusals."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from determined import _process
from determined.errors import ConfigError
from tests.lifecycles import Lab, opened_lab
from tests.ray_cluster import Node, RayCluster
from tests.stores import Database, PostgresServer

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

# Saves after each step, and from the second on waits until it is told to go on.
STEPS = """
with core.init() as context:
    done = restored(context)
    note(start=done, pid=os.getpid(), node=info.agent_id)
    for step in range(done + 1, 5):
        context.train.report_validation_metrics(step, {"loss": 1.0 / step})
        save(context, step)
        note(saved=step)
        if step >= 2:
            wait_for("go")
"""
# Two ranks on two nodes: each hears what the other has.
RANKS = """
with core.init(distributed=core.DistributedContext.from_torch_distributed()) as context:
    import torch.distributed as dist
    names = context.distributed.allgather(info.agent_id)
    print("hello", flush=True)
    if context.distributed.rank == 0:
        note(start=0, nodes=names, counts=info.container_slot_counts)
    {then}
"""
# Another program on the same cluster, which holds two slots.
OTHERS = """
import ray, time
ray.init(log_to_driver=False, logging_level="ERROR")
hold = ray.remote(num_cpus=1, resources={"more": 0.1})(lambda: time.sleep(1000))
refs = [hold.remote() for _ in range(2)]
while ray.available_resources().get("more", 0) > 1.85:
    time.sleep(0.05)
print("held", flush=True)
time.sleep(1000)
"""
DDP = "python3 -m determined.launch.torch_distributed -- python3 ranks.py"


@pytest.fixture
def two_nodes(ray_cluster: RayCluster) -> list[Node]:
    """Two nodes with a slot each, besides `one`, which has two; both are in the pool `more`."""
    return [ray_cluster.lasting(name, cpus=1, resources={"more": 1}) for name in ("two", "three")]


@pytest.fixture
def on_ray(ray_cluster: RayCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {**ray_cluster.environment, "DET_LAUNCHER": "ray"}.items():
        monkeypatch.setenv(name, value)


@pytest.fixture
def ray_lab(on_ray: None, two_nodes: list[Node], home: Path, tmp_path: Path) -> Iterator[Lab]:
    with opened_lab(tmp_path / "lab") as opened:
        yield opened


def pool(**resources: Any) -> dict[str, Any]:
    return {"resources": {"resource_pool": "more", **resources}}


def test_losses_cost_no_restart(ray_lab: Lab, two_nodes: list[Node]) -> None:
    """P-95, P-66: a trial is left alone when the controller is killed, and goes on from its checkpoint when its worker,
    then its raylet is killed: restarts unchanged, nothing from zero, no process left."""
    experiment = ray_lab.submit(STEPS, max_restarts=0, **pool())
    ray_lab.noted(experiment, "saved", saved=2)
    [begun] = ray_lab.notes(experiment, start=0)
    ray_lab.until(lambda: len(ray_lab.only_trial(experiment).list_checkpoints()) == 2)  # and the store knows

    controller = ray_lab.client.controller.status().pid
    os.kill(controller or 0, signal.SIGKILL)
    after = ray_lab.until(lambda: _other(ray_lab, controller))
    assert after != controller
    assert _process.is_alive(begun["pid"])
    assert ray_lab.only_trial(experiment).attempts()[-1].attempt == 1

    agent = psutil.Process(ray_lab.only_trial(experiment).attempts()[-1].pid)
    agent.parent().kill()  # the actor
    second = ray_lab.noted(experiment, "start", attempt=2)[0]
    assert second["start"] == 2
    assert not _process.is_alive(begun["pid"])

    {node.name: node for node in two_nodes}[second["node"]].kill_raylet()
    third = ray_lab.noted(experiment, "start", attempt=3)[0]
    assert third["start"] >= 2
    ray_lab.tell("go")
    assert ray_lab.end(experiment) == "COMPLETED"
    assert ray_lab.only_trial(experiment).restarts == 0
    assert [note["saved"] for note in ray_lab.notes(experiment) if "saved" in note][-1] == 4


def _other(lab: Lab, pid: int | None) -> int | None:
    found = lab.client.controller.status()
    return found.pid if found.is_alive and found.pid != pid else None


def test_ranks_on_several_nodes(ray_lab: Lab, two_nodes: list[Node]) -> None:
    """S11, S9, P-93: a trial of two slots runs on two nodes, each with its rank; lines carry node and rank; paused,
    both leave at the same step with one checkpoint; P-92: a rank that fails ends the other and costs one restart."""
    then = """
    for step in range(restored(context) + 1, 1000):
        time.sleep(0.05)
        if context.distributed.rank == 0:
            context.train.report_validation_metrics(step, {"loss": 1.0})
        if context.preempt.should_preempt():
            if context.distributed.rank == 0:
                save(context, step)
            print("left at", step, flush=True)
            break
        if is_told("fail") and context.distributed.rank == 1:
            sys.exit(7)
"""
    code = ray_lab.code("", ranks_py="from acting import *\n" + RANKS.replace("{then}", then.strip()))
    experiment = ray_lab.submit(code, entrypoint=DDP, max_restarts=1, **pool(slots_per_trial=2))
    [begun] = ray_lab.started(experiment)
    assert sorted(begun["nodes"]) == ["three", "two"]
    assert begun["counts"] == [1, 1]
    rows = list(ray_lab.only_trial(experiment).iter_log_rows())
    assert {(row.node, row.rank) for row in rows if row.text == "hello"} == set(
        zip(begun["nodes"], (0, 1), strict=True)
    )
    assert sorted(ray_lab.only_trial(experiment).attempts()[-1].slot_ids) == ["three/0", "two/0"]

    experiment.pause()
    ray_lab.until(lambda: ray_lab.no_attempt_runs(experiment))
    left = [row for row in ray_lab.only_trial(experiment).iter_log_rows() if row.text.startswith("left at")]
    assert len(left) == 2
    assert len({row.text for row in left}) == 1
    assert len(ray_lab.only_trial(experiment).list_checkpoints()) == 1

    ray_lab.tell("fail")
    experiment.activate()
    ray_lab.until(lambda: ray_lab.only_trial(experiment).restarts == 1)
    experiment.kill()
    assert ray_lab.end(experiment) == "CANCELED"


def test_one_of_two_nodes_is_lost(ray_lab: Lab, two_nodes: list[Node], ray_cluster: RayCluster) -> None:
    """P-95: when the other node of a trial is gone, then the first, what runs on the one that is left ends, too; the
    trial goes on from its checkpoint as soon as there are two nodes again: restarts unchanged. So it is when only the
    agent of the other node is killed."""
    then = """
    done = restored(context)
    if context.distributed.rank == 0:
        save(context, done + 1)
        note(saved=done + 1)
    while True:
        time.sleep(0.05)
        context.distributed.allgather(None)
"""
    code = ray_lab.code("", ranks_py="from acting import *\n" + RANKS.replace("{then}", then.strip()))
    experiment = ray_lab.submit(code, entrypoint=DDP, max_restarts=0, **pool(slots_per_trial=2))
    by_name = {node.name: node for node in two_nodes}
    for attempt, victim, is_all in ((1, 1, True), (2, 0, True), (3, 1, False)):
        [begun] = ray_lab.noted(experiment, "start", attempt=attempt)
        assert sorted(begun["nodes"]) == ["three", "two"]
        ray_lab.noted(experiment, "saved", attempt=attempt, saved=attempt)
        ray_lab.until(lambda n=attempt: len(ray_lab.only_trial(experiment).list_checkpoints()) == n)  # the store knows
        node = by_name[begun["nodes"][victim]]
        if is_all:
            node.kill()
            ray_cluster.lasting(node.name, cpus=1, resources={"more": 1})
        else:
            [agent] = [pid for pid in node.pids if psutil.Process(pid).name() == "det-agent"]
            os.kill(agent, signal.SIGKILL)
    ray_lab.noted(experiment, "saved", attempt=4, saved=4)
    assert ray_lab.only_trial(experiment).restarts == 0
    experiment.kill()
    assert ray_lab.end(experiment) == "CANCELED"


class Network:
    """A network namespace of its own, at the other end of a cable that can be pulled."""

    def __init__(self) -> None:
        self.name = f"det{os.getpid()}"
        net = f"10.213.{os.getpid() % 256}"
        self.here, self.there, self._all = f"{net}.1", f"{net}.2", f"{net}.0/24"
        self._ip("netns", "add", self.name)
        self._ip("link", "add", self.name, "type", "veth", "peer", "name", "cable", "netns", self.name)
        self._ip("address", "add", f"{self.here}/24", "dev", self.name)
        self._ip("-n", self.name, "address", "add", f"{self.there}/24", "dev", "cable")
        for link in ("lo", "cable"):
            self._ip("-n", self.name, "link", "set", link, "up")
        # While the cable is pulled, what is sent there must not leave this machine by another way.
        self._ip("route", "replace", "unreachable", self._all, "metric", "9999")
        self.join()

    def join(self) -> None:
        self._ip("link", "set", self.name, "up")

    def cut(self) -> None:
        self._ip("link", "set", self.name, "down")

    def close(self) -> None:
        self._ip("route", "del", "unreachable", self._all)
        self._ip("link", "del", self.name)
        self._ip("netns", "del", self.name)

    def _ip(self, *words: str) -> None:
        subprocess.run(["ip", *words], check=True)


@pytest.fixture
def network() -> Iterator[Network]:
    if not shutil.which("ip") or os.geteuid() != 0:
        advice = "needs root, and ip of iproute2, to make a network namespace"
        assert os.environ.get("DET_TEST_NETWORK") != "required", advice  # in .ci/run
        pytest.skip(advice)
    made = Network()
    yield made
    made.close()


@pytest.fixture
def wired_cluster(network: Network) -> Iterator[RayCluster]:
    """A cluster whose nodes meet over that cable."""
    cluster = RayCluster(network.here)
    yield cluster
    cluster.close()


def test_the_network_of_a_node_is_cut(
    network: Network, wired_cluster: RayCluster, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S4, P-95: the network of a node is cut for 20 seconds: its trial goes on elsewhere from its checkpoint, restarts
    unchanged; when the network is back, the old attempt has ended, and what it says is refused."""
    for name, value in {**wired_cluster.environment, "DET_LAUNCHER": "ray"}.items():
        monkeypatch.setenv(name, value)
    more: dict[str, Any] = {"cpus": 1, "resources": {"more": 1}}
    with (
        wired_cluster.node("far", network=network.name, address=network.there, **more),
        opened_lab(tmp_path / "lab") as lab,
    ):
        experiment = lab.submit(STEPS, **pool())
        lab.noted(experiment, "saved", saved=2)
        lab.until(lambda: len(lab.only_trial(experiment).list_checkpoints()) == 2)  # and the store knows
        with wired_cluster.node("near", **more):
            network.cut()
            time.sleep(20)  # the drill
            network.join()
            lab.tell("go")
            assert lab.end(experiment) == "COMPLETED"
        assert lab.only_trial(experiment).restarts == 0
        begun = [(note["start"], note["node"]) for note in lab.notes(experiment) if "start" in note]
        assert begun == [(0, "far"), (2, "near")]
        assert [note["attempt"] for note in lab.notes(experiment) if "saved" in note] == [1, 1, 2, 2]


def test_postgresql_is_killed_under_a_trial(
    database: Database, on_ray: None, two_nodes: list[Node], home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Issue 16: PostgreSQL is killed -9 while a trial trains on a node and another ends; when it is back, both have one
    attempt, no restart and all that they reported; the controller is the same process."""
    monkeypatch.setenv("DET_STORE", database.url)
    script = """
with core.init() as context:
    note(start=0, pid=os.getpid())
    step = 0
    while not is_told(["early", "late"][info.trial.hparams["number"]]):
        step += 1
        context.train.report_training_metrics(step, {"loss": 1 / step})
        time.sleep(0.02)
    context.train.report_validation_metrics(step, {"loss": 1 / step})
note(steps=step)
"""
    searcher = {"name": "grid", "metric": "loss", "max_concurrent_trials": 2}
    space = {"number": {"type": "categorical", "vals": [0, 1]}}
    with opened_lab(tmp_path / "lab") as lab:
        experiment = lab.submit(script, searcher=searcher, hyperparameters=space, **pool())
        lab.started(experiment, 2)
        controller = lab.client.controller.status().pid
        database.kill()
        lab.tell("early")
        time.sleep(5)  # the drill
        database.start()
        lab.tell("late")
        assert lab.end(experiment) == "COMPLETED"
        assert lab.client.controller.status().pid == controller
        for note in lab.noted(experiment, "steps", 2):
            trial = lab.client.get_trial(note["trial"])
            assert (trial.restarts, [row.exit_code for row in trial.attempts()]) == (0, [0])
            reported = sorted(row.steps_completed or 0 for row in trial.iter_metrics("training"))
            assert reported == list(range(1, note["steps"] + 1))


def test_what_waits_and_what_never_fits(ray_lab: Lab) -> None:
    """1.6, 9.4: what no node could ever run is refused at once; what others hold up waits with a reason, and runs
    when they are done."""
    with pytest.raises(ConfigError, match=r"'large', and no node .* has that resource\. Known pools: more"):
        ray_lab.submit("", resources={"resource_pool": "large"})
    with pytest.raises(ConfigError, match=r"is 3, and there are 2 slots on the largest node, and is_single_node"):
        ray_lab.submit("", resources={"slots_per_trial": 3, "is_single_node": True})
    with pytest.raises(ConfigError, match=r"is 5, and there are 4 slots"):
        ray_lab.submit("", resources={"slots_per_trial": 5})

    others = subprocess.Popen([sys.executable, "-c", OTHERS], stdout=subprocess.PIPE, text=True)
    try:
        assert others.stdout is not None
        assert others.stdout.readline() == "held\n"
        experiment = ray_lab.submit("note(start=0)", **pool(slots_per_trial=2))
        ray_lab.until(
            lambda: "waits for 2 CPU slots of the resource pool more: others use them" in ray_lab.log(experiment)
        )
    finally:
        others.kill()
        others.communicate()
    assert ray_lab.end(experiment) == "COMPLETED"


def test_a_node_that_is_excluded(ray_lab: Lab) -> None:
    """1.4, 9.4: a log policy bars the node of the line from later attempts; with no node left the trial is an ERROR."""
    script = "note(node=info.agent_id); print('a broken device', flush=True); sys.exit(1)"
    policies = [{"name": "broken", "pattern": "a broken device", "action": "exclude_node"}]
    experiment = ray_lab.submit(script, max_restarts=5, log_policies=policies, **pool())
    assert ray_lab.end(experiment) == "ERROR"
    assert sorted(note["node"] for note in ray_lab.notes(experiment)) == ["three", "two"]
    assert "have excluded three, two" in ray_lab.log(experiment)


def test_secrets_stay_with_the_trial(ray_lab: Lab) -> None:
    """A secret reaches the trial, and no log, no command line and nothing that Ray shows."""
    word = "correct-horse-battery"
    environment = {"environment_variables": [f"NOTES={ray_lab._notes}", f"MY_TOKEN={word}"]}
    script = "note(start=0, knows=os.environ['MY_TOKEN'] == '-'.join(['correct', 'horse', 'battery'])); wait_for('go')"
    experiment = ray_lab.submit(script, environment=environment)
    [note] = ray_lab.noted(experiment, "start")
    assert note["knows"]
    shown = [" ".join(process.info["cmdline"] or []) for process in psutil.process_iter(["cmdline"])]
    asked = "import ray; ray.init(log_to_driver=False); from ray._private.state import actors; print(actors())"
    listed = subprocess.run([sys.executable, "-c", asked], capture_output=True, text=True, check=True).stdout
    assert experiment_name(ray_lab) in listed
    assert word not in " ".join([*shown, listed, ray_lab.log(experiment)])
    ray_lab.tell("go")
    assert ray_lab.end(experiment) == "COMPLETED"


def experiment_name(lab: Lab) -> str:
    return lab.store.id[:8]


def test_a_cluster_that_grows(ray_lab: Lab, ray_cluster: RayCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """DET_SLOTS says how far a cluster grows: what no node can run yet waits with a reason, until one comes."""
    monkeypatch.setenv("DET_SLOTS", "20")
    experiment = ray_lab.submit("note(start=0)", resources={"resource_pool": "late"})
    ray_lab.until(lambda: "pool late: no node of the cluster has as many" in ray_lab.log(experiment))
    with ray_cluster.node("late", resources={"late": 1}):
        assert ray_lab.end(experiment) == "COMPLETED"


# Nodes that are other machines, or have other packages.


def can_unshare() -> bool:
    """Whether this machine lets us have a host name and mounts of our own."""
    return subprocess.run(["unshare", "--uts", "--mount", "true"], capture_output=True, check=False).returncode == 0


def test_another_machine(
    on_ray: None,
    ray_cluster: RayCluster,
    postgres: PostgresServer,
    home: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A store in a file is refused when a node is on another machine, with what to set; with PostgreSQL a trial runs
    there, in a data directory of that node; S7: a directory for checkpoints that is not shared is refused."""
    if not can_unshare():
        pytest.skip("needs the right to unshare host name and mounts")
    (tmp_path / "hidden").mkdir()
    there = {"machine": "elsewhere", "hidden": str(tmp_path / "hidden"), "resources": {"far": 1}}
    environment = {"DET_HOME": str(tmp_path / "hidden" / "home")}
    with ray_cluster.node("far", environment=environment, **there):
        lab = Lab(tmp_path / "file")
        try:
            with pytest.raises(ConfigError, match=r"nodes on other machines \(far\).*Set DET_STORE=postgresql://"):
                lab.submit("")
        finally:
            lab.close()

        url = postgres.database()
        monkeypatch.setenv("DET_STORE", url)
        lab = Lab(tmp_path / "server")
        try:
            unshared = {"type": "directory", "container_path": str(tmp_path / "hidden" / "checkpoints")}
            far = {"resources": {"resource_pool": "far"}}
            refused = lab.submit("note(start=0)", checkpoint_storage=unshared, **far)
            shared = {"type": "directory", "container_path": str(tmp_path / "shared")}
            script = STEPS.replace("if step >= 2", "if False").replace("node=", "home=os.environ['DET_HOME'], node=")
            experiment = lab.submit(script, checkpoint_storage=shared, **far)
            assert lab.end(refused) == "ERROR"
            assert lab.notes(refused) == []
            assert f"at {unshared['container_path']} is not the same on node far and on" in lab.log(refused)
            assert lab.end(experiment) == "COMPLETED"
            [note] = lab.notes(experiment, start=0)
            assert (note["node"], note["home"]) == ("far", environment["DET_HOME"])
            assert lab.only_trial(experiment).attempts()[-1].node == "elsewhere"
            assert len(lab.only_trial(experiment).list_checkpoints()) == 4
            lab.leave()
        finally:
            lab.close()
            postgres.empty(url)


def test_nodes_that_differ_are_refused(ray_lab: Lab, ray_cluster: RayCluster, tmp_path: Path) -> None:
    """Before user code, one sentence says which versions of a node differ from the submitter's."""
    other = tmp_path / "other"
    (other / "torch-9.9.dist-info").mkdir(parents=True)
    (other / "torch-9.9.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: torch\nVersion: 9.9\n")
    path = os.pathsep.join([str(other), os.environ["PYTHONPATH"]])
    with ray_cluster.node("old", resources={"old": 1}, environment={"PYTHONPATH": path}):
        experiment = ray_lab.submit("note(start=0)", resources={"resource_pool": "old"})
        assert ray_lab.end(experiment) == "ERROR"
    assert "Node old has torch 9.9, and the experiment was submitted with torch 2." in ray_lab.log(experiment)
    assert ray_lab.notes(experiment) == []
