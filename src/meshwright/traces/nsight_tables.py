"""The tables of an Nsight Systems SQLite export, whatever its version calls them."""

import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from meshwright.basics.errors import bad_input
from meshwright.traces.opening import database_uri

SEEN = (3, 27)
"""The latest schema version that was looked at; later ones are read with a note."""

_MOST_ROWS = 20_000_000


@dataclass
class Export:
    """An open export. A table that was created lazily and is absent reads as None: not captured, never zero."""

    path: Path
    connection: sqlite3.Connection
    tables: dict[str, str]  # name in upper case, without the suffix of a version -> name in the file
    version: str  # of the schema, "" where the file does not say

    def has(self, table: str) -> bool:
        """Was anything of that table captured?"""
        return table.upper() in self.tables

    def columns(self, table: str) -> set[str]:
        """The columns of a table."""
        name = self.tables[table.upper()]
        return {str(row[1]) for row in self.run(f'pragma table_info("{name}")')}

    def numbers(self, table: str, wanted: Sequence[str], missing: int = -1) -> NDArray[np.int64] | None:
        """[rows, wanted columns] whole numbers; a column that the version lacks, and null, read as `missing`."""
        if not self.has(table):
            return None
        have = self.columns(table)
        cells = [f'coalesce(cast("{c}" as integer), {missing})' if c in have else str(missing) for c in wanted]
        rows = self.run(f'select {", ".join(cells)} from "{self.tables[table.upper()]}" limit {_MOST_ROWS}')
        return np.array(rows, np.int64).reshape(-1, len(wanted))

    def strings(self) -> dict[int, str]:
        """StringIds, and nothing where the table is absent."""
        if not self.has("StringIds"):
            return {}
        return {int(key): str(value) for key, value in self.run('select id, value from "StringIds"') if key is not None}

    def labels(self, table: str) -> dict[int, str]:
        """An enumeration by its own table; empty where the export has none."""
        if not self.has(table) or not {"id", "name"} <= self.columns(table):
            return {}
        column = "label" if "label" in self.columns(table) else "name"
        return {int(key): str(label) for key, label in self.run(f'select id, coalesce({column}, name) from "{table}"')}

    def run(self, statement: str) -> list[tuple[Any, ...]]:
        """All rows of a query. Raises InputError where the file is damaged, locked or shaped differently."""
        try:
            return self.connection.execute(statement).fetchall()
        except (sqlite3.Error, OverflowError, UnicodeDecodeError) as error:
            raise bad_input(f"a SQLite file that cannot be read ({error})", file=str(self.path)) from error


def open_export(path: Path) -> Export:
    """Open an export for reading; its schema version is read first.

    Raises InputError when the file is missing, locked, damaged or no export.
    """
    try:
        connection = sqlite3.connect(database_uri(path), uri=True, timeout=2)
        connection.text_factory = lambda raw: raw.decode("utf-8", "replace")
        names = [str(row[0]) for row in connection.execute("select name from sqlite_master where type='table'")]
    except (sqlite3.Error, UnicodeDecodeError) as error:
        raise bad_input(f"a SQLite file that cannot be read ({error})", file=str(path)) from error
    export = Export(path, connection, {_plain(name): name for name in sorted(names)}, "")
    if export.has("META_DATA_EXPORT") and {"name", "value"} <= export.columns("META_DATA_EXPORT"):
        rows = export.run("select value from META_DATA_EXPORT where name = 'EXPORT_SCHEMA_VERSION'")
        export.version = str(rows[0][0]) if rows else ""
    return export


def _plain(name: str) -> str:
    """A table's name without _V2, _V3: sorted so that the latest version of a table wins."""
    stem, _, suffix = name.upper().rpartition("_V")
    return stem if stem and suffix.isdigit() else name.upper()
