"""Who can run a plan: our trainer and three frameworks, one table row each, with the reason for every refusal.

The rows of others state their documented limits: Megatron Core's developer guide (parallelism, custom pipeline layout,
Megatron FSDP), torchtitan's docs/composability.md and job configuration, DeepSpeed's tutorials on pipelines, AutoTP
training and ZeRO; of later abilities Megatron-LM's --optimizer-cpu-offload (with its distributed optimizer), FSDP's CPU
offload and the chunked loss of torchtitan (pull request 2937), DeepSpeed's offload_optimizer and offload_param. All of
them require that expert ranks divide the experts. A refusal means "not without changing its source"; a row says
nothing about speed.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from meshwright.layout.degrees import RECOMPUTE, SCHEDULES, Layout, Offload, Recompute, Schedule
from meshwright.layout.schedules import V_SHAPED, default_placement, is_standard
from meshwright.model.architecture import Architecture
from meshwright.model.training import Optimizer, Precision, Training


@dataclass(frozen=True, slots=True)
class Abilities:
    """What one framework can do."""

    precisions: tuple[Precision, ...]
    optimizers: tuple[Optimizer, ...]
    schedules: tuple[Schedule, ...]
    recompute: tuple[Recompute, ...]
    zero: tuple[int, ...]
    zero_with_pipeline: tuple[int, ...]
    zero_with_tensor: tuple[int, ...]
    axes: tuple[str, ...]  # of tp, pp, cp, ep, sp, etp, hsdp
    gradient_dtypes: tuple[str, ...] = ("fp32", "bf16", "fp16")
    tensor_and_pipeline: bool = True
    replicas_join: bool = True  # replicas that hold everything (ZeRO-0) beside other axes
    sequence_always: bool = False  # sequence parallelism comes with every tensor group
    first_layers: bool = True  # full recompute of a stage's first layers only
    half_layers: bool = False  # a stage boundary inside a layer
    uneven_stages: bool = True
    any_placement: bool = False
    families: tuple[str, ...] | None = None  # None: whatever can be written down
    decoder: bool = False  # pre-norm RMSNorm, rotary positions, gated feed-forward, all dense
    # families beyond that, run as modules made of their config.json, without sequence parallelism: with tensor ranks?
    modules: Mapping[str, bool] = field(default_factory=dict)
    tied_over_stages: bool = True
    tasks: tuple[str, ...] = ("pretrain", "sft", "lora")
    offload: tuple[Offload, ...] = ("none",)
    offload_zero: int = 0  # the least ZeRO stage that offload comes with
    loss_chunk: bool = False  # logits of a part of the tokens at a time
    whole_logits: bool = False  # not divided over the tensor group, where there is one
    vocab_multiple: bool = False  # pads the vocabulary to a multiple of the user's choice
    any_exchange: bool = False  # gradients in each micro-batch under ZeRO-0 and 1, or once a step under 2 and 3
    late_exchange: bool = False  # gradients once a step under 2 and 3
    uneven_experts: bool = False  # a number of experts that the ranks do not divide


RUNNERS: Mapping[str, Abilities] = {
    "meshwright": Abilities(
        precisions=("fp32", "bf16", "fp16"), optimizers=("adamw", "sgd"), schedules=SCHEDULES,
        recompute=RECOMPUTE, zero=(0, 1, 2, 3), zero_with_pipeline=(0, 1, 2, 3), zero_with_tensor=(0, 1, 2, 3),
        axes=("tp", "pp", "sp", "hsdp"), gradient_dtypes=("fp32",), half_layers=True, any_placement=True,
        late_exchange=True, decoder=True, tasks=("pretrain",), families=("plain", "llama", "mistral", "qwen2", "qwen3"),
        modules={
            **dict.fromkeys(("llama", "mistral", "qwen2", "qwen3", "gemma2", "gemma3_text", "phi3", "olmo2"), True),
            "gpt2": True, "gpt_neox": True, "mixtral": False,
        },
    ),
    "megatron": Abilities(
        precisions=("fp32", "fp16", "bf16", "fp8", "mxfp8", "nvfp4"), optimizers=("adamw", "muon", "sgd"),
        schedules=("1f1b", "interleaved"), recompute=RECOMPUTE, zero=(0, 1, 2, 3), zero_with_pipeline=(0, 1),
        zero_with_tensor=(0, 1, 2, 3), axes=("tp", "pp", "cp", "ep", "sp", "etp", "hsdp"),
        offload=("none", "optimizer"), offload_zero=1, vocab_multiple=True,
    ),
    "torchtitan": Abilities(
        precisions=("fp32", "bf16", "fp8", "mxfp8"), optimizers=("adamw",), schedules=SCHEDULES, recompute=RECOMPUTE,
        zero=(0, 2, 3), zero_with_pipeline=(0, 2, 3), zero_with_tensor=(0, 2, 3),
        axes=("tp", "pp", "cp", "ep", "sp", "etp", "hsdp"), replicas_join=False, sequence_always=True,
        first_layers=False, families=("plain", "llama", "qwen3", "deepseek_v3", "gpt_oss"), tied_over_stages=False,
        tasks=("pretrain", "sft"), offload=("none", "parameters"), loss_chunk=True,
    ),
    "deepspeed": Abilities(
        precisions=("fp32", "fp16", "bf16"), optimizers=("adamw", "adamw-8bit", "muon", "sgd"), schedules=("1f1b",),
        recompute=("none", "full"), zero=(0, 1, 2, 3), zero_with_pipeline=(0, 1), zero_with_tensor=(0, 1, 2),
        axes=("tp", "pp", "ep", "hsdp"), tensor_and_pipeline=False, first_layers=False, uneven_stages=False,
        offload=("none", "optimizer", "parameters"), offload_zero=1, whole_logits=True,
    ),
}  # fmt: skip

Refusal = Callable[[Abilities, Architecture, Training, Layout], str | None]


def _recipe(can: Abilities, arch: Architecture, training: Training, layout: Layout) -> str | None:
    if training.precision not in can.precisions:
        return f"trains in {', '.join(can.precisions)}, not {training.precision}"
    if training.optimizer not in can.optimizers:
        return f"has {', '.join(can.optimizers)}, not {training.optimizer}"
    if training.gradient_dtype not in can.gradient_dtypes:
        return f"accumulates gradients in {', '.join(can.gradient_dtypes)}, not {training.gradient_dtype}"
    return None if training.task in can.tasks else f"does {', '.join(can.tasks)}, not {training.task}"


def _model(can: Abilities, arch: Architecture, training: Training, layout: Layout) -> str | None:
    if _as_modules(can, arch):
        return None
    known = tuple(dict.fromkeys((*(can.families or ()), *can.modules)))
    if can.families is not None and arch.family not in known:
        return f"knows the families {', '.join(known)}, not {arch.family}"
    if can.families is not None and arch.family not in can.families:
        return f"builds {arch.family} models from their config.json, and this one has none"
    if can.decoder and not _is_decoder(arch):
        return "trains, without a config.json, Llama-like decoders only: dense, RMSNorm, rotary, gated"
    if arch.tied and layout.pp > 1 and not can.tied_over_stages and not _ends_together(layout):
        return "cannot tie an embedding and an output matrix that lie on different pipeline ranks"
    return None


def _as_modules(can: Abilities, arch: Architecture) -> bool:
    """Is the model run as its family's own modules, because it is no Llama-like decoder?"""
    if arch.config_path is None or arch.family not in can.modules:
        return False
    return arch.family not in (can.families or ()) or not _is_decoder(arch)


def _is_decoder(arch: Architecture) -> bool:
    plain = arch.norm == "rms" and arch.positions == "rope" and arch.gated and not arch.parallel_residual
    odd = arch.latent is not None or arch.sinks or arch.qk_norm_wide or not arch.qk_norm_weight or arch.head_bias
    odd = odd or bool(arch.experts) or arch.head_dim % 2 > 0 or arch.chunked
    return plain and not odd and not arch.embed_norm and arch.layer_norms == 2


def _ends_together(layout: Layout) -> bool:
    return layout.placement[0] == layout.placement[-1]


def _axes(can: Abilities, arch: Architecture, training: Training, layout: Layout) -> str | None:
    sharded_in_groups = layout.zero > 0 and layout.shard_group not in (None, layout.dp * layout.cp)
    asked = {
        "tp": (layout.tp > 1, "tensor parallelism"),
        "pp": (layout.pp > 1, "pipelines"),
        "cp": (layout.cp > 1, "context parallelism"),
        "ep": (layout.ep > 1, "expert parallelism"),
        "etp": (bool(arch.experts) and layout.etp != layout.tp, "a tensor degree of its own for experts"),
        "sp": (layout.sp and layout.tp > 1, "sequence parallelism"),
        "hsdp": (sharded_in_groups, "sharding inside groups (HSDP)"),
    }
    if arch.experts % layout.ep and not can.uneven_experts:
        return f"spreads experts evenly, and {arch.experts} on {layout.ep} ranks are not even"
    missing = [words for axis, (used, words) in asked.items() if used and axis not in can.axes]
    if missing:
        return f"has no {', no '.join(missing)}"
    if layout.tp > 1 and _as_modules(can, arch):
        if not can.modules[arch.family]:
            return f"has no tensor parallelism for {arch.family} with these parts"
        if layout.sp:
            return f"has tensor parallelism without sequence parallelism for {arch.family} with these parts"
    if layout.tp > 1 and layout.pp > 1 and not can.tensor_and_pipeline:
        return "does not join tensor parallelism and pipelines"
    if can.sequence_always and layout.tp > 1 and not layout.sp:
        return "switches sequence parallelism on with every tensor group"
    return None


def _sharding(can: Abilities, arch: Architecture, training: Training, layout: Layout) -> str | None:
    if layout.zero not in can.zero:
        return f"has no ZeRO-{layout.zero}"
    if layout.zero == 0 and 1 < layout.dp < layout.world and not can.replicas_join:
        return "joins data parallelism with other axes only when it is sharded (ZeRO-2 or 3)"
    if layout.pp > 1 and layout.zero not in can.zero_with_pipeline:
        return f"does not join ZeRO-{layout.zero} and pipelines"
    if layout.tp > 1 and layout.zero not in can.zero_with_tensor:
        return f"does not join ZeRO-{layout.zero} and tensor parallelism"
    if layout.offload not in can.offload:
        return f"offloads {' or '.join(can.offload)}, not {layout.offload}"
    if layout.offload != "none" and layout.zero < can.offload_zero:
        return f"offloads with ZeRO-{can.offload_zero} and above only"
    other = layout.gradient_exchange is not None and layout.exchange != replace(layout, gradient_exchange=None).exchange
    if other and not can.any_exchange and not (can.late_exchange and layout.exchange == "step"):
        return f"does not exchange gradients once a {layout.exchange} under ZeRO-{layout.zero}"
    return None


def _loss(can: Abilities, arch: Architecture, training: Training, layout: Layout) -> str | None:
    if layout.loss_chunk is not None and not can.loss_chunk:
        return "makes the logits of a micro-batch at once, not chunk by chunk"
    if not layout.vocab_parallel and layout.tp > 1 and not can.whole_logits:
        return "divides logits over every tensor group"
    if layout.vocab_multiple > 1 and arch.vocab % (layout.vocab_multiple * layout.tp) and not can.vocab_multiple:
        return f"does not pad a vocabulary to multiples of {layout.vocab_multiple}"
    return None


def _recompute(can: Abilities, arch: Architecture, training: Training, layout: Layout) -> str | None:
    if layout.recompute not in can.recompute:
        return f"recomputes {' or '.join(can.recompute)}, not {layout.recompute}"
    if layout.recompute_layers is not None and not can.first_layers:
        return "recomputes all layers or none"
    return None


def _pipeline(can: Abilities, arch: Architecture, training: Training, layout: Layout) -> str | None:
    if layout.pp == 1:
        return None
    if layout.schedule not in can.schedules:
        return f"runs the schedules {', '.join(can.schedules)}, not {layout.schedule}"
    if not can.any_placement and not is_standard(layout.schedule, layout.placement):
        chunks = 2 if layout.schedule in V_SHAPED else max(1, len(layout.placement) // layout.pp)
        usual = default_placement(layout.schedule, layout.pp, chunks)
        return f"places stages as the schedule has it ({usual}), not freely"
    layers = [_layers_of(stage) for stage in layout.stages]
    if not can.half_layers and not arch.parallel_residual and any(part % 2 for part in layers):
        return "cuts a model between whole layers only"
    if not can.uneven_stages and max(layers) - min(layers) > (1 if arch.parallel_residual else 2):
        return "cuts a model evenly or by parameters, not stage by stage as listed"
    return None


def _layers_of(stage: tuple[str, ...]) -> int:
    """Units of a stage that belong to layers: two a layer, one where attention and feed-forward run in parallel."""
    return len(stage) - ("embed" in stage) - ("head" in stage)


_REFUSALS: tuple[Refusal, ...] = (_recipe, _model, _axes, _sharding, _recompute, _pipeline, _loss)


def refusals(arch: Architecture, training: Training, layout: Layout) -> dict[str, tuple[str, ...]]:
    """For every framework the reasons why it cannot run the layout; empty where it can."""
    found: dict[str, tuple[str, ...]] = {}
    for name, can in RUNNERS.items():
        reasons = (refuse(can, arch, training, layout) for refuse in _REFUSALS)
        found[name] = tuple(reason for reason in reasons if reason is not None)
    return found


def first_refusal(name: str, arch: Architecture, training: Training, layout: Layout) -> str | None:
    """The first reason why one framework cannot run the layout; None when it can. Cheap enough for a planner."""
    can = RUNNERS[name]
    return next((reason for refuse in _REFUSALS if (reason := refuse(can, arch, training, layout)) is not None), None)


def runnable_by(arch: Architecture, training: Training, layout: Layout) -> tuple[str, ...]:
    """The frameworks that can run the layout, ours first."""
    return tuple(name for name, reasons in refusals(arch, training, layout).items() if not reasons)
