"""Reading the spans of a run folder."""

from pathlib import Path

import pytest

from meshwright.basics.errors import InputError
from meshwright.timeline.columns import Kind, build
from meshwright.timeline.storage import save
from meshwright.traces.spans import missing_ranks, read_run


def write(folder: Path, rank: int, scale: float = 1.0) -> None:
    (folder / "spans").mkdir(exist_ok=True)
    columns = {"rank": [rank], "start": [5], "end": [9], "kind": [Kind.COMPUTE], "name": [0]}
    mode = "measured" if scale == 1.0 else "dilated"
    save(build(columns, names=(f"rank {rank}",), mode=mode, time_scale=scale), folder / "spans" / f"rank{rank:05d}.npz")


def test_ranks_are_joined_and_missing_ones_named(tmp_path: Path) -> None:
    for rank in (0, 2):
        write(tmp_path, rank)
    line = read_run(tmp_path)
    assert line.recorded == (0, 2)
    assert [line.names[n] for n in line.name] == ["rank 0", "rank 2"]
    assert missing_ranks(line, 4) == (1, 3)


def test_what_is_wrong_is_said(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="recorded no spans"):
        read_run(tmp_path)
    write(tmp_path, 0)
    write(tmp_path, 1, scale=4.0)
    with pytest.raises(InputError, match="different modes"):
        read_run(tmp_path)
    (tmp_path / "spans" / "rank00001.npz").write_bytes(b"no")
    with pytest.raises(InputError, match="not a timeline"):
        read_run(tmp_path)
