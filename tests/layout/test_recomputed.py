"""Which units run again."""

from meshwright.layout.degrees import Layout
from meshwright.layout.recomputed import recomputed_units

STAGES = (("embed", "layers.0.attn", "layers.0.ffn", "layers.1.attn"), ("layers.1.ffn", "layers.2.attn", "head"))


def test_all_layers_and_never_the_ends() -> None:
    everything = {unit for stage in STAGES for unit in stage} - {"embed", "head"}
    assert recomputed_units(Layout(STAGES, (0, 1), pp=2, recompute="full")) == everything
    assert recomputed_units(Layout(STAGES, (0, 1), pp=2, recompute="selective")) == frozenset()


def test_the_first_layers_of_each_stage() -> None:
    layout = Layout(STAGES, (0, 1), pp=2, recompute="full", recompute_layers=1)
    # layer 1 is the second of stage 0 and the first of stage 1: only its half there runs again
    assert recomputed_units(layout) == {"layers.0.attn", "layers.0.ffn", "layers.1.ffn"}
