"""Public config.json files of all families: parameters by unit equal those of the real modules on meta tensors."""

import json
from collections import Counter
from pathlib import Path

import pytest

from meshwright.model.families import FAMILIES
from meshwright.model.huggingface import read_config, text_part
from meshwright.model.parameters import total_parameters, unit_parameters
from meshwright.model.units import units_of

from .tiny import norms_after, unit_of

CONFIGS = sorted(Path(__file__).with_name("configs").glob("*.json"))

# the counts that the models' own pages state for their safetensors files, where those hold the text decoder alone
PUBLISHED = {
    "llama-2-7b-hf": 6_738_415_616, "meta-llama-3-8b": 8_030_261_248, "meta-llama-3-70b": 70_553_706_496,
    "llama-3.1-405b": 405_853_388_800, "llama-3.2-1b": 1_235_814_400, "mistral-7b-v0.1": 7_241_732_096,
    "mixtral-8x7b-v0.1": 46_702_792_704, "qwen2.5-7b": 7_615_616_512, "qwen1.5-moe-a2.7b": 14_315_784_192,
    "qwen3-8b": 8_190_735_360, "qwen3-30b-a3b": 30_532_122_624,
    "gemma-2b": 2_506_172_416, "gemma-2-9b": 9_241_705_984, "gemma-3-1b-pt": 999_885_952, "phi-2": 2_779_683_840,
    "phi-3-mini-4k-instruct": 3_821_079_552, "phi-4": 14_659_507_200, "phi-4-mini-instruct": 3_836_021_760,
    "gpt2": 124_439_808, "gpt-oss-20b": 20_914_757_184, "olmo-2-1124-7b": 7_298_617_344,
    "deepseek-v2-lite": 15_706_484_224, "deepseek-v2": 235_741_434_880, "bloom-560m": 559_214_592,
    "bloom": 176_247_271_424, "mpt-7b": 6_649_286_656, "smollm3-3b": 3_075_098_624,
}  # fmt: skip


def test_every_family_has_a_public_file() -> None:
    families = {read_config(path).family for path in CONFIGS}
    assert families >= set(FAMILIES) - {"granite", "gpt_bigcode"}  # those two are among the tiny ones
    assert len(CONFIGS) >= 20
    assert all("huggingface.co" in json.loads(path.read_text())["_source"] for path in CONFIGS)


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_every_unit_has_the_parameters_of_the_real_modules(path: Path) -> None:
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    arch = read_config(path)
    part, _ = text_part(json.loads(path.read_text()))
    config = transformers.AutoConfig.for_model(**part)
    with torch.device("meta"):
        model = transformers.AutoModelForCausalLM.from_config(config)
    real: Counter[str] = Counter()
    for name, parameter in model.named_parameters():
        real[unit_of(name, arch.parallel_residual, norms_after(arch.family))] += parameter.numel()
    if arch.tied:
        real["head"] += arch.vocab * arch.hidden
    assert {unit.name: unit_parameters(arch, unit) for unit in units_of(arch)} == dict(real)
    assert total_parameters(arch) == sum(parameter.numel() for parameter in model.parameters())


@pytest.mark.parametrize("name", PUBLISHED)
def test_totals_are_the_published_ones(name: str) -> None:
    assert total_parameters(read_config(Path(__file__).with_name("configs") / f"{name}.json")) == PUBLISHED[name]


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_windows_lie_where_the_library_puts_them(path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    arch = read_config(path)
    part, _ = text_part(json.loads(path.read_text()))
    config = transformers.AutoConfig.for_model(**part)
    types = getattr(config, "layer_types", None)
    window = getattr(config, "attention_chunk_size", None) or getattr(config, "sliding_window", None) or None
    if types is None:
        types = ["full_attention" if window is None else "sliding_attention"] * arch.layers
    local = [kind != "full_attention" for kind in types]
    assert arch.sliding_window == (window if any(local) else None)
    if any(local):
        assert [layer not in arch.global_layers for layer in range(arch.layers)] == local
    assert arch.chunked == ("chunked_attention" in types)


def test_of_several_parts_the_text_decoder_is_read_and_that_is_said() -> None:
    scout, gemma = (read_config(path) for path in CONFIGS if path.stem in ("llama-4-scout-17b-16e", "gemma-3-4b-pt"))
    assert {scout.family, gemma.family} == {"llama4_text", "gemma3_text"}
    assert "text_config" in scout.note
    assert "text_config" in gemma.note
    assert read_config(next(path for path in CONFIGS if path.stem == "llama-2-7b-hf")).note == ""
    assert "prediction" in read_config(next(path for path in CONFIGS if path.stem == "deepseek-v3")).note
