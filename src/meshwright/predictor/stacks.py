"""The habits of the software that runs a plan, as a few physical knobs: what decides bytes and seconds beside the plan.

A row of `stacks.toml` is one generation of one framework; what a row leaves out is the default written there. A name
may end in modifiers, `megatron-2024+scores+no-dropout`, for runs that left the habits of their software.
"""

import tomllib
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

from meshwright.basics.errors import bad_input
from meshwright.basics.names import nearest
from meshwright.files.setup import Runner, Setup


@dataclass(frozen=True, slots=True)
class Stack:
    """One software stack. Bytes are those of half-precision training, unless said otherwise.

    States
        weights_fp32      parameters live in fp32 and are cast or gathered in half precision: no master copy beside them
        gradient_dtype    what it accumulates gradients in by default (a plan's own `gradient_dtype` decides)
        whole_gradients   the whole gradient buffer exists from the start and is never freed: also in forward, and
                          also when ZeRO-2 shards what is kept
        step_bytes        bytes a parameter of what this rank updates that exist during the optimizer step only: fp32
                          copies of half-precision gradients (4), temporaries of an update that is not fused
        unsharded_bytes   bytes a parameter kept beside the recipe whatever the ZeRO stage (a second gradient, ...)
    Activations
        scores_bytes      bytes kept of each attention score [heads, seq, seq]: 0 for fused (flash) attention; 2 for a
                          softmax result; 5 with dropout on it (Korthikanti et al. 2022, section 4.1)
        dropout           dropout on the hidden states: a mask of one byte a value, twice a layer and once after the
                          embedding, and each dropout's result
        norm_bytes        bytes a norm keeps of each value beyond its input in the compute dtype: 0 when fused, 4 when
                          written out in operators
        fused_gate        the gated activation keeps its two inputs and its result, not the activated gate
        keeps_outputs     a pipeline stage's output stays alive until its backward (Megatron frees it)
        logit_bytes       bytes of one output score at the peak of the loss: copies in half and in fp32, gradient
    Buffers
        gathered_units    units whose parameters are whole at a time with ZeRO-3: at work, and fetched ahead
        tp_gathered       with sp, one whole [micro_batch, seq, hidden] buffer in which inputs are gathered
        communicator_mib  the communication library's buffers of one communicator, outside the tensor allocator
        context_mib       what a process takes of a device before its first tensor (context, kernels, libraries)
        reserve           False: its allocator does not hold freed blocks back (no fragmentation worth a line)
    Choices where a plan does not say
        sp                sequence parallelism comes with tp
        vocab_multiple    embedding rows are padded to a multiple of this times tp
        recompute         what it recomputes by default
    """

    name: str
    source: str
    weights_fp32: bool = False
    gradient_dtype: Literal["fp32", "half"] = "fp32"
    whole_gradients: bool = True
    step_bytes: float = 0.0
    unsharded_bytes: float = 0.0
    scores_bytes: float = 0.0
    dropout: bool = False
    norm_bytes: float = 0.0
    fused_gate: bool = True
    keeps_outputs: bool = False
    logit_bytes: float = 10.0
    gathered_units: int = 2
    tp_gathered: bool = True
    communicator_mib: float = 256.0
    context_mib: float = 600.0
    reserve: bool = True
    sp: bool = True
    vocab_multiple: int = 1
    recompute: Literal["none", "selective", "full"] = "none"


RUNNER_STACKS: dict[Runner, str] = {
    "meshwright": "meshwright", "megatron": "megatron-2024", "torchtitan": "torchtitan", "deepspeed": "deepspeed",
    "any": "plain",
}  # fmt: skip
"""The stack of a plan that names none."""

MODIFIERS: dict[str, dict[str, Any]] = {
    "scores": {"scores_bytes": 2.0},  # unfused attention, no dropout
    "flash": {"scores_bytes": 0.0},
    "dropout": {"dropout": True},
    "no-dropout": {"dropout": False},
    "fused-loss": {"logit_bytes": 2.0},  # cross entropy that overwrites the scores with their gradient
}
"""What a modifier after the stack's name changes."""


@lru_cache(maxsize=1)
def stacks() -> dict[str, Stack]:
    """Every stack by name. Raises TypeError for a row with an unknown knob."""
    rows = tomllib.loads((Path(__file__).parent / "stacks.toml").read_text(encoding="utf-8"))
    return {name: Stack(name=name, **row) for name, row in rows.items()}


def stack_named(name: str) -> Stack:
    """The stack of a name with modifiers. Raises InputError for an unknown one, naming the nearest."""
    base, *modifiers = name.split("+")
    known = stacks()
    if base not in known:
        near = nearest(base, known)
        legal = f"nearest: {near}" if near else "legal: " + ", ".join(sorted(known))
        raise bad_input("no such software stack", field="stack", value=name, legal=legal)
    unknown = [modifier for modifier in modifiers if modifier not in MODIFIERS]
    if unknown:
        legal = "legal: " + ", ".join(sorted(MODIFIERS))
        raise bad_input("no such modifier of a software stack", field="stack", value=unknown[0], legal=legal)
    changes = {knob: value for modifier in modifiers for knob, value in MODIFIERS[modifier].items()}
    stack = replace(known[base], name=name, **changes)
    if stack.dropout and stack.scores_bytes:  # softmax result, its dropout mask, and the result of that
        return replace(stack, scores_bytes=5.0)
    return stack


def stack_of(setup: Setup) -> Stack:
    """The stack whose habits memory and time follow: `Setup.stack`, else that of who can run the plan."""
    return stack_named(setup.stack or RUNNER_STACKS[setup.runnable_by])


def knobs() -> tuple[str, ...]:
    """Names of all knobs."""
    return tuple(field.name for field in fields(Stack) if field.name not in ("name", "source"))
