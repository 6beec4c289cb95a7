"""Which units run again in the backward: one answer for the predictor's costs and bytes and for the trainer."""

from meshwright.layout.degrees import Layout


def recomputed_units(layout: Layout) -> frozenset[str]:
    """The units under full recompute: those of all layers, or with `recompute_layers` = k those of the first k layers
    of each stage. A layer cut between two stages counts on each of them. Empty without full recompute."""
    if layout.recompute != "full":
        return frozenset()
    again: set[str] = set()
    for stage in layout.stages:
        held = [unit for unit in stage if unit.startswith("layers.")]
        layers = list(dict.fromkeys(_layer(unit) for unit in held))[: layout.recompute_layers]
        again.update(unit for unit in held if _layer(unit) in layers)
    return frozenset(again)


def _layer(unit: str) -> int:
    return int(unit.split(".")[1])
