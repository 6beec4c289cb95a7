"""Frozen dataclasses as JSON and back, read strictly: every complaint names the file and the field.

Not-a-number and infinities are not JSON; they are written as the strings "nan", "inf" and "-inf".
"""

import json
import math
import types
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import MISSING, fields, is_dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from meshwright.basics.errors import Complaint, InputError, bad_input
from meshwright.basics.names import nearest

T = TypeVar("T")

FORMAT = 1
_NOT_FINITE = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}


def to_json(value: object) -> Any:
    """The value as what `json` can write: dataclasses become objects, tuples lists, paths strings."""
    if is_dataclass(value) and not isinstance(value, type):
        return {f.name: to_json(getattr(value, f.name)) for f in fields(value)}
    if isinstance(value, Mapping):
        return {str(key): to_json(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [to_json(item) for item in value]
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value


def from_json(data: object, kind: type[T], *, file: str = "", field: str = "") -> T:
    """`data` (as `json` read it) as a value of type `kind`.

    Raises InputError with every unknown, missing or ill-typed field, each with its place.
    """
    complaints: list[Complaint] = []
    value = _convert(data, kind, field, file, complaints)
    if complaints:
        raise InputError(tuple(complaints))
    return cast(T, value)


def dump(value: object, path: Path) -> None:
    """Write an object with "format": 1 in front; the file appears whole or not at all."""
    body = to_json(value)
    if not isinstance(body, dict):
        body = {"values": body}
    write_whole(path, json.dumps({"format": FORMAT, **body}, indent=1, allow_nan=False) + "\n")


def write_whole(path: Path, text: str) -> None:
    """Write text beside its place and move it there in one step. Raises OSError naming `path`, and leaves nothing."""
    partial = path.with_name(path.name + ".partial")
    try:
        partial.write_text(text, encoding="utf-8")
        partial.replace(path)
    except OSError as error:
        with suppress(OSError):
            partial.unlink()
        raise OSError(error.errno, error.strerror, str(path)) from error


def load(path: Path) -> dict[str, Any]:
    """The object in a file that `dump` wrote, without its format. Raises InputError naming the file."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise bad_input("no such file", file=str(path)) from error
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise bad_input(f"not readable as JSON ({reason})", file=str(path)) from error
    if not isinstance(data, dict) or data.get("format") != FORMAT:
        found = data.get("format", "") if isinstance(data, dict) else ""
        raise bad_input("unknown format", field="format", value=found, legal=str(FORMAT), file=str(path))
    return {key: value for key, value in data.items() if key != "format"}


def load_as(path: Path, kind: type[T]) -> T:
    """The dataclass in a file that `dump` wrote. Raises InputError."""
    return from_json(load(path), kind, file=str(path))


@cache
def _hints(kind: type) -> dict[str, Any]:
    return get_type_hints(kind)


def _convert(data: object, kind: Any, field: str, file: str, out: list[Complaint]) -> object:
    origin, args = get_origin(kind), get_args(kind)
    if kind is object or kind is Any:
        return _revive(data)
    if is_dataclass(kind):
        return _convert_object(data, cast(type, kind), field, file, out)
    if origin in (Union, types.UnionType):
        if data is None and type(None) in args:
            return None
        return _convert(data, next(arg for arg in args if arg is not type(None)), field, file, out)
    if origin is Literal:
        if data in args:
            return data
        return _complain(data, "unknown value", field, file, out, legal=", ".join(map(str, args)))
    if origin is tuple:
        return _convert_tuple(data, args, field, file, out)
    if origin in (dict, Mapping):
        if not isinstance(data, dict):
            return _complain(data, "must be an object", field, file, out)
        return {key: _convert(item, args[1], f"{field}.{key}", file, out) for key, item in data.items()}
    return _convert_plain(data, kind, field, file, out)


def _convert_object(data: object, kind: type, field: str, file: str, out: list[Complaint]) -> object:
    if not isinstance(data, dict):
        return _complain(data, "must be an object", field, file, out)
    prefix, known, found = (f"{field}." if field else ""), {f.name: f for f in fields(kind)}, len(out)
    for key in data.keys() - known.keys():
        near = nearest(key, known)
        out.append(Complaint(prefix + key, "", "unknown key", f"did you mean {near}?" if near else "", file))
    values = {}
    for name, spec in known.items():
        if name in data:
            values[name] = _convert(data[name], _hints(kind)[name], prefix + name, file, out)
        elif spec.default is MISSING and spec.default_factory is MISSING:
            out.append(Complaint(prefix + name, "", "is missing", "", file))
    return kind(**values) if len(out) == found else None


def _convert_tuple(data: object, args: tuple[Any, ...], field: str, file: str, out: list[Complaint]) -> object:
    if not isinstance(data, list):
        return _complain(data, "must be a list", field, file, out)
    kinds = [args[0]] * len(data) if args[-1] is Ellipsis else list(args)
    if len(kinds) != len(data):
        return _complain(data, f"must have {len(kinds)} entries", field, file, out)
    return tuple(
        _convert(item, kind, f"{field}[{index}]", file, out)
        for index, (item, kind) in enumerate(zip(data, kinds, strict=True))
    )


def _convert_plain(data: object, kind: Any, field: str, file: str, out: list[Complaint]) -> object:
    if kind is float:
        data = _NOT_FINITE.get(data, data) if isinstance(data, str) else data
        if isinstance(data, int | float) and not isinstance(data, bool):
            return float(data)
        return _complain(data, "must be a number", field, file, out)
    if kind is Path and isinstance(data, str):
        return Path(data)
    words = {int: "a whole number", bool: "true or false", str: "a text", Path: "a path"}
    if kind is not Path and isinstance(data, kind) and not (kind is int and isinstance(data, bool)):
        return data
    return _complain(data, f"must be {words.get(kind, kind)}", field, file, out)


def _complain(data: object, rule: str, field: str, file: str, out: list[Complaint], legal: str = "") -> object:
    shown = json.dumps(data, default=str)
    out.append(Complaint(field, shown if len(shown) < 80 else shown[:77] + "...", rule, legal, file))
    return None


def _revive(data: object) -> object:
    """Free-form values as written, with lists as tuples (values hold tuples)."""
    if isinstance(data, list):
        return tuple(_revive(item) for item in data)
    if isinstance(data, dict):
        return {key: _revive(item) for key, item in data.items()}
    return data
