"""What a run starts from, checked and said before any process starts. Imports no torch."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path

from meshwright.model.architecture import Architecture
from meshwright.model.huggingface import text_part
from meshwright.trainer.export_config import config_content, config_folder
from meshwright.trainer.weights_files import has_weights, stored_tensors

# what transformers takes a silent config.json to say
_SILENT: Mapping[str, Mapping[str, float]] = {"gpt2": dict.fromkeys(("attn_pdrop", "embd_pdrop", "resid_pdrop"), 0.1)}
_DROPOUTS = ("attn_pdrop", "embd_pdrop", "resid_pdrop", "attention_dropout", "hidden_dropout")


def check_start(arch: Architecture, weights: Path | None, export: bool, progress: Callable[[str], None]) -> None:
    """Raise InputError for a folder of weights that cannot be read, and for a model that cannot be exported though it
    is to be; say what a reader of the config.json may not expect."""
    if weights is not None:
        stored_tensors(weights)
    if export:
        config_content(arch)
    beside = config_folder(arch)
    if weights is None and beside is not None and has_weights(beside):
        progress(f"note: random weights; to go on from those in {beside} say --weights {beside}")
    dropped = _dropouts(arch)
    if dropped:
        said = ", ".join(f"{key} = {value}" for key, value in dropped.items())
        progress(f"note: the trainer drops nothing out, though config.json says {said}")


def _dropouts(arch: Architecture) -> dict[str, float]:
    """Dropout rates above 0 in the model's config.json."""
    if arch.config_path is None:
        return {}
    path = Path(arch.config_path)
    whole = json.loads((path / "config.json" if path.is_dir() else path).read_text(encoding="utf-8-sig"))
    content = {**_SILENT.get(arch.family, {}), **text_part(whole, arch.config_path)[0]}
    return {key: content[key] for key in _DROPOUTS if isinstance(content.get(key), int | float) and content[key] > 0}
