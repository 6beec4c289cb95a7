"""The model families whose config.json we read: one row each, saying which keys mean what."""

from collections.abc import Mapping

from meshwright.model.families_classic import CLASSIC
from meshwright.model.families_dense import DENSE
from meshwright.model.families_experts import EXPERTS
from meshwright.model.family import Family

FAMILIES: Mapping[str, Family] = {**DENSE, **EXPERTS, **CLASSIC}

# files of several parts whose text part may leave its own model_type out, or repeat the whole's
TEXT_PARTS: Mapping[str, str] = {"llama4": "llama4_text", "gemma3": "gemma3_text"}
