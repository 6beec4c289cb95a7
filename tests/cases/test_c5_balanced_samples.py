"""C5: equal tokens are not equal work; samples are dealt out by the sum of their squared lengths, which is reported."""

import numpy as np
import pytest

from meshwright.model.catalogue import named
from meshwright.model.flops import step_model_flops
from meshwright.trainer.data import TokenFile
from meshwright.trainer.data_balance import deal
from meshwright.trainer.data_sampler import Reading, Sampler

LENGTHS = [4096, 512, 512, 3584, 1024, 1024, 2048, 2048]
SQUARES = [length**2 for length in LENGTHS]


def work(hands: list[list[int]]) -> list[float]:
    """Millions."""
    return [round(sum(SQUARES[index] for index in hand) / 1e6, 1) for hand in hands]


def test_c5_longest_first_by_squares_evens_out_what_round_robin_does_not() -> None:
    in_turn = [list(range(0, 8, 2)), list(range(1, 8, 2))]
    assert [sum(LENGTHS[index] for index in hand) for hand in in_turn] == [7680, 7168]
    assert work(in_turn) == [22.3, 18.4]  # 21 % apart
    assert work(deal(SQUARES, 2)) == [21.0, 19.7]  # 7 %


def test_c5_one_long_sequence_costs_a_seventh_more_than_eight_short_ones() -> None:
    assert 8192**2 / (8 * 1024**2) == 8
    model = named("llama-2-7b")
    long, short = (step_model_flops(model, 8192, length) for length in (8192, 1024))
    assert long / short == pytest.approx(1.14, abs=0.005)
    assert 1 - short / long == pytest.approx(0.12, abs=0.005)  # the second rank idles
    assert long / 8192 == pytest.approx(46.9e9, rel=0.02)  # which counts the embedding as a product
    assert short / 8192 == pytest.approx(41.2e9, rel=0.02)


@pytest.mark.parametrize(("balance", "apart"), [(False, 0.20), (True, 0.13)])
def test_c5_a_step_reports_tokens_and_squares_of_each_replica(balance: bool, apart: float) -> None:
    """The same lengths as documents, eight samples of one each: replicas hold four samples whatever their lengths."""
    scale = 32
    lengths = [length // scale for length in LENGTHS]
    bounds = np.cumsum([0, *lengths]).astype(np.int64)
    file = TokenFile(np.arange(bounds[-1], dtype=np.uint32), int(bounds[-1]), bounds)
    batches = []
    for seed in range(8):
        batch = Sampler(file, Reading(8, 4096 // scale, seed, "pad", replicas=2, balance=balance)).batch(0)
        assert batch.tokens is not None
        assert batch.squares is not None
        assert sum(batch.tokens) == sum(lengths) - 8  # nothing is trained to follow an end
        assert sum(batch.squares) * scale**2 == sum(SQUARES)
        batches.append(batch.squares)
    worst = max(max(squares) / min(squares) - 1 for squares in batches)
    assert worst < apart if balance else worst > apart
    if balance:
        assert len({tuple(sorted(squares)) for squares in batches}) == 1  # whatever order the samples came in
