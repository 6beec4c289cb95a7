"""Patches to plans: the batch equation follows, unknown keys are named, and differences invert patches."""

import pytest

from meshwright.basics.errors import InputError
from meshwright.basics.figures import Constant
from meshwright.cluster.device import Device, Link
from meshwright.cluster.topology import Cluster
from meshwright.files.patch import apply, difference
from meshwright.files.plan import Plan
from meshwright.files.setup import Setup
from meshwright.layout.batch import Batch
from meshwright.layout.degrees import Layout
from meshwright.layout.proposal import Proposal, Wanted
from meshwright.model.architecture import Architecture
from meshwright.model.training import Training

ONE = Constant(1.0, "guessed")
LINK = Link("any", ONE, ONE)
DEVICE = Device("any", "cpu", 2**30, {"fp32": ONE}, ONE, ONE, ONE)
ARCH = Architecture("tiny", "llama", 2, 64, 4, 2, 16, 128, 256)


@pytest.fixture
def plan() -> Plan:
    cluster = Cluster(DEVICE, 4, 4, LINK, LINK, 2**30)
    stages = (("embed", "layers.0.attn", "layers.0.ffn"), ("layers.1.attn", "layers.1.ffn", "head"))
    proposal = Proposal(ARCH, cluster, Training(), 16, 32, Wanted())
    return Plan(Setup("tiny", proposal), Layout(stages, (0, 1), dp=2, pp=2), Batch(16, 2, 4, 32))


def test_micro_batches_follow_from_the_batch_equation(plan: Plan) -> None:
    after = apply(plan, {"batch.micro_batch": 4})
    assert (after.batch.micro_batch, after.batch.micro_batches) == (4, 2)
    assert after.setup.proposal.wanted.micro_batches == 2


def test_lists_become_tuples_as_values_hold_them(plan: Plan) -> None:
    stages = [["embed"], ["layers.0.attn", "layers.0.ffn", "layers.1.attn", "layers.1.ffn", "head"]]
    assert apply(plan, {"layout.stages": stages}).layout.stages == tuple(map(tuple, stages))


def test_a_micro_batch_that_does_not_divide_is_refused_with_the_equation(plan: Plan) -> None:
    with pytest.raises(InputError, match="global 16 = micro_batch 3"):
        apply(plan, {"batch.micro_batch": 3})


def test_every_unknown_key_is_named_with_its_neighbour(plan: Plan) -> None:
    with pytest.raises(InputError) as caught:
        apply(plan, {"layout.recomputee": "none", "layout.zerro": 1})
    assert "layout.recompute?" in str(caught.value)
    assert "layout.zero?" in str(caught.value)


def test_the_difference_of_two_plans_is_the_patch_between_them(plan: Plan) -> None:
    change = {"layout.recompute": "full", "batch.micro_batch": 8}
    after = apply(plan, change)
    assert difference(plan, after) == change
    assert difference(plan, plan) == {}
