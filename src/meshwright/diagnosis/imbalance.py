"""Uneven stages: the stage that works longest, and the partition that the measured unit times ask for."""

from meshwright.basics.errors import InputError
from meshwright.basics.quantities import seconds_text
from meshwright.diagnosis.evidence import Evidence
from meshwright.diagnosis.replay import Replay
from meshwright.files.findings import Finding
from meshwright.layout.partition import balance_placed
from meshwright.layout.thresholds import UNEVEN, WORTH
from meshwright.model.units import compact
from meshwright.predictor.step import predict


def find_imbalance(evidence: Evidence, replay: Replay, notes: list[str]) -> Finding | None:
    """The finding where a pipeline rank computes 10 % longer than the mean and better stages would save 3 %."""
    layout = replay.plan.layout
    if layout.pp == 1:
        return None
    compute = [evidence.stage_compute(stage) for stage in range(len(layout.stages))]
    loads = [sum(compute[stage] for stage in layout.stages_of(rank)) for rank in range(layout.pp)]
    mean = sum(loads) / len(loads)
    slowest = max(range(layout.pp), key=loads.__getitem__)
    if loads[slowest] < UNEVEN * mean:
        return None
    costs = {name: cost.total_s * replay.scale.get(name, 1.0) for name, cost in replay.unit_costs().items()}
    names = [name for stage in layout.stages for name in stage]
    stages = balance_placed(names, costs, layout.placement)
    change = {"layout.stages": stages}
    after, plan = replay.changed(change)
    after_s = replay.step_with(after)
    gain = replay.gain(after_s)
    if gain[1] < WORTH:
        return None
    try:
        if not predict(plan, evidence.measured).fits:
            notes.append("stages that would be even do not fit the memory: moving layers is not proposed")
            return None
    except InputError as error:
        notes.append(f"whether even stages fit the memory is not known ({error})")
    stage = max(layout.stages_of(slowest), key=compute.__getitem__)
    return Finding(
        kind="stage imbalance",
        ranks=evidence.stage_ranks[stage],
        stages=(stage,),
        cause=(
            f"stage {stage} computes {seconds_text(compute[stage])} a micro-batch, "
            f"{loads[slowest] / mean:.2f} times the mean of the ranks: the others wait for it"
        ),
        evidence={
            "stage_compute_s": compute,
            "rank_over_mean": [load / mean for load in loads],
            "stages_now": [list(compact(held)) for held in layout.stages],
            "stages_after": [list(compact(held)) for held in stages],
            "unit_times": replay.unit_times,
            "replay_error": replay.error,
        },
        cost_s_per_step=replay.step_s - after_s,
        share=1 - after_s / replay.step_s,
        confidence="medium" if replay.scale else "high",
        change=change,
        predicted_gain=gain,
        verify="train again with the new stages and compare the step time, profiling off",
    )
