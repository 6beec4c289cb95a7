"""Case B6: the four published sizes of output scores, as failed requests and in the advice."""

import pytest

from meshwright.files.job import parse_job
from meshwright.files.plan import Plan
from meshwright.files.plan_toml import plan_of
from meshwright.planner.oom import explain
from meshwright.planner.oom_request import parse_request
from meshwright.planner.relief import held, reliefs

JOB = """
[model]
layers = 4
hidden = 1024
heads = 8
kv_heads = 8
ffn_hidden = 2816
vocab = {vocab}
[cluster]
gpu = "H100-80GB-SXM"
gpus = 1
[batch]
global = 1
seq_len = {tokens}
micro_batch = 1
[training]
precision = "bf16"
[layout]
dp = 1
tp = 1
pp = 1
{extra}
[search]
runnable_by = "any"
"""


def plan(tokens: int, vocab: int, extra: str = "") -> Plan:
    return plan_of(parse_job(JOB.format(tokens=tokens, vocab=vocab, extra=extra)))


@pytest.mark.parametrize(
    ("tokens", "vocab", "dtype", "message", "extra"),
    [
        (4096, 128_000, "bf16", "0.98 GiB", ""),
        (11_600, 248_320, "fp32", "10.73 GiB", ""),
        (11_600, 248_320, "fp32", "11.52 GB", ""),
        (8192, 151_936, "fp32", "4.64 GiB", ""),
        (8192, 151_936, "fp32", "594.00 MiB", "loss_chunk = 1024"),  # 593.5 MiB in whole blocks of 2
        (65_536, 128_000, "fp32", "31.25 GiB", ""),
    ],
)
def test_b6_a_failed_request_for_scores_is_called_that(
    tokens: int, vocab: int, dtype: str, message: str, extra: str
) -> None:
    found = explain(plan(tokens, vocab, extra), parse_request(message))
    rows = 1024 if extra else tokens
    scores = [match.tensor for match in found.matches if match.tensor.name.startswith("logits")]
    assert [(one.dtype, one.shape[-2:]) for one in scores] == [(dtype, (rows, vocab))]
    assert scores[0].units == ("head",)
    assert ("layout.loss_chunk" in scores[0].shrink) == (not extra)


def test_b6_a_chunk_is_an_eighth_of_the_whole() -> None:
    """4.64 GiB whole against 0.58 GiB per 1024 tokens."""
    whole, chunk = (held(plan(8192, 151_936, extra)).fullest.parts["logits"] for extra in ("", "loss_chunk = 1024"))
    assert whole / chunk == pytest.approx(8, rel=0.01)


def test_b6_the_advice_lists_a_chunked_loss_before_more_stages() -> None:
    """65,536 tokens of 128,000 scores: 31.3 GiB in fp32, about the same again for the gradient, and a bf16 copy."""
    one = plan(65_536, 128_000, 'recompute = "full"')
    assert held(one).verdict == "does not fit"
    found = reliefs(one)
    assert found[0].change.keys == {"layout.loss_chunk": 1024}
    assert found[0].after.verdict == "fits"
    assert found[0].saved > 70 * 2**30
