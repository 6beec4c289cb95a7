"""Needless recompute: activations are recomputed although they would fit the memory."""

from meshwright.basics.errors import InputError
from meshwright.basics.quantities import gib, seconds_text
from meshwright.diagnosis.evidence import Evidence
from meshwright.diagnosis.replay import Replay
from meshwright.files.findings import Finding
from meshwright.layout.thresholds import ROOMY, WORTH
from meshwright.predictor.step import predict


def find_needless_recompute(evidence: Evidence, replay: Replay, notes: list[str]) -> Finding | None:
    """The finding where recompute is on, the plan without it is predicted to fit, and dropping it saves 3 %."""
    layout = replay.plan.layout
    if layout.recompute == "none":
        return None
    change: dict[str, object] = {"layout.recompute": "none", "layout.recompute_layers": None}
    after, plan = replay.changed(change)
    try:
        without = predict(plan, evidence.measured)
    except InputError as error:
        notes.append(f"whether the plan fits without recompute is not known ({error})")
        return None
    worst = without.worst_memory
    if not without.fits:
        notes.append(
            f"recompute is needed: without it a rank would need {gib(worst.total)} of {gib(without.memory_limit_bytes)}"
        )
        return None
    after_s = replay.step_with(after)
    gain = replay.gain(after_s)
    if gain[1] < WORTH:
        return None
    spent = {name: cost.recompute_s * replay.scale.get(name, 1.0) for name, cost in replay.unit_costs().items()}
    by_rank = [
        sum(spent[name] for stage in layout.stages_of(rank) for name in layout.stages[stage])
        for rank in range(layout.pp)
    ]
    per_step = [seconds * replay.plan.batch.micro_batches for seconds in by_rank]
    return Finding(
        kind="needless recompute",
        ranks=tuple(evidence.timeline.recorded),
        stages=tuple(range(len(layout.stages))),
        cause=(
            f"recompute {layout.recompute} takes up to {seconds_text(max(per_step))} of a rank's step, and without it "
            f"the fullest rank is predicted to need {gib(worst.total)} of {gib(without.memory_limit_bytes)}"
        ),
        evidence={
            "recompute": layout.recompute,
            "recompute_s_per_rank": per_step,
            "memory_without_bytes": worst.total,
            "memory_limit_bytes": without.memory_limit_bytes,
            "unit_times": replay.unit_times,
            "replay_error": replay.error,
        },
        cost_s_per_step=replay.step_s - after_s,
        share=1 - after_s / replay.step_s,
        confidence="high" if not replay.scale and worst.total < ROOMY * without.memory_limit_bytes else "medium",
        change={"layout.recompute": "none"} if layout.recompute_layers is None else change,
        predicted_gain=gain,
        verify="train again without recompute; compare the step time and the peak memory",
    )
