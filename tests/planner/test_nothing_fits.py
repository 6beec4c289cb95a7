"""When nothing fits, what would is said with its figures, and is true."""

import re
from collections.abc import Callable
from dataclasses import replace

import pytest

from meshwright.basics.errors import AnswerIsNo
from meshwright.files.setup import Setup
from meshwright.model.architecture import Architecture
from meshwright.planner.rank import plan

MakeJob = Callable[..., Setup]
SEVEN_B = Architecture("llama-7b", "llama", 32, 4096, 32, 32, 128, 11008, 32000)


def said(job: Setup) -> str:
    with pytest.raises(AnswerIsNo) as no:
        plan(job)
    return no.value.message


def test_offload_is_named_where_states_are_too_large(make_job: MakeJob) -> None:
    """16 B a parameter of 6.7 B are 108 GB: two cards of 40 GB cannot hold them, their CPUs may."""
    job = make_job(SEVEN_B, "A100-40GB-SXM", gpus=2, batch=16)
    message = said(job)
    assert "layout.offload = optimizer" in message
    assert "not predicted" in message
    wanted = replace(job.proposal.wanted, offload="optimizer")
    assert plan(replace(job, proposal=replace(job.proposal, wanted=wanted)), top=1).plans


def test_a_shorter_sequence_is_named_where_activations_are_too_large(make_job: MakeJob) -> None:
    small = Architecture("long", "llama", 4, 2048, 16, 16, 128, 5632, 32000)
    for memory in (12.0, 10.0, 9.0, 8.0, 7.0, 6.0):
        job = make_job(small, "A100-40GB-SXM", gpus=1, batch=4, seq_len=16384, memory_gib=memory)
        try:
            plan(job, top=1)
        except AnswerIsNo as no:
            if re.search(r"batch\.seq_len = 8192", no.message):
                half = replace(job, proposal=replace(job.proposal, seq_len=8192))
                assert plan(half, top=1).plans
                return
    pytest.fail("no memory at which half the sequence fits and all of it does not")
