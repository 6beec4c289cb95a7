"""The architecture that a Hugging Face config.json describes."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from meshwright.basics.errors import Complaint, InputError, bad_input
from meshwright.basics.names import nearest
from meshwright.model.architecture import Architecture
from meshwright.model.families import FAMILIES, Family
from meshwright.model.sanity import complaints_about

_FIELD = "model.config"


def read_config(path: Path | str) -> Architecture:
    """The shape in a config.json, or in the one of a folder. Raises InputError for what cannot be read, for a family
    that is not a text decoder we know (naming those), and, all at once, for missing keys and impossible values."""
    file = Path(path)
    if file.is_dir():
        file = file / "config.json"
    return architecture_of(_load(file), name=_name(file), file=str(file))


def architecture_of(config: Mapping[str, Any], name: str = "", file: str = "") -> Architecture:
    """The shape in the content of a config.json. `file` becomes `config_path` and names the file in complaints."""
    model_type, family = _family(config, file)
    values: dict[str, Any] = dict(family.fixed)
    complaints = [
        Complaint(key, repr(config[key]), f"this variant of {model_type} is not supported", _legal(allowed), file)
        for key, allowed in family.only.items()
        if key in config and config[key] not in allowed
    ]
    spelled: dict[str, str] = {}
    for field, keys in family.sizes.items():
        key = next((key for key in keys if config.get(key) is not None), keys[0])
        spelled[field] = key
        if config.get(key) is None:
            complaints.append(Complaint(key, "", f"is missing: {model_type} needs it", file=file))
        else:
            values[field] = _whole(config[key])
    for field, (key, default) in family.optional.items():
        spelled[field] = key
        values[field] = default if config.get(key) is None else _whole(config[key])
    if family.derived is not None:
        values |= family.derived(config)
    complaints += complaints_about(values, lambda field: spelled.get(field, field), file)
    if complaints:
        raise InputError(tuple(complaints))
    return _complete(values, name or model_type, model_type, file)


def _complete(values: dict[str, Any], name: str, model_type: str, file: str) -> Architecture:
    if values.get("kv_heads") is None:
        values["kv_heads"] = values["heads"]
    if values.get("head_dim") is None:
        values["head_dim"] = values["hidden"] // values["heads"]
    return Architecture(name=name, family=model_type, **values, config_path=file or None)


def _family(config: Mapping[str, Any], file: str) -> tuple[str, Family]:
    known = ", ".join(sorted(FAMILIES))
    model_type = config.get("model_type")
    if not isinstance(model_type, str):
        raise bad_input("is missing: it names the family", field="model_type", legal=f"known: {known}", file=file)
    for inner in ("text_config", "llm_config", "language_config"):
        if isinstance(config.get(inner), Mapping):
            raise bad_input(
                "a model of several parts (vision, audio) is not supported: only text decoders are",
                field="model_type", value=repr(model_type), file=file,
                legal=f"to plan its text part alone, put the content of {inner!r} into a config.json; known: {known}",
            )  # fmt: skip
    if model_type not in FAMILIES or config.get("is_encoder_decoder"):
        near = nearest(model_type, FAMILIES)
        hint = f"did you mean {near!r}? " if near and near != model_type else ""
        raise bad_input(
            "not a family of text decoders that is supported", field="model_type", value=repr(model_type), file=file,
            legal=f"{hint}known: {known}",
        )  # fmt: skip
    return model_type, FAMILIES[model_type]


def _load(file: Path) -> dict[str, Any]:
    try:
        content = json.loads(file.read_text(encoding="utf-8-sig"))
    except FileNotFoundError:
        raise bad_input("no such file", field=_FIELD, value=str(file)) from None
    except (OSError, UnicodeDecodeError, RecursionError) as error:
        raise bad_input(f"cannot be read: {error}", field=_FIELD, value=str(file)) from None
    except ValueError as error:
        raise bad_input(f"is not JSON: {error}", field=_FIELD, value=str(file)) from None
    if not isinstance(content, dict):
        raise bad_input("must hold a JSON object", field=_FIELD, value=str(file), legal='{"model_type": "llama", ...}')
    return content


def _name(file: Path) -> str:
    return file.resolve().parent.name if file.name == "config.json" else file.stem


def _whole(value: Any) -> Any:
    """4096.0 is the whole number that it means; anything else stays as it is, to be judged."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _legal(allowed: tuple[Any, ...]) -> str:
    return "must be " + " or ".join(json.dumps(value) for value in allowed if value is not None)
