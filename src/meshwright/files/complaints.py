"""What is wrong with a typed table, in the reader's words: field, value, rule, legal values, nearest known key."""

from collections.abc import Callable, Iterable
from dataclasses import replace
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from meshwright.basics.errors import Complaint, InputError
from meshwright.basics.names import nearest

Value = TypeVar("Value")

_RULES = {
    "missing": "is required",
    "int_type": "must be a whole number",
    "int_parsing_size": "must be a whole number of reasonable size",
    "float_type": "must be a number",
    "finite_number": "must be a finite number",
    "bool_type": "must be true or false",
    "string_type": "must be text in quotes",
    "list_type": "must be a list",
    "dict_type": "must be a table",
    "model_type": "must be a table",
    "model_attributes_type": "must be a table",
    "greater_than": "must be above {gt}",
    "greater_than_equal": "must be at least {ge}",
    "less_than": "must be below {lt}",
    "less_than_equal": "must be at most {le}",
    "too_short": "must have at least {min_length} entries",
    "too_long": "must have at most {max_length} entries",
}  # fmt: skip


def naming_field(step: Callable[[], Value], field: str) -> Value:
    """Run a step of another room; its complaints that name no field are about `field`."""
    try:
        return step()
    except InputError as error:
        raise InputError(tuple(replace(found, field=found.field or field) for found in error.complaints)) from None


def shown(value: object, limit: int = 60) -> str:
    """A value as TOML spells it, shortened to `limit` characters."""
    if isinstance(value, bool):
        text = "true" if value else "false"
    elif isinstance(value, str):
        text = '"' + value.encode("unicode_escape").decode() + '"'
    elif isinstance(value, dict):
        text = (
            "{"
            + ", ".join(f"{key} = {shown(entry, limit)}" for key, entry in list(value.items())[:6] if entry is not None)
            + "}"
        )
    elif isinstance(value, list | tuple):
        text = "[" + ", ".join(shown(entry, limit) for entry in value[:40]) + "]"
    elif isinstance(value, int) and abs(value) >= 10**40:
        text = "a number of more than 40 digits"
    else:
        text = str(value)
    return text if len(text) <= limit else text[: limit - 1] + "…"


def field_path(location: Iterable[int | str]) -> str:
    """`layout.stages[0][1]` for ("layout", "stages", 0, 1)."""
    path = ""
    for part in location:
        path += f"[{part}]" if isinstance(part, int) else f".{part}" if path else part
    return path


def keys_of(model: type[BaseModel]) -> tuple[str, ...]:
    """The keys of a table as they are typed in the file."""
    return tuple(field.alias or name for name, field in model.model_fields.items())


def inner_types(annotation: Any) -> tuple[Any, ...]:
    """The types that an annotation admits, without None: `int | None` gives `(int,)`."""
    if get_origin(annotation) in (Union, UnionType):
        return tuple(kind for part in get_args(annotation) if part is not NoneType for kind in inner_types(part))
    return (annotation,)


def table_at(model: type[BaseModel], location: Iterable[int | str]) -> type[BaseModel] | None:
    """The table that lies at a location (entries of lists are looked through), or None."""
    table: type[BaseModel] | None = model
    for part in location:
        if isinstance(part, int) or table is None:
            continue
        field = {field.alias or name: field for name, field in table.model_fields.items()}.get(str(part))
        kinds = inner_types(field.annotation) if field else ()
        kinds += tuple(entry for kind in kinds if get_origin(kind) is list for entry in get_args(kind))
        table = next((kind for kind in kinds if isinstance(kind, type) and issubclass(kind, BaseModel)), None)
    return table


def _unknown_key(root: type[BaseModel], error: ErrorDetails, file: str) -> Complaint:
    *path, key = error["loc"]
    table = table_at(root, path)
    known = keys_of(table) if table else ()
    elsewhere = [
        f"{name}.{key}"
        for name, field in root.model_fields.items()
        for kind in inner_types(field.annotation)
        if isinstance(kind, type) and issubclass(kind, BaseModel) and key in keys_of(kind)
    ]
    near = nearest(str(key), known)
    if elsewhere and (near is None or not path):
        hint = f"did you mean {elsewhere[0]}?"
    elif near:
        hint = f"did you mean {field_path([*path, near])}?"
    else:
        hint = "known here: " + ", ".join(known)
    rule = "unknown table" if not path and isinstance(error["input"], dict) else "unknown key"
    return Complaint(field_path(error["loc"]), shown(error["input"]), rule, hint, file)


def _number(value: object) -> str:
    return f"{value:.0f}" if isinstance(value, float) and value.is_integer() else str(value)


def bounds_of(annotation: Any) -> str:
    """The legal range that an annotation states: `1 to 1000000`, `above 0, at most 1000`; empty when it has none."""
    limits: dict[str, object] = {}
    for kind in inner_types(annotation):
        for extra in get_args(kind)[1:] if get_origin(kind) is Annotated else ():
            for rule in getattr(extra, "metadata", [extra]):
                limits |= {key: getattr(rule, key) for key in ("gt", "ge", "lt", "le") if hasattr(rule, key)}
    words = {"ge": "from", "gt": "above", "le": "to", "lt": "below"}
    return " ".join(f"{words[key]} {_number(limits[key])}" for key in words if key in limits)


def _near_choice(value: object, choices: tuple[object, ...]) -> str:
    near = nearest(value, [str(choice) for choice in choices]) if isinstance(value, str) else None
    listed = " | ".join(str(choice) for choice in choices)
    return f"did you mean {near!r}? legal: {listed}" if near else f"legal: {listed}"


def _field_at(root: type[BaseModel], location: tuple[int | str, ...]) -> FieldInfo | None:
    """The field at a location; for an entry of a list, the list's field."""
    names = [part for part in location if isinstance(part, str)]
    table = table_at(root, names[:-1])
    fields = {field.alias or name: field for name, field in table.model_fields.items()} if table else {}
    return fields.get(names[-1])


def annotation_of(field: FieldInfo) -> Any:
    """A field's annotation with the constraints that stand beside it."""
    return Annotated[field.annotation, *field.metadata] if field.metadata else field.annotation


def _choices(field: FieldInfo | None) -> tuple[object, ...]:
    """The legal values of a Literal field."""
    found: list[object] = []
    kinds = list(inner_types(field.annotation)) if field else []
    while kinds:
        kind = kinds.pop()
        if get_origin(kind) is Literal:
            found += get_args(kind)
        elif get_origin(kind) in (list, dict):
            kinds += get_args(kind)
    return tuple(found)


def complaints_of(error: ValidationError, root: type[BaseModel], file: str) -> tuple[Complaint, ...]:
    """Every complaint of a failed validation of `root`, in the order of the file's tables."""
    complaints = []
    for detail in error.errors(include_url=False):
        kind, context = detail["type"], detail.get("ctx", {})
        if kind == "extra_forbidden":
            complaints.append(_unknown_key(root, detail, file))
            continue
        where, value, field = field_path(detail["loc"]), shown(detail["input"]), _field_at(root, detail["loc"])
        legal = bounds_of(annotation_of(field)) if field else ""
        if kind == "missing":
            value, legal = "", (field.description or "") if field else ""
        if kind == "literal_error":
            rule, legal = "is not one of the legal values", _near_choice(detail["input"], _choices(field))
        elif kind == "value_error":
            rule = str(context["error"])
        else:
            words = {key: _number(entry) for key, entry in context.items()}
            rule = _RULES[kind].format(**words) if kind in _RULES else detail["msg"]
        complaints.append(Complaint(where, value, rule, legal, file))
    return tuple(complaints)
