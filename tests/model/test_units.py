"""Units: their order, the shorthand that people write, and back."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.basics.errors import InputError
from meshwright.model.architecture import Architecture
from meshwright.model.units import Unit, compact, expand, expand_all, units_of

LLAMA = Architecture("llama", "llama", 4, 64, 4, 4, 16, 128, 100)
NEOX = Architecture("neox", "gpt_neox", 3, 64, 4, 4, 16, 128, 100, parallel_residual=True)


def test_units_in_forward_order() -> None:
    names = [unit.name for unit in units_of(LLAMA)]
    assert names[:4] == ["embed", "layers.0.attn", "layers.0.ffn", "layers.1.attn"]
    assert names[-2:] == ["layers.3.ffn", "head"]
    assert len(names) == 2 * 4 + 2
    assert units_of(LLAMA)[2] == Unit("layers.0.ffn", "ffn", 0)


def test_parallel_residual_layers_are_one_unit() -> None:
    assert [unit.name for unit in units_of(NEOX)] == ["embed", "layers.0", "layers.1", "layers.2", "head"]
    assert expand(NEOX, "layers.0-2") == ("layers.0", "layers.1", "layers.2")
    with pytest.raises(InputError, match="in parallel"):
        expand(NEOX, "layers.1.attn")


@pytest.mark.parametrize(
    ("text", "names"),
    [("embed", ("embed",)), ("layers.3", ("layers.3.attn", "layers.3.ffn")),
     ("layers.0-1", ("layers.0.attn", "layers.0.ffn", "layers.1.attn", "layers.1.ffn")),
     ("layers.1-2.attn", ("layers.1.attn", "layers.2.attn")), ("layers.2.ffn", ("layers.2.ffn",))],
)  # fmt: skip
def test_shorthand(text: str, names: tuple[str, ...]) -> None:
    assert expand(LLAMA, text) == names


@pytest.mark.parametrize("text", ["layers.4", "layers.2-1", "layers.0-9", "layer.0", "", "layers.-1", "heads"])
def test_units_that_do_not_exist_are_refused(text: str) -> None:
    with pytest.raises(InputError) as caught:
        expand(LLAMA, text, "layout.stages")
    assert caught.value.complaints[0].field == "layout.stages"


def test_compact_is_the_shortest_spelling() -> None:
    assert compact(expand_all(LLAMA, ["embed", "layers.0-2", "layers.3.attn"])) == (
        "embed", "layers.0-2", "layers.3.attn",
    )  # fmt: skip
    assert compact(["layers.0.ffn", "layers.1.attn", "layers.1.ffn"]) == ("layers.0.ffn", "layers.1")


@given(st.sampled_from([LLAMA, NEOX]), st.data())
def test_compact_and_expand_are_inverse_on_any_stage(arch: Architecture, data: st.DataObject) -> None:
    names = [unit.name for unit in units_of(arch)]
    first = data.draw(st.integers(0, len(names) - 1))
    last = data.draw(st.integers(first, len(names)))
    assert expand_all(arch, compact(names[first:last])) == tuple(names[first:last])
    chosen = data.draw(st.lists(st.sampled_from(names), max_size=6))  # in any order
    assert sorted(expand_all(arch, compact(chosen))) == sorted(chosen)
