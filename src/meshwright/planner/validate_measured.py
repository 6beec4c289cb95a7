"""The step time that a row measured: as printed, from tokens a second, or from FLOP/s whose convention is stated."""

import re
from dataclasses import dataclass
from typing import Literal

from meshwright.files.plan import Plan
from meshwright.files.rows import Row
from meshwright.model.flops import step_model_flops
from meshwright.planner.rows_memory import ran_out

Origin = Literal["step time", "tokens/s", "TFLOP/s", "MFU"]


@dataclass(frozen=True, slots=True)
class MeasuredStep:
    """Seconds a step, and the column they come from."""

    seconds: float
    origin: Origin


def extrapolated(row: Row) -> bool:
    """Was the step time computed from fewer timings by its authors? Such rows can be ranked, not timed: those of
    vTrain's single-node table are linear in the number of micro-batches to the last digit."""
    return row.id.startswith("vtrains") or "ground_truth_single" in row.source


def measured_step(row: Row, plan: Plan) -> MeasuredStep | str:
    """The measured step, or why there is none. `plan` is what the row ran: its batch stands in where the row states
    tokens a second and no global batch."""
    if ran_out(row):
        return "ran out of memory"
    if row.step_time_s is not None:
        lacking = [name for name in ("global_batch", "seq_len") if getattr(row, name) is None]
        if lacking:
            return f"a step time without {' and '.join(lacking)}"
        return MeasuredStep(row.step_time_s, "step time")
    world = plan.layout.world
    if row.tokens_per_s_per_gpu is not None:
        return MeasuredStep(plan.batch.tokens / (row.tokens_per_s_per_gpu * world), "tokens/s")
    rate = _rate(row)
    if rate is None:
        return "no step time, and nothing it follows from" if not _utilisation(row) else "MFU of a peak not stated"
    flops = step_flops(row, plan)
    if flops is None:
        return "FLOP/s whose convention is not stated in full"
    return MeasuredStep(flops / (rate * world), "TFLOP/s" if row.tflops_per_gpu is not None else "MFU")


def _utilisation(row: Row) -> bool:
    return row.mfu_percent is not None or row.hfu_percent is not None


def _rate(row: Row) -> float | None:
    """Achieved FLOP/s of a device as printed, or the printed share of a peak that is printed too."""
    if row.tflops_per_gpu is not None:
        return row.tflops_per_gpu * 1e12
    peak = re.search(r"\bpeak (\d+(?:\.\d+)?)(?! presumed)\b", row.flops_convention)
    if peak is None or row.mfu_percent is None:
        return None
    return row.mfu_percent / 100 * float(peak.group(1)) * 1e12


def step_flops(row: Row, plan: Plan) -> float | None:
    """FLOPs of a step as the row's convention counts them; None where it leaves something open: how attention counts,
    whether a recompute that is not stated is counted, what adapters count."""
    said = row.flops_convention.lower()
    proposal, batch = plan.setup.proposal, plan.batch
    if proposal.training.task == "lora":
        return None
    if re.search(r"96\*b\*s\*l\*h\^2|eq\. 3 of the paper|sc21 formula", said):
        return _megatron_flops(row, plan)
    if "causal" in said.replace("non-causal", "") and "without recompute" in said:
        return step_model_flops(proposal.arch, batch.tokens, batch.seq_len)
    if re.search(r"full attention|full, non-causal|full \(non-causal\)|megatron-style model flops incl", said):
        return step_model_flops(proposal.arch, batch.tokens, batch.seq_len, causal=False)
    return None


def _megatron_flops(row: Row, plan: Plan) -> float | None:
    """Narayanan et al. 2021, eq. 3: 96·B·s·l·h²·(1 + s/6h + V/16lh), the forward counted again. Without recompute 3/4
    of it; None where the row does not say."""
    arch, batch = plan.setup.proposal.arch, plan.batch
    if row.recompute not in ("full", "none"):
        return None
    passes = 1.0 if row.recompute == "full" else 0.75
    shape = 1 + batch.seq_len / (6 * arch.hidden) + arch.vocab / (16 * arch.layers * arch.hidden)
    return passes * 96 * batch.tokens * arch.layers * arch.hidden**2 * shape
