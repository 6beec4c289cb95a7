"""Is this process already one rank of a launch, by torchrun or by SLURM's srun?"""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from meshwright.basics.errors import bad_input


@dataclass(frozen=True, slots=True)
class Membership:
    """This process's place in a launch that someone else made, and where its ranks meet."""

    rank: int
    world: int
    local_rank: int
    address: str
    port: int
    launcher: str

    def variables(self) -> dict[str, str]:
        """What torch reads from the environment."""
        return {
            "RANK": str(self.rank), "WORLD_SIZE": str(self.world), "LOCAL_RANK": str(self.local_rank),
            "MASTER_ADDR": self.address, "MASTER_PORT": str(self.port),
        }  # fmt: skip


def membership(env: Mapping[str, str], world: int) -> Membership | None:
    """The launch that this process belongs to, or None when it stands alone (a SLURM batch script does too).

    Raises InputError when the launch has another number of ranks than the plan's `world`, or is incomplete.
    """
    if "RANK" in env and "WORLD_SIZE" in env:
        found = _torchrun(env)
    elif "SLURM_STEP_ID" in env and "SLURM_PROCID" in env and int(env.get("SLURM_STEP_NUM_TASKS", "1")) > 1:
        found = _slurm(env)
    else:
        return None
    if found.world != world:
        raise bad_input(
            f"{found.launcher} started {found.world} ranks, the plan needs {world}", field="world size",
            value=found.world, legal=f"start {world}, or leave it out to start them from here",
        )  # fmt: skip
    return found


def _torchrun(env: Mapping[str, str]) -> Membership:
    missing = [name for name in ("MASTER_ADDR", "MASTER_PORT") if name not in env]
    if missing:
        raise bad_input(f"RANK and WORLD_SIZE are set, but {' and '.join(missing)} not: ranks cannot meet")
    rank = int(env["RANK"])
    local = int(env.get("LOCAL_RANK", rank))
    return Membership(rank, int(env["WORLD_SIZE"]), local, env["MASTER_ADDR"], int(env["MASTER_PORT"]), "torchrun")


def _slurm(env: Mapping[str, str]) -> Membership:
    """Rank 0's node is the first of the step's list; the port follows from the job, so that jobs do not collide."""
    nodes = env.get("SLURM_STEP_NODELIST") or env.get("SLURM_JOB_NODELIST") or "127.0.0.1"
    port = int(env.get("MASTER_PORT") or 20_000 + int(env.get("SLURM_JOB_ID", "0")) % 10_000)
    address = env.get("MASTER_ADDR") or first_node(nodes)
    rank, world = int(env["SLURM_PROCID"]), int(env["SLURM_STEP_NUM_TASKS"])
    return Membership(rank, world, int(env.get("SLURM_LOCALID", "0")), address, port, "srun")


def first_node(nodes: str) -> str:
    """The first host of a SLURM node list: `gpu[003-007,011],cpu1` begins with `gpu003`."""
    match = re.match(r"([^,\[]+)(?:\[(\d+)[^\]]*\]([^,\[]*))?", nodes)
    if match is None:
        return nodes
    return match.group(1) + (match.group(2) or "") + (match.group(3) or "")
