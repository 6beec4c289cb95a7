"""What the predictor says of the complete plan in a job file."""

from pathlib import Path

from meshwright.files.plan import Plan
from meshwright.files.plan_toml import read_plan
from meshwright.files.prediction import StageMemory
from meshwright.predictor.step import predict

from .jobs import job

STATES = ("weights", "gradients", "master", "optimizer")
A100 = 'gpu = "A100-80GB-SXM"\ngpus = {gpus}\ngpus_per_node = 8\ninter_node = "ib-hdr"'


def plan(
    folder: Path, model: str, gpus: int, batch: str, layout: str, rest: str = "", runnable_by: str = "any"
) -> Plan:
    """The plan of a job on 80 GB A100s."""
    return read_plan(job(folder, model, A100.format(gpus=gpus), batch, f"[layout]\n{layout}\n{rest}", runnable_by))


def worst(of: Plan) -> StageMemory:
    """The pipeline rank that needs most."""
    return predict(of).worst_memory


def states(rank: StageMemory) -> int:
    """Bytes of training state."""
    return sum(rank.parts.get(kind, 0) for kind in STATES)
