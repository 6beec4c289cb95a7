"""Hugging Face modules as stages: the family's own forward, masks and positions; only absent parts are replaced.

Needs transformers, imported when the first such model is built.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from meshwright.model.architecture import Architecture
from meshwright.model.huggingface import text_part
from meshwright.trainer.models.halves import Absent, half
from meshwright.trainer.models.names import bounds
from meshwright.trainer.models.stage import StageModel
from meshwright.trainer.models.wrapped_families import WRAPPED, Wrapped
from meshwright.trainer.models.wrapped_shards import shard, untangle
from meshwright.trainer.parallel.tensor_parallel import TensorGroup


class WrappedStage(StageModel):
    """A stage made of the modules of `base` (the family's model without its head), which are on the meta device."""

    def __init__(self, arch: Architecture, row: Wrapped, base: Any, tensor: TensorGroup, units: Sequence[str]) -> None:
        super().__init__(arch, tensor, units)
        config = base.config
        self.initializer_range, self.norm_start = float(config.initializer_range), row.norm_start
        self._softcap: float | None = getattr(config, "final_logit_softcapping", None)
        embedding = base.get_submodule(row.embedding)
        self._scale: float = getattr(embedding, "scalar_embed_scale", 1.0)
        self.padding = embedding.padding_idx
        model: Any = nn.Module()
        self.model = model
        first, last = bounds(arch.vocab, tensor.size, tensor.rank)
        if self.has_embedding:
            model.embed_tokens = nn.Embedding(last - first, arch.hidden)
            if row.positions:
                model.embed_positions = base.get_submodule(row.positions)
        self._held = model.layers = nn.ModuleDict()
        self._wholes = {"embed_tokens": arch.vocab, "lm_head": arch.vocab}
        self._shapes: dict[str, tuple[int, ...]] = {}
        self.stream: Tensor | None = None  # what the last layer gave, while a forward runs
        self._base = [self._with_layers(base, row)]  # in a list: its parameters are those of `model`
        if self.has_head:
            model.norm = base.get_submodule(row.norm)
            self.lm_head = nn.Linear(arch.hidden, last - first, bias=False)
            if arch.tied and self.has_embedding:
                self.lm_head.weight = model.embed_tokens.weight
        for path in filter(None, (row.embedding, row.norm)):
            base.set_submodule(path, nn.Identity())
        if row.positions:
            base.set_submodule(row.positions, Absent())

    def _with_layers(self, base: Any, row: Wrapped) -> Any:
        """`base` whose layers call the units that this stage holds, or pass the residual stream through."""
        arch, heads = self.arch, (self.arch.heads, self.arch.kv_heads, self.arch.head_dim)
        layers = base.get_submodule(row.layers)
        for index in range(arch.layers):
            held = [unit for unit in self.units if unit.split(".")[:2] == ["layers", str(index)]]
            layer = layers[index]
            if not held:
                layers[index] = UnitLayer(self, ())
                continue
            untangle(layer, row, heads)
            prefix = f"model.layers.{index}."
            self._shapes |= {prefix + name: tuple(p.shape) for name, p in layer.named_parameters()}
            if self.tensor.size > 1:
                shard(layer, row, heads, self.tensor)
            views = tuple(
                (unit, layer if arch.parallel_residual else half(layer, row, unit.rsplit(".", 1)[1])) for unit in held
            )
            self._held[str(index)] = layer if len(held) > 1 else views[0][1]
            layers[index] = UnitLayer(self, views)
        return base

    def embed(self, tokens: Tensor) -> Tensor:
        table: Any = self.model.embed_tokens
        x = self.tensor.embedding(tokens, table.weight, self.arch.vocab, self.padding)
        if self._scale != 1:
            x = x * self._scale
        if hasattr(self.model, "embed_positions"):
            positions: Any = self.model.embed_positions
            places = torch.arange(tokens.shape[1], device=tokens.device) if self.positions is None else self.positions
            x = x + F.embedding(places, positions.weight)
        return x.to(self.dtype)

    def layers(self, x: Tensor) -> Tensor:
        if not len(self._held):
            return x
        self._base[0](inputs_embeds=x, position_ids=self.positions, use_cache=False)
        out, self.stream = self.stream, None  # what the last unit gave, not what the family makes a view of
        assert out is not None
        return out

    def logits(self, x: Tensor) -> Tensor:
        norm: Any = self.model.norm
        out: Tensor = self.lm_head(self.tensor.enter(norm(x)))
        return out if self._softcap is None else torch.tanh(out / self._softcap) * self._softcap

    def whole_shape(self, name: str, local: Tensor) -> tuple[int, ...]:
        rows = self._wholes.get(name.split(".")[-2])
        return self._shapes.get(name, tuple(local.shape) if rows is None else (rows, *local.shape[1:]))


class UnitLayer(nn.Module):
    """In place of a layer: the units of it that a stage holds, each under the stage's runner; perhaps none."""

    def __init__(self, stage: StageModel, units: tuple[tuple[str, nn.Module], ...]) -> None:
        super().__init__()
        self._held: list[Any] = [stage, units]  # in a list: the stage is no child of its own layer

    def forward(self, x: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        stage, units = self._held
        for name, module in units:

            def unit(x: Tensor, module: nn.Module = module) -> Tensor:
                out: Tensor = module(x, *args, **kwargs)
                return out.to(stage.dtype)

            x = stage.run(name, unit, x)
        if units:
            stage.stream = x
        return x


def family_config(arch: Architecture) -> Any:
    """What transformers makes of the model's config.json, of its text decoder where it has several parts."""
    from transformers import AutoConfig

    path = Path(arch.config_path or "")
    whole = json.loads((path / "config.json" if path.is_dir() else path).read_text(encoding="utf-8-sig"))
    content = dict(text_part(whole, str(path))[0])
    return AutoConfig.for_model(**content)


def build_wrapped(arch: Architecture, tensor: TensorGroup, units: Sequence[str]) -> WrappedStage:
    """A stage of the family's Hugging Face modules without storage, for one tensor rank."""
    from transformers import AutoModelForCausalLM

    row, config = WRAPPED[arch.family], family_config(arch)
    with torch.device("meta"):
        whole: Any = AutoModelForCausalLM.from_config(config)  # type: ignore[no-untyped-call]
        base = whole.get_submodule(row.base)
        base.eval()  # the trainer drops nothing out
        stage = WrappedStage(arch, row, base, tensor, units)
    rotary = getattr(base, "rotary_emb", None)
    if rotary is not None:  # its frequencies are no parameters: computed, not filled
        base.rotary_emb = type(rotary)(config=config)
    return stage
