"""The layout and the recipe that a row of a measured table ran with."""

import re
from dataclasses import replace
from typing import Any

from meshwright.basics.errors import bad_input
from meshwright.cluster.topology import Cluster
from meshwright.files.rows import Row
from meshwright.layout.batch import Batch
from meshwright.layout.degrees import Layout, Offload, Recompute, Schedule
from meshwright.layout.partition import Stages, balance, even_stages
from meshwright.layout.schedules import V_SHAPED, default_placement
from meshwright.model.architecture import Architecture
from meshwright.model.training import Optimizer, Precision, Task, Training
from meshwright.model.units import expand_all
from meshwright.planner.rows_stack import RowStack, year_month
from meshwright.predictor.stacks import Stack

_SCHEDULES: tuple[tuple[str, Schedule], ...] = (
    (r"zb-?[12]p|zb-?h[12]|zero.?bubble", "zb-h1"), (r"v-?half|v-?min|zb-?v", "zbv"),
    (r"dualpipe", "dualpipev"), (r"gpipe", "gpipe"), (r"interleav", "interleaved"),
    (r"1f1b|pipedream|interlac", "1f1b"),
)  # fmt: skip
_PRECISIONS: tuple[tuple[str, Precision], ...] = (
    (r"mxfp8|fp8-?mx", "mxfp8"), (r"nvfp4|fp4", "nvfp4"), (r"fp8", "fp8"), (r"bf16|bfloat", "bf16"),
    (r"fp16|half", "fp16"), (r"fp32|tf32|float32", "fp32"),
)  # fmt: skip
_HALF = {"fp32": "fp32", "fp16": "fp16", "bf16": "bf16", "fp8": "bf16", "mxfp8": "bf16", "nvfp4": "bf16"}
_SHORTEST_SEQ = 2048


def row_training(row: Row, stack: Stack) -> tuple[Training, tuple[str, ...]]:
    """The recipe, and what had to be assumed."""
    assumed: list[str] = []
    precision = next((name for pattern, name in _PRECISIONS if re.search(pattern, row.precision.lower())), None)
    if precision is None:
        precision = "bf16" if (year_month(row.date) or (2026, 1)) >= (2022, 1) else "fp16"
        assumed.append(f"precision {precision}")
    task: Task = "lora" if "lora" in row.task.lower() else "sft" if "sft" in row.task.lower() else "pretrain"
    said = f"{row.notes} {row.overlap_notes}".lower()
    optimizer: Optimizer = "adamw-8bit" if re.search(r"8-?bit", said) else "muon" if "muon" in said else "adamw"
    gradient: Any = _HALF[precision] if stack.gradient_dtype == "half" else "fp32"
    if re.search(r"fp32 gradient", said):
        gradient = "fp32"
    if task == "lora":
        assumed.append("adapters of rank 16")
    return Training(task=task, precision=precision, optimizer=optimizer, gradient_dtype=gradient), tuple(assumed)


def row_batch(row: Row, dp: int) -> tuple[Batch, tuple[str, ...]]:
    """The batch, and what had to be assumed."""
    assumed: list[str] = []
    micro, length, total = row.micro_batch, row.seq_len, row.global_batch
    if micro is None:
        micro = 1
        assumed.append("micro_batch 1")
    if length is None:
        length = 4096 if (year_month(row.date) or (2026, 1)) >= (2024, 6) else _SHORTEST_SEQ
        assumed.append(f"seq_len {length}")
    if total is None:
        stated = re.search(r"micro_num (\d+)|(\d+) micro-batches|\bGA(?:S| stated)? (\d+)|grad accum (\d+)", row.notes)
        count = int(next(filter(None, stated.groups()))) if stated else 4 * (row.pp or 1)
        total = micro * dp * count
        assumed.append(f"{count} micro-batches")
    return Batch(total, micro, total // (micro * dp), length), tuple(assumed)


def row_layout(
    row: Row, arch: Architecture, cluster: Cluster, how: RowStack, recompute: Recompute
) -> tuple[Layout, tuple[str, ...]]:
    """The layout with one recompute mode, and what had to be assumed. Raises InputError where the degrees leave no
    way to cut the model."""
    assumed: list[str] = []
    stack = how.stack
    tp, pp, cp = row.tp or 1, row.pp or 1, row.cp or 1
    missing = [name for name in ("tp", "pp") if getattr(row, name) is None]
    dp = row.dp or max(1, cluster.gpus // (tp * pp * cp))
    if missing and not row.dp:
        raise bad_input("not stated: a layout cannot be guessed", field=", ".join(missing))
    ep = row.ep or 1
    if row.ep is None and arch.experts and dp * cp > 1:
        assumed.append("no expert parallelism")
    schedule, vpp = _schedule(row, pp, assumed)
    placement = default_placement(schedule, pp, vpp) if pp > 1 else (0,)
    sp = row.sp if row.sp is not None else tp > 1 and stack.sp
    if row.sp is None and tp > 1:
        assumed.append(f"sequence parallelism {'on' if sp else 'off'}, as usual for {stack.name}")
    layout = Layout(
        stages=row_stages(row, arch, len(placement), stack), placement=placement, dp=dp, tp=tp, pp=pp, cp=cp, ep=ep,
        etp=tp if arch.experts and _experts_take_tensor_degree(row) else 1, vpp=vpp if pp > 1 else 1,
        sp=sp and tp > 1, zero=_zero(row, how, dp * cp, assumed), shard_group=_shard_group(row, dp * cp),
        schedule=schedule if pp > 1 else "1f1b", recompute=recompute, offload=_offload(row),
        vocab_multiple=stack.vocab_multiple, overlap=stack.grad_overlap,
    )  # fmt: skip
    if stack.bucket_mib is not None:
        layout = replace(layout, bucket_mib=stack.bucket_mib)
    return (layout if arch.experts else replace(layout, ep=1, etp=1)), tuple(assumed)


def _schedule(row: Row, pp: int, assumed: list[str]) -> tuple[Schedule, int]:
    said = row.schedule.lower()
    vpp = row.vpp or 1
    counted = re.search(r"vpp(\d+)", said)
    if counted and row.vpp is None:
        vpp = int(counted.group(1))
    if pp == 1:
        return "1f1b", 1
    schedule = next((name for pattern, name in _SCHEDULES if re.search(pattern, said)), None)
    if schedule is None:
        schedule = "interleaved" if vpp > 1 else "1f1b"
    elif schedule == "1f1b" and vpp > 1:
        schedule = "interleaved"
    elif schedule == "interleaved" and vpp == 1:
        schedule = "1f1b"
        assumed.append("interleaved without a number of chunks: 1f1b")
    if schedule in V_SHAPED:
        if said not in ("zbv", "zb-v", "dualpipev"):
            assumed.append(f"schedule {row.schedule}: counted as {schedule}")
        return schedule, 2
    if schedule == "zb-h1" and said not in ("zb-h1", "zb-1p"):
        assumed.append(f"schedule {row.schedule}: counted as {schedule}")
    return schedule, vpp if schedule == "interleaved" else 1


def row_stages(row: Row, arch: Architecture, stages: int, stack: Stack) -> Stages:
    """The cut: whole layers spread evenly; where layers do not divide and the row says so, or layers with embedding and
    head do, those two count as a layer each and the first and last stage hold one layer less. By work where the
    software cuts so."""
    if stack.cuts_by_cost and 1 < stages <= arch.layers:
        return _by_work(arch, stages)
    said = row.notes.lower()
    lighter = "embedding counted as a layer" in said or "one layer fewer" in said
    if stages > 1 and stages <= arch.layers:
        whole = arch.layers % stages == 0
        if (lighter or not whole) and (arch.layers + 2) % stages == 0 and (arch.layers + 2) // stages >= 1:
            return _cut(arch, [(arch.layers + 2) // stages] * stages)
    return even_stages(arch, stages)


def _by_work(arch: Architecture, stages: int) -> Stages:
    """Whole layers by the size of their matrices, the head counted and the embedding not."""
    layer = 2 * arch.hidden * arch.head_dim * (arch.heads + arch.kv_heads) + arch.hidden * arch.ffn_hidden * (
        (3 if arch.gated else 2) * max(1, arch.active_experts)
    )
    layers = [f"layers.{index}" for index in range(arch.layers)]
    work = {name: float(layer) for name in layers} | {"embed": 0.0, "head": float(arch.vocab * arch.hidden)}
    cut = balance(("embed", *layers, "head"), work, stages)
    return tuple(expand_all(arch, stage) for stage in cut)


def _cut(arch: Architecture, counts: list[int]) -> Stages:
    """Stages of so many layers each, embedding and head counted as one."""
    per_layer = 1 if arch.parallel_residual else 2
    names = [name for stage in even_stages(arch, 1) for name in stage]
    ends = []
    at = 0
    for index, count in enumerate(counts):
        layers = count - (index == 0) - (index == len(counts) - 1)
        at += per_layer * layers + (index == 0) + (index == len(counts) - 1)
        ends.append(at)
    starts = [0, *ends[:-1]]
    return tuple(tuple(names[first:end]) for first, end in zip(starts, ends, strict=True))


def _zero(row: Row, how: RowStack, replicas: int, assumed: list[str]) -> int:
    if row.zero_stage is not None:
        return row.zero_stage
    if how.runner == "torchtitan" or how.stack.name.startswith(("maxtext", "deepspeed")):
        usual = 3
    else:
        usual = 1 if (year_month(row.date) or (2026, 1)) >= (2023, 1) else 0
    if replicas > 1:
        assumed.append(f"ZeRO-{usual}, as usual for {how.stack.name}")
    return usual if replicas > 1 else 0


def _shard_group(row: Row, replicas: int) -> int | None:
    """ "FSDP column=64 (sharding group)", "zero1=8 (zero1 within 8 GPUs)", "FSDP group 8", "8-way FSDP x DP"."""
    said = re.search(
        r"FSDP column=(\d+)|zero1=(\d+) \(zero1 within|zero1 within (\d+)|FSDP group (\d+)|(\d+)-way FSDP", row.notes
    )
    if said is None:
        return None
    size = int(next(filter(None, said.groups())))
    return size if 1 < size < replicas and replicas % size == 0 else None


def _offload(row: Row) -> Offload:
    said = row.offload.lower()
    if not said or "false" in said or said in ("none", "no"):
        return "none"
    if re.search(r"params?\s*y|parameter", said):
        return "parameters"
    return "optimizer" if "optimizer" in said else "none"


def _experts_take_tensor_degree(row: Row) -> bool:
    """Before experts had a tensor degree of their own (Megatron-Core 0.9) they took that of the rest."""
    return (year_month(row.date) or (2026, 1)) < (2025, 1)
