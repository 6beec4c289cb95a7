"""Units: the smallest things a stage boundary can separate, and the only key of costs, partitions and metrics."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from meshwright.basics.errors import bad_input
from meshwright.basics.names import nearest
from meshwright.model.architecture import Architecture

UnitKind = Literal["embed", "attn", "ffn", "layer", "head"]


@dataclass(frozen=True, slots=True)
class Unit:
    """One unit: `embed`, `layers.7.attn`, `layers.7.ffn`, `layers.7` (parallel-residual families) or `head`."""

    name: str
    kind: UnitKind
    layer: int | None = None


def units_of(arch: Architecture) -> tuple[Unit, ...]:
    """All units of a model in the order of its forward pass."""
    units = [Unit("embed", "embed")]
    for layer in range(arch.layers):
        if arch.parallel_residual:
            units.append(Unit(f"layers.{layer}", "layer", layer))
        else:
            units.append(Unit(f"layers.{layer}.attn", "attn", layer))
            units.append(Unit(f"layers.{layer}.ffn", "ffn", layer))
    return (*units, Unit("head", "head"))


_RANGE = re.compile(r"layers\.(\d+)(?:-(\d+))?(?:\.(attn|ffn))?")


def expand(arch: Architecture, text: str, field: str = "layout.stages") -> tuple[str, ...]:
    """Unit names in `text`: "embed", "head", "layers.0-5", "layers.3", "layers.6-11.attn". Raises InputError."""
    names = [unit.name for unit in units_of(arch)]
    match = _RANGE.fullmatch(text)
    if match is None:
        if text in names:
            return (text,)
        near = nearest(text, names)
        raise bad_input(
            "unknown unit", field=field, value=repr(text),
            legal=f"did you mean {near!r}?" if near else f"units are embed, layers.0-{arch.layers - 1}, head",
        )  # fmt: skip
    first, last = int(match.group(1)), int(match.group(2) or match.group(1))
    if first > last or last >= arch.layers:
        raise bad_input(
            f"the model has layers 0 to {arch.layers - 1}", field=field, value=repr(text),
            legal=f"layers.0-{arch.layers - 1}",
        )  # fmt: skip
    half = match.group(3)
    if half and arch.parallel_residual:
        raise bad_input(
            f"{arch.family} layers run attention and feed-forward in parallel: one unit a layer",
            field=field, value=repr(text), legal=f"layers.{first}",
        )  # fmt: skip
    wanted = [f"layers.{layer}" for layer in range(first, last + 1)]
    if arch.parallel_residual:
        return tuple(wanted)
    halves = (half,) if half else ("attn", "ffn")
    return tuple(f"{layer}.{part}" for layer in wanted for part in halves)


def expand_all(arch: Architecture, texts: Iterable[str], field: str = "layout.stages") -> tuple[str, ...]:
    """Unit names of a whole stage."""
    return tuple(name for text in texts for name in expand(arch, text, field))


def compact(names: Sequence[str]) -> tuple[str, ...]:
    """The shortest spelling of a stage: whole layers and runs of layers joined ("layers.0-5")."""
    spans: list[list[object]] = []  # [first layer, last layer, half or None]
    out: list[str] = []

    def flush() -> None:
        for first, last, half in spans:
            run = f"layers.{first}" if first == last else f"layers.{first}-{last}"
            out.append(f"{run}.{half}" if half else run)
        spans.clear()

    index = 0
    while index < len(names):
        parts = names[index].split(".")
        if parts[0] != "layers":
            flush()
            out.append(names[index])
            index += 1
            continue
        layer = int(parts[1])
        half: str | None = parts[2] if len(parts) == 3 else None
        if half == "attn" and index + 1 < len(names) and names[index + 1] == f"layers.{layer}.ffn":
            half, index = None, index + 1
        if spans and spans[-1][2] == half and spans[-1][1] == layer - 1:
            spans[-1][1] = layer
        else:
            spans.append([layer, layer, half])
        index += 1
    flush()
    return tuple(out)
