"""The move of layers that an operation table asks for, and what replaying with it predicts."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from meshwright.diagnosis.operation_graph import Graph
from meshwright.files.setup import Setup


@dataclass(frozen=True, slots=True)
class Move:
    """A patch to the plan (empty where the number of layers is not known), words, and the gain: low, expected, high."""

    change: Mapping[str, object]
    words: str
    gain: tuple[float, float, float]


def moved(graph: Graph, stage: int, compute: Mapping[int, float], traced_s: float, setup: Setup | None) -> Move:
    """Take layers from `stage` and give them to the others until their compute is as even as whole layers allow.

    `compute` is seconds of a micro-batch by stage. A layer takes what the other stages take for theirs; what `stage`
    takes beyond its layers (the head and the loss) stays where it is.
    """
    stages = sorted(compute)
    usual = float(np.median([compute[s] for s in stages if s != stage]))
    even = float(np.mean(list(compute.values())))
    layers = setup.proposal.arch.layers if setup is not None else 0
    each = layers // len(stages) if layers % len(stages) == 0 else 0
    if each > 1:
        counts = _counts(stages, stage, compute, each, usual / each)
        after = {s: compute[s] + (counts[s] - each) * usual / each for s in stages}
        taken = each - counts[stage]
        words = f"Move {taken} of its {each} layers to the other stages ({' + '.join(str(counts[s]) for s in stages)})"
        change: Mapping[str, object] = {"layout.stages": _units([counts[s] for s in stages])} if taken else {}
    else:
        part = min(1.0, (compute[stage] - even) / usual)
        after = dict.fromkeys(stages, even) if part < 1 else {
            s: compute[s] - usual if s == stage else compute[s] + usual / (len(stages) - 1) for s in stages
        }  # fmt: skip
        words = (
            f"Move about {part:.0%} of the layers that another stage holds from it, spread over the others (with 8 a "
            f"stage: {round(8 * part)}); --job with the model names the layers"
        )
        change = {}
    now_s = float(graph.replay(graph.duration).mean())
    factor = {s: after[s] / compute[s] for s in stages}
    durations = {
        node: graph.duration[node] * factor[ops[0][1]] if ops[0][2].endswith("-compute") else graph.duration[node]
        for node, ops in graph.members.items()
    }
    expected = float(1 - graph.replay(durations).mean() / now_s)
    error = abs(1 - now_s / traced_s)
    words += f", predicted to save {expected:.1%}"
    return Move(change, words, (expected - error - 0.02, expected, expected + error))


def _counts(stages: list[int], stage: int, compute: Mapping[int, float], each: int, layer_s: float) -> dict[int, int]:
    """Layers by stage: moved one at a time from the fullest stage to the emptiest while that lowers the fullest."""
    counts = dict.fromkeys(stages, each)
    now = dict(compute)
    while counts[stage] > 1:
        target = min((s for s in stages if s != stage), key=lambda s: (now[s], counts[s]))
        if now[target] + layer_s >= now[stage]:
            break
        counts[stage] -= 1
        counts[target] += 1
        now[stage] -= layer_s
        now[target] += layer_s
    return counts


def _units(counts: list[int]) -> list[list[str]]:
    """Stages in the plan's spelling."""
    found, first = [], 0
    for position, count in enumerate(counts):
        names = [f"layers.{first}-{first + count - 1}" if count > 1 else f"layers.{first}"]
        first += count
        found.append(["embed"] * (position == 0) + names + ["head"] * (position == len(counts) - 1))
    return found
