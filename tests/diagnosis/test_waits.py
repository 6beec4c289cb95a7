"""A receive is transfer only from the moment its sender was done."""

from meshwright.diagnosis.waits import without_waiting
from meshwright.timeline.columns import Action, Kind, Timeline, build


def line(receive: dict[str, int], sequence: int = -1, group: int = 0) -> Timeline:
    begin, done = receive["start"], receive["end"]
    columns = {
        "rank": [0, 1, 1], "start": [0, begin, done], "end": [50, done, done + 9],
        "kind": [Kind.COMPUTE, Kind.COMMUNICATION, Kind.COMPUTE], "action": [Action.FORWARD] * 3,
        "stage": [0, 1, 1], "micro_batch": [0, 0, 0], "step": [2, 2, 2], "name": [0, 1, 0],
        "group": [-1, group, -1], "sequence": [-1, sequence, -1],
    }  # fmt: skip
    return build(columns, names=("forward", "receive activation"), groups=((0, 1),), mode="measured")


def test_waiting_for_the_sender_is_taken_out() -> None:
    assert without_waiting(line({"start": 5, "end": 56})).start.tolist() == [0, 50, 56]
    assert without_waiting(line({"start": 5, "end": 56}, group=-1)).start.tolist() == [0, 50, 56]


def test_a_late_receive_and_a_collective_stay_whole() -> None:
    assert without_waiting(line({"start": 52, "end": 56})).start.tolist() == [0, 52, 56]
    assert without_waiting(line({"start": 5, "end": 56}, sequence=3)).start.tolist() == [0, 5, 56]


def test_without_the_senders_spans_nothing_is_guessed() -> None:
    source = line({"start": 5, "end": 56})
    assert without_waiting(source.select(source.rank == 1)).start.tolist() == [5, 56]
