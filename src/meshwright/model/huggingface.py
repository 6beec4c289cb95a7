"""The architecture that a Hugging Face config.json describes."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from meshwright.basics.errors import Complaint, InputError, bad_input
from meshwright.basics.names import nearest
from meshwright.model.architecture import Architecture
from meshwright.model.config_keys import about_reads, about_variants
from meshwright.model.families import FAMILIES, TEXT_PARTS
from meshwright.model.family import Family
from meshwright.model.sanity import complaints_about

_FIELD = "model.config"
_TEXT_KEYS = ("text_config", "llm_config", "language_config")


def read_config(path: Path | str) -> Architecture:
    """The shape in a config.json, or in the one of a folder. Raises InputError for what cannot be read, for a family
    that is not a text decoder we know (naming those), and, all at once, for missing keys and impossible values."""
    file = Path(path)
    if file.is_dir():
        file = file / "config.json"
    return architecture_of(_load(file), name=_name(file), file=str(file))


def architecture_of(config: Mapping[str, Any], name: str = "", file: str = "") -> Architecture:
    """The shape in the content of a config.json. `file` becomes `config_path` and names the file in complaints.
    Of a model of several parts the text decoder is read, and `note` says so."""
    part, left_out = text_part(config, file)
    model_type, family = _family(part, file)
    content = {key: _whole(value) for key, value in part.items()}
    values: dict[str, Any] = dict(family.fixed)
    spelled: dict[str, str] = {}
    missing = []
    for field, keys in family.sizes.items():
        key = next((key for key in keys if content.get(key) is not None), keys[0])
        spelled[field] = key
        if content.get(key) is not None:
            values[field] = content[key]
        elif field in family.defaults:
            values[field] = content[key] = family.defaults[field]
        else:
            missing.append(Complaint(key, "", f"is missing: {model_type} needs it", file=file))
    for field, (key, default) in family.optional.items():
        spelled[field] = key
        values[field] = default if content.get(key) is None else content[key]

    def judge() -> tuple[Complaint, ...]:
        return complaints_about(values, lambda field: spelled.get(field, field), file)

    complaints = (*missing, *about_variants(content, family, model_type, file), *about_reads(content, family, file))
    wrong = judge()
    if not complaints and not wrong and family.derived is not None:
        values |= family.derived(content)
        wrong = judge()
    if complaints or wrong:
        raise InputError((*complaints, *wrong))
    note = "; ".join(text for text in (left_out, values.pop("note", "")) if text)
    return _complete(values, name or model_type, model_type, file, note)


def _complete(values: dict[str, Any], name: str, model_type: str, file: str, note: str) -> Architecture:
    if values.get("kv_heads") is None:
        values["kv_heads"] = values["heads"]
    if values.get("head_dim") is None:
        values["head_dim"] = values["hidden"] // values["heads"]
    fields = {field: value for field, value in values.items() if "." not in field}
    return Architecture(name=name, family=model_type, **fields, config_path=file or None, note=note)


def text_part(config: Mapping[str, Any], file: str = "") -> tuple[Mapping[str, Any], str]:
    """The text decoder in the content of a config.json, and what is left out ("" where the decoder is all there is).
    Raises InputError where a part for text is there but is no decoder (CLIP), or is fed by an encoder."""
    model_type = config.get("model_type")
    for inner in _TEXT_KEYS:
        part = config.get(inner)
        if not isinstance(part, Mapping):
            continue
        kind = part.get("model_type", model_type)
        kind = TEXT_PARTS.get(kind, kind) if isinstance(kind, str) else None
        if kind in FAMILIES and not config.get("is_encoder_decoder"):
            left_out = f"{model_type} has several parts: only its text decoder ({inner}) is read, nothing else of it"
            tied = {"tie_word_embeddings": config["tie_word_embeddings"]} if "tie_word_embeddings" in config else {}
            return {**tied, **part, "model_type": kind}, left_out
        raise bad_input(
            "a model of several parts whose text part is not a decoder that is supported", field=f"{inner}.model_type",
            value=repr(part.get("model_type", model_type)), file=file, legal=f"known: {_known()}",
        )  # fmt: skip
    return config, ""


def _family(config: Mapping[str, Any], file: str) -> tuple[str, Family]:
    model_type = config.get("model_type")
    if not isinstance(model_type, str):
        raise bad_input("is missing: it names the family", field="model_type", legal=f"known: {_known()}", file=file)
    if model_type in FAMILIES and config.get("is_encoder_decoder"):
        raise bad_input(
            "an encoder with a decoder is not supported: only text decoders are", field="is_encoder_decoder",
            value=repr(config["is_encoder_decoder"]), legal="false", file=file,
        )  # fmt: skip
    if model_type not in FAMILIES:
        near = nearest(model_type, FAMILIES)
        hint = f"did you mean {near!r}? " if near and near != model_type else ""
        raise bad_input(
            "not a family of text decoders that is supported", field="model_type", value=repr(model_type), file=file,
            legal=f"{hint}known: {_known()}",
        )  # fmt: skip
    return model_type, FAMILIES[model_type]


def _known() -> str:
    return ", ".join(sorted(FAMILIES))


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
