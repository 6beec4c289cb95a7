"""Every public shape has the parameters that were published for it."""

import re
import tomllib
from dataclasses import replace
from pathlib import Path

import pytest

from meshwright.basics.errors import InputError
from meshwright.model import catalogue
from meshwright.model.catalogue import model_names, named, public_model
from meshwright.model.huggingface import read_config
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


def test_no_name_means_two_models() -> None:
    for name in model_names():
        assert named(name).name == name
    written = written_names()
    assert len(written) == len({re.sub(r"[^a-z0-9]", "", name.lower()) for name in written})


def written_names() -> list[str]:
    """Names and aliases as they stand in the data files."""
    files = Path(catalogue.__file__).parent.glob("shapes_*.toml")
    rows = [row for file in files for row in tomllib.loads(file.read_text())["models"].items()]
    return [name for key, about in rows for name in (key, *about.get("aliases", ()))]


CONFIGS = sorted(Path(__file__).with_name("configs").glob("*.json"))


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_a_name_and_its_public_file_mean_the_same_shape(path: Path) -> None:
    name = path.stem.removesuffix("-instruct").removesuffix("-4k")
    read = read_config(path)
    assert replace(read, name="", config_path=None) == replace(named(name), name="")


def test_unknown_names_are_answered_with_the_nearest() -> None:
    with pytest.raises(InputError, match=r"did you mean 'qwen2\.5-7b'"):
        named("qwen2.5-7c")
