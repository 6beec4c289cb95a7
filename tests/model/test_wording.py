"""A shape in one line names what a reader would compare with what she meant."""

from dataclasses import replace

import pytest

from meshwright.model.catalogue import named
from meshwright.model.wording import described

SAID = {
    "llama-3-8b": ("32 layers of width 4096", "32 heads (8 key-value)", "14336 gated", "8.03 B parameters"),
    "gpt2": ("12 heads,", "feed-forward 3072,", "vocabulary 50257 tied", "124.44 M parameters"),
    "mixtral-8x7b": ("8 experts of 14336 gated, 2 a token", "46.70 B parameters", "12.88 B of them active"),
    "deepseek-v3": ("latent attention", "256 experts of 2048", "and 1 shared", "3 dense layers of 18432", "671.03 B"),
    "gemma-2-9b": ("(8 key-value) of 256", "a window of 4096 tokens in 21 layers"),
    "llama-4-scout": ("chunks of 8192 tokens in 36 layers",),
}


@pytest.mark.parametrize("name", SAID)
def test_the_published_figures_are_in_the_line(name: str) -> None:
    text = described(named(name))
    assert text.startswith(name)
    assert all(part in text for part in SAID[name]), text


def test_a_window_of_every_layer_is_not_counted_out() -> None:
    assert "tokens in" not in described(replace(named("llama-3-8b"), sliding_window=4096))
