"""Clusters of several kinds of device: stages are sized to the devices they lie on."""

from meshwright.cluster.catalogue import device, link
from meshwright.cluster.mixed import mixed
from meshwright.cluster.topology import Part
from meshwright.files.setup import Setup
from meshwright.layout.proposal import Proposal, Wanted
from meshwright.model.architecture import Architecture
from meshwright.model.training import Training
from meshwright.planner.candidates import Bench
from meshwright.planner.rank import plan
from meshwright.planner.space import space
from meshwright.predictor.step import predict

ARCH = Architecture("small", "llama", 12, 1024, 8, 8, 128, 2816, 8000)


def setup(names: tuple[str, ...], **wanted: object) -> Setup:
    """Two devices of each kind, in nodes of two."""
    parts = [Part(d, 2, 2, link(d.nvlink or d.pcie), d.memory_bytes) for d in map(device, names)]
    cluster = mixed(parts, link("ib-ndr"), None, 1.0, True)
    proposal = Proposal(ARCH, cluster, Training(), 32, 2048, Wanted(**wanted))  # type: ignore[arg-type]
    return Setup("mixed", proposal, runnable_by="any", risk=0.5)


PIPELINE: dict[str, object] = {
    "pp": 2, "dp": 2, "tp": 1, "cp": 1, "schedule": "1f1b", "recompute": "none", "zero": 0, "micro_batch": 2,
}  # fmt: skip


def test_the_faster_devices_hold_more_layers() -> None:
    """An H100 computes about three times as fast as an A100 in bf16: 989 against 312 TFLOP/s."""
    found = plan(setup(("H100-SXM", "A100-40GB-SXM"), **PIPELINE), top=1).plans[0]
    fast, slow = (len(stage) for stage in found.layout.stages)
    assert 1.5 < fast / slow < 5  # the head lies on the slower one
    assert found.prediction is not None
    idle = found.prediction.stage_compute_s
    assert max(idle) / min(idle) < 1.4  # a layer is a fifth of the slower one


def test_alike_devices_of_two_parts_are_cut_as_one_kind() -> None:
    found = plan(setup(("A100-40GB-SXM", "A100-40GB-SXM"), **PIPELINE), top=1).plans[0]
    assert abs(len(found.layout.stages[0]) - len(found.layout.stages[1])) <= 3


def test_a_faster_part_is_never_slower() -> None:
    def step(*names: str) -> float:
        best = plan(setup(names, **PIPELINE), top=1).plans[0].prediction
        assert best is not None
        return best.step_time_s

    assert step("H100-SXM", "A100-40GB-SXM") < step("A100-40GB-SXM", "A100-40GB-SXM")


def test_equals_trying_everything() -> None:
    job = setup(("H100-SXM", "A100-40GB-SXM"), recompute="none", cp=1)
    bench, least = Bench(job), float("inf")
    for group in space(job).groups:
        for candidate in bench.fitted(group, group.zeros):
            assert bench.floors.of_layout(group, candidate.layout.zero) <= candidate.bound_s * (1 + 1e-9)
            if candidate.fits and bench.refuse(candidate.layout) is None:
                least = min(least, predict(bench.exact(candidate)).step_time_s)
    steps = [one.prediction.step_time_s for one in plan(job).plans if one.prediction]
    assert abs(min(steps) / least - 1) < 1e-9
