"""Too few micro-batches: the schedule itself keeps devices idle."""

from meshwright.basics.errors import InputError
from meshwright.diagnosis.bubbles import ideal_idle
from meshwright.diagnosis.evidence import Evidence
from meshwright.diagnosis.replay import Replay
from meshwright.files.findings import Finding
from meshwright.layout.batch import micro_batch_choices
from meshwright.layout.schedules import micro_batch_rule
from meshwright.layout.thresholds import IDLE_SCHEDULE, WORTH
from meshwright.predictor.step import predict

_DOUBT = 0.5  # smaller kernels are less efficient by an amount that this run does not show


def find_too_few_micro_batches(evidence: Evidence, replay: Replay, notes: list[str]) -> Finding | None:
    """The finding where even equal stages would idle over 15 % and a smaller micro-batch would save 3 %."""
    layout, batch = replay.plan.layout, replay.plan.batch
    if layout.pp == 1:
        return None
    idle = ideal_idle(replay)
    if idle <= IDLE_SCHEDULE:
        return None
    best: tuple[float, int, int] | None = None
    for micro_batch in micro_batch_choices(batch.global_batch, layout.dp):
        count = batch.global_batch // (micro_batch * layout.dp)
        if micro_batch >= batch.micro_batch or micro_batch_rule(layout.schedule, layout.pp, layout.vpp, count):
            continue
        try:
            after, plan = replay.changed({"batch.micro_batch": micro_batch})
            if not predict(plan, evidence.measured).fits:
                continue
        except InputError as error:
            notes.append(f"micro-batch {micro_batch} could not be judged ({error})")
            continue
        after_s = replay.step_with(after, plan)
        if best is None or after_s < best[0]:
            best = after_s, micro_batch, count
    told = f"{layout.schedule} with {batch.micro_batches} micro-batches on {layout.pp} pipeline ranks idles {idle:.1%}"
    if best is None:
        notes.append(f"{told} by itself; the micro-batch of {batch.micro_batch} cannot be made smaller")
        return None
    after_s, micro_batch, count = best
    gain = replay.gain(after_s, doubt=_DOUBT)
    if gain[1] < WORTH:
        return None
    return Finding(
        kind="too few micro-batches",
        ranks=tuple(evidence.timeline.recorded),
        stages=tuple(range(len(layout.stages))),
        cause=f"{told} of the step even if all stages were equal",
        evidence={
            "ideal_idle": idle,
            "micro_batches": batch.micro_batches,
            "micro_batches_after": count,
            "micro_batch_after": micro_batch,
            "replay_error": replay.error,
        },
        cost_s_per_step=replay.step_s - after_s,
        share=1 - after_s / replay.step_s,
        confidence="medium" if evidence.measured else "low",
        change={"batch.micro_batch": micro_batch},
        predicted_gain=gain,
        verify=f"train again with {count} micro-batches of {micro_batch}: smaller kernels may eat part of the gain",
    )
