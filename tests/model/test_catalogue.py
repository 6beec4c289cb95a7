"""Every public shape has the parameters that were published for it."""

import pytest

from meshwright.basics.errors import InputError
from meshwright.model.catalogue import model_names, named, public_model
from meshwright.model.parameters import total_parameters


@pytest.mark.parametrize("name", model_names())
def test_counts_are_the_published_ones(name: str) -> None:
    model = public_model(name)
    assert model.source
    count = total_parameters(model.architecture)
    if model.exact:
        assert count == model.published_parameters
    else:
        assert count == pytest.approx(model.published_parameters, rel=0.005)


@pytest.mark.parametrize("written", ["llama-3-8b", "Llama-3-8B", "meta-llama/Meta-Llama-3-8B", "llama 3.1 8b"])
def test_names_people_write(written: str) -> None:
    assert named(written).name == "llama-3-8b"


def test_unknown_names_are_answered_with_the_nearest() -> None:
    with pytest.raises(InputError, match=r"did you mean 'qwen2\.5-7b'"):
        named("qwen2.5-7c")
