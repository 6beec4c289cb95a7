"""Collectives of several ranks matched by number, by order where none is recorded, and never by guess."""

from meshwright.timeline.columns import Kind, Timeline, build
from meshwright.traces.match import match_collectives, waits

Row = tuple[int, int, int, int, int]  # rank, start, end, group, sequence


def line(rows: list[Row], groups: tuple[tuple[int, ...], ...], recorded: tuple[int, ...] | None = None) -> Timeline:
    rank, start, end, group, sequence = (list(column) for column in zip(*rows, strict=True))
    columns = {
        "rank": rank, "start": start, "end": end, "group": group, "sequence": sequence,
        "kind": [Kind.COMMUNICATION] * len(rows), "name": [0] * len(rows), "size": [64] * len(rows),
    }  # fmt: skip
    return build(columns, names=("allreduce",), groups=groups, mode="measured", recorded=recorded)


def test_numbers_match_whatever_the_order() -> None:
    found = match_collectives(line([(0, 0, 9, 0, 5), (0, 20, 29, 0, 6), (1, 4, 9, 0, 5), (1, 25, 29, 0, 6)], ((0, 1),)))
    assert [c.number for c in found.whole] == [5, 6]
    assert not found.inferred
    assert not found.partial
    assert not found.notes


def test_equal_names_of_different_groups_stay_apart() -> None:
    rows = [(0, 0, 5, 0, 1), (1, 0, 5, 0, 1), (2, 0, 5, 1, 1), (3, 0, 5, 1, 1)]
    found = match_collectives(line(rows, ((0, 1), (2, 3))))
    assert [sorted(c.spans) for c in found.whole] == [[0, 1], [2, 3]]


def test_order_without_numbers_is_said_to_be_inferred() -> None:
    source = line([(0, 0, 9, 0, -1), (0, 20, 29, 0, -1), (1, 4, 9, 0, -1), (1, 21, 29, 0, -1)], ((0, 1),))
    found = match_collectives(source)
    assert [c.number for c in found.whole] == [0, 1]
    assert found.inferred
    assert "inferred" in found.notes[0]
    assert waits(source, found.whole[0]) == {0: 4, 1: 0}


def test_a_missing_event_is_reported_with_counts() -> None:
    found = match_collectives(line([(0, 0, 9, 0, -1), (0, 20, 29, 0, -1), (1, 4, 9, 0, -1)], ((0, 1),)))
    assert not found.whole
    assert any("rank 0: 2, rank 1: 1" in note for note in found.notes)
    numbered = match_collectives(line([(0, 0, 9, 0, 3), (0, 20, 29, 0, 4), (1, 4, 9, 0, 3)], ((0, 1),)))
    assert [c.number for c in numbered.whole] == [3]
    assert [c.number for c in numbered.partial] == [4]
    assert any("number 4" in note and "rank 1: 0" in note for note in numbered.notes)


def test_ranks_without_a_trace_do_not_count_as_absent() -> None:
    found = match_collectives(line([(0, 0, 9, 0, 3), (1, 4, 9, 0, 3)], ((0, 1, 2),), recorded=(0, 1)))
    assert [sorted(c.spans) for c in found.whole] == [[0, 1]]
