"""What the trainer cannot run, said before any process starts. Imports no torch."""

from importlib.util import find_spec

from meshwright.basics.errors import Complaint, InputError
from meshwright.files.plan import Plan
from meshwright.model.architecture import Architecture
from meshwright.trainer.models.families import complaints, numerics, wrapped_family


def unsupported(plan: Plan) -> tuple[Complaint, ...]:
    """Everything in a plan that this trainer refuses; empty when it runs the plan."""
    layout, training, arch = plan.layout, plan.setup.proposal.training, plan.setup.proposal.arch
    found = list(complaints(arch)) or _in_the_config(arch)
    wrapped = wrapped_family(arch)

    def refuse(when: bool, field: str, value: object, rule: str, legal: str) -> None:
        if when:
            found.append(Complaint(field, str(value), rule, legal))

    if wrapped is not None:
        missing = find_spec("transformers") is None
        needs = f"a {arch.family} model is made of transformers' modules, which are not installed"
        refuse(missing, "model.config", arch.config_path, needs, "pip install 'meshwright[train]'")
        refuse(
            layout.tp > 1 and not wrapped.tensor, "layout.tp", layout.tp,
            f"the trainer has no tensor parallelism for {arch.family} with these parts", "1",
        )  # fmt: skip
        refuse(
            layout.tp > 1 and layout.sp, "layout.sp", True,
            f"the trainer has tensor parallelism without sequence parallelism for {arch.family} with these parts",
            "false",
        )  # fmt: skip
    longest = arch.max_positions if arch.positions == "learned" else 0
    beyond = f"the model has a table of {longest} positions"
    refuse(0 < longest < plan.batch.seq_len, "batch.seq_len", plan.batch.seq_len, beyond, f"at most {longest}")
    refuse(layout.cp > 1, "layout.cp", layout.cp, "the trainer has no context parallelism", "1")
    refuse(layout.ep > 1, "layout.ep", layout.ep, "the trainer has no expert parallelism", "1")
    each_time = layout.exchange == "micro-batch" and layout.zero < 2
    whole = "whole gradients (ZeRO-0 and 1) travel once a step in the trainer"
    refuse(each_time and layout.dp > 1, "layout.gradient_exchange", layout.exchange, whole, "step")
    refuse(layout.offload != "none", "layout.offload", layout.offload, "the trainer keeps all on its device", "none")
    at_once = "the trainer computes the loss of a micro-batch at once"
    refuse(layout.loss_chunk is not None, "layout.loss_chunk", layout.loss_chunk, at_once, "leave it out")
    copies = layout.tp > 1 and not layout.vocab_parallel
    refuse(copies, "layout.vocab_parallel", False, "the trainer's tensor ranks share out the vocabulary", "true")
    padded = layout.vocab_multiple > 1 and arch.vocab % (layout.vocab_multiple * layout.tp) > 0
    refuse(padded, "layout.vocab_multiple", layout.vocab_multiple, "the trainer pads no vocabulary", "1")
    refuse(training.task != "pretrain", "training.task", training.task, "the trainer pretrains", "pretrain")
    refuse(
        training.precision not in ("fp32", "bf16", "fp16"), "training.precision", training.precision,
        "the trainer computes in fp32, or in half precision with fp32 weights", "fp32, bf16, fp16",
    )  # fmt: skip
    refuse(
        training.gradient_dtype != "fp32", "training.gradient_dtype", training.gradient_dtype,
        "the trainer accumulates gradients in fp32", "fp32",
    )  # fmt: skip
    refuse(
        training.optimizer not in ("adamw", "sgd"), "training.optimizer", training.optimizer,
        "the trainer does not have this optimizer", "adamw, sgd",
    )  # fmt: skip
    heads = arch.heads % layout.tp == 0 and arch.kv_heads % layout.tp == 0
    evenly = f"tensor ranks share out {arch.heads} heads and {arch.kv_heads} kv heads evenly"
    refuse(not heads, "layout.tp", layout.tp, evenly, "a common divisor of both")
    return tuple(found)


def _in_the_config(arch: Architecture) -> list[Complaint]:
    """What the model's config.json asks for beyond its sizes that the trainer cannot do."""
    if wrapped_family(arch) is not None:
        return []
    try:
        numerics(arch)
    except InputError as error:
        return list(error.complaints)
    return []
