"""Packed documents do not see each other: the loss of a sample is that of its documents alone, in every family."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("torch")

import torch

from meshwright.model.units import units_of
from meshwright.trainer.models.build import build
from meshwright.trainer.models.initial import initialize
from meshwright.trainer.models.stage import StageModel, sight

from ..plans import variant
from ..test_decoder import tensor_group
from .tiny import CONFIGS, config_folder

LENGTHS = ((5, 1, 12, 6), (24,), (2, 2, 20))  # of the documents in each of three samples


def packed_and_alone(model: StageModel, vocab: int) -> tuple[float, float, float]:
    """The loss of packed samples, of their documents one by one, and of the samples as one stretch of text."""
    torch.manual_seed(1)
    tokens = torch.randint(2, vocab, (3, 24))
    positions = torch.stack([torch.cat([torch.arange(length) for length in row]) for row in LENGTHS])
    following = torch.roll(positions, -1, 1)
    following[:, -1] = 0
    labels = torch.where(following > 0, torch.roll(tokens, -1, 1), -1)
    crossing = model(tokens, labels)
    model.positions = positions
    packed = model(tokens, labels)
    model.positions = None
    alone = torch.zeros(())
    for row, lengths in enumerate(LENGTHS):
        for part, wanted in zip(tokens[row].split(lengths), labels[row].split(lengths), strict=True):
            alone = alone + model(part[None], wanted[None])
    return float(packed), float(alone), float(crossing)


@pytest.mark.parametrize("name", CONFIGS)
def test_the_loss_of_packed_documents_is_that_of_each_alone(name: str, tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    arch = config_folder(name, tmp_path)
    model = build(arch, tensor_group(), [unit.name for unit in units_of(arch)])
    initialize(model, torch.device("cpu"), 3)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(6 if parameter.ndim > 1 else 1)  # or attention hardly looks anywhere
        packed, alone, crossing = packed_and_alone(model, arch.vocab)
    assert packed == pytest.approx(alone, rel=1e-5)
    assert abs(crossing - alone) > 1e-4 * alone  # it does matter


def test_the_decoder_keeps_documents_apart() -> None:
    arch = variant(qk_norm=True)
    model = build(arch, tensor_group(), [unit.name for unit in units_of(arch)])
    initialize(model, torch.device("cpu"), 3)
    with torch.no_grad():
        packed, alone, crossing = packed_and_alone(model, arch.vocab)
    assert packed == pytest.approx(alone, rel=1e-5)
    assert packed != pytest.approx(crossing, rel=1e-5)


@given(lengths=st.lists(st.integers(1, 6), min_size=1, max_size=6))
@settings(max_examples=40, deadline=None)
def test_a_token_sees_its_document_up_to_itself(lengths: list[int]) -> None:
    seen = sight(torch.cat([torch.arange(length) for length in lengths])[None])[0, 0]
    documents = [index for index, length in enumerate(lengths) for _ in range(length)]
    for i, own in enumerate(documents):
        for j, other in enumerate(documents):
            assert bool(seen[i, j]) == (own == other and j <= i)
