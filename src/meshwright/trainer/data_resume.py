"""Does a run that goes on read on where it stopped? Its place in the data is one number only while the order is."""

import shutil
from pathlib import Path

from meshwright.basics.errors import Complaint
from meshwright.files.plan import Plan
from meshwright.files.strict_json import load_as
from meshwright.trainer.data import HEADER, Header

KEPT = "tokens.json"  # in the run folder: the header of the tokens that it read


def keep_header(tokens: Path, run: Path) -> None:
    """Leave in the run folder what a later attempt compares its tokens with. Raises OSError."""
    shutil.copyfile(tokens / HEADER, run / KEPT)


def changed_data(then: Plan, now: Plan, run: Path, tokens: Path | None) -> list[Complaint]:
    """What would make the steps to come repeat or skip samples: another batch, order, way of cutting, or text."""
    before, after = then.setup, now.setup
    compared = (
        ("batch.global", before.proposal.global_batch, after.proposal.global_batch),
        ("batch.seq_len", before.proposal.seq_len, after.proposal.seq_len),
        ("training.seed", before.proposal.training.seed, after.proposal.training.seed),
        ("data.pack", before.data.pack, after.data.pack),
    )
    rule = "would repeat or skip text: the run was trained with another"
    found = [
        Complaint(field, str(value), rule, f"{was} in {run / 'plan.toml'}")
        for field, was, value in compared
        if was != value
    ]
    if tokens is None or not (run / KEPT).exists():
        return found
    old, new = load_as(run / KEPT, Header), load_as(tokens / HEADER, Header)
    if old.digest != new.digest:
        found.append(Complaint(
            "data", new.corpus, "is another text than the run's, or has other tokens",
            f"{old.count} tokens from {old.corpus}, now {new.count}",
        ))  # fmt: skip
    return found
