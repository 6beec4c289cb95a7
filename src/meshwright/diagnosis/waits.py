"""Receives in a pipeline: what was waiting for the sender to finish is idle time, the rest is transfer."""

from dataclasses import replace

import numpy as np

from meshwright.timeline.columns import Action, Kind, Timeline

_FORWARD, _BACKWARD = 0, 1
_DIRECTION = {
    Action.FORWARD: _FORWARD, Action.BACKWARD: _BACKWARD, Action.INPUT_BACKWARD: _BACKWARD,
}  # fmt: skip


def without_waiting(timeline: Timeline) -> Timeline:
    """The timeline with each pipeline receive shortened to begin when its sender had finished the action.

    A receive is a communication span without a sequence number that belongs to an action of a stage and micro-batch;
    its sender is the stage before (forward) or after (backward). A receive whose sender was not recorded stays whole.
    """
    acts = np.isin(timeline.action, list(_DIRECTION)) & (timeline.stage >= 0) & (timeline.micro_batch >= 0)
    receives = np.flatnonzero(acts & (timeline.kind == Kind.COMMUNICATION) & (timeline.sequence < 0))
    if not len(receives):
        return timeline
    ends: dict[tuple[int, int, int, int, int], int] = {}
    for span in np.flatnonzero(acts & (timeline.kind == Kind.COMPUTE)).tolist():
        key = _key(timeline, span, int(timeline.rank[span]), int(timeline.stage[span]))
        ends[key] = max(ends.get(key, 0), int(timeline.end[span]))
    holders: dict[int, set[int]] = {}
    for rank, _, stage, _, _ in ends:
        holders.setdefault(stage, set()).add(rank)
    start = timeline.start.copy()
    for span in receives.tolist():
        forward = _DIRECTION[Action(int(timeline.action[span]))] == _FORWARD
        sender_stage = int(timeline.stage[span]) + (-1 if forward else 1)
        peers = _peers(timeline, span) or holders.get(sender_stage, set())
        done = [ends[key] for peer in peers if (key := _key(timeline, span, peer, sender_stage)) in ends]
        if done:
            start[span] = min(max(start[span], min(done)), timeline.end[span])
    return replace(timeline, start=start)


def _key(timeline: Timeline, span: int, rank: int, stage: int) -> tuple[int, int, int, int, int]:
    direction = _DIRECTION[Action(int(timeline.action[span]))]
    return rank, int(timeline.step[span]), stage, int(timeline.micro_batch[span]), direction


def _peers(timeline: Timeline, span: int) -> set[int]:
    """The other members of the receive's group, where one was recorded."""
    group = int(timeline.group[span])
    return set(timeline.groups[group]) - {int(timeline.rank[span])} if group >= 0 else set()
