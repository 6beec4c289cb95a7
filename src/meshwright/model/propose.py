"""A sensible shape for a model of which only the parameter count is known."""

import math
from collections.abc import Iterator
from dataclasses import replace

from meshwright.basics.errors import bad_input
from meshwright.basics.quantities import count_text
from meshwright.model.architecture import Architecture
from meshwright.model.parameters import total_parameters

TOLERANCE = 0.02
_SMALLEST, _LARGEST = 300_000, 10_000_000_000_000
_GROUPED_FROM = 20_000_000_000  # published Llama-like models of this size and above group their key-value heads
_KV_HEADS = 8


def from_count(count: int, name: str = "") -> Architecture:
    """A Llama-like shape (gated feed-forward, rotary positions, RMS norms) whose exact count is within 2 % of `count`.

    Depth and width follow what published models of that size have: width over depth grows from 64 at 100 M to 128 at
    7 B; the feed-forward width is near 8/3 of the hidden size (7/2 where key-value heads are grouped); head size 64 or
    128; vocabulary 32,000 (4,096 below 20 M parameters), untied from 500 M on. Raises InputError outside 0.3 M to 10 T.
    """
    if not _SMALLEST <= count <= _LARGEST:
        raise bad_input(
            "no sensible decoder has so many parameters", field="model.params", value=count,
            legal=f"{count_text(_SMALLEST)} to {count_text(_LARGEST)}",
        )  # fmt: skip
    best = min(_candidates(count), key=lambda scored: scored[0], default=None)
    if best is None:
        raise bad_input("no sensible shape is within 2 % of it", field="model.params", value=count)
    value, unit = count_text(count).split()
    _, hidden, layers, ffn = best
    return replace(_shape(hidden, layers, ffn, count), name=name or f"llama-like {float(value):g}{unit}")


def _candidates(count: int) -> Iterator[tuple[float, int, int, int]]:
    """Hidden size, layers and feed-forward width within the tolerance, each after how far they are from what is usual
    (0 is best)."""
    usual_ffn = 3.5 if count >= _GROUPED_FROM else 8 / 3
    usual_aspect = 64 * 2 ** min(max(math.log(count / 1e8) / math.log(70), -1), 1)
    width_step, depth_step, ffn_step = _steps(count)
    rough = (count * usual_aspect / (4 + 3 * usual_ffn)) ** (1 / 3)
    for hidden in range(_multiple(rough / 2, width_step), _multiple(rough * 2, width_step) + 1, width_step):
        deepest = int(4 * hidden / usual_aspect) + depth_step
        ends, bare, per_width = _linear(hidden, count)
        for layers in range(depth_step, deepest + 1, depth_step):
            ffn = _multiple((count - ends - layers * bare) / (per_width * layers), ffn_step)
            error = abs((ends + layers * (bare + per_width * ffn)) / count - 1)
            if error <= TOLERANCE and 1.5 * hidden <= ffn <= 5 * hidden:
                unusual = abs(math.log(hidden / layers / usual_aspect)) + 2 * abs(math.log(ffn / hidden / usual_ffn))
                yield unusual + 5 * error, hidden, layers, ffn


def _linear(hidden: int, count: int) -> tuple[int, int, int]:
    """The exact count is linear in depth and in width: parameters outside the layers, of a layer without feed-forward
    matrices, and of one more column of those."""
    one, two, wider = (total_parameters(_shape(hidden, layers, ffn, count)) for layers, ffn in ((1, 0), (2, 0), (1, 1)))
    return 2 * one - two, two - one, wider - one


def _shape(hidden: int, layers: int, ffn: int, count: int) -> Architecture:
    head_dim = 128 if hidden >= 2048 and hidden % 128 == 0 else min(64, hidden)
    while hidden % head_dim:
        head_dim //= 2
    heads = hidden // head_dim
    kv_heads = _KV_HEADS if count >= _GROUPED_FROM and heads % _KV_HEADS == 0 else heads
    return Architecture(
        name="", family="llama", layers=layers, hidden=hidden, heads=heads, kv_heads=kv_heads, head_dim=head_dim,
        ffn_hidden=ffn, vocab=32_000 if count >= 20_000_000 else 4_096, tied=count < 500_000_000,
    )  # fmt: skip


def _steps(count: int) -> tuple[int, int, int]:
    """Hidden, layers and feed-forward width are multiples of these, so that they divide well over ranks."""
    if count >= 5_000_000_000:
        return 1024, 4, 256
    if count >= 500_000_000:
        return 256, 4, 128
    return (128, 2, 128) if count >= 20_000_000 else (32, 1, 32)


def _multiple(value: float, step: int) -> int:
    return max(step, round(value / step) * step)
