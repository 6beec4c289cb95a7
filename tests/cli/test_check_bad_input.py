"""Whatever is wrong with an input of `check`: one clear message, exit 2, or 1 where the answer is no."""

import contextlib
import io
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from meshwright.cli.main import run

JOB = """\
[model]
layers = 4
hidden = 256
heads = 8
vocab = 4096
[cluster]
gpu = "H100-80GB-SXM"
gpus = 4
[batch]
global = 16
seq_len = 128
"""
LARGE = JOB.replace("layers = 4\nhidden = 256", "layers = 96\nhidden = 16384").replace("heads = 8", "heads = 128")


def ended(*arguments: str) -> tuple[int, str, str]:
    """Exit code and the two streams of one command line, in this process."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = run(list(arguments))
    return code, out.getvalue(), err.getvalue()


def config(**values: object) -> Callable[[Path], Path]:
    """A job beside a config.json with these keys."""

    def write(folder: Path) -> Path:
        (folder / "config.json").write_text(json.dumps(values))
        return job(JOB.replace("layers = 4\nhidden = 256\nheads = 8\nvocab = 4096", 'config = "config.json"'))(folder)

    return write


def job(text: str) -> Callable[[Path], Path]:
    def write(folder: Path) -> Path:
        path = folder / "job.toml"
        path.write_text(text)
        return path

    return write


def binary(folder: Path) -> Path:
    path = folder / "job.toml"
    path.write_bytes(bytes(range(256)) * 4)
    return path


def broken_json(folder: Path) -> Path:
    path = config()(folder)
    (folder / "config.json").write_text('{"model_type": "llama", ')
    return path


BAD: dict[str, tuple[Callable[[Path], Path], tuple[str, ...]]] = {
    "a missing file": (lambda folder: folder / "nowhere.toml", ("nowhere.toml", "there is no such file")),
    "a folder": (lambda folder: folder, ("is a folder, not a file",)),
    "binary": (binary, ("is not text in UTF-8",)),
    "not TOML": (job("[model\nlayers = 4"), ("not valid TOML", "line 1")),
    "an empty file": (job(""), ("model", "batch")),
    "a config that is not JSON": (broken_json, ("config.json", "model.config")),
    "a config that is missing": (job('[model]\nconfig = "no.json"\n' + JOB[JOB.index("[cluster]") :]), ("no.json",)),
    "an unknown key": (job(JOB + "[layout]\ntpp = 2"), ("layout.tpp", "unknown key", "did you mean layout.tp?")),
    "an unknown table": (job(JOB + "[layuot]\ntp = 2"), ("layuot", "unknown table", "layout")),
    "a wrong type": (job(JOB + '[layout]\ntp = "2"'), ("layout.tp", "must be a whole number")),
    "a fraction": (job(JOB + "[layout]\ntp = 1.5"), ("layout.tp", "must be a whole number")),
    "negative": (job(JOB + "[layout]\ntp = -2"), ("layout.tp = -2", "must be at least 1")),
    "zero": (job(JOB + "[layout]\npp = 0"), ("layout.pp = 0", "must be at least 1")),
    "not a number": (job(JOB + "[layout]\nbucket_mib = nan"), ("layout.bucket_mib", "finite number")),
    "infinite": (job(JOB + "[training]\nloss_scale = inf"), ("training.loss_scale", "finite number")),
    "10^18 GPUs": (job(JOB.replace("gpus = 4", f"gpus = {10**18}")), ("cluster.gpus", "must be at most")),
    "10^18 layers": (job(JOB.replace("layers = 4", f"layers = {10**18}")), ("model.layers", "must be at most")),
    "10^400 samples": (job(JOB.replace("global = 16", f"global = 1{'0' * 400}")), ("batch.global",)),
    "a loss chunk of zero": (job(JOB + "[layout]\nloss_chunk = 0"), ("layout.loss_chunk", "must be at least 1")),
    "an unknown offload": (job(JOB + '[layout]\noffload = "optimiser"'), ("layout.offload", "'optimizer'")),
    "an unknown schedule": (job(JOB + '[layout]\nschedule = "zbh1"'), ("layout.schedule", "did you mean 'zb-h1'")),
    "an unknown GPU": (job(JOB.replace("H100-80GB-SXM", "H100-80GB-SMX")), ("cluster.gpu", "did you mean 'H100")),
    "an encoder": (config(model_type="bert", hidden_size=768, num_hidden_layers=12, num_attention_heads=12,
                          vocab_size=30522), ("config.json", "model_type", "bert")),
    "a vision model": (config(model_type="vit", hidden_size=768, num_hidden_layers=12, num_attention_heads=12),
                       ("config.json", "model_type", "vit")),
    "a config without a type": (config(hidden_size=768), ("config.json", "model_type")),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_one_clear_message(name: str, tmp_path: Path) -> None:
    write, words = BAD[name]
    path = write(tmp_path)
    code, out, err = ended("check", str(path))
    assert (code, out) == (2, ""), err
    for word in words:
        assert word in err
    assert "Traceback" not in err
    assert len(err) < 4000
    code, out, _ = ended("check", str(path), "--json")
    assert code == 2
    error = json.loads(out)["error"]
    assert error["exit_code"] == 2
    assert error["complaints"]


def test_all_complaints_come_at_once(tmp_path: Path) -> None:
    path = job(JOB.replace("gpus = 4", "gpus = -4").replace("heads = 8", "heads = 0") + "[layout]\ntpp = 2\nzero = 7")(
        tmp_path
    )
    code, _, err = ended("check", str(path))
    assert code == 2
    for field in ("cluster.gpus", "model.heads", "layout.tpp", "layout.zero"):
        assert field in err


def test_a_cluster_that_cannot_hold_the_model_says_how_many_devices_would(tmp_path: Path) -> None:
    code, out, err = ended("check", str(job(LARGE)(tmp_path)))
    assert (code, err) == (1, "")
    assert "[cluster-too-small]" in out
    assert "cluster.gpus = " in out
    assert "or more hold the states" in out
    least = int(out.split("cluster.gpus = ")[1].split()[0])
    enough = f'gpus = {-(-least // 8) * 8}\ninter_node = "ib-ndr"'
    code, out, _ = ended("check", str(job(LARGE.replace("gpus = 4", enough))(tmp_path)))
    assert code == 0, out
    code, _, err = ended("plan", str(job(LARGE)(tmp_path)))
    assert code == 1
    assert "devices of this kind" in err


def test_what_is_wrong_is_said_of_a_plan_as_well(tmp_path: Path) -> None:
    target = tmp_path / "plan.toml"
    assert ended("plan", str(job(JOB)(tmp_path)), "-o", str(target))[0] == 0
    assert ended("check", str(target))[0] == 0
    code, out, _ = ended("check", str(target), "--set", "layout.dp=3")
    assert code == 1
    assert "[world-size]" in out


@pytest.mark.parametrize(
    ("table", "wrong", "named"),
    [
        ("[cluster]", 'gpu = "H100-SXMX"\ngpus = 0', ["cluster.gpu ", "cluster.gpus = 0"]),
        ("[cluster]", 'gpu = "H100-SXM"\ngpus = -1\nintra_node = "nvlink9"', ["cluster.intra_node", "gpus = -1"]),
        ("[cluster]", 'groups = [{gpu = "H10O", gpus = 0}]', ["cluster.groups[0].gpu ", "cluster.groups[0].gpus = 0"]),
        ("[batch]", 'global = "many"\nseq_len = 128', ["batch.global", "cluster.gpu "]),
    ],
)  # fmt: skip
def test_unknown_names_are_reported_beside_ill_typed_values(
    tmp_path: Path, table: str, wrong: str, named: list[str]
) -> None:
    start, _, rest = JOB.partition(f"{table}\n")
    after = rest[rest.find("[") :] if "[" in rest else ""
    text = f"{start}{table}\n{wrong}\n{after}"
    if table == "[batch]":
        text = text.replace("H100-80GB-SXM", "H1000")
    path = tmp_path / "job.toml"
    path.write_text(text)
    code, out, err = ended("check", str(path))
    assert (code, out) == (2, "")
    assert all(one in err for one in named), err
