"""A Timeline on disk: one `.npz` file."""

import json
from pathlib import Path
from zipfile import BadZipFile

import numpy as np

from meshwright.basics.errors import bad_input
from meshwright.timeline.columns import COLUMNS, Timeline, build

FORMAT = 1
SPANS = "spans"
"""The folder of a run that holds one timeline a rank."""


def save(timeline: Timeline, path: Path) -> None:
    """Write the timeline; the file appears whole or not at all."""
    header = {
        "format": FORMAT, "names": timeline.names, "groups": timeline.groups, "recorded": timeline.recorded,
        "mode": timeline.mode, "time_scale": timeline.time_scale,
    }  # fmt: skip
    partial = path.with_name(path.name + ".partial")
    with partial.open("wb") as stream:
        np.savez_compressed(stream, header=np.array(json.dumps(header)), **{c: getattr(timeline, c) for c in COLUMNS})
    partial.replace(path)


def load(path: Path) -> Timeline:
    """Read a timeline written by `save`. Raises InputError when the file is not one."""
    try:
        with np.load(path, allow_pickle=False) as data:
            header = json.loads(str(data["header"]))
            if header["format"] != FORMAT:
                rule = f"timeline format {header['format']} is not known"
                raise bad_input(rule, file=str(path), legal=f"format {FORMAT}")
            columns = {column: data[column] for column in COLUMNS}
    except (OSError, ValueError, KeyError, EOFError, BadZipFile) as error:
        raise bad_input(f"not a timeline that meshwright wrote ({type(error).__name__})", file=str(path)) from error
    return build(
        columns, names=header["names"], groups=header["groups"], recorded=header["recorded"], mode=header["mode"],
        time_scale=header["time_scale"],
    )  # fmt: skip
