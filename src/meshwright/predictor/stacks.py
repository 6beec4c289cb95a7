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
from meshwright.predictor.constants import FITTED


@dataclass(frozen=True, slots=True)
class Stack:
    """One software stack. Bytes are those of half-precision training, unless said otherwise.

    States
        weights_fp32      parameters live in fp32 and are cast or gathered in half precision: no master copy beside them
        fp8_weights       8-bit recipes keep the weights in 8 bits, by rows and by columns, instead of beside half-
                          precision ones
        master_bytes      of a master copy: 2 where only what half precision rounds off is kept beside the weight
        pure_half         no master copy, and moments in half precision
        gradient_dtype    what it accumulates gradients in by default (a plan's own `gradient_dtype` decides)
        whole_gradients   the whole gradient buffer exists from the start and is never freed: also in forward, and
                          also when ZeRO-2 shards what is kept
        step_bytes        bytes a parameter of what this rank updates that exist during the optimizer step only: fp32
                          copies of half-precision gradients (4), temporaries of an update that is not fused
        unsharded_bytes   bytes a parameter kept beside the recipe whatever the ZeRO stage (a second gradient, ...)
        sharded_bytes     the same of the parameters that this rank updates: divided with ZeRO-1 and above
        placeholder_bytes bytes a parameter of empty gradients that autograd is handed because the real ones were added
                          to the buffer inside the product: one for each shape of matrix, kept, and the head's while it
                          is at work
    Activations
        scores_bytes      bytes kept of each attention score [heads, seq, seq]: 0 for fused (flash) attention; 2 for a
                          softmax result; 5 with dropout on it (Korthikanti et al. 2022, section 4.1)
        dropout           dropout on the hidden states: a mask of one byte a value, twice a layer and once after the
                          embedding, and each dropout's result
        recomputes        modules that "selective" recomputes, by Megatron's names (see `MODULES`); none: norms,
                          activation functions and products
        weighs_inside     router weights multiply inside the experts: their results are not kept to be weighed
        activations_away  share of what is kept that lies in CPU memory
        autocast          fp32 matrices are cast for each forward (torch.autocast): the casts are kept for its backward
        norm_bytes        bytes a norm keeps of each value beyond its input in the compute dtype: 0 when fused, 4 when
                          written out in operators
        fused_gate        the gated activation keeps its two inputs and its result, not the activated gate
        attention_copies  tensors as wide as the queries kept beside queries, keys, values and result: projections
                          before rotation, stacked keys and values, transposed copies
        keeps_gathered    with sp, the gathered input of the first matrix of attention stays whole until its backward
        keeps_all_gathered  the same of attention, feed-forward and head alike
        recomputes_halves full recompute keeps the input of each half of a layer, not that of the layer
        keeps_outputs     a pipeline stage's output stays alive until its backward (Megatron frees it)
        in_flight         micro-batches alive over those of the plan's schedule: schedulers that are given a memory
                          limit use all of it (zero-bubble 2p: 2, V-Half: 1/2, V-Min: 1/3)
        more_in_flight    micro-batches alive beside those (scheduled passes of the vocabulary delay a backward)
        spread_vocabulary embedding and head are divided over all pipeline ranks (arXiv:2411.05288)
        logit_bytes       bytes of one output score at the peak of the loss: copies in half and in fp32, gradient
        waiting_score_bytes  of them, those that wait for the backward; None: all but the gradient
    Buffers
        gathered_units    layers whose parameters are whole at a time with ZeRO-3: at work, and fetched ahead; less
                          than one where it is matrices that are gathered
        tp_gathered       with sp, one whole [micro_batch, seq, hidden] buffer in which inputs are gathered
        workspace_mib     workspaces of libraries inside the tensor allocator
        bucket_mib        a gradient bucket; None: as the plan says
        communicator_mib  the communication library's buffers of one communicator, outside the tensor allocator
        context_mib       what a process takes of a device before its first tensor (context, kernels, libraries)
        reserve           False: its allocator does not hold freed blocks back (no fragmentation worth a line)
    Time (factors are over those of a device's constants; on CPUs none of these applies)
        products          throughput of matrix products: heuristics, alignment, autotuning
        tuned_for         the newest generation of devices (V, A, H, B) that its kernels were tuned for; "": of its day
        exchange          throughput of what ZeRO-3 gathers and reduces over that of large messages: a message each
        attention         throughput of the fused attention (older kernels are slower)
        passes            traffic of element-wise work over that of fused kernels
        loss              traffic of the loss over the usual
        host              the host's time for a kernel: Python, dispatch, hooks
        graphs            share of the kernels that are replayed as CUDA graphs: the host does almost nothing for them
        collective_us     what the hosts of eight ranks lose at one collective where the host is the slower: all wait
                          for the slowest of them; falls with the square of their number
        step_ms           the host's time for a step beside all kernels: the optimizer's loops over parameters, data
        half_experts      products of experts are not quantised
        skew_us           what the ranks of a tensor group wait for each other at each exchange
        tp_overlap        share of the tensor-parallel exchange of sequence parallelism that runs beside products
        ep_overlap        share of the dispatch of tokens to experts that runs beside other work
        dedup             the dispatch sends a token to each node once
        grad_overlap      gradients are exchanged while the last backward runs
        gather_overlap    share of the gathering of new parameters that runs beside the next forward
    Choices where a plan does not say
        sp                sequence parallelism comes with tp
        vocab_multiple    embedding rows are padded to a multiple of this times tp
        recompute         what it recomputes by default
        cuts_by_cost      layers are spread over stages by their work, the head's counted, not by their number
    """

    name: str
    source: str
    weights_fp32: bool = False
    fp8_weights: bool = False
    master_bytes: float = 4.0
    pure_half: bool = False
    gradient_dtype: Literal["fp32", "half"] = "fp32"
    whole_gradients: bool = True
    step_bytes: float = 0.0
    unsharded_bytes: float = 0.0
    sharded_bytes: float = 0.0
    placeholder_bytes: float = 0.0
    scores_bytes: float = 0.0
    dropout: bool = False
    recomputes: tuple[str, ...] = ()
    weighs_inside: bool = False
    activations_away: float = 0.0
    autocast: bool = False
    norm_bytes: float = 0.0
    fused_gate: bool = True
    attention_copies: float = 0.0
    keeps_gathered: bool = False
    keeps_all_gathered: bool = False
    recomputes_halves: bool = False
    keeps_outputs: bool = False
    in_flight: float = 1.0
    more_in_flight: float = 0.0
    spread_vocabulary: bool = False
    logit_bytes: float = 10.0
    waiting_score_bytes: float | None = None
    gathered_units: float = 2.0
    tp_gathered: bool = True
    workspace_mib: float = 0.0
    bucket_mib: float | None = None
    communicator_mib: float = 256.0
    context_mib: float = 600.0
    reserve: bool = True
    products: float = 1.0
    tuned_for: str = ""
    exchange: float = 1.0
    attention: float = 1.0
    passes: float = 1.0
    loss: float = 1.0
    host: float = 1.0
    graphs: float = 0.0
    collective_us: float = 20.0
    step_ms: float = 0.0
    half_experts: bool = False
    skew_us: float = 0.0
    tp_overlap: float = 0.0
    ep_overlap: float = 0.0
    dedup: bool = False
    grad_overlap: bool = True
    gather_overlap: float = 0.0
    sp: bool = True
    vocab_multiple: int = 1
    recompute: Literal["none", "selective", "full"] = "none"
    cuts_by_cost: bool = False


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
    "fused-loss": {"logit_bytes": 4.0},  # cross entropy in the scores' own dtype: scores and gradient
    "half-gradients": {"gradient_dtype": "half"},  # NeMo's recipes: grad_sync_dtype bf16
    "remainders": {"master_bytes": 2.0},  # Apex' distributed Adam on bf16 weights (store_param_remainders)
    "2p": {"in_flight": 2.0, "more_in_flight": -1.0},  # zero-bubble schedules with twice 1F1B's memory
    "v-half": {"in_flight": 1 / 2},
    "v-min": {"in_flight": 1 / 3},
    "vocab-1": {"spread_vocabulary": True, "more_in_flight": 2.0},  # arXiv:2411.05288, one barrier
    "vocab-2": {"spread_vocabulary": True, "more_in_flight": 1.0},  # two barriers
    "graphs": {"graphs": 1.0},  # whole iterations
    "some-graphs": {"graphs": 0.5},  # of attention and routing, not of the experts
    "no-overlap": {"tp_overlap": 0.0, "ep_overlap": 0.0, "grad_overlap": False, "gather_overlap": 0.0},
    "ep-overlap": {"ep_overlap": 0.7},
    "dedup": {"dedup": True},
    "capacity": {"graphs": 0.5},  # experts of fixed capacity: the host never waits for a count from the device
    "interlaced": {"spread_vocabulary": True, "in_flight": 1.5},  # the same paper, section 2
}
"""What a modifier after the stack's name changes. Beside these: `re-MODULE` (selective recompute of that module, may be
repeated) and `away-PERCENT` (of the activations, to CPU memory)."""

MODULES = ("core_attn", "layernorm", "moe_act", "mla_up_proj", "mlp", "moe", "alternate")
"""Modules of Megatron-Core that can be recomputed one by one; "alternate": every other matrix product (torchtitan)."""


@lru_cache(maxsize=1)
def stacks() -> dict[str, Stack]:
    """Every stack by name. Raises TypeError for a row with an unknown knob."""
    rows = tomllib.loads((Path(__file__).parent / "stacks.toml").read_text(encoding="utf-8"))
    fitted = FITTED["stacks"]
    return {
        name: Stack(name=name, **{**row, "recomputes": tuple(row.get("recomputes", ())), **fitted.get(name, {})})
        for name, row in rows.items()
    }


@lru_cache(maxsize=64)
def stack_named(name: str) -> Stack:
    """The stack of a name with modifiers. Raises InputError for an unknown one, naming the nearest."""
    base, *modifiers = name.split("+")
    known = stacks()
    if base not in known:
        near = nearest(base, known)
        legal = f"nearest: {near}" if near else "legal: " + ", ".join(sorted(known))
        raise bad_input("no such software stack", field="stack", value=name, legal=legal)
    changes: dict[str, Any] = {}
    for modifier in modifiers:
        changes |= _changes(modifier, changes)
    stack = replace(known[base], name=name, **changes)
    if stack.dropout and stack.scores_bytes:  # softmax result, its dropout mask, and the result of that
        return replace(stack, scores_bytes=5.0)
    return stack


def _changes(modifier: str, before: dict[str, Any]) -> dict[str, Any]:
    """The knobs that one modifier sets, after those `before` it."""
    if modifier in MODIFIERS:
        return MODIFIERS[modifier]
    kind, _, what = modifier.partition("-")
    if kind == "re" and what in MODULES:
        return {"recomputes": (*before.get("recomputes", ()), what)}
    if kind == "away" and what.isdigit() and int(what) <= 100:
        return {"activations_away": int(what) / 100}
    legal = ", ".join((*sorted(MODIFIERS), *(f"re-{module}" for module in MODULES), "away-0 to away-100"))
    raise bad_input("no such modifier of a software stack", field="stack", value=modifier, legal="legal: " + legal)


def stack_of(setup: Setup) -> Stack:
    """The stack whose habits memory and time follow: `Setup.stack`, else that of who can run the plan."""
    return stack_named(setup.stack or RUNNER_STACKS[setup.runnable_by])


def knobs() -> tuple[str, ...]:
    """Names of all knobs."""
    return tuple(field.name for field in fields(Stack) if field.name not in ("name", "source"))
