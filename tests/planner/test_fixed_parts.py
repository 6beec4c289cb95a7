"""What a job fixes is in every plan, whether the search varies it or not."""

import pytest

from meshwright.cluster.catalogue import device, link
from meshwright.cluster.topology import Cluster
from meshwright.files.setup import Setup
from meshwright.layout.proposal import Proposal, Wanted
from meshwright.model.architecture import Architecture
from meshwright.model.training import Training
from meshwright.planner.candidates import Bench
from meshwright.planner.rank import plan
from meshwright.planner.space import NOT_SEARCHED, space

ARCH = Architecture("m", "llama", 8, 512, 8, 8, 64, 1408, 32001)
CLUSTER = Cluster(device("A100-40GB-SXM"), 8, 8, link("nvlink3"), link("ib-hdr"), 40 * 2**30)
VALUES: dict[str, object] = {
    "bucket_mib": 50.0, "overlap": False, "gradient_exchange": "micro-batch", "offload": "optimizer",
    "vocab_parallel": False, "loss_chunk": 512, "vocab_multiple": 128, "recompute_layers": 1, "shard_group": 2,
    "zero": 1, "recompute": "full", "schedule": "gpipe", "sp": True, "tp": 2, "pp": 2, "micro_batch": 2,
}  # fmt: skip


def setup(**wanted: object) -> Setup:
    training = Training()
    return Setup("t", Proposal(ARCH, CLUSTER, training, 64, 1024, Wanted(**wanted)), runnable_by="any")  # type: ignore[arg-type]


@pytest.mark.parametrize("name", VALUES)
def test_each_fixed_part_reaches_every_plan(name: str) -> None:
    value = VALUES[name]
    wanted = {name: value}
    if name == "gradient_exchange":
        wanted["zero"] = 2  # where each micro-batch is the usual time
    if name == "recompute_layers":
        wanted["recompute"] = "full"
    found = plan(setup(**wanted), top=4).plans
    assert found
    for one in found:
        assert getattr(one.batch if name == "micro_batch" else one.layout, name) == value


def test_every_candidate_carries_what_is_not_searched() -> None:
    fixed = {name: VALUES[name] for name in NOT_SEARCHED if name not in ("vocab_parallel", "loss_chunk")}
    fixed["gradient_exchange"] = "step"
    job = setup(**fixed)
    bench = Bench(job)
    groups = space(job, bench.refuse).groups
    assert groups
    for group in groups[:: max(1, len(groups) // 40)]:
        stages = bench.stages(group)
        assert stages is not None
        for zero in group.zeros:
            layout = bench.layout(group, zero, stages)
            assert {name: getattr(layout, name) for name in fixed} == fixed


def test_what_no_framework_does_is_said() -> None:
    from meshwright.basics.errors import AnswerIsNo

    with pytest.raises(AnswerIsNo, match="logits of a micro-batch at once"):
        plan(Setup("t", setup(loss_chunk=512).proposal, runnable_by="megatron"))


@pytest.mark.parametrize("vpp", [1, 2, 3, 4])
def test_fixed_chunks_leave_the_schedules_that_run_so_many(vpp: int) -> None:
    found = space(setup(pp=2, vpp=vpp)).groups
    assert {group.vpp for group in found} == {vpp}
    schedules = {group.schedule for group in found}
    assert schedules & {"1f1b", "gpipe"} == ({"1f1b", "gpipe"} if vpp == 1 else set())
    assert schedules & {"zbv", "dualpipev"} == ({"zbv", "dualpipev"} if vpp == 2 else set())


def test_a_placement_does_not_change_the_fixed_pipeline() -> None:
    assert {group.structure.pp for group in space(setup(placement=(0, 1))).groups} == {2}
    assert not space(setup(pp=1, placement=(0, 1))).groups
