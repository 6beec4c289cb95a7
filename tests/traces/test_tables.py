"""Tables that people write: any text is read, or refused in lines that name file, line and column."""

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.traces.made_exports import says_lines

from meshwright.basics.errors import InputError
from meshwright.diagnosis.inputs import diagnose_inputs
from meshwright.traces.tables import read_csv

HEADERS = (
    "step,rank,phase,ms,tokens,sum_len_sq", "devices,nodes,step_s,tokens_per_s,samples_per_s,global_batch,params_b,gpu",
    "step,layer,rank,expert,tokens",
)  # fmt: skip
CELLS = st.sampled_from(
    [
        "0",
        "1",
        "2",
        "7",
        "100",
        "1e9",
        "-3",
        "nan",
        "inf",
        "1e400",
        "",
        " ",
        "x",
        "forward",
        "step",
        '"',
        "1,5",
        "\0",
        "é",
    ]
)


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.sampled_from(HEADERS), st.lists(st.lists(CELLS, min_size=1, max_size=8), min_size=0, max_size=12))
def test_any_cells_are_read_or_refused(tmp_path: Path, header: str, rows: list[list[str]]) -> None:
    file = tmp_path / "any.csv"
    file.write_text(header + "\n" + "\n".join(",".join(row) for row in rows))
    says_lines(lambda: diagnose_inputs([file]), most=11)


def test_complaints_name_line_and_column(tmp_path: Path) -> None:
    file = tmp_path / "t.csv"
    file.write_text("step,rank,phase,ms\n1,0,forward,10\n1,1,forward,fast\n1,2,forward,-5\n")
    with pytest.raises(InputError) as refusal:
        diagnose_inputs([file])
    first, second = str(refusal.value).split("\n")
    assert "line 3" in first
    assert "ms = fast" in first
    assert "line 4" in second


def test_a_cut_line_is_left_out_and_said(tmp_path: Path) -> None:
    file = tmp_path / "t.csv"
    file.write_text("devices,nodes,step_s\n8,1,1.0\n16,")
    table = read_csv(file, ("devices", "nodes", "step_s"))
    assert len(table) == 1
    assert "cut off" in table.notes[0]
