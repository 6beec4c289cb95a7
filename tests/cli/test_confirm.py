"""A remedy that may well run out of memory is none."""

from dataclasses import replace
from pathlib import Path

from meshwright.cli.confirm import EDGE, chance_of, fastest, surest
from meshwright.files.resolve import read_setup

JOB = """\
[model]
params = "1.2B"
[cluster]
gpu = "A100-40GB-SXM"
gpus = 8
[batch]
global = 256
seq_len = 2048
micro_batch = 4
[layout]
dp = 8
tp = 1
pp = 1
zero = 0
[search]
runnable_by = "any"
"""


def test_what_stands_at_the_edge_of_its_memory_is_no_remedy(tmp_path: Path) -> None:
    (tmp_path / "job.toml").write_text(JOB)
    setup = read_setup(tmp_path / "job.toml")
    wanted = replace(setup.proposal.wanted, recompute="none")
    roomy = surest(setup, replace(wanted, micro_batch=1))
    assert roomy is not None
    assert roomy.prediction is not None
    edge = round(roomy.prediction.worst_memory.total * 1.02)
    cluster = replace(setup.proposal.cluster, memory_bytes=edge)
    crowded = replace(setup, proposal=replace(setup.proposal, cluster=cluster))
    quick = fastest(crowded, replace(wanted, micro_batch=1))
    assert quick is not None
    assert chance_of(quick) >= EDGE
    assert surest(crowded, replace(wanted, micro_batch=1)) is None
    freer = surest(crowded, replace(wanted, micro_batch=1, recompute=None, zero=None))
    assert freer is not None
    assert chance_of(freer) < EDGE
