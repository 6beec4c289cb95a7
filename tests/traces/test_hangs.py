"""Evidence of hangs: any dump and any line is read or refused in a line."""

import json
import pickle
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.traces.made_exports import answers_or_says

from meshwright.diagnosis.hangs import diagnose_hangs, shift_of
from meshwright.traces.hangs import Call

ODD = st.none() | st.booleans() | st.integers(-5, 2**70) | st.text(max_size=5) | st.just([[2, 3]]) | st.just([["x"]])
ENTRY = st.dictionaries(
    st.sampled_from(
        ["collective_seq_id", "process_group", "pg_id", "profiling_name", "input_sizes", "state", "is_p2p"]
    ),
    ODD | st.lists(ODD, max_size=2),
)
DUMP = st.fixed_dictionaries(
    {"entries": st.lists(ENTRY | ODD, max_size=6)},
    optional={"pg_config": st.dictionaries(st.text(max_size=2),
                                           st.dictionaries(st.sampled_from(["ranks", "desc"]), ODD)),
              "rank": ODD},
)  # fmt: skip
WORDS = st.sampled_from(
    ["[Rank 3]", "[rank99999999]:", "Watchdog caught collective operation timeout: WorkNCCL(SeqNum=4, OpType=X,",
     "NumelIn=7)", "SeqNum=", "6/8 clients joined", "9/0 clients joined", "Ranks 1,, failed to pass monitoredBarrier",
     "last enqueued NCCL work: 3", "nranks 99999999", "Timed out waiting 5ms", "overflow, loss scale", "step 7",
     "1e999", "Connection closed by peer", "\x00", "é"]
)  # fmt: skip


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(DUMP, min_size=1, max_size=3), st.booleans())
def test_any_dump(tmp_path: Path, dumps: list[Any], as_json: bool) -> None:
    files = []
    for rank, dump in enumerate(dumps):
        files.append(tmp_path / f"trace_rank_{rank}")
        files[-1].write_bytes(json.dumps(dump).encode() if as_json else pickle.dumps(dump))
    answers_or_says(lambda: diagnose_hangs(files, [], None))


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.lists(WORDS, max_size=5).map(" ".join), max_size=8))
def test_any_line(tmp_path: Path, lines: list[str]) -> None:
    log = tmp_path / "a.log"
    log.write_text("\n".join(lines))
    answers_or_says(lambda: diagnose_hangs([], [log], None))


@given(st.lists(st.tuples(st.sampled_from("ab"), st.integers(1, 4)), min_size=8, max_size=30), st.data())
def test_a_shift_is_found_in_both_directions(calls: list[tuple[str, int]], data: st.DataObject) -> None:
    at = data.draw(st.integers(1, len(calls) - 5))
    theirs = {k: Call(k, *call, "completed") for k, call in enumerate(calls)}
    fewer = {k: Call(k, *call, "completed") for k, call in enumerate(calls[:at] + calls[at + 1 :])}
    more = {k: Call(k, *call, "completed") for k, call in enumerate([*calls[:at], ("c", 9), *calls[at:]])}
    if len(set(calls[at + 1 :])) > 1:
        assert shift_of(fewer, theirs, at) == -1 or calls[at:-1] == calls[at + 1 :]
    if len(set(calls[at:])) > 1:
        assert shift_of(more, theirs, at) == 1
