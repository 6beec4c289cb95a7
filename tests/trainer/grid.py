"""A covering array of layouts: few plans in which every pair of options that may go together does."""

import random
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations, product
from typing import Any

from meshwright.files.plan import Plan
from meshwright.layout.problem import Problem
from meshwright.layout.proposal import proposal_of
from meshwright.layout.rules import judge
from meshwright.trainer.unsupported import unsupported

from .plans import TINY, cut, plan, variant

ROUND, VEE = (0, 1, 0, 1), (0, 1, 1, 0)
FOUR = cut(TINY, 3, 2, 2, 3)
RANKS, SAMPLES = 8, 16
ORDER = 13  # in which pairs are tried: of the first forty the one with the fewest ranks
OPTIONS: Mapping[str, Mapping[str, dict[str, Any]]] = {
    "replicas": {
        "1": {}, "2": {"dp": 2}, "4": {"dp": 4}, "2, ZeRO-1": {"dp": 2, "zero": 1}, "2, ZeRO-2": {"dp": 2, "zero": 2},
        "4, ZeRO-2": {"dp": 4, "zero": 2}, "2, ZeRO-3": {"dp": 2, "zero": 3},
        "HSDP": {"dp": 4, "zero": 3, "shard_group": 2},
    },
    "tensor": {"1": {}, "2": {"tp": 2}, "2, sp": {"tp": 2, "sp": True}, "4, sp": {"tp": 4, "sp": True}},
    "pipeline": {
        "1": {}, "1f1b": {"pp": 2, "stages": cut(TINY, 5, 5)},
        "gpipe, uneven": {"pp": 2, "stages": cut(TINY, 8, 2), "schedule": "gpipe"},
        "zb-h1, inside a layer": {"pp": 2, "stages": cut(TINY, 4, 6), "schedule": "zb-h1"},
        "interleaved": {"pp": 2, "vpp": 2, "stages": FOUR, "placement": ROUND, "schedule": "interleaved"},
        "looped-bfs": {"pp": 2, "vpp": 2, "stages": FOUR, "placement": ROUND, "schedule": "looped-bfs"},
        "zbv": {"pp": 2, "vpp": 2, "stages": FOUR, "placement": VEE, "schedule": "zbv"},
        "dualpipev": {"pp": 2, "vpp": 2, "stages": FOUR, "placement": VEE, "schedule": "dualpipev"},
        "4, 1f1b": {"pp": 4, "stages": FOUR},
    },
    "micro-batches": {str(m): {"m": m} for m in (1, 2, 4, 8)},
    "recompute": {
        "none": {}, "selective": {"recompute": "selective"}, "full": {"recompute": "full"},
        "first layer": {"recompute": "full", "recompute_layers": 1},
    },
    "ends": {"untied": {"tied": False}, "tied": {"tied": True}},
    "family": {"llama": {"family": "llama"}, "qwen3": {"family": "qwen3", "qk_norm": True}},
    "buckets": {"large": {}, "small, late": {"bucket_mib": 0.05, "overlap": False}, "small": {"bucket_mib": 0.05}},
}  # fmt: skip
_MODEL = ("tied", "family", "qk_norm")

Choice = tuple[str, ...]
"""The name of one value of each option, in the order of OPTIONS."""


def plan_of(choice: Choice) -> Plan | None:
    """The plan of a choice; None when it needs too many ranks, or samples do not divide."""
    chosen: dict[str, Any] = {}
    for values, name in zip(OPTIONS.values(), choice, strict=True):
        chosen |= values[name]
    m, dp = chosen.pop("m"), chosen.get("dp", 1)
    if dp * chosen.get("tp", 1) * chosen.get("pp", 1) > RANKS or SAMPLES % (m * dp):
        return None
    arch = variant(kv_heads=4, **{key: chosen.pop(key) for key in _MODEL if key in chosen})
    return plan(" | ".join(choice), arch=arch, micro_batch=SAMPLES // (m * dp), global_batch=SAMPLES, **chosen)


def refusal(choice: Choice) -> str | None:
    """Why a choice cannot be trained, by the rules of layouts or the trainer's own; None when it can."""
    given = plan_of(choice)
    if given is None:
        return f"more than {RANKS} ranks, or {SAMPLES} samples do not divide"
    said = [problem.rule for problem in _broken(given)] + [complaint.field for complaint in unsupported(given)]
    return ", ".join(said) or None


def _broken(given: Plan) -> Sequence[Problem]:
    found = judge(proposal_of(given.setup.proposal, given.layout, given.batch))
    return [problem for problem in found if problem.severity == "error"]


def world(choice: Choice) -> int:
    """Ranks of a choice that can be trained."""
    given = plan_of(choice)
    assert given is not None
    return given.layout.world


def pairs(choice: Choice) -> set[tuple[tuple[int, str], tuple[int, str]]]:
    """The pairs of values in a choice."""
    return set(combinations(enumerate(choice), 2))


def covering(order: int = ORDER) -> tuple[list[Choice], dict[tuple[tuple[int, str], tuple[int, str]], str]]:
    """Choices in which every pair occurs that any choice can have, greedily few; and the pairs that none can, with why.

    The plainest value of each option comes first, so that a pair is refused for its own sake.
    """
    wanted = {
        ((a, x), (b, y))
        for (a, first), (b, second) in combinations(enumerate(OPTIONS.values()), 2)
        for x, y in product(first, second)
    }
    rows: list[Choice] = []
    excluded: dict[tuple[tuple[int, str], tuple[int, str]], str] = {}
    seeds = sorted(wanted)
    random.Random(order).shuffle(seeds)
    for seed in seeds:
        if seed not in wanted:
            continue
        row = _grown(seed, wanted)
        if row is None:
            wanted.discard(seed)
            excluded[seed] = refusal(_plain(seed)) or "no choice has both"
            continue
        rows.append(row)
        wanted -= pairs(row)
    return rows, excluded


def _plain(pair: tuple[tuple[int, str], tuple[int, str]]) -> Choice:
    fixed = dict(pair)
    return tuple(fixed.get(index, next(iter(values))) for index, values in enumerate(OPTIONS.values()))


def _grown(seed: tuple[tuple[int, str], tuple[int, str]], wanted: set[Any]) -> Choice | None:
    """A legal choice with the pair `seed` and many other wanted pairs: each option in turn takes its best value."""
    for base in _bases(seed):
        if refusal(base) is not None:
            continue
        row = base
        for index, values in enumerate(OPTIONS.values()):
            if index in dict(seed):
                continue
            tries = [(*row[:index], name, *row[index + 1 :]) for name in values]
            legal = [other for other in tries if refusal(other) is None]
            row = max(legal, key=lambda other: (len(pairs(other) & wanted), -world(other)))
        return row
    return None


def _bases(seed: tuple[tuple[int, str], tuple[int, str]]) -> Iterator[Choice]:
    """The plain choice with the pair, then those with another number of micro-batches, which schedules may need."""
    plain = _plain(seed)
    yield plain
    place = list(OPTIONS).index("micro-batches")
    if place not in dict(seed):
        for name in OPTIONS["micro-batches"]:
            yield (*plain[:place], name, *plain[place + 1 :])
