"""Whatever a training step of another implementation allocates is among the tensors that `memory --oom` knows."""

from dataclasses import replace
from typing import Any

import pytest

from meshwright.planner.oom import tensors_of_plan

from .plans import TINY, plan

torch: Any = pytest.importorskip("torch", reason="training needs meshwright[train]")
transformers: Any = pytest.importorskip("transformers", reason="training needs meshwright[train]")

_LARGE = 2**15  # bytes: smaller ones are masks, indices and scalars


def _allocated(precision: str, samples: int, seq_len: int, **config: Any) -> set[int]:
    """Bytes of every storage that one step of Hugging Face's Llama with AdamW brings into being."""
    from torch.utils._python_dispatch import TorchDispatchMode
    from torch.utils._pytree import tree_leaves

    sizes: set[int] = set()

    class Recorder(TorchDispatchMode):  # type: ignore[misc]
        def __torch_dispatch__(self, op: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            found = op(*args, **(kwargs or {}))
            given = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
            known = {tensor.untyped_storage().data_ptr() for tensor in given}
            made = [leaf for leaf in tree_leaves(found) if isinstance(leaf, torch.Tensor)]
            sizes.update(t.untyped_storage().nbytes() for t in made if t.untyped_storage().data_ptr() not in known)
            return found

    model = transformers.LlamaForCausalLM(transformers.LlamaConfig(attn_implementation="sdpa", **config))
    optimizer = torch.optim.AdamW(model.parameters(), foreach=True)
    tokens = torch.randint(0, config["vocab_size"], (samples, seq_len))
    with Recorder():
        with torch.autocast("cpu", torch.bfloat16, enabled=precision == "bf16"):
            loss = model(input_ids=tokens, labels=tokens).loss
        loss.backward()
        optimizer.step()
    return {size for size in sizes if size >= _LARGE}


@pytest.mark.slow
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_every_large_tensor_of_a_step_is_known(precision: str) -> None:
    arch = replace(TINY, layers=2, hidden=192, heads=6, kv_heads=2, head_dim=32, ffn_hidden=520, vocab=3001)
    allocated = _allocated(
        precision, 3, 160, hidden_size=192, intermediate_size=520, num_hidden_layers=2, num_attention_heads=6,
        num_key_value_heads=2, vocab_size=3001, tie_word_embeddings=False,
    )  # fmt: skip
    given = plan(arch=arch, micro_batch=3, global_batch=3, seq_len=160, training={"precision": precision})
    expected = {tensor.n_bytes for tensor in tensors_of_plan(given) if tensor.expected}
    assert len(allocated) > 8
    assert allocated <= expected
