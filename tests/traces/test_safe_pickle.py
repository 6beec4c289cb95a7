"""Pickles of plain values are read; whatever could run code, or claim memory, is refused in a line."""

import os
import pickle
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.traces.made_exports import answers_or_says

from meshwright.basics.errors import InputError
from meshwright.traces.safe_pickle import read_plain_pickle

PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=4),
    max_leaves=20,
)


class _Runs:
    def __reduce__(self) -> Any:
        return os.mkdir, ("made-by-a-pickle",)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(PLAIN, st.integers(2, 5))
def test_plain_values_come_back(tmp_path: Path, value: object, protocol: int) -> None:
    file = tmp_path / "plain"
    file.write_bytes(pickle.dumps(value, protocol))
    assert read_plain_pickle(file) == value


@pytest.mark.parametrize("protocol", range(6))
def test_a_global_is_refused_and_nothing_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, protocol: int) -> None:
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "bad"
    file.write_bytes(pickle.dumps({"segments": [_Runs()]}, protocol))
    with pytest.raises(InputError, match=r"refused, because reading it could run code"):
        read_plain_pickle(file)
    assert not (tmp_path / "made-by-a-pickle").exists()


def test_a_forged_memo_index_claims_no_memory(tmp_path: Path) -> None:
    file = tmp_path / "bomb"
    file.write_bytes(b"\x80\x04]r\xff\xff\xff\x7f.")  # remember the empty list as number 2^31
    assert read_plain_pickle(file) == []


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.binary(max_size=200), st.integers(2, 5))
def test_any_bytes_give_a_value_or_a_line(tmp_path: Path, tail: bytes, protocol: int) -> None:
    file = tmp_path / "any"
    file.write_bytes(bytes([0x80, protocol]) + tail)
    answers_or_says(lambda: read_plain_pickle(file))


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_a_cut_pickle_is_said_to_be_cut(tmp_path: Path, data: st.DataObject) -> None:
    whole = pickle.dumps({"segments": [{"blocks": [1, 2, 3], "device": 0}] * 5, "device_traces": []})
    file = tmp_path / "cut"
    file.write_bytes(whole[: data.draw(st.integers(2, len(whole) - 1))])
    with pytest.raises(InputError, match="pickle"):
        read_plain_pickle(file)
