"""The clock stretches, records and tells who spent what."""

import time

import pytest
import torch

from meshwright.layout.schedules import SPLIT_BACKWARD
from meshwright.timeline.columns import Action, Kind
from meshwright.trainer.clock import Clock, Pace, UnitMeter, default_dilation
from meshwright.trainer.phases import stated_cost
from meshwright.trainer.spans import SpanRecorder


def work(seconds: float) -> None:
    """Use that much CPU time of this thread."""
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass


def recording(pace: Pace) -> tuple[Clock, SpanRecorder]:
    recorder = SpanRecorder(3)
    recorder.on, recorder.step = True, 1
    clock = Clock(recorder)
    clock.pace = pace
    return clock, recorder


def test_dilated_action_lasts_k_times_its_cpu_time() -> None:
    clock, recorder = recording(Pace("dilated", 10.0))
    start = time.monotonic()
    with clock.action(Action.FORWARD, 2, 5):
        work(0.01)
    assert time.monotonic() - start >= 0.1
    timeline = recorder.timeline("dilated", 10.0)
    assert len(timeline) == 1
    assert 0.1e9 <= timeline.end[0] - timeline.start[0] < 0.13e9
    assert (timeline.rank[0], timeline.stage[0], timeline.micro_batch[0], timeline.step[0]) == (3, 2, 5, 1)
    assert (timeline.kind[0], timeline.action[0]) == (Kind.COMPUTE, Action.FORWARD)
    assert timeline.time_scale == 10.0


def test_collective_inside_an_action_is_neither_compute_nor_stretched() -> None:
    clock, recorder = recording(Pace("dilated", 5.0))
    with clock.action(Action.BACKWARD, 0, 0):
        work(0.004)
        with clock.collective("tp sum", (0, 3), 4096):
            time.sleep(0.03)
        work(0.008)
    timeline = recorder.timeline("dilated", 5.0)
    lengths = (timeline.end - timeline.start) / 1e6
    assert timeline.kind.tolist() == [Kind.COMPUTE, Kind.COMMUNICATION, Kind.COMPUTE]
    assert 20 <= lengths[0] < 30
    assert 30 <= lengths[1] < 40
    assert 40 <= lengths[2] < 55
    assert (timeline.start[1:] >= timeline.end[:-1]).all()
    assert (timeline.size[1], timeline.sequence[1], timeline.groups[timeline.group[1]]) == (4096, 0, (0, 3))


def test_collectives_are_numbered_within_their_group_also_while_not_recording() -> None:
    clock, recorder = recording(Pace())
    for on, group in ((False, (0, 1)), (True, (0, 1)), (True, (1, 2)), (True, (0, 1))):
        recorder.on = on
        with clock.collective("all-reduce", group, 8):
            pass
    assert recorder.timeline("measured", 1.0).sequence.tolist() == [1, 0, 2]


def test_emulated_action_lasts_what_its_units_cost() -> None:
    cost = stated_cost({"embed": (0.01, 0.03), "layers.0.attn": (0.02, 0.05)}, {1: ("embed", "layers.0.attn")}, False)
    clock, recorder = recording(Pace("emulated", 1.0, cost))
    for action in (Action.FORWARD, Action.BACKWARD, Action.OPTIMIZER):
        with clock.action(action, 1 if action != Action.OPTIMIZER else -1, 0):
            work(0.001)
    timeline = recorder.timeline("emulated", 1.0)
    lengths = (timeline.end - timeline.start) / 1e6
    assert lengths[0] == pytest.approx(30, abs=0.01)
    assert lengths[1] == pytest.approx(80, abs=0.01)
    assert lengths[2] == pytest.approx(0, abs=0.01)


def test_halves_of_a_backward_cost_a_backward() -> None:
    stages = {0: ("embed",), 1: ("head",)}
    for split in (False, True):
        cost = stated_cost({"embed": (1.0, 2.0), "head": (3.0, 6.0)}, stages, split)
        for stage, whole in ((0, 2.0), (1, 6.0)):
            halves = cost(Action.INPUT_BACKWARD, stage) + cost(Action.WEIGHT_BACKWARD, stage)
            assert halves == cost(Action.BACKWARD, stage) == whole
    assert cost(Action.INPUT_BACKWARD, 0) == 0.0  # tokens have no gradient
    assert "zbv" in SPLIT_BACKWARD


class Slow(torch.autograd.Function):
    """Spends CPU time, forward and backward."""

    @staticmethod
    def forward(ctx, x, seconds):
        ctx.seconds = seconds
        work(seconds)
        return x.clone()

    @staticmethod
    def backward(ctx, grad):
        work(2 * ctx.seconds)
        return grad, None


@pytest.mark.parametrize("again", [frozenset(), frozenset({"b"})])
def test_meter_splits_a_stage_by_unit(again: frozenset[str]) -> None:
    from meshwright.trainer.parallel.recompute import unit_runner

    clock, _ = recording(Pace())
    meter = UnitMeter(clock)
    meter.on = True
    run = unit_runner(meter, again)
    for _ in range(3):
        x = torch.ones(4, requires_grad=True)
        out = run("b", lambda t: Slow.apply(t, 0.004), run("a", lambda t: Slow.apply(t, 0.002), x))
        with meter.backward(("a", "b"), Action.BACKWARD):
            out.sum().backward()
    assert meter.forwards == meter.backwards == {"a": 3, "b": 3}
    mean = {unit: (meter.forward_ns[unit] / 3e6, meter.backward_ns[unit] / 3e6) for unit in "ab"}
    assert mean["a"] == pytest.approx((2, 4), rel=0.4)
    assert mean["b"] == pytest.approx((4, 12 if again else 8), rel=0.4)


def test_meter_shares_out_a_weight_pass_by_matrix_size() -> None:
    clock, _ = recording(Pace())
    meter = UnitMeter(clock)
    meter.on, meter.weights = True, {"a": 1.0, "b": 3.0}
    with meter.backward(("a", "b"), Action.WEIGHT_BACKWARD):
        work(0.008)
    assert meter.backward_ns["b"] == pytest.approx(3 * meter.backward_ns["a"], rel=1e-3)
    assert sum(meter.backward_ns.values()) == pytest.approx(8e6, rel=0.2)
    assert not meter.backwards  # counted with the input half


def test_an_unrecorded_step_leaves_nothing() -> None:
    recorder = SpanRecorder(0)
    clock = Clock(recorder)
    with clock.action(Action.FORWARD, 0, 0):
        pass
    timeline = recorder.timeline("measured", 1.0)
    assert len(timeline) == 0
    assert timeline.recorded == (0,)


def test_default_dilation_leaves_ranks_room() -> None:
    assert default_dilation(8, 2) == 8
    assert default_dilation(2, 8) == 4
