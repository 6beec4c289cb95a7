"""What kind of memory figure a row prints."""

from typing import Any

import pytest

from meshwright.files.prediction import StageMemory
from meshwright.files.rows import Row
from meshwright.planner.rows_memory import counted, memory_figure, predicted_gib, ran_out


def _row(**values: Any) -> Row:
    return Row(line=1, **{"peak_memory_gib": 50.0, **values})


@pytest.mark.parametrize(
    ("values", "kind", "low"),
    [
        ({"peak_memory_stated": "50 GiB = max over ranks of torch.cuda.max_memory_allocated"}, "allocated", 50.0),
        ({"peak_memory_stated": "50 GB (script: maximum over ranks of max reserved)"}, "reserved", 46.566),
        ({"peak_memory_stated": "51200 MiB (nvidia-smi)"}, "device", 50.0),
        ({"peak_memory_stated": "50 (unit not printed; 20% of device memory = 288)"}, "device", 46.566),
        ({"peak_memory_stated": "50GB"}, "allocated", 46.566),
        ({"peak_memory_stated": ""}, "allocated", 46.566),
        ({"peak_memory_stated": "50GB", "framework": "Megatron-DeepSpeed"}, "device", 46.566),
    ],
)
def test_kinds_and_readings(values: dict[str, str], kind: str, low: float) -> None:
    figure = memory_figure(_row(**values))
    assert figure is not None
    assert figure.kind == kind
    assert figure.low_gib == pytest.approx(low, rel=1e-4)  # 1 GB is 0.93132 GiB


def test_the_nearer_reading_counts() -> None:
    figure = memory_figure(_row(peak_memory_stated="50 GB"))
    assert figure is not None
    assert figure.error(48.0) == 0
    assert figure.error(55.0) == pytest.approx(0.1)
    assert figure.error(41.9) == pytest.approx(-0.1, abs=1e-3)


def test_each_kind_counts_its_bytes() -> None:
    gib = 2**30
    stages = tuple(
        StageMemory(rank, (rank,), {"weights": (10 - rank) * gib, "reserve": gib, "context": 2 * gib}, 1)
        for rank in (0, 1)
    )
    assert [counted(stages[0], kind) // gib for kind in ("allocated", "reserved", "device")] == [10, 11, 13]
    device = memory_figure(_row(peak_memory_stated="50 GB (nvidia-smi)"))
    last = memory_figure(_row(peak_memory_stated="50 GB rank-0 peak after iteration 2"))
    assert device is not None
    assert last is not None
    assert predicted_gib(device, stages) == 13
    assert predicted_gib(last, stages[::-1]) == 9  # the first pipeline rank only


def test_out_of_memory_rows() -> None:
    assert ran_out(Row(line=1, peak_memory_stated="OOM"))
    assert not ran_out(Row(line=1, peak_memory_stated="OOM", step_time_s=1.0))
    assert memory_figure(Row(line=1, peak_memory_stated="OOM")) is None
