"""Case C6: experts placed or loaded unevenly, from routing counts."""

from pathlib import Path

import pytest

from meshwright.diagnosis.inputs import diagnose_inputs
from meshwright.files.findings import Diagnosis
from meshwright.files.resolve import read_setup


def _found(path: Path, rows: list[tuple[int, int, int, int, int]]) -> Diagnosis:
    path.write_text("step,layer,rank,expert,tokens\n" + "\n".join(",".join(map(str, row)) for row in rows) + "\n")
    return diagnose_inputs([path])


def test_c6_thirty_experts_on_eight_ranks(tmp_path: Path) -> None:
    holder = [rank for rank in range(7) for _ in range(3)] + [7] * 9
    (finding,) = _found(tmp_path / "r.csv", [(1, 0, holder[e], e, 100) for e in range(30)]).findings
    assert (finding.kind, finding.ranks) == ("experts placed unevenly", (7,))
    assert finding.evidence["max_over_mean"] == pytest.approx(2.4)
    assert finding.evidence["max_over_mean_if_spread"] == pytest.approx(1.07, abs=0.005)
    assert "6 ranks of 4 and 2 of 3" in finding.cause


def test_c6_every_second_rank_without_tokens(tmp_path: Path) -> None:
    slots = [32 * k for k in range(8)]  # 256 experts on 16 ranks of 16; 8 tokens choose the same eight experts
    rows = [(1, 3, e // 16, e, 8 if e in slots else 0) for e in range(256)]
    found = _found(tmp_path / "r.csv", rows)
    (finding,) = found.findings
    assert finding.kind == "expert imbalance"
    assert finding.evidence["rank_max_over_mean"] == pytest.approx(2.0)
    assert finding.evidence["idle_ranks"] == 8
    balanced = [(1, 3, e // 16, e, 4 if e % 16 == 0 else 0) for e in range(256)]  # the mended spacing: 4 each
    assert not _found(tmp_path / "b.csv", balanced).findings


def test_c6_all_tokens_to_one_of_eight(tmp_path: Path) -> None:
    found = _found(tmp_path / "r.csv", [(1, 0, e, e, 4096 if e == 2 else 0) for e in range(8)])
    (finding,) = found.findings
    assert finding.evidence["rank_max_over_mean"] == pytest.approx(8)
    assert finding.evidence["useful_share"] == pytest.approx(0.125)
    assert finding.evidence["activation_memory_ratio"] == pytest.approx(8)
    (layer,) = next(iter(found.tables.values()))  # type: ignore[misc]
    assert layer["worst_case"] == {"all tokens to one rank": 8}


def test_c6_every_layer_is_shown_and_the_worst_named(tmp_path: Path) -> None:
    rows = [(s, layer, e, e, 10 + (30 if layer == 5 and e == 1 else 0)) for s in range(3) for layer in (4, 5)
            for e in range(4)]  # fmt: skip
    found = _found(tmp_path / "r.csv", rows)
    layers = next(iter(found.tables.values()))
    assert [layer["rank_max_over_mean"] for layer in layers] == pytest.approx([1.0, 40 / 17.5])  # type: ignore[attr-defined]
    assert found.findings[0].evidence["layer"] == 5


def test_c6_senders_are_not_holders(tmp_path: Path) -> None:
    rows = [(1, 0, sender, e, 50 if e < 2 else 1) for sender in range(4) for e in range(8)]
    found = _found(tmp_path / "r.csv", rows)
    assert not found.findings
    assert any("senders" in note for note in found.abstained)
    job = tmp_path / "job.toml"
    job.write_text(
        'format = 1\n[model]\nname = "mixtral-8x7b"\n[cluster]\ngpu = "H100-80GB-SXM"\ngpus = 8\n[batch]\nglobal = 8\n'
        "seq_len = 1024\n[layout]\nep = 4\n"
    )
    (finding,) = diagnose_inputs([tmp_path / "r.csv"], read_setup(job)).findings
    assert finding.ranks == (0,)
    assert finding.evidence["rank_max_over_mean"] == pytest.approx(400 / (424 / 4))
