"""Every family computes what transformers' own model computes with the same weights, whole and in stages."""

from itertools import pairwise

import pytest

torch = pytest.importorskip("torch", reason="training needs meshwright[train]")
pytest.importorskip("transformers")

from meshwright.model.shapes import tensors_of  # noqa: E402
from meshwright.model.units import units_of  # noqa: E402
from meshwright.trainer.models.build import build  # noqa: E402
from meshwright.trainer.models.initial import initialize  # noqa: E402
from meshwright.trainer.models.wrapped_families import WRAPPED  # noqa: E402
from meshwright.trainer.weights import Weights, stored_shapes  # noqa: E402
from meshwright.trainer.weights_files import stored_tensors  # noqa: E402

from ..test_decoder import tensor_group  # noqa: E402
from .tiny import CONFIGS, config_folder, folder, reference  # noqa: E402

CPU = torch.device("cpu")


@pytest.mark.parametrize("name", CONFIGS)
def test_same_loss_and_gradients_as_transformers(name: str, tmp_path) -> None:
    arch, theirs = folder(name, tmp_path), reference(name)
    names = [unit.name for unit in units_of(arch)]
    ours = build(arch, tensor_group(), names)
    weights = Weights(tmp_path, arch)
    weights.fill(ours, CPU)
    tokens = torch.randint(0, arch.vocab, (2, 25), generator=torch.Generator().manual_seed(1))
    tokens[0, :4] = torch.tensor([0, 1, 3, 3])  # padding of one family or another
    inputs, labels = tokens[:, :-1], tokens[:, 1:]
    expected = theirs(input_ids=inputs).logits
    torch.testing.assert_close(ours(inputs), expected, rtol=1e-5, atol=1e-5)
    loss = ours(inputs, labels)
    their_loss = torch.nn.functional.cross_entropy(expected.flatten(0, 1), labels.flatten(), reduction="sum")
    torch.testing.assert_close(loss, their_loss, rtol=1e-6, atol=0)
    loss.backward()
    their_loss.backward()
    theirs.save_pretrained(tmp_path / "gradients", state_dict={n: p.grad for n, p in theirs.named_parameters()})
    gradients = Weights(tmp_path / "gradients", arch)
    whole = torch.stack([p.grad.norm() for p in theirs.parameters()]).norm()
    for own, parameter in ours.named_parameters():
        wanted = gradients.read(own, tuple(parameter.shape), tensor_group())
        # Some are zero by their nature (a key's bias shifts all scores alike) and hold rounding alone.
        assert (parameter.grad - wanted).norm() < max(1e-5 * wanted.norm(), 1e-7 * whole), own


@pytest.mark.parametrize("name", ["gemma3", "phi3", "gpt2", "gpt_neox", "olmo2", "mixtral"])
def test_stages_compose_to_the_whole_model(name: str, tmp_path) -> None:
    """Case E12: wherever a boundary falls, inside a layer too, each stage has its own parameters under global names."""
    arch = folder(name, tmp_path)
    names = [unit.name for unit in units_of(arch)]
    whole = build(arch, tensor_group(), names)
    initialize(whole, CPU, seed=3)
    tokens = torch.arange(48).view(2, 24)
    x = tokens
    found: list[str] = []
    ends = [0, 2, 3, len(names) - 1, len(names)]
    for first, last in pairwise(ends):
        stage = build(arch, tensor_group(), names[first:last])
        initialize(stage, CPU, seed=3)
        found += [held for held, _ in stage.named_parameters() if not (arch.tied and held == "lm_head.weight")]
        x = stage(x)
    assert sorted(found) == sorted(held for held, _ in whole.named_parameters())
    torch.testing.assert_close(x, whole(tokens), rtol=0, atol=0)


@pytest.mark.parametrize("name", CONFIGS)
def test_names_and_shapes_are_those_of_the_familys_folder(name: str, tmp_path) -> None:
    arch = folder(name, tmp_path)
    written = {stored: entry.shape for stored, entry in stored_tensors(tmp_path).items()}
    assert stored_shapes(arch) == written


@pytest.mark.parametrize("name", CONFIGS)
def test_each_unit_holds_the_elements_that_planner_and_predictor_count(name: str, tmp_path) -> None:
    arch = config_folder(name, tmp_path)
    for unit in units_of(arch):
        for tp in (1, 2) if WRAPPED[arch.family].tensor else (1,):
            held = sum(p.numel() for p in build(arch, tensor_group(tp), [unit.name]).parameters())
            counted = sum(tensor.local_size(tp) for tensor in tensors_of(arch, unit))
            if arch.qk_norm_wide and tp > 1 and unit.kind == "attn":  # copies of the norms over all heads
                counted += (arch.heads + arch.kv_heads) * arch.head_dim // 2
            assert held == counted, (unit.name, tp)
