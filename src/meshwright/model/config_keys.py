"""Are the keys of a config.json beside the sizes what they must be? Every complaint at once."""

import json
from collections.abc import Mapping
from typing import Any

from meshwright.basics.errors import Complaint
from meshwright.model.family import TYPES, Config, Family, Reads

_LARGEST = 1_000_000_000
_NUMBERS: Mapping[Reads, int] = {"count": 0, "step": 1}


def about_variants(config: Config, family: Family, model_type: str, file: str) -> list[Complaint]:
    """Values that make a model of the family one that `Architecture` cannot state."""
    complaints = []
    for key, allowed in family.only.items():
        found, value = _look_up(config, key)
        if found and value not in allowed:
            legal = "must be " + " or ".join(json.dumps(one) for one in allowed if one is not None)
            complaints.append(
                Complaint(key, repr(value), f"this variant of {model_type} is not supported", legal, file)
            )
    return complaints


def about_reads(config: Config, family: Family, file: str) -> list[Complaint]:
    """Keys of a wrong type or out of range. Null is as good as absent."""
    layers = next((config[key] for key in family.sizes["layers"] if config.get(key) is not None), None)
    depth = layers if isinstance(layers, int) and not isinstance(layers, bool) else None
    given = ((key, config[key], kind) for key, kind in family.reads.items() if config.get(key) is not None)
    judged = ((key, value, _rule(value, kind, depth)) for key, value, kind in given)
    return [Complaint(key, _short(value), *rule, file) for key, value, rule in judged if rule is not None]


def _rule(value: Any, kind: Reads, layers: int | None) -> tuple[str, str] | None:
    """What is wrong with a value, and what would be right; None when it is fine."""
    match kind:
        case "switch":
            return None if isinstance(value, bool) else ("must be true or false", "")
        case "count" | "step":
            least = _NUMBERS[kind]
            fine = _number(value) and least <= value <= _LARGEST
            return None if fine else ("must be a whole number", f"{least} to {_LARGEST}")
        case "layers":
            fine = isinstance(value, list) and all(_number(one) and 0 <= one < (layers or one + 1) for one in value)
            return None if fine else ("must be a list of layers", f"each 0 to {layers - 1 if layers else '...'}")
        case "flags":  # an empty list stands for the family's own rule
            fine = isinstance(value, list) and all(isinstance(one, bool | int) and one in (0, 1) for one in value)
            fine = fine and len(value) in (0, layers or len(value))
            return None if fine else ("must hold one number for each layer", f"{layers or ''} times 0 or 1".strip())
        case "types":
            fine = isinstance(value, list) and all(isinstance(one, str) and one in TYPES for one in value)
            fine = fine and len(value) == (layers or len(value))
            return (
                None if fine else ("must hold one word for each layer", f"{layers or ''} of {', '.join(TYPES)}".strip())
            )


def _number(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _look_up(config: Config, key: str) -> tuple[bool, Any]:
    outer, _, inner = key.partition(".")
    value = config.get(outer)
    if not inner:
        return outer in config, value
    return (True, value[inner]) if isinstance(value, Mapping) and inner in value else (False, None)


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
