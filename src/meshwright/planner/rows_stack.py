"""Which software stack a row of a measured table ran on, by the framework's name and the date."""

import re
from dataclasses import dataclass

from meshwright.files.rows import Row
from meshwright.files.setup import Runner
from meshwright.predictor.stacks import MODULES, Stack, stack_named

_YEAR = re.compile(r"(20\d\d)(?:-(\d\d))?|\b(\d\d)\.(\d\d)")  # 2024, 2024-11, or a container of 24.11

# The first pattern found in the framework's name decides; "" stands for the Megatron of the row's date.
_FRAMEWORKS: tuple[tuple[str, str, Runner], ...] = (
    (r"zero.?bubble", "zero-bubble", "megatron"),
    (r"vocabulary.?parallel", "vocabulary-parallel", "megatron"),
    (r"deepspeed.*zero-?3|zero-?3.*deepspeed|deepspeed.*zero-?2", "deepspeed", "deepspeed"),
    (r"megatron.?deepspeed", "megatron-deepspeed", "megatron"),
    (r"automodel", "automodel", "torchtitan"),
    (r"torchtitan", "torchtitan", "torchtitan"),
    (r"foundry|composer", "llm-foundry", "torchtitan"),
    (r"nanotron", "nanotron", "megatron"),
    (r"picotron", "nanotron", "megatron"),
    (r"intern", "internevo", "megatron"),
    (r"maxtext|jax", "maxtext", "any"),
    (r"oneflow", "oneflow", "any"),
    (r"colossal|gemini", "deepspeed", "deepspeed"),
    (r"bmtrain", "deepspeed", "deepspeed"),
    (r"bridge", "megatron-bridge", "megatron"),
    (r"nemo|mcore|megatron|primus|flash.?attention training", "", "megatron"),
    (r"deepspeed", "deepspeed", "deepspeed"),
    (r"fsdp|accelerate|lit-?gpt|trainer|metaseq|hugging", "fsdp", "torchtitan"),
)
_SCHEDULED = (
    (r"zb-?2p|zb-?h2", "2p"), (r"v-?half", "v-half"), (r"v-?min", "v-min"), (r"vocab-?1", "vocab-1"),
    (r"vocab-?2", "vocab-2"), (r"interlaced", "interlaced"),
)  # fmt: skip
_OVERLAP = (
    (r"dispatcher (hybrid|deep)ep|hybridep|deepep", "dedup"), (r"all-to-all overlap|ep overlap on", "ep-overlap"),
    (r"graph full_iteration", "graphs"), (r"graph transformer_engine|cuda graphs for", "some-graphs"),
    (r"overlap features off", "no-overlap"),
)  # fmt: skip
_MEGATRON_FROM = ((2025, 2, "megatron-2025"), (2024, 1, "megatron-2024"), (2023, 1, "megatron-2023"),
                  (2022, 5, "megatron-2022"), (0, 0, "megatron-2020"))  # fmt: skip


@dataclass(frozen=True, slots=True)
class RowStack:
    """The stack's name (with modifiers), its habits, who runs such plans, and what had to be assumed."""

    name: str
    stack: Stack
    runner: Runner
    assumed: tuple[str, ...]


def year_month(date: str) -> tuple[int, int] | None:
    """(2024, 11) of "2024-11", "24.11" or "24.11.01"; the month is 1 where only a year is given; None without one."""
    match = _YEAR.search(date)
    if match is None:
        return None
    if match.group(1):
        return int(match.group(1)), int(match.group(2) or 1)
    return 2000 + int(match.group(3)), int(match.group(4))


def row_stack(row: Row) -> RowStack:
    """The software stack of a row. An unknown framework counts as Megatron of the row's date, and is named."""
    assumed = []
    found = next(
        ((base, runner) for pattern, base, runner in _FRAMEWORKS if re.search(pattern, row.framework, re.IGNORECASE)),
        None,
    )
    base, runner = found or ("", "megatron")
    if found is None:
        assumed.append(f"framework {row.framework or 'not stated'}: the habits of Megatron of that date")
    when = year_month(row.date)
    if not base:
        if when is None:
            assumed.append("date not stated: software of today")
        base = next(name for year, month, name in _MEGATRON_FROM if (when or (2026, 1)) >= (year, month))
    if base == "megatron-deepspeed" and (when or (2022, 1)) >= (2023, 1):
        base += "-2023"
    elif base == "megatron-deepspeed" and "bf16" in row.precision.lower().split("/")[0]:
        base += "-bf16"
    modifiers = _modifiers(row, stack_named(base))
    name = "+".join((base, *modifiers))
    return RowStack(name, stack_named(name), runner, tuple(assumed))


def _modifiers(row: Row, stack: Stack) -> list[str]:
    """Where the row says that the run left its software's habits."""
    found = []
    attention = row.attention_impl.lower()
    if attention.startswith("flash") and stack.scores_bytes:
        found.append("flash")
    if attention in ("naive", "eager", "unfused") and not stack.scores_bytes:
        found.append("scores")
    said = f"{row.notes} {row.overlap_notes}".lower()
    if re.search(r"fused (ce|cross.?entropy)|cross.?entropy fusion on", said):
        found.append("fused-loss")
    found += _of_nemo(row)
    modules = re.search(r"selective recompute (?:of|modules:) ([a-z_, ]+)", row.notes)
    if modules:
        found += [f"re-{module}" for module in MODULES if module in re.split(r"[,\s]+", modules.group(1))]
    found += [name for pattern, name in _OVERLAP if re.search(pattern, said)]
    found += _bridge(row, stack)
    if re.search(r"token ?drop", row.model_name.lower()):
        found.append("capacity")
    found += _away(row)
    schedule = row.schedule.lower()
    found += [name for pattern, name in _SCHEDULED if re.search(pattern, schedule)]
    return found


def _bridge(row: Row, stack: Stack) -> list[str]:
    """From its release 26.06 on Megatron-Bridge runs mixtures of transformers on NVLink racks with overlapped dispatch
    and whole iterations in a CUDA graph (its summaries of 26.06 say so, later ones leave it out)."""
    late = stack.name.startswith("megatron-bridge") and (year_month(row.date) or (0, 0)) >= (2026, 7)
    racks = row.gpu.upper().startswith("GB") and not row.overlap_notes
    hybrid = "nemotron" in row.model_name.lower()
    return ["ep-overlap", "some-graphs" if hybrid else "graphs"] if late and racks and row.experts else []


def _of_nemo(row: Row) -> list[str]:
    """NeMo reduced gradients in bf16, and until the summer of 2024 updated with Apex' distributed Adam."""
    if not re.search(r"\bnemo\b", row.framework.lower()) or "automodel" in row.framework.lower():
        return []
    when = year_month(row.date) or (2026, 1)
    return ["half-gradients", "remainders"] if (2023, 1) <= when < (2024, 7) else ["half-gradients"]


def _away(row: Row) -> list[str]:
    """Activations in CPU memory: of so many layers, or all."""
    said = row.offload.lower()
    of_layers = re.search(r"activations? of (\d+) layers", said)
    if of_layers and row.layers:
        return [f"away-{min(100, round(100 * int(of_layers.group(1)) / row.layers))}"]
    moved = ("activation" in said and "false" not in said) or re.search(r"checkpoint-in-cpu y", row.notes.lower())
    return ["away-100"] if moved else []
