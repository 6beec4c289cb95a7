"""The rough need of a layout against a count unit by unit, experts with degrees of their own included."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.layout.proposals import LLAMA, errors, found, on, propose, warnings

from meshwright.layout.footprint import Shares, activations, parameters, states, unit_states
from meshwright.layout.proposal import Proposal
from meshwright.model.activations import loss_bytes, unit_activation_bytes
from meshwright.model.architecture import Architecture
from meshwright.model.parameters import stage_parameters, total_parameters
from meshwright.model.units import units_of

MIXTRAL = Architecture("moe", "mixtral", 6, 512, 8, 8, 64, 1024, 32000, experts=8, active_experts=2, dense_layers=(0,))


def ask(arch: Architecture) -> Proposal:
    return propose(arch, on(64), micro_batch=1)


@given(
    st.sampled_from([LLAMA, MIXTRAL, replace(LLAMA, tied=True)]), st.sampled_from([1, 2, 4]), st.sampled_from([1, 2, 8])
)
def test_parameters_are_those_of_the_units(arch: Architecture, tp: int, ep: int) -> None:
    for etp in (None, 1, tp):
        assert parameters(arch, tp, ep, etp) == stage_parameters(arch, units_of(arch), tp, ep, etp)
    assert parameters(arch) == total_parameters(arch)


@pytest.mark.parametrize("recompute", ["none", "selective", "full"])
@pytest.mark.parametrize(("tp", "etp", "ep"), [(1, None, 1), (4, 1, 8), (4, 4, 2), (2, 1, 4)])
def test_activations_are_those_of_the_units(recompute: str, tp: int, etp: int | None, ep: int) -> None:
    asked, of = ask(MIXTRAL), Shares(dp=8, tp=tp, ep=ep, etp=etp, recompute=recompute)  # type: ignore[arg-type]

    def kept(mode: str) -> int:
        each = (
            unit_activation_bytes(MIXTRAL, unit, asked.training, 1, 2048, mode, tp, False, etp, ep=ep)  # type: ignore[arg-type]
            for unit in units_of(MIXTRAL)
        )
        return sum(each)

    again = kept("none") / MIXTRAL.layers if recompute != "none" else 0
    expected = kept(recompute) + again + loss_bytes(MIXTRAL, asked.training, 1, 2048, tp)
    assert activations(asked, of) == pytest.approx(expected)


def test_states_of_experts_are_sharded_over_the_ranks_that_hold_the_same_experts() -> None:
    """ZeRO-1, 18 B a parameter: 12 of them over 64 ranks; of experts on 8 ranks each over the 8 that hold the same."""
    experts = 5 * 8 * 3 * 512 * 1024
    dense = total_parameters(MIXTRAL) - experts
    of = Shares(dp=64, ep=8, zero=1)
    assert states(ask(MIXTRAL), of) == pytest.approx(dense * (6 + 12 / 64) + experts / 8 * (6 + 12 / 8))
    assert states(ask(MIXTRAL), replace(of, ep=1)) == pytest.approx((dense + experts) * (6 + 12 / 64))
    tensor = Shares(dp=16, tp=4, ep=16, etp=1, zero=3)  # 64 ranks / 16: four hold the same half expert set
    assert tensor.expert_shards == 4


def test_waste_is_named_of_experts_too() -> None:
    small = replace(MIXTRAL, layers=4)
    roomy = propose(small, on(8), dp=8, tp=1, pp=1, cp=1, ep=8, zero=3, recompute="full", micro_batch=1)
    assert {"needless-recompute", "needless-sharding"} <= set(warnings(roomy))


def test_units_add_up_to_the_states_of_a_stage() -> None:
    for of in (Shares(dp=64, ep=8, zero=1), Shares(dp=16, tp=4, ep=16, etp=1, zero=3), Shares()):
        assert sum(unit_states(ask(MIXTRAL), of).values()) == pytest.approx(states(ask(MIXTRAL), of))


@pytest.mark.parametrize("zero", [None, 0, 3])
def test_states_are_too_many_only_where_no_open_choice_would_make_them_fit(zero: int | None) -> None:
    """7 B at 18 B a parameter over eight devices: too much for each unless it is sharded, which stands open."""
    large = replace(LLAMA, layers=32, hidden=4096, heads=32, kv_heads=32, ffn_hidden=11008)
    asked = propose(large, on(8), dp=8, tp=1, pp=1, cp=1, micro_batch=1, zero=zero)
    assert errors(asked) == (["states-exceed-memory"] if zero == 0 else [])


def test_the_heaviest_stage_is_weighed_with_its_part_of_the_experts() -> None:
    names = [unit.name for unit in units_of(MIXTRAL)]
    cut = (tuple(names[:11]), tuple(names[11:]))  # embed and five layers, four of them with experts, then the rest
    tight = replace(on(64), memory_bytes=2 * 2**30)
    whole = propose(MIXTRAL, tight, dp=32, tp=1, pp=2, cp=1, ep=1, zero=0, stages=cut, micro_batch=1)
    said = found(whole)
    spread = replace(whole, wanted=replace(whole.wanted, ep=8))
    assert "heaviest-stage" in said
    assert "heaviest-stage" not in found(spread)
