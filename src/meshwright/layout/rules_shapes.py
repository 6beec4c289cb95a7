"""Warnings about sizes: what is padded, and logits that are larger than they need to be."""

from meshwright.basics.quantities import gib
from meshwright.layout.given import settled
from meshwright.layout.predicates import around, divides, padded_vocab
from meshwright.layout.problem import Explanation, Rule, count, spelled
from meshwright.layout.proposal import Proposal
from meshwright.model.activations import loss_bytes

_USUAL = 128  # what vocabularies are padded to a multiple of, times tp (Megatron-LM's make-vocab-size-divisible-by)
_EIGHTHS = {"fp8": 16, "mxfp8": 32, "nvfp4": 32}  # Transformer Engine, "FP8 autocasting": the sides of a matrix product


def _vocab_holds(p: Proposal) -> bool:
    w = p.wanted
    if w.tp is None and w.vocab_multiple is None:
        return True
    return bool(divides((w.vocab_multiple or 1) * (w.tp or 1), p.arch.vocab))


def _explain_vocab(p: Proposal) -> Explanation:
    tp, vocab, multiple = p.wanted.tp or 1, p.arch.vocab, p.wanted.vocab_multiple
    padded = padded_vocab(vocab, tp, multiple or 1)
    usual = padded_vocab(vocab, tp, _USUAL)
    why = f"a vocabulary of {vocab} does not divide by {tp} tensor ranks"
    to = f"{padded} rows, the next multiple of tp = {tp}; {usual} for the usual multiple of {_USUAL} · tp"
    if multiple is not None and multiple > 1:
        why = f"a vocabulary of {vocab} is no multiple of {multiple} · tp = {multiple * tp}"
        to = f"{padded} rows, {padded - vocab} more ({(padded - vocab) / vocab:.1%})"
    return Explanation(
        f"{why}: its matrices are padded, to {to}. Changing tp can change the stored shape, so the true size has to be "
        f"recorded",
        (f"{spelled(p, 'model.vocab')} = {padded if multiple else usual}",),
    )


def _sides(p: Proposal) -> dict[str, int]:
    """The sides of the matrix products of one rank that an eight-bit format may have to pad."""
    w, arch = p.wanted, p.arch
    tp, cp = w.tp or 1, w.cp or 1
    sides = {"hidden": arch.hidden, "query heads a rank": arch.heads * arch.head_dim // tp}
    sides["feed-forward width a rank"] = arch.ffn_hidden // ((w.etp or tp) if arch.experts else tp)
    if w.micro_batch is not None and w.cp is not None:
        sides["tokens of a micro-batch"] = w.micro_batch * p.seq_len // cp
    return sides


def _eighths_hold(p: Proposal) -> bool:
    multiple = _EIGHTHS.get(p.training.precision)
    return multiple is None or not any(side % multiple for side in _sides(p).values())


def _explain_eighths(p: Proposal) -> Explanation:
    precision = p.training.precision
    multiple = _EIGHTHS[precision]
    odd = {name: side for name, side in _sides(p).items() if side % multiple}
    near = {name: " or ".join(map(str, around(side, multiple))) for name, side in odd.items()}
    return Explanation(
        f"{precision} matrix products take sides that are multiples of {multiple}: "
        + ", ".join(f"{name} {side} (mod {multiple} = {side % multiple})" for name, side in odd.items())
        + " will be padded, or computed in bf16",
        tuple(f"{name} = {values}" for name, values in near.items()),
    )


def _tokens(p: Proposal) -> int | None:
    """Tokens of one micro-batch on one rank; None while the micro-batch is open."""
    w = settled(p).wanted
    return None if w.micro_batch is None else w.micro_batch * max(1, p.seq_len // (w.cp or 1))


def _logits(p: Proposal, chunk: int | None = None, vocab_parallel: bool = True) -> float:
    w = settled(p).wanted
    length = max(1, p.seq_len // (w.cp or 1))
    return loss_bytes(p.arch, p.training, w.micro_batch or 1, length, w.tp or 1, vocab_parallel, chunk)


def _divided_hold(p: Proposal) -> bool:
    return p.wanted.vocab_parallel is not False or (p.wanted.tp or 1) == 1


def _explain_divided(p: Proposal) -> Explanation:
    tp, samples = p.wanted.tp or 1, p.wanted.micro_batch or 1
    whole, divided = _logits(p, p.wanted.loss_chunk, False), _logits(p, p.wanted.loss_chunk, True)
    return Explanation(
        f"logits and loss are whole on each of {tp} tensor ranks of the last stage: {gib(whole)} for "
        f"{count(samples, 'sample')} of {p.seq_len} tokens, against {gib(divided)} when the vocabulary is divided",
        (f"{spelled(p, 'layout.vocab_parallel')} = true",),
    )


def _chunk_holds(p: Proposal) -> bool:
    chunk, tokens = p.wanted.loss_chunk, _tokens(p)
    return chunk is None or tokens is None or (chunk < tokens and tokens % chunk == 0)


def _explain_chunk(p: Proposal) -> Explanation:
    chunk, tokens = p.wanted.loss_chunk or 1, _tokens(p) or 1
    field = spelled(p, "layout.loss_chunk")
    divisors = [d for d in range(1, tokens) if tokens % d == 0] if tokens <= 10**6 else [tokens // 2]
    if chunk >= tokens:
        half = max(divisors, default=1)
        return Explanation(
            f"{field} = {chunk} has no effect: a micro-batch has {tokens} tokens on a rank, and their logits exist at "
            f"one time either way ({gib(_logits(p))})",
            (f"{field} = {half}: {gib(_logits(p, half))}", f"leave out {field}"),
        )
    below, above = max(d for d in divisors if d <= chunk), min((d for d in divisors if d > chunk), default=tokens)
    return Explanation(
        f"{tokens} tokens of a micro-batch are {tokens // chunk} chunks of {chunk} and one of {tokens % chunk}: the "
        f"last one is small and costs as many kernels",
        (f"{field} = {below} or {above}",),
    )


SHAPE_RULES: tuple[Rule, ...] = (
    Rule(
        "padded-vocabulary", "warning", ("model.vocab", "layout.vocab_multiple", "layout.tp"),
        _vocab_holds, _explain_vocab,
    ),
    Rule(
        "padded-eighths", "warning", ("training.precision", "batch.micro_batch", "batch.seq_len", "layout.tp"),
        _eighths_hold, _explain_eighths,
    ),
    Rule(
        "whole-logits", "warning", ("layout.vocab_parallel", "layout.tp", "batch.micro_batch"),
        _divided_hold, _explain_divided,
    ),
    Rule("loss-chunk", "warning", ("layout.loss_chunk", "batch.micro_batch"), _chunk_holds, _explain_chunk),
)  # fmt: skip
