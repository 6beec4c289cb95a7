"""Case E14 from a log: few early skips are harmless, a scale at the floor is not."""

from pathlib import Path

import pytest

from meshwright.diagnosis.inputs import diagnose_inputs

DEEPSPEED = "[deepspeed] OVERFLOW! Rank 0 Skipping step. Attempted loss scale: {old}, reducing to {new}\n"


def test_e14_few_early_skips_are_harmless(tmp_path: Path) -> None:
    lines, scale = [], 2.0**32
    for step in range(1, 1001):
        if step <= 6 or step in (500, 501):
            lines.append(DEEPSPEED.format(old=scale, new=scale / 2))
            scale /= 2
        else:
            lines.append(f"step {step} loss 2.5\n")
    log = tmp_path / "train.log"
    log.write_text("".join(lines))
    found = diagnose_inputs([log])
    assert not found.findings
    (figures,) = found.tables.values()
    assert figures["verdict"] == "harmless"  # type: ignore[index]
    assert figures["skipped"] == 8  # type: ignore[index]
    assert figures["longest_row"] == 6  # type: ignore[index]
    assert any("harmless" in note for note in found.abstained)


@pytest.mark.parametrize("line", [
    "step {step}: overflow in layers.3.ffn, skipped, loss scale {new}\n",
    "iteration {step} | gradient overflow, skipping | loss_scale: {new:.1f}\n",
])  # fmt: skip
def test_e14_sixteen_halvings_to_the_floor(tmp_path: Path, line: str) -> None:
    log = tmp_path / "train.log"
    log.write_text(
        "".join(f"step {step} loss 2.5\n" for step in range(1, 220))
        + "".join(line.format(step=220 + k, new=2.0 ** (15 - k)) for k in range(16))
    )
    (finding,) = diagnose_inputs([log]).findings
    assert finding.kind == "loss scale at the floor"
    assert finding.evidence["first_bad_step"] == 220
    assert finding.evidence["lowest_scale"] == 1
    assert finding.change == {"training.precision": "bf16"}
    if "layers.3.ffn" in line:
        assert finding.evidence["where"] == "layers.3.ffn"


def test_e14_twenty_in_a_row_without_a_scale(tmp_path: Path) -> None:
    log = tmp_path / "train.log"
    log.write_text("".join(f"step {step}: gradient overflow, step skipped (scale kept)\n" for step in range(50, 71)))
    (finding,) = diagnose_inputs([log]).findings
    assert finding.evidence["row"] == 21
