"""What is recorded of the machine, and what is not."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from meshwright.basics.errors import InputError
from meshwright.trainer.environment import environment, git_state, package_version, telling
from meshwright.trainer.membership import first_node, membership
from meshwright.trainer.ranks import rank_environment


def test_the_facts_are_json_and_true(tmp_path: Path) -> None:
    facts = json.loads(json.dumps(environment({"OMP_NUM_THREADS": "1"}, tmp_path)))
    assert facts["python"] == ".".join(map(str, sys.version_info[:3]))
    assert facts["cores"] >= 1
    assert facts["memory_bytes"] > 2**28
    assert facts["packages"]["numpy"] == package_version("numpy")
    assert facts["git"] is None
    assert facts["variables"] == {"OMP_NUM_THREADS": "1"}


def test_only_telling_variables_are_kept_and_no_secrets() -> None:
    kept = {"NCCL_DEBUG": "INFO", "CUDA_VISIBLE_DEVICES": "0,1", "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
    dropped = {"HOME": "/home/a", "HF_TOKEN": "x", "TORCH_HUB_TOKEN": "x", "NCCL_API_KEY": "x", "PATH": "/bin"}
    assert telling({**dropped, **kept}) == kept


def test_the_commit_and_whether_it_was_changed(tmp_path: Path) -> None:
    def git(*arguments: str) -> None:
        settings = ("-c", "user.name=a", "-c", "user.email=a@example.org", "-c", "commit.gpgsign=false")
        subprocess.run(["git", "-C", str(tmp_path), *settings, *arguments], check=True, capture_output=True)

    git("init")
    assert git_state(tmp_path) is None  # no commit yet
    (tmp_path / "a").write_text("1")
    git("add", "a")
    git("commit", "-m", "one")
    state = git_state(tmp_path)
    assert state is not None
    assert len(str(state["commit"])) == 40
    assert state["changed"] is False
    (tmp_path / "a").write_text("2")
    assert git_state(tmp_path) == {**state, "changed": True}


def test_ranks_get_one_thread_and_the_users_interface() -> None:
    given = rank_environment({"OMP_NUM_THREADS": "8", "GLOO_SOCKET_IFNAME": "eth0", "HOME": "/home/a"})
    assert given["OMP_NUM_THREADS"] == given["MKL_NUM_THREADS"] == "1"
    assert given["GLOO_SOCKET_IFNAME"] == "eth0"
    assert given["HOME"] == "/home/a"
    assert rank_environment({})["GLOO_SOCKET_IFNAME"] in ("lo", "lo0")


TORCHRUN = {"RANK": "3", "WORLD_SIZE": "4", "LOCAL_RANK": "1", "MASTER_ADDR": "10.0.0.1", "MASTER_PORT": "29500"}
SRUN = {
    "SLURM_JOB_ID": "123456", "SLURM_STEP_ID": "0", "SLURM_PROCID": "5", "SLURM_LOCALID": "1",
    "SLURM_STEP_NUM_TASKS": "8", "SLURM_STEP_NODELIST": "gpu[003-004]",
}  # fmt: skip


def test_a_process_alone_belongs_to_no_launch() -> None:
    assert membership({}, 8) is None
    batch_script = {key: value for key, value in SRUN.items() if not key.startswith("SLURM_STEP_")}
    assert membership({**batch_script, "SLURM_PROCID": "0", "SLURM_NTASKS": "8"}, 8) is None
    assert membership({**SRUN, "SLURM_STEP_NUM_TASKS": "1"}, 8) is None  # an interactive shell under srun


def test_torchrun_and_srun_are_recognised() -> None:
    by_torchrun, by_srun = membership(TORCHRUN, 4), membership(SRUN, 8)
    assert by_torchrun is not None
    assert by_torchrun.variables() == TORCHRUN
    assert by_srun is not None
    assert by_srun.variables() == {
        "RANK": "5", "WORLD_SIZE": "8", "LOCAL_RANK": "1", "MASTER_ADDR": "gpu003", "MASTER_PORT": "23456",
    }  # fmt: skip


def test_a_launch_of_another_size_is_refused() -> None:
    with pytest.raises(InputError, match=r"torchrun started 4 ranks, the plan needs 8 \(start 8, or leave it out"):
        membership(TORCHRUN, 8)
    with pytest.raises(InputError, match="srun started 8 ranks, the plan needs 4"):
        membership(SRUN, 4)
    with pytest.raises(InputError, match="MASTER_PORT not: ranks cannot meet"):
        membership({key: value for key, value in TORCHRUN.items() if key != "MASTER_PORT"}, 4)


@pytest.mark.parametrize(
    ("nodes", "first"),
    [("gpu[003-007,011],cpu1", "gpu003"), ("node1", "node1"), ("node1,node2", "node1"), ("a[1,3]-ib,b", "a1-ib")],
)
def test_the_first_node_of_a_list(nodes: str, first: str) -> None:
    assert first_node(nodes) == first
