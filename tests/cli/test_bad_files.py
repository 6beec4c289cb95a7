"""Whatever lies in the file: one JSON object, an exit code of the table, never a traceback."""

import contextlib
import io
import json
import tempfile
from pathlib import Path

from hypothesis import example, given, settings
from hypothesis import strategies as st

from meshwright.cli.main import run

JOB = {
    "format": ["1"],
    "model.layers": ["4", "1", "1001"],
    "model.hidden": ["64", "1"],
    "model.heads": ["4", "3"],
    "model.kv_heads": ["2", "5"],
    "model.vocab": ["512"],
    "model.experts": ["0", "8"],
    "model.active_experts": ["0", "2"],
    "cluster.gpu": ["'A100-40GB-SXM'", "'local'", "'B999'"],
    "cluster.gpus": ["4", "8", "1000000"],
    "cluster.inter_node": ["'ib-hdr'", "12.5"],
    "batch.global": ["8", "7", "1000000"],
    "batch.seq_len": ["32", "1", "1000000000"],
    "batch.micro_batch": ["1", "3"],
    "batch.micro_batches": ["4", "8"],
    "layout.dp": ["2", "5", "1000000"],
    "layout.tp": ["1", "3", "8"],
    "layout.pp": ["2", "1", "64"],
    "layout.vpp": ["1", "2"],
    "layout.cp": ["1", "2"],
    "layout.ep": ["1", "4"],
    "layout.zero": ["0", "3"],
    "layout.schedule": ["'1f1b'", "'zbv'", "'interleaved'"],
    "layout.recompute": ["'full'", "'selective'"],
    "layout.recompute_layers": ["2"],
    "layout.stages": [
        "[['embed', 'layers.0-1'], ['layers.2-3', 'head']]",
        "[['embed', 'layers.0-3', 'head']]",
        "[]",
        "[['embed']]",
        "[['head'], ['embed']]",
        "[[]]",
    ],
    "layout.placement": ["[0, 1]", "[]", "[7]", "[1, 0]"],
    "training.precision": ["'bf16'", "'fp8'", "'fp32'"],
    "training.task": ["'pretrain'", "'lora'"],
    "layout.shard_group": ["2", "3"],
    "layout.gradient_exchange": ["'micro-batch'", "'step'"],
    "layout.offload": ["'none'", "'optimizer'", "'parameters'"],
    "layout.vocab_parallel": ["true", "false"],
    "layout.loss_chunk": ["16", "1000"],
    "layout.vocab_multiple": ["1", "128"],
    "training.loss_scale": ["1024.0"],
    "training.gradient_dtype": ["'fp32'", "'bf16'"],
    "training.lora_rank": ["8", "100000"],
    "training.expert_imbalance": ["1.0", "3.0"],
    "tune.change": ["['stages']", "['x']"],
}
NEEDED = {"model.layers", "model.hidden", "model.heads", "model.vocab", "batch.global", "batch.seq_len", "cluster.gpus"}
NONSENSE = ["-1", "0", "nan", "true", "'x'", "[]", "{}", "1e300", "999999999999999999999", "1979-05-27", '"\\u0000"']


@st.composite
def job_texts(draw: st.DrawFn) -> str:
    """A job of keys that are often right and sometimes nonsense."""
    tables: dict[str, list[str]] = {}
    for key, values in JOB.items():
        chance = draw(st.integers(0, 99))
        if chance == 99:
            value = draw(st.sampled_from(NONSENSE))
        elif chance >= 85:
            value = draw(st.sampled_from(values))
        elif chance >= 25 or key in NEEDED:
            value = values[0]
        else:
            continue
        table, _, name = key.rpartition(".")
        tables.setdefault(table, []).append(f"{name} = {value}")
    lines = tables.pop("", [])
    for table, rows in tables.items():
        lines += [f"[{table}]", *rows]
    return "\n".join(lines)


def _ended(arguments: list[str]) -> tuple[int, str, str]:
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = run(arguments)
    return code, out.getvalue(), err.getvalue()


def _check(text: str, verb: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "job.toml"
        path.write_text(text, encoding="utf-8", errors="surrogatepass")
        code, out, err = _ended([verb, str(path), "--json"])
        assert code in (0, 1, 2), err
        assert "Traceback" not in err
        answer = json.loads(out)
        assert answer["format"] == 1
        if code == 2:
            assert answer["error"]["complaints"], answer
        code, _, err = _ended([verb, str(path)])
        assert code in (0, 1, 2)
        assert "Traceback" not in err


@settings(max_examples=60, deadline=None)
@given(job_texts())
@example("")
@example("a" * 5000)
@example("x = " + "[" * 2000)
@example("model = 3\nbatch = 4")
@example("[model]\nparams = '1.2B'\n[batch]\nglobal = 8\nseq_len = 8\n[cluster]\ngroups = 3")
def test_check(text: str) -> None:
    _check(text, "check")


@settings(max_examples=30, deadline=None)
@given(job_texts())
def test_predict(text: str) -> None:
    _check(text, "predict")


@settings(max_examples=30, deadline=None)
@given(st.text(max_size=40))
def test_any_override(text: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "job.toml"
        path.write_text("[model]\nlayers = 2\nhidden = 8\nheads = 2\nvocab = 9\n[batch]\nglobal = 2\nseq_len = 4\n")
        code, out, err = _ended(["check", str(path), "--json", "--set", text])
        assert code in (0, 1, 2), err
        assert "Traceback" not in err
        json.loads(out)
