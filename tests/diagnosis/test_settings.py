"""Case D3: one environment variable, two opposite needs; and other settings that hurt."""

from pathlib import Path

import pytest

from meshwright.diagnosis.inputs import diagnose_inputs
from meshwright.diagnosis.settings import CONNECTIONS, Layout, judge_settings
from meshwright.files.findings import RankSplit
from meshwright.files.resolve import read_setup


def _layout(tp: int = 1, dp: int = 64, zero: int = 0, megatron: bool = False, gpu: bool = True) -> Layout:
    return Layout(dp=dp, tp=tp, zero=zero, nodes=max(1, tp * dp // 8), world=tp * dp, gpu=gpu, megatron=megatron)


def test_d3_one_queue_without_tensor_parallelism() -> None:
    split = RankSplit(3, 1.0, 0.7, 0.3, 0.0, 0.0, 0.3)
    (finding,) = judge_settings({CONNECTIONS: "1"}, _layout(), [split])
    assert finding.change == {f"environment.{CONNECTIONS}": "8"}
    assert "will not overlap compute" in finding.cause
    assert "100% of the communication is exposed, 30% of the step on rank 3" in finding.cause


def test_d3_megatron_wants_one_queue_for_tensor_parallelism() -> None:
    (finding,) = judge_settings({}, _layout(tp=8, dp=1, megatron=True))
    assert finding.change == {f"environment.{CONNECTIONS}": "1"}
    assert not judge_settings({CONNECTIONS: "1"}, _layout(tp=8, dp=1, megatron=True))


def test_d3_native_tensor_parallelism_with_fsdp_does_not() -> None:
    (finding,) = judge_settings({CONNECTIONS: "1"}, _layout(tp=8, dp=8, zero=3))
    assert finding.change == {f"environment.{CONNECTIONS}": "8"}
    assert "only Megatron's own overlap needs it" in finding.cause
    assert not judge_settings({}, _layout(tp=8, dp=8, zero=3))


@pytest.mark.parametrize(("name", "value", "nodes"), [
    ("NCCL_P2P_DISABLE", "1", 1), ("NCCL_IB_DISABLE", "1", 8), ("CUDA_LAUNCH_BLOCKING", "1", 1),
    ("TORCH_DISTRIBUTED_DEBUG", "detail", 1),
])  # fmt: skip
def test_settings_that_hurt(name: str, value: str, nodes: int) -> None:
    (finding,) = judge_settings({name: value}, _layout(dp=8 * nodes))
    assert finding.change == {f"environment.{name}": None}
    assert not judge_settings({name: "0"}, _layout(dp=8 * nodes))
    assert not judge_settings({name: value}, _layout(dp=8 * nodes, gpu=False))


def test_d3_by_the_command_with_a_job(tmp_path: Path) -> None:
    environment, job = tmp_path / "env.txt", tmp_path / "job.toml"
    environment.write_text("PATH=/bin\nexport CUDA_DEVICE_MAX_CONNECTIONS=1\nNCCL_DEBUG=INFO\n")
    job.write_text(
        'format = 1\n[model]\nname = "llama-3-8b"\n[cluster]\ngpu = "H100-80GB-SXM"\ngpus = 64\n'
        'inter_node = "ib-ndr"\n[batch]\nglobal = 64\n'
        "seq_len = 4096\n[layout]\ntp = 1\ndp = 64\n"
    )
    assert any("--job" in note for note in diagnose_inputs([environment]).abstained)
    assert [finding.kind for finding in diagnose_inputs([environment], read_setup(job)).findings] == ["setting"]
