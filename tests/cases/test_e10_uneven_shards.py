"""Case E10: rows that ranks do not divide, and ranks that have none, survive a checkpoint in any layout."""

from pathlib import Path

import pytest

from meshwright.basics.errors import RunFailed
from meshwright.trainer.pool import Job, Pool

pytest.importorskip("torch", reason="training needs meshwright[train]")

from torch.distributed.checkpoint.metadata import (
    BytesStorageMetadata,
    ChunkStorageMetadata,
    Metadata,
    TensorProperties,
    TensorStorageMetadata,
)

from meshwright.trainer import checkpoint
from meshwright.trainer.checkpoint_files import latest

ROWS = "tests.cases.rows_of"
OVER = [(1, 4), (4, 1), (2, 2), (1, 3), (3, 1), (1, 2), (2, 1), (1, 1)]  # tensor ranks, ranks that share


def job(name: str, over: tuple[int, int], checkpoints: Path) -> Job:
    return Job(f"{ROWS}:{name}", (over, checkpoints), over[0] * over[1], 20.0)


@pytest.mark.slow
def test_e10_rows_1_to_9_over_1_to_4_ranks_of_two_axes(tmp_path: Path, pool: Pool) -> None:
    for over, other in zip(OVER, OVER[1:] + OVER[:1], strict=True):  # 4 -> 3 -> 2 -> 1 -> 4 ranks
        pool.run(job("write", over, folder := tmp_path / str(over)))
        held = latest(folder)
        assert held is not None
        checkpoint.check_volumes(held)
        for reader in (other, (1, 1)):
            assert pool.run(job("read", reader, folder)) == [[]] * (reader[0] * reader[1])


@pytest.mark.parametrize(
    ("chunks", "complete"),
    [
        ([((0, 0), (2, 3)), ((2, 0), (2, 3)), ((4, 0), (2, 3)), ((6, 0), (0, 3))], True),  # 6 rows over 4: 2, 2, 2, 0
        ([((0, 0), (2, 3)), ((4, 0), (2, 3))], False),  # one is missing
        ([((0, 0), (3, 3)), ((0, 0), (3, 3))], False),  # one twice instead
    ],
)
def test_e10_half_a_tensor_is_not_saved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chunks: list, complete: bool
) -> None:
    import torch

    entry = TensorStorageMetadata(
        TensorProperties(torch.float32), torch.Size((6, 3)),
        [ChunkStorageMetadata(torch.Size(offsets), torch.Size(sizes)) for offsets, sizes in chunks],
    )  # fmt: skip
    found = Metadata({"model.w": entry, "other": BytesStorageMetadata()})
    monkeypatch.setattr(checkpoint.FileSystemReader, "read_metadata", lambda self: found)
    if complete:
        checkpoint.check_volumes(tmp_path)
    else:
        with pytest.raises(RunFailed, match=r"elements of model.w \(6, 3\) were written|not complete"):
            checkpoint.check_volumes(tmp_path)
