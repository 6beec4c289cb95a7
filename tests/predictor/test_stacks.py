"""Software stacks: the table reads, names with modifiers resolve, unknown names are refused with the nearest."""

from dataclasses import fields

import pytest

from meshwright.basics.errors import InputError
from meshwright.predictor.stacks import MODIFIERS, RUNNER_STACKS, Stack, knobs, stack_named, stacks


def test_every_row_reads_and_says_where_its_habits_come_from() -> None:
    for name, stack in stacks().items():
        assert stack.name == name
        assert len(stack.source) > 20


def test_every_runner_has_a_stack() -> None:
    assert set(RUNNER_STACKS.values()) <= set(stacks())


def test_every_knob_is_documented() -> None:
    text = Stack.__doc__ or ""
    assert [knob for knob in knobs() if knob not in text] == []


def test_modifiers_change_known_knobs_only() -> None:
    known = {field.name for field in fields(Stack)}
    assert all(set(changes) <= known for changes in MODIFIERS.values())
    assert stack_named("megatron-2024+scores").scores_bytes == 2
    assert stack_named("megatron-2024+scores+dropout").scores_bytes == 5  # Korthikanti et al. 2022: 5·a·s²·b
    assert stack_named("megatron-2022+flash").scores_bytes == 0


@pytest.mark.parametrize(
    ("name", "hint"), [("megatron2024", "megatron-2024"), ("torchtitan+flesh", "flash"), ("", "meshwright")]
)
def test_an_unknown_name_is_refused_with_what_is_near(name: str, hint: str) -> None:
    with pytest.raises(InputError, match=hint):
        stack_named(name)
