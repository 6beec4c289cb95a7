"""`memory --traced`: the trainer's own step, traced without memory or peers, beside the prediction for the trainer."""

from collections.abc import Callable
from dataclasses import replace
from importlib.util import find_spec

from meshwright.basics.errors import bad_input
from meshwright.basics.quantities import GIB
from meshwright.files.outputs_memory import TracedCollectivePart, TracedStagePart
from meshwright.files.plan import Plan
from meshwright.files.prediction import StageMemory
from meshwright.files.traced import TracedRank
from meshwright.predictor.memory import rank_memory

_STATES = ("weights", "gradients", "master", "optimizer")
_ACTIVATIONS = ("activations", "recomputed")


def traced_parts(plan: Plan, progress: Callable[[str], None]) -> list[TracedStagePart]:
    """The fullest pipeline rank, and the last with its logits, traced. Predicted beside them is what our trainer holds,
    whoever the plan is for. Raises InputError without torch, and for a plan that our trainer cannot run."""
    if find_spec("torch") is None:
        raise bad_input(
            "a trace runs the trainer's own step, which needs PyTorch", field="--traced",
            legal="pip install 'meshwright[train]'",
        )  # fmt: skip
    from meshwright.trainer.traced import traced

    ours = replace(plan, setup=replace(plan.setup, runnable_by="meshwright", stack=""))
    predicted = rank_memory(ours.setup, ours.layout, ours.batch)
    fullest = max(predicted, key=lambda rank: rank.total).pipeline_rank
    parts = []
    for rank in sorted({fullest, plan.layout.pp - 1}):
        progress(f"tracing pipeline rank {rank}")
        parts.append(_part(traced(ours, rank), predicted[rank]))
    return parts


def _part(found: TracedRank, predicted: StageMemory) -> TracedStagePart:
    def of(*kinds: str) -> float:
        return sum(predicted.parts.get(kind, 0) for kind in kinds) / GIB

    return TracedStagePart(
        mode="traced, CPU kernels", pipeline_rank=found.pipeline_rank, states_gib=found.states / GIB,
        activations_gib=found.activations / GIB, logits_gib=found.logits / GIB,
        backward_peak_gib=found.backward_peak / GIB, optimizer_peak_gib=found.optimizer_peak / GIB,
        in_flight=found.in_flight, predicted_states_gib=of(*_STATES),
        predicted_activations_gib=of(*_ACTIVATIONS), predicted_logits_gib=of("logits"),
        collectives=[
            TracedCollectivePart(kind=one.kind, group=one.group, count=one.count, gib=one.bytes / GIB)
            for one in found.messages
        ],
        seconds=found.seconds,
    )  # fmt: skip
