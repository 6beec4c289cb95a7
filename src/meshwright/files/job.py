"""Read `job.toml`: TOML, overrides and strict tables; every complaint at once, and where each value comes from."""

import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from meshwright.basics.errors import Complaint, InputError, bad_input
from meshwright.basics.figures import ValueOrigin
from meshwright.files.complaints import complaints_of, keys_of, shown
from meshwright.files.names_in import unknown_names
from meshwright.files.tables import FORMAT, JobTables, ModelTable

MODEL_SOURCES = ("config", "name", "params")
_LARGEST_FILE = 16 * 2**20  # a job is a page of text; anything larger is the wrong file


@dataclass(frozen=True, slots=True)
class Job:
    """A job or plan as it was typed. `origins` says for every key ("layout.tp") where its value comes from."""

    tables: JobTables
    origins: Mapping[str, ValueOrigin]
    path: Path | None = None

    @property
    def folder(self) -> Path:
        """Where paths inside the job start from."""
        return self.path.parent if self.path else Path()

    @property
    def file(self) -> str:
        """The file's name for messages."""
        return str(self.path) if self.path else ""

    def given(self, field: str) -> bool:
        """Was this key typed (in the file or with --set)?"""
        return self.origins.get(field) == "user"


def read_text(path: Path) -> str:
    """The text of a file that a person wrote. Raises InputError when it is missing, unreadable or not text."""
    try:
        if path.is_dir():
            raise bad_input("is a folder, not a file", file=str(path))
        if path.stat().st_size > _LARGEST_FILE:
            raise bad_input("is too large to be a job or plan", file=str(path))
        return path.read_text(encoding="utf-8-sig")  # editors on Windows put a mark in front
    except FileNotFoundError:
        near = sorted(entry.name for entry in path.parent.glob("*.toml")) if path.parent.is_dir() else []
        hint = f"in that folder: {', '.join(near[:5])}" if near else "meshwright init writes one"
        raise bad_input("there is no such file", file=str(path), legal=hint) from None
    except UnicodeDecodeError:
        raise bad_input("is not text in UTF-8", file=str(path)) from None
    except (OSError, ValueError) as error:
        raise bad_input(f"cannot be read: {_reason(error)}", file=str(path)) from None


def _reason(error: Exception) -> str:
    return error.strerror or str(error) if isinstance(error, OSError) else str(error)


def parse_toml(text: str, file: str = "") -> dict[str, Any]:
    """The tables in a TOML text. Raises InputError with the line of a syntax error."""
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise bad_input(f"not valid TOML: {error}", file=file, legal=_line(text, str(error))) from None
    except (RecursionError, ValueError) as error:
        raise bad_input(f"not valid TOML: {error or 'nested too deeply'}", file=file) from None


def _line(text: str, message: str) -> str:
    found = re.search(r"at line (\d+)", message)
    lines = text.splitlines()
    if found is None or not 1 <= int(found.group(1)) <= len(lines):
        return ""
    return f"the line reads: {lines[int(found.group(1)) - 1].strip()[:80]}"


def parse_override(text: str) -> tuple[tuple[str, ...], Any]:
    """Key path and value of `layout.tp=4`: TOML's spelling of values; anything else is taken as text."""
    key, equals, written = text.partition("=")
    path = tuple(part.strip() for part in key.split("."))
    if not equals or not all(path):
        raise bad_input("must read table.key=value", field="--set", value=shown(text), legal="--set layout.tp=4")
    try:
        parsed = tomllib.loads(f"value = {written}")
    except (ValueError, RecursionError):
        return path, written.strip()
    return path, parsed["value"] if set(parsed) == {"value"} else written.strip()


def _apply(data: dict[str, Any], overrides: Sequence[str]) -> None:
    """Write the overrides into the tables. Setting a model's source replaces the source that the file names."""
    for text in overrides:
        path, value = parse_override(text)
        table = data
        for part in path[:-1]:
            below = table.setdefault(part, {})
            if not isinstance(below, dict):
                raise bad_input(f"{part} is not a table", field="--set", value=shown(text))
            table = below
        if path[:-1] == ("model",) and path[-1] in MODEL_SOURCES:
            table.clear()
        table[path[-1]] = value


def _origins(tables: JobTables) -> dict[str, ValueOrigin]:
    origins: dict[str, ValueOrigin] = {}
    for name in type(tables).model_fields:
        table = getattr(tables, name)
        if name in ("format", "prediction"):
            continue
        given = {type(table).model_fields[field].alias or field for field in table.model_fields_set}
        for key in keys_of(type(table)):
            origins[f"{name}.{key}"] = "user" if key in given else "default"
    return origins


def _contradictions(tables: Mapping[str, Any], file: str) -> list[Complaint]:
    """Complaints that concern several keys of one table."""
    model = tables.get("model")
    if not isinstance(model, dict):
        return []
    sources = [key for key in MODEL_SOURCES if key in model]
    plain = [key for key in keys_of(ModelTable) if key in model and key not in (*MODEL_SOURCES, "label", "family")]
    out = []
    if len(sources) > 1 or (sources and plain):
        both = ", ".join([*sources, *plain[:3]])
        rule = "give one of config, name and params, or plain dimensions"
        out.append(Complaint("model", both, rule, "keep one of them", file))
    if not sources:
        missing = [key for key in ("layers", "hidden", "heads", "vocab") if key not in model]
        rule = "is required with plain dimensions" if plain else "give one of config, name and params, or layers, …"
        if plain:
            out += [Complaint(f"model.{key}", "", rule, "", file) for key in missing]
        else:
            out.append(Complaint("model", "", rule, 'for example params = "1.2B"', file))
    return out


def parse_job(text: str, path: Path | None = None, overrides: Sequence[str] = ()) -> Job:
    """The job in a TOML text with the overrides applied. Raises InputError with every complaint."""
    file = str(path) if path else ""
    data = parse_toml(text, file)
    _apply(data, overrides)
    version = data.get("format", FORMAT)
    if isinstance(version, int) and not isinstance(version, bool) and version != FORMAT:
        rule = f"this version of meshwright reads format {FORMAT}"
        raise bad_input(rule, field="format", value=version, legal="a newer meshwright may read it", file=file)
    complaints: list[Complaint] = []
    tables = None
    try:
        tables = JobTables.model_validate(data)
    except ValidationError as error:
        complaints += complaints_of(error, JobTables, file)
        complaints += unknown_names(data, file)
    complaints += _contradictions(data, file)
    if tables is None or complaints:
        raise InputError(tuple(complaints))
    return Job(tables, _origins(tables), path)


def read_job(path: Path | str, overrides: Sequence[str] = ()) -> Job:
    """Read a job or plan. `overrides` are `table.key=value` texts. Raises InputError with every complaint."""
    path = Path(path)
    return parse_job(read_text(path), path, overrides)
