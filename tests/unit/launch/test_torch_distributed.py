from __future__ import annotations

import dataclasses
import socket
import sys

import pytest

from determined.launch import torch_distributed
from determined.launch.torch_distributed import parse_args, plan

SH = ["sh", "-c", "true"]


@dataclasses.dataclass
class Told:
    """Stands in for ClusterInfo."""

    container_addrs: list[str]
    container_rank: int
    container_slot_counts: list[int]


def planned(*options, info=None, environment=None, gpus=0):
    return plan(parse_args([*options, "--", *SH]), info, environment or {}, count_gpus=lambda: gpus)


def value(plan, option):
    """What torch will see: the last one given."""
    words = plan.command
    return words[max(i for i, word in enumerate(words) if word == option) + 1]


def test_one_container_with_one_slot():
    """C-76: master_addr `localhost`, nproc 1, and both environment variables set."""
    one = planned(info=Told(["10.0.0.7"], 0, [1]))
    assert value(one, "--master_addr") == "localhost"
    assert (value(one, "--nproc_per_node"), value(one, "--nnodes"), value(one, "--node_rank")) == ("1", "1", "0")
    assert value(one, "--max_restarts") == "0"
    assert one.environment["USE_TORCH_DISTRIBUTED"] == "True"
    assert one.environment["DET_CHIEF_IP"] == "10.0.0.7"
    assert one.command[-6:] == ["--module", "determined.launch.wrap_rank", "RANK", *SH]


def test_where_the_ranks_of_one_machine_meet_no_other_reaches():
    """A meeting that we start on one machine is on loopback; one that the user describes, or of several, is torch's."""
    one = planned()
    assert one.command[:4] == [sys.executable, "-m", "determined.launch._on_loopback", value(one, "--master_port")]
    torch = [sys.executable, "-m", "torch.distributed.run"]
    assert planned(info=Told(["10.0.0.7", "10.0.0.8"], 0, [1, 1])).command[:3] == torch
    for options in (["--standalone"], ["--master_port=29501"], ["--rdzv_backend", "c10d"]):
        assert planned(*options).command[:3] == torch


def test_two_containers():
    """C-77: master_addr and `DET_CHIEF_IP` equal the first address, on both machines."""
    for rank, slots in enumerate([4, 2]):
        two = planned(info=Told(["10.0.0.7", "10.0.0.8"], rank, [4, 2]))
        assert value(two, "--master_addr") == two.environment["DET_CHIEF_IP"] == "10.0.0.7"
        assert (value(two, "--nnodes"), value(two, "--node_rank")) == ("2", str(rank))
        assert value(two, "--nproc_per_node") == str(slots)
        assert value(two, "--master_port") == "29400"


def test_no_slots_mean_one_process():
    """Better: tasks with zero slots run one process, and so does an override of zero."""
    assert value(planned(info=Told(["127.0.0.1"], 0, [0])), "--nproc_per_node") == "1"
    assert value(planned("--nproc_per_node", "0"), "--nproc_per_node") == "1"


@pytest.mark.parametrize(("gpus", "processes"), [(0, "1"), (1, "1"), (4, "4")])
def test_without_a_cluster_the_slots_are_the_gpus(gpus, processes):
    """Better: off-cluster it falls back to local processes, one per visible GPU, or one."""
    local = planned(gpus=gpus)
    assert value(local, "--nproc_per_node") == processes
    assert value(local, "--master_addr") == "localhost"
    assert local.environment["DET_CHIEF_IP"] == "127.0.0.1"


def test_options_that_were_given_win():
    """Options for torch come after the automatic ones."""
    assert value(planned("--nproc_per_node", "3", gpus=8), "--nproc_per_node") == "3"
    given = planned("--max_restarts", "2", info=Told(["10.0.0.7"], 0, [1]))
    assert value(given, "--max_restarts") == "2"
    assert given.command.index("2") < given.command.index("determined.launch.wrap_rank")


def test_one_machine_uses_a_free_port():
    """Better: no fixed port on one machine, so two jobs do not collide."""
    ports = {value(planned(), "--master_port") for _ in range(5)}
    assert "29400" not in ports
    assert len(ports) > 1
    assert any(map(is_free, ports))  # one may have been given away since


def is_free(port: str) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", int(port))) != 0


def test_a_port_that_was_set_is_used():
    """`C10D_PORT` counts on one machine and on several."""
    environment = {"C10D_PORT": "4567"}
    assert value(planned(environment=environment), "--master_port") == "4567"
    assert value(planned(info=Told(["a", "b"], 1, [1, 1]), environment=environment), "--master_port") == "4567"


def test_the_secret_is_fresh_on_one_machine_and_inherited_on_several():
    """Ranks authenticate with `DET_JOB_SECRET`; machines could not agree on one that each of them makes up."""
    first, second = (planned().environment["DET_JOB_SECRET"] for _ in range(2))
    assert first != second
    assert len(first) == 64
    assert planned(environment={"DET_JOB_SECRET": "given"}).environment["DET_JOB_SECRET"] == "given"
    assert "DET_JOB_SECRET" not in planned(info=Told(["a", "b"], 0, [1, 1])).environment
    assert "DET_JOB_SECRET" not in planned("--nnodes", "2", "--master_addr", "a").environment


def test_the_environment_is_passed_on():
    """Variables of the user reach the workers."""
    assert planned(environment={"MINE": "x"}).environment["MINE"] == "x"


def test_several_machines_without_a_cluster():
    """`--nnodes` with a meeting point works; without one, a sentence says what is missing."""
    two = planned("--nnodes=2", "--master_addr", "10.0.0.7", "--node_rank", "1")
    assert two.environment["DET_CHIEF_IP"] == "10.0.0.7"
    assert value(two, "--master_port") == "29400"
    elastic = planned("--nnodes", "1:4", "--rdzv_backend", "c10d", "--rdzv_endpoint", "[fe80::1]:29400")
    assert elastic.environment["DET_CHIEF_IP"] == "fe80::1"
    with pytest.raises(torch_distributed.Misuse, match="--nnodes 4 needs a machine where all can meet"):
        planned("--nnodes", "1:4")


def test_a_python_file_runs_as_with_torchrun(tmp_path):
    """`train.py` alone runs with this Python."""
    script = tmp_path / "train.py"
    script.touch()
    command = torch_distributed.worker_command(parse_args([str(script), "--lr", "1"]))
    assert command == [sys.executable, str(script), "--lr", "1"]


def test_what_cannot_be_found_is_named_before_anything_starts(capsys):
    """A misspelt program is one sentence and exit code 2, not a traceback per rank."""
    assert torch_distributed.main(["nosuch-program", "x"], info=Told(["a"], 0, [1])) == 2
    assert "cannot run 'nosuch-program': there is no such program" in capsys.readouterr().err
    assert torch_distributed.main(["nosuch-program", "--", "sh"], info=Told(["a"], 0, [1])) == 2
    assert "'nosuch-program' stands before --" in capsys.readouterr().err


def test_a_trial_class_runs_in_the_harness():
    """`--trial module:Class` runs the built-in harness with that class."""
    expected = [sys.executable, "-m", "determined.pytorch._harness", "model_def:Trial"]
    assert torch_distributed.worker_command(parse_args(["--trial", "model_def:Trial"])) == expected


@pytest.mark.parametrize(
    ("options", "environment", "keep"),
    [([], {}, False), (["--tee", "3"], {}, True), (["-r", "3"], {}, True), ([], {"PET_LOG_DIR": "x"}, True)],
)
def test_logs_of_torch_are_kept_when_somebody_asked_for_them(options, environment, keep):
    """Torch leaves a directory in /tmp after each run; we remove it unless it holds what the user asked for."""
    assert planned(*options, environment=environment).keep_torch_logs is keep
