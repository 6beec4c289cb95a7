"""Errors for people: exit codes, every complaint in one text, nearest names."""

import pytest

from meshwright.basics.errors import AnswerIsNo, Complaint, InputError, RunFailed, bad_input
from meshwright.basics.names import nearest


def test_exit_codes() -> None:
    assert [error.exit_code for error in (AnswerIsNo("no"), bad_input("bad"), RunFailed("died"))] == [1, 2, 3]


def test_a_complaint_names_file_field_value_rule_and_legal_values() -> None:
    complaint = Complaint("layout.tp", "3", "must divide 8", "1, 2, 4, 8", "job.toml")
    assert str(complaint) == "job.toml: layout.tp = 3: must divide 8 (1, 2, 4, 8)"
    assert str(Complaint("", "", "is empty")) == "is empty"


def test_all_complaints_are_shown() -> None:
    error = InputError((Complaint("a", "1", "wrong"), Complaint("b", "2", "wrong too")))
    assert str(error).splitlines() == ["a = 1: wrong", "b = 2: wrong too"]
    with pytest.raises(InputError):
        raise error


@pytest.mark.parametrize(
    ("written", "meant"), [("micro_bach", "micro_batch"), ("TP", "tp"), ("schedul", "schedule"), ("zzzzzz", None)]
)
def test_the_nearest_name(written: str, meant: str | None) -> None:
    assert nearest(written, ["micro_batch", "tp", "schedule"]) == meant
