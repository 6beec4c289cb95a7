"""Schedules against torch's own orders, against their papers' memory, and as deadlock-free runs on any placement."""

from collections import Counter
from typing import get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from meshwright.basics.errors import InputError
from meshwright.layout.degrees import SCHEDULES, Schedule
from meshwright.layout.schedules import (
    SPLIT_BACKWARD,
    V_SHAPED,
    PipelineAction,
    actions,
    default_placement,
    in_flight,
    is_standard,
    micro_batch_rule,
    peak_live,
)
from meshwright.layout.schedules_list import list_schedule, live_limits

SINGLE = {"gpipe": "ScheduleGPipe", "1f1b": "Schedule1F1B"}
MULTI = {
    "interleaved": "ScheduleInterleaved1F1B", "looped-bfs": "ScheduleLoopedBFS",
    "zb-h1": "ScheduleInterleavedZeroBubble", "zbv": "ScheduleZBVZeroBubble", "dualpipev": "ScheduleDualPipeV",
}  # fmt: skip


KINDS = {"FORWARD": "F", "FULL_BACKWARD": "B", "BACKWARD_INPUT": "I", "BACKWARD_WEIGHT": "W"}


def torch_orders(schedule: str, pp: int, vpp: int, m: int) -> list[list[str]]:
    """The compute actions of torch's schedule, as text, for each rank; overlapped pairs written one after the other."""
    schedules = pytest.importorskip("torch.distributed.pipelining.schedules")
    mock = pytest.importorskip("unittest.mock")
    stages = []
    for chunk in range(vpp):
        stage = mock.MagicMock(group_size=pp, group_rank=0, num_stages=pp * vpp, stage_index=pp * chunk, is_last=False)
        stage.submod = None
        stages.append(stage)
    if schedule in SINGLE:
        made = getattr(schedules, SINGLE[schedule])(stages[0], m, loss_fn=lambda *_: None)
        order = made._get_pipeline_order()
    else:
        order = getattr(schedules, MULTI[schedule])(stages, m, loss_fn=lambda *_: None).pipeline_order
    texts = []
    for rank in range(pp):
        flat = []
        for action in order[rank]:
            for part in () if action is None else (action.sub_actions or (action,)):
                if part.computation_type.name in KINDS:
                    kind, i = KINDS[part.computation_type.name], part.microbatch_index
                    if schedule == "1f1b" and rank == pp - 1 and kind == "F":
                        i -= 1  # this table numbers the last rank's forwards from 1; the run itself begins with 0
                    flat.append(f"{part.stage_index}{kind}{i}")
        texts.append(flat)
    return texts


def grid(schedule: str) -> list[tuple[int, int, int]]:
    cases = []
    for pp in (1, 2, 3, 4, 5, 8):
        for vpp in (1,) if schedule in SINGLE else (2,) if schedule in V_SHAPED else (1, 2, 3):
            for m in (1, 2, 3, 4, 6, 8, 10, 12, 16, 17, 24):
                if schedule == "1f1b" and m < pp:
                    continue  # torch refuses
                if schedule in ("interleaved", "zb-h1") and m % max(1, m // pp):
                    continue
                if schedule == "dualpipev" and m < 2 * pp:
                    continue
                cases.append((pp, vpp, m))
    return cases


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_orders_are_torchs(schedule: Schedule) -> None:
    for pp, vpp, m in grid(schedule):
        ours = actions(schedule, default_placement(schedule, pp, vpp), m)
        assert [[str(action) for action in order] for order in ours] == torch_orders(schedule, pp, vpp, m), (pp, vpp, m)


def run_blocking(orders: tuple[tuple[PipelineAction, ...], ...], stages: int) -> int:
    """Execute the orders, each rank waiting for what its next action needs; the number of actions that got done."""
    done: set[tuple[int, str, int]] = set()
    at = [0] * len(orders)
    moved = True
    while moved:
        moved = False
        for rank, order in enumerate(orders):
            while at[rank] < len(order):
                stage, kind, i = order[at[rank]]
                needs = {
                    "F": [(stage - 1, "F", i)] if stage else [],
                    "W": [(stage, "I", i)],
                }.get(kind, [(stage, "F", i), *([(stage + 1, "back", i)] if stage < stages - 1 else [])])
                if any(need not in done for need in needs):
                    break
                done.add((stage, kind, i))
                if kind in "BI":
                    done.add((stage, "back", i))
                at[rank] += 1
                moved = True
    return sum(at)


def check_complete(schedule: Schedule, placement: tuple[int, ...], m: int) -> None:
    orders = actions(schedule, placement, m)
    stages = len(placement)
    seen = Counter(action for order in orders for action in order)
    assert max(seen.values()) == 1
    for rank, order in enumerate(orders):
        assert all(placement[action.stage] == rank for action in order)
    for stage in range(stages):
        for i in range(m):
            kinds = "".join(kind for kind in "FBIW" if seen[PipelineAction(stage, kind, i)])
            assert kinds in ("FB", "FIW"), (stage, i, kinds)
    assert run_blocking(orders, stages) == sum(map(len, orders))


@st.composite
def placements(draw: st.DrawFn) -> tuple[int, ...]:
    ranks = draw(st.integers(1, 5))
    rest = draw(st.lists(st.integers(0, ranks - 1), max_size=7))
    return tuple(draw(st.permutations([*range(ranks), *rest])))


@settings(max_examples=150, deadline=None)
@given(schedule=st.sampled_from(SCHEDULES), placement=placements(), m=st.integers(1, 11))
def test_any_placement_completes_without_deadlock(schedule: Schedule, placement: tuple[int, ...], m: int) -> None:
    check_complete(schedule, placement, m)


@settings(max_examples=60, deadline=None)
@given(schedule=st.sampled_from(SCHEDULES), pp=st.integers(1, 6), vpp=st.integers(1, 3), m=st.integers(1, 14))
def test_standard_placements_complete_for_any_count(schedule: Schedule, pp: int, vpp: int, m: int) -> None:
    check_complete(schedule, default_placement(schedule, pp, 2 if schedule in V_SHAPED else vpp), m)


@pytest.mark.parametrize("placement", [(0, 1, 0, 1, 0, 1, 0, 1), (0, 0, 1), (1, 0), (0, 1, 2, 0, 2), (2, 0, 1, 1)])
def test_list_scheduling_keeps_1f1b_memory(placement: tuple[int, ...]) -> None:
    orders = actions("1f1b", placement, 12)
    limits = live_limits(placement)
    for order in orders:
        live: Counter[int] = Counter()
        for stage, kind, _ in order:
            live[stage] += {"F": 1, "B": -1}[kind]
            assert live[stage] <= limits[stage]


def test_list_scheduling_finds_1f1b_by_itself() -> None:
    for pp in range(1, 7):
        for m in (1, 2, 5, 9):
            assert list_schedule(range(pp), m) == actions("1f1b", range(pp), m)


def test_placements() -> None:
    assert default_placement("interleaved", 3, 2) == (0, 1, 2, 0, 1, 2)
    assert default_placement("zbv", 3, 2) == (0, 1, 2, 2, 1, 0)
    assert default_placement("1f1b", 4) == (0, 1, 2, 3)
    assert is_standard("interleaved", (0, 1, 0, 1))
    assert not is_standard("1f1b", (0, 1, 0, 1))
    assert not is_standard("1f1b", (1, 0))
    assert not is_standard("zbv", (0, 1, 0, 1))
    with pytest.raises(InputError, match="two chunks"):
        default_placement("dualpipev", 4, 1)
    with pytest.raises(InputError, match="at least one stage"):
        actions("1f1b", (0, 2), 4)
    with pytest.raises(InputError, match="at least one micro-batch"):
        actions("1f1b", (0, 1), 0)


def test_live_micro_batches_of_the_papers() -> None:
    for pp, m in ((4, 8), (4, 2), (8, 8)):
        assert in_flight(actions("1f1b", range(pp), m)) == tuple(min(m, pp - s) for s in range(pp))
        assert in_flight(actions("gpipe", range(pp), m)) == (m,) * pp
    # Narayanan et al. 2021: (p + (v - 1) p ...) rank 0 of an interleaved schedule holds (v - 1) p + 2 (p - 1) + 1
    assert in_flight(actions("interleaved", default_placement("interleaved", 4, 2), 8))[0] == 4 + 2 * 3 + 1
    # Qi et al. 2024: ZB-V holds as much as 1F1B, p stages' worth = 2 p half-sized chunks, on every rank
    assert in_flight(actions("zbv", default_placement("zbv", 4, 2), 16)) == (8, 8, 8, 8)
    # ZB-H1: at most 1F1B's p of the first rank
    assert max(in_flight(actions("zb-h1", range(4), 8))) == 4
    assert peak_live(actions("1f1b", range(2), 4), [10.0, 3.0]) == (20.0, 3.0)


def test_legal_micro_batch_counts() -> None:
    assert micro_batch_rule("interleaved", 4, 2, 8) is None
    assert "8 or 12" in str(micro_batch_rule("interleaved", 4, 2, 10))
    assert "(legal: 6)" in str(micro_batch_rule("interleaved", 6, 2, 3))
    assert "2 · pp = 8" in str(micro_batch_rule("dualpipev", 4, 2, 7))
    assert micro_batch_rule("dualpipev", 4, 2, 8) is None
    assert micro_batch_rule("1f1b", 8, 1, 1) is None
    assert "at least one" in str(micro_batch_rule("gpipe", 2, 1, 0))
    assert set(SPLIT_BACKWARD) <= set(get_args(Schedule))
