"""Measured rows beside predictions, with the figures that a test wants."""

from dataclasses import replace
from typing import Any

from meshwright.files.rows import Row
from meshwright.planner.validate import Judged, judge
from meshwright.planner.validate_measured import MeasuredStep

ROW: dict[str, Any] = {
    "gpu": "A100-80GB", "gpus": 8, "gpus_per_node": 8, "dp": 8, "tp": 1, "pp": 1, "cp": 1, "micro_batch": 1,
    "global_batch": 64, "seq_len": 2048, "layers": 8, "hidden": 1024, "ffn_hidden": 4096, "heads": 16,
    "kv_heads": 16, "vocab": 51200, "recompute": "none", "zero_stage": 1, "precision": "bf16", "gated_mlp": False,
    "framework": "Megatron-LM", "date": "2024-06", "source": "a log", "model_name": "small",
}  # fmt: skip


def row(line: int = 2, **values: Any) -> Row:
    """A row that can be predicted."""
    return Row(line=line, **{**ROW, **values})


def judged(measured_s: float | None, predicted_s: float, *, line: int = 2, **values: Any) -> Judged:
    """That row as if these were its measured and predicted step times, with a range of ± 10 %."""
    found = judge(row(line, **values))
    assert isinstance(found, Judged), found
    prediction = replace(
        found.prediction, step_time_s=predicted_s, step_time_range_s=(0.9 * predicted_s, 1.1 * predicted_s)
    )
    step = "none" if measured_s is None else MeasuredStep(measured_s, "step time")
    return replace(found, prediction=prediction, step=step)
