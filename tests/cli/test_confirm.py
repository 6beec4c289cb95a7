"""A remedy that may well run out of memory is none."""

from dataclasses import replace
from pathlib import Path

from meshwright.cli.confirm import _EDGE, _chance, _fastest, _surest
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
    roomy = _surest(setup, replace(wanted, micro_batch=1))
    assert roomy is not None
    assert roomy.prediction is not None
    edge = round(roomy.prediction.worst_memory.total * 1.02)
    cluster = replace(setup.proposal.cluster, memory_bytes=edge)
    crowded = replace(setup, proposal=replace(setup.proposal, cluster=cluster))
    fastest = _fastest(crowded, replace(wanted, micro_batch=1))
    assert fastest is not None
    assert _chance(fastest) >= _EDGE
    assert _surest(crowded, replace(wanted, micro_batch=1)) is None
    freer = _surest(crowded, replace(wanted, micro_batch=1, recompute=None, zero=None))
    assert freer is not None
    assert _chance(freer) < _EDGE
