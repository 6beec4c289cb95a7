"""The tensors that a forward and backward of one micro-batch allocate, by kind of unit."""

from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil

from meshwright.files.plan import Plan
from meshwright.model.shapes import padded_vocab
from meshwright.model.units import units_of
from meshwright.model.variants import Variant, variant_of
from meshwright.planner.plan_tensor import PlanTensor, ranks_with

Shape = tuple[int, ...]

_FUSED = "fused attention (scaled_dot_product_attention, a flash kernel), which allocates nothing of this size"


@dataclass(frozen=True, slots=True)
class _Place:
    """Who allocates: the unit kind and its pipeline ranks."""

    unit: str
    ranks: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class _Sizes:
    """What every activation is made of, on one rank."""

    plan: Plan
    batch: int  # samples of a micro-batch
    tokens: int  # of a sample
    apart: int  # tokens of a sample where sequence parallelism divides them
    dtype: str

    @property
    def tp(self) -> int:
        return self.plan.layout.tp


def run_tensors(plan: Plan) -> Iterator[PlanTensor]:
    """Every kind of tensor of the forward and the backward, for each variant of unit that the model has."""
    layout, arch = plan.layout, plan.setup.proposal.arch
    precision = plan.setup.proposal.training.precision
    tokens = max(1, plan.batch.seq_len // layout.cp)
    apart = tokens // layout.tp if layout.sp else tokens
    dtype = {"fp32": "fp32", "fp16": "fp16"}.get(precision, "bf16")
    sizes = _Sizes(plan, plan.batch.micro_batch, tokens, apart, dtype)
    held: dict[Variant, list[str]] = {}
    for unit in units_of(arch):
        held.setdefault(variant_of(arch, unit), []).append(unit.name)
    for variant, names in held.items():
        at = _Place(variant.kind, ranks_with(layout, names))
        yield from _hidden(sizes, at)
        if variant.kind in ("attn", "layer"):
            yield from _attention(sizes, at, variant)
        if variant.kind in ("ffn", "layer"):
            yield from _experts(sizes, at) if variant.experts else _dense(sizes, at)
        if variant.kind == "embed" and arch.positions == "learned":
            shape = (1, tokens, arch.hidden)
            why = "the rows of the position table for one sample, and their gradient"
            yield PlanTensor(
                "position embeddings", shape, dtype, (at.unit,), at.ranks, why, f"layout.cp = {layout.cp * 2}"
            )
        if variant.kind == "head":
            yield from _logits(sizes, at)
    if layout.pp > 1:
        shape = (sizes.batch, apart, arch.hidden)
        why = "what one stage sends to the next, and its gradient on the way back"
        yield PlanTensor(
            "received hidden states", shape, dtype, ("pipeline",), tuple(range(layout.pp)), why, _fewer(sizes)
        )


def _fewer(sizes: _Sizes, *, width: bool = False) -> str:
    """What makes a tensor of tokens smaller; `width`: one that the tensor group divides."""
    layout, batch = sizes.plan.layout, sizes.plan.batch
    found = [f"batch.micro_batch = {batch.micro_batch // 2}"] if batch.micro_batch > 1 else []
    if width:
        found.append(f"layout.tp = {layout.tp * 2}")
    elif layout.tp > 1 and not layout.sp:
        found.append("layout.sp = true")
    found.append(f"layout.cp = {layout.cp * 2}")
    return ", ".join(found)


def _hidden(sizes: _Sizes, at: _Place) -> Iterator[PlanTensor]:
    arch = sizes.plan.setup.proposal.arch
    shape = (sizes.batch, sizes.apart, arch.hidden)
    why = "the residual stream, the result of a norm or of the unit, and their gradients"
    yield PlanTensor("hidden states", shape, sizes.dtype, (at.unit,), at.ranks, why, _fewer(sizes))
    if sizes.dtype != "fp32":
        why = "a norm written out in operators works in fp32"
        yield PlanTensor("fp32 copy of hidden states", shape, "fp32", (at.unit,), at.ranks, why, _fewer(sizes))
    if sizes.apart != sizes.tokens and at.unit != "embed":
        whole = (sizes.batch, sizes.tokens, arch.hidden)
        why = "sequence parallelism gathers the tokens of its group before each column-split product"
        yield PlanTensor(
            "gathered hidden states", whole, sizes.dtype, (at.unit,), at.ranks, why, _fewer(sizes, width=True)
        )


def _attention(sizes: _Sizes, at: _Place, variant: Variant) -> Iterator[PlanTensor]:
    arch = sizes.plan.setup.proposal.arch
    heads, keys = ceil(arch.heads / sizes.tp), max(1, ceil(arch.kv_heads / sizes.tp))

    def of(name: str, width: int, why: str, dtype: str = sizes.dtype) -> PlanTensor:
        shape = (sizes.batch, sizes.tokens, width)
        return PlanTensor(name, shape, dtype, (at.unit,), at.ranks, why, _fewer(sizes, width=True))

    yield of("q", heads * arch.query_dim, "queries, kept for the backward of attention")
    if arch.positions == "rope" and arch.latent is None:
        for name, count in (("q", heads), ("k", keys)):
            why = "rotary positions written out in operators turn one half of each head into the other"
            yield of(f"half of {name}", count * arch.query_dim // 2, why)
            if sizes.dtype != "fp32":
                yield of(f"fp32 copy of {name}", count * arch.query_dim, "rotary positions are applied in fp32", "fp32")
    if arch.latent is None:
        yield of("k or v", keys * arch.head_dim, "keys or values, kept for the backward of attention")
        yield of("q, k and v in one", (heads + 2 * keys) * arch.head_dim, "the result of a fused q-k-v product")
        if sizes.plan.layout.cp > 1:
            yield of("k and v in one", 2 * keys * arch.head_dim, "what ring attention passes on between context ranks")
    else:
        latent = arch.latent
        yield of(
            "compressed keys and values", latent.kv_rank + latent.rope_dim, "the latent that keys and values come from"
        )
        yield of("normed keys and values", latent.kv_rank, "the latent without its position part")
        for name, each in (
            ("position part of q or k", latent.rope_dim),
            ("half of a position part", latent.rope_dim // 2),
        ):
            yield of(name, heads * each, "rotary positions of a part of each head")
        yield of("keys and values of all heads", heads * (latent.nope_dim + latent.value_dim), "made from the latent")
        yield of("keys of all heads", heads * arch.query_dim, "with the position part repeated for every head")
        if latent.query_rank is not None:
            yield of("compressed queries", latent.query_rank, "the latent that queries come from")
    yield of("attention result", heads * arch.value_dim, "the input of the output product")
    width = (sizes.batch, heads, sizes.tokens)
    yield PlanTensor(
        "log-sums of attention", width, "fp32", (at.unit,), at.ranks, "one a query and head", _fewer(sizes)
    )
    back = sizes.plan.batch.seq_len
    scores = (*width, back)
    for dtype in dict.fromkeys((sizes.dtype, "fp32")):
        why = "attention that is not fused writes out every score"
        yield PlanTensor("attention scores", scores, dtype, (at.unit,), at.ranks, why, _FUSED, expected=False)
    alike = (1, 1, sizes.tokens, back)
    mask = (sizes.batch, *alike[1:])
    why = "a mask written out: attention that is not fused, or a fused one that was handed a mask"
    for shape in dict.fromkeys((mask, alike)):
        yield PlanTensor("attention mask", shape, sizes.dtype, (at.unit,), at.ranks, why, _FUSED, expected=False)


def _between(sizes: _Sizes, at: _Place, shape: Shape, width: int, what: str) -> Iterator[PlanTensor]:
    """The tensors between the matrices of a feed-forward network; `shape` lacks the width."""
    arch = sizes.plan.setup.proposal.arch
    names = "gate, up, activated gate or product" if arch.gated else "before or after the activation"
    less = _fewer(sizes, width=True)
    why = f"between the matrices of {what}, and their gradients"
    yield PlanTensor(names, (*shape, width), sizes.dtype, (at.unit,), at.ranks, why, less)
    if arch.gated:
        why = f"the result of a fused gate-up product of {what}"
        yield PlanTensor("gate and up in one", (*shape, 2 * width), sizes.dtype, (at.unit,), at.ranks, why, less)
    quantised = {"fp8": ("fp8", 1), "mxfp8": ("fp8", 1), "nvfp4": ("uint8", 2)}  # dtype, values in one element
    precision = sizes.plan.setup.proposal.training.precision
    if precision in quantised:
        dtype, packed = quantised[precision]
        why = f"the quantised input of the second matrix of {what}"
        yield PlanTensor(
            f"{precision} copy of the product", (*shape, width // packed), dtype, (at.unit,), at.ranks, why, less
        )


def _dense(sizes: _Sizes, at: _Place) -> Iterator[PlanTensor]:
    width = ceil(sizes.plan.setup.proposal.arch.dense_width / sizes.tp)
    yield from _between(sizes, at, (sizes.batch, sizes.tokens), width, "the feed-forward network")


def _experts(sizes: _Sizes, at: _Place) -> Iterator[PlanTensor]:
    layout, arch = sizes.plan.layout, sizes.plan.setup.proposal.arch
    local = sizes.batch * sizes.tokens
    copies = ceil(local * arch.active_experts * layout.etp / layout.tp)
    fullest = ceil(copies * sizes.plan.setup.proposal.training.expert_imbalance)
    less = _fewer(sizes)
    router = (sizes.batch * sizes.apart, arch.experts)
    yield PlanTensor("router scores", router, "fp32", (at.unit,), at.ranks, "one a token and expert", less)
    for count in dict.fromkeys((copies, fullest)):
        why = f"{arch.active_experts} copies of each token travel to their experts, and their results back"
        yield PlanTensor("dispatched copies", (count, arch.hidden), sizes.dtype, (at.unit,), at.ranks, why, less)
        yield from _between(sizes, at, (count,), ceil(arch.ffn_hidden / layout.etp), "the experts")
    shared = arch.shared_ffn_hidden or arch.ffn_hidden * arch.shared_experts
    if shared:
        yield from _between(sizes, at, (sizes.batch, sizes.tokens), ceil(shared / sizes.tp), "the shared experts")


def _logits(sizes: _Sizes, at: _Place) -> Iterator[PlanTensor]:
    layout, arch = sizes.plan.layout, sizes.plan.setup.proposal.arch
    vocab = padded_vocab(arch.vocab, layout.vocab_multiple, layout.tp if layout.vocab_multiple > 1 else 1)
    if layout.vocab_parallel:
        vocab = ceil(vocab / layout.tp)
    local = sizes.batch * sizes.tokens
    chunk = layout.loss_chunk
    shape: Shape = (sizes.batch, sizes.tokens, vocab) if chunk is None or chunk >= local else (chunk, vocab)
    ways = [] if chunk is not None and chunk <= 1024 else ["layout.loss_chunk = 1024"]
    if layout.tp > 1 and not layout.vocab_parallel:
        ways.append("layout.vocab_parallel = true")
    less = ", ".join([*ways, _fewer(sizes, width=layout.vocab_parallel)])
    why = "the output scores of the head, and their gradient in the same dtype"
    yield PlanTensor("logits", shape, sizes.dtype, (at.unit,), at.ranks, why, less)
    why = "the loss works in fp32: a copy of the scores, their log-probabilities, or the gradient"
    yield PlanTensor("logits in fp32", shape, "fp32", (at.unit,), at.ranks, why, less)
