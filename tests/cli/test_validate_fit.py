"""`meshwright validate --fit`: a machine's figures from its own rows, used by the other verbs."""

from pathlib import Path

import pytest

from .test_validate import BASE, Run, predictions, table


def many(folder: Path, count: int, slower: float) -> Path:
    """Rows of one machine whose steps take so many times what is predicted, in turn a percent more and less."""
    rows = [{**BASE, "id": f"r{n}", "layers": "24", "hidden": "4096", "heads": "32", "global_batch": str(8 * (n + 1)),
             "dp": "8" if n % 2 else "4", "tp": "1" if n % 2 else "2"} for n in range(count)]  # fmt: skip
    found = predictions(folder, rows)
    for n, (row, one) in enumerate(zip(rows, found, strict=True)):
        row["step_time_s"] = repr(float(one["predicted_step_time_s"]) * slower * (1.01 if n % 2 else 0.99))
    return table(folder, rows)


def test_fit_writes_a_machine_that_predicts_like_the_rows(meshwright: Run, tmp_path: Path) -> None:
    path = many(tmp_path, 12, slower=1.25)
    ended_fit = meshwright("validate", path.name, "--fit", "machine.toml", "--json")
    assert ended_fit.code == 0, ended_fit.err
    fit = ended_fit.json()["fit"]
    assert fit["written"] == "machine.toml"
    assert fit["median_error_before"] == pytest.approx(0.2, abs=0.02)
    assert fit["median_error_left_out"] < 0.05
    job = (
        "[model]\nlayers = 24\nhidden = 4096\nheads = 32\nvocab = 51200\n[batch]\nglobal = 64\nseq_len = 2048\n"
        'micro_batch = 1\n[layout]\ndp = 8\ntp = 1\npp = 1\n[cluster]\ngpus = 8\ngpu = "A100-80GB"\n'
    )
    (tmp_path / "plain.toml").write_text(job)
    (tmp_path / "mine.toml").write_text(job + 'machine = "machine.toml"\n')
    plain, mine = (meshwright("predict", name, "--json").json() for name in ("plain.toml", "mine.toml"))
    assert mine["step_time_s"] / plain["step_time_s"] == pytest.approx(1.25, abs=0.05)
    assert mine["mfu"] / plain["mfu"] == pytest.approx(1 / 1.25, abs=0.05)  # of the data sheet's peak
    assert mine["origins"]["peak_flops"] == "fitted"
    again = meshwright("validate", path.name, "--fit", "machine.toml", "--json")
    assert again.code == 2
    assert "exists already" in again.err


def test_too_few_rows_are_a_no_with_the_reason(meshwright: Run, tmp_path: Path) -> None:
    path = many(tmp_path, 4, slower=1.25)
    found = meshwright("validate", path.name, "--fit", "machine.toml")
    assert found.code == 1
    assert "4 configurations have a measured step time: at least 10" in " ".join(found.out.split())
    assert not (tmp_path / "machine.toml").exists()
