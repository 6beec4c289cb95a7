"""Warnings about what a job states as fact in its table [claims]: each statement is computed, then judged."""

from meshwright.basics.quantities import bytes_text, count_text, gib
from meshwright.layout.bubble import ideal_idle
from meshwright.layout.footprint import Shares, comfortable, parameters, states
from meshwright.layout.given import micro_batches_of
from meshwright.layout.problem import Explanation, Rule
from meshwright.layout.proposal import Proposal
from meshwright.layout.rules_stages import work_of
from meshwright.model.parameters import unit_parameters
from meshwright.model.shapes import tensors_of
from meshwright.model.states import state_bytes
from meshwright.model.training import Training
from meshwright.model.units import units_of

FP32 = state_bytes(Training(precision="fp32"))
MIXED = state_bytes(Training(precision="bf16", gradient_dtype="fp32"))
LEAN = state_bytes(Training(precision="bf16", gradient_dtype="bf16"))
USE_INSTEAD = (
    "Nsight Systems, Triton's Proton and torch.profiler are the profilers to use; `meshwright diagnose` reads the "
    "files of all three"
)
READERS = ("torch", "torch.profiler", "kineto", "nsight-systems", "nsys", "proton", "triton-proton")


def _claimed(p: Proposal, key: str) -> bool:
    return p.claims.get(key) == "true"


def _one_device(p: Proposal) -> Shares:
    """The whole model on one device as gently as it can be trained."""
    return Shares(recompute="full")


def _model_holds(p: Proposal) -> bool:
    return not _claimed(p, "model_exceeds_one_gpu") or not comfortable(p, _one_device(p))


def _explain_model(p: Proposal) -> Explanation:
    total, recipe = parameters(p.arch), state_bytes(p.training)
    full, mixed = gib(total * FP32.total), gib(total * MIXED.total)
    gpus = p.cluster.gpus
    sharded = states(p, Shares(dp=gpus, zero=1))
    return Explanation(
        f"{count_text(total)} parameters are {gib(total * 4)} of weights in FP32. With gradients and Adam's moments "
        f"the states take {full} in FP32 and {mixed} in mixed precision ({MIXED.text()}), and a GPU has "
        f"{gib(p.cluster.memory_bytes)}: the model does fit ({p.training.precision}: {recipe.text()} a parameter). "
        f"Plain data parallelism, or ZeRO-1 with {gib(sharded)} of states on each of {gpus} GPUs, may win",
        (f"dp = {gpus}, tp = 1, pp = 1, zero = 0 or 1",),
    )


def _precision_claim_holds(p: Proposal) -> bool:
    return not _claimed(p, "mixed_precision_shrinks_states")


def _explain_precision_claim(p: Proposal) -> Explanation:
    total = parameters(p.arch)
    return Explanation(
        f"mixed precision does not shrink the states: FP32 takes {FP32.text()} a parameter = "
        f"{gib(total * FP32.total)}; half precision keeps a master copy and takes {LEAN.text()} or {MIXED.text()} = "
        f"{gib(total * LEAN.total)} or {gib(total * MIXED.total)}. What it halves are activations and exchanges, and "
        f"it is faster",
        ("to shrink states: zero = 1, 2 or 3, or optimizer = adamw-8bit",),
    )


def _data_holds(p: Proposal) -> bool:
    return not _claimed(p, "dataset_must_fit_gpu")


def _explain_data(p: Proposal) -> Explanation:
    samples = p.wanted.micro_batch or 1
    return Explanation(
        f"a data set need not fit in GPU memory: it stays on disk, and one micro-batch at a time is on a GPU: "
        f"{samples} · {p.seq_len} tokens · 8 B = {bytes_text(samples * p.seq_len * 8)}",
        ("no layout depends on the size of the data set",),
    )


def _layer_holds(p: Proposal) -> bool:
    if not _claimed(p, "layer_exceeds_one_gpu"):
        return True
    largest = max(unit_parameters(p.arch, unit) for unit in units_of(p.arch) if unit.layer is not None)
    return largest * state_bytes(p.training).total > p.cluster.memory_bytes / 2


def _explain_layer(p: Proposal) -> Explanation:
    units = [unit for unit in units_of(p.arch) if unit.layer == 0]
    layer = sum(unit_parameters(p.arch, unit) for unit in units)
    matrices = [tensor for unit in units for tensor in tensors_of(p.arch, unit) if tensor.matmul]
    largest = max(matrices, key=lambda tensor: tensor.size // tensor.copies)
    rows, columns = largest.shape
    recipe = state_bytes(p.training)
    return Explanation(
        f"no layer comes near the memory of a GPU: the largest matrix, {rows} × {columns}, is "
        f"{bytes_text(rows * columns * 4)} in FP32 and {bytes_text(rows * columns * 2)} in half precision; a whole "
        f"layer with all its states ({recipe.total} B a parameter) is {bytes_text(layer * recipe.total)} of "
        f"{gib(p.cluster.memory_bytes)}",
        ("tp = 1: memory is no reason to split a layer",),
    )


def _within_stage_holds(p: Proposal) -> bool:
    return p.claims.get("within_stage") != "attention | feed-forward"


def _explain_within_stage(p: Proposal) -> Explanation:
    work = work_of(p.arch, p.seq_len)
    if p.arch.parallel_residual:
        return Explanation(
            "attention and feed-forward of this family run in parallel and are one unit: they stay together"
        )
    attention, ffn = work["layers.0.attn"], work["layers.0.ffn"]
    lighter = min(attention, ffn) / max(attention, ffn)
    ranks = 2 * (p.wanted.pp or 1)
    m = micro_batches_of(p)
    turns = ""
    if m is not None:
        idle = ideal_idle("1f1b", ranks, 1, m) or 0.0
        turns = f" {m} micro-batches through {ranks} such halves idle at least {idle:.0%};"
    return Explanation(
        f"attention on one GPU and the feed-forward network on the other is not tensor parallelism but a pipeline of "
        f"half layers: without enough micro-batches the two take turns, and one of them always waits;{turns} their "
        f"work is {attention / min(attention, ffn):.0f} : {ffn / min(attention, ffn):.1f} at {p.seq_len} tokens, so "
        f"the lighter one idles {1 - lighter:.0%} even when work never runs out. Tensor parallelism splits every "
        "matrix over both",
        ('within_stage = "tensor"', "stages and placement can state the other: [layout] stages in half layers"),
    )


def _profilers(p: Proposal) -> tuple[str, ...]:
    names = p.claims.get("profilers", "").split(",")
    return tuple("-".join(name.lower().replace("-", " ").split()).removeprefix("nvidia-") for name in names)


def _triton_holds(p: Proposal) -> bool:
    return "triton-profiler" not in _profilers(p)


def _explain_triton(p: Proposal) -> Explanation:
    return Explanation(
        f'"NVIDIA Triton Profiler" is not a product: Triton names an inference server and a kernel language, and the '
        f"language's profiler is called Proton. {USE_INSTEAD}",
        tuple(name for name in READERS if name in ("torch", "nsight-systems", "proton")),
    )


def _nvprof_holds(p: Proposal) -> bool:
    old = p.cluster.device.name.startswith(("V100", "P100", "T4"))
    return "nvprof" not in _profilers(p) or old


def _explain_nvprof(p: Proposal) -> Explanation:
    return Explanation(
        f"nvprof does not run on A100 and later GPUs (compute capability 8.0 up), so not on {p.cluster.device.name}. "
        f"{USE_INSTEAD}",
        ("nsight-systems",),
    )


CLAIM_RULES: tuple[Rule, ...] = (
    Rule("claim-model-too-large", "warning", ("claims.model_exceeds_one_gpu",), _model_holds, _explain_model),
    Rule(
        "claim-precision-shrinks-states", "warning", ("claims.mixed_precision_shrinks_states",),
        _precision_claim_holds, _explain_precision_claim,
    ),
    Rule("claim-dataset-in-memory", "warning", ("claims.dataset_must_fit_gpu",), _data_holds, _explain_data),
    Rule("claim-layer-too-large", "warning", ("claims.layer_exceeds_one_gpu",), _layer_holds, _explain_layer),
    Rule("claim-within-stage", "warning", ("claims.within_stage",), _within_stage_holds, _explain_within_stage),
    Rule("claim-triton-profiler", "warning", ("claims.profilers",), _triton_holds, _explain_triton),
    Rule("claim-nvprof", "warning", ("claims.profilers",), _nvprof_holds, _explain_nvprof),
)  # fmt: skip
