"""Plans are written and read back unchanged; incomplete and illegal ones are refused with what to do."""

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from meshwright.basics.errors import AnswerIsNo, InputError
from meshwright.files.job import parse_job
from meshwright.files.plan import Plan
from meshwright.files.plan_toml import parse_plan, plan_of, plan_text, read_plan, write_plan
from meshwright.files.prediction import Prediction, StageMemory

from .complete_job import COMPLETE


def plan(*overrides: str) -> Plan:
    return plan_of(parse_job(COMPLETE, overrides=overrides))


def same(one: Plan, two: Plan) -> None:
    """Equal in all that a plan says; names, paths and how it was written may differ."""
    for part in ("arch", "cluster", "training", "global_batch", "seq_len", "claims"):
        assert getattr(one.setup.proposal, part) == getattr(two.setup.proposal, part), part
    assert (one.layout, one.batch, one.prediction) == (two.layout, two.batch, two.prediction)
    for part in ("data", "profile", "tune", "runnable_by"):
        assert getattr(one.setup, part) == getattr(two.setup, part), part


def test_a_complete_job_is_a_plan() -> None:
    found = plan()
    assert found.layout.placement == (0, 1)
    assert (found.batch.micro_batches, found.layout.vpp, found.layout.recompute) == (4, 1, "none")
    assert found.layout.stages[0] == ("embed", "layers.0.attn", "layers.0.ffn", "layers.1.attn", "layers.1.ffn")
    assert found.prediction is None


def test_the_micro_batch_follows_from_their_number() -> None:
    text = COMPLETE.replace("micro_batch = 2", "micro_batches = 8")
    assert plan_of(parse_job(text)).batch.micro_batch == 1


def test_one_stage_needs_no_stages() -> None:
    text = "\n".join(line for line in COMPLETE.splitlines() if not line.startswith(("stages", "schedule")))
    found = plan_of(parse_job(text, overrides=["layout.pp=1", "layout.dp=4"]))
    assert found.layout.placement == (0,)
    assert found.layout.stages[0][-1] == "head"


def test_missing_keys_are_named_with_the_verb_that_fills_them(tmp_path: Path) -> None:
    path = tmp_path / "small.toml"
    path.write_text(COMPLETE[: COMPLETE.index("[layout]")].replace("micro_batch = 2\n", ""))
    with pytest.raises(InputError) as caught:
        read_plan(path)
    (complaint,) = caught.value.complaints
    assert complaint.rule == (
        "the layout is not complete: missing layout.dp, layout.tp, layout.pp, layout.schedule, layout.stages, "
        "batch.micro_batch"
    )
    assert complaint.legal == f"`meshwright plan {path} -o plan.toml` fills them"


def test_a_broken_batch_equation_is_answered_with_its_numbers() -> None:
    with pytest.raises(AnswerIsNo, match="16"):
        plan("batch.micro_batch=3")
    with pytest.raises(AnswerIsNo):
        plan("batch.micro_batches=3")


def test_a_wrong_world_is_answered_no_before_missing_keys() -> None:
    text = "\n".join(line for line in COMPLETE.splitlines() if not line.startswith("stages"))
    with pytest.raises(AnswerIsNo, match="GPUs"):
        plan_of(parse_job(text, overrides=["layout.dp=8"]))


def test_an_override_drops_the_prediction(tmp_path: Path) -> None:
    write_plan(replace(plan(), prediction=PREDICTION), tmp_path / "plan.toml")
    assert read_plan(tmp_path / "plan.toml").prediction == PREDICTION
    assert read_plan(tmp_path / "plan.toml", ["training.lr=1e-4"]).prediction is None


def test_stages_are_written_short() -> None:
    text = plan_text(
        plan("layout.stages=[['embed', 'layers.0', 'layers.1.attn'], ['layers.1.ffn', 'layers.2-3', 'head']]")
    )
    for spelling in ("layers.0", "layers.1.attn", "layers.1.ffn", "layers.2-3"):
        assert f'"{spelling}",' in text


def test_paths_are_rewritten_for_the_plan_s_folder(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    job = tmp_path / "job.toml"
    job.write_text(COMPLETE + "[data]\npath = 'texts'\n")
    write_plan(read_plan(job), tmp_path / "run" / "plan.toml")
    assert 'path = "../texts"' in (tmp_path / "run" / "plan.toml").read_text()
    data = read_plan(tmp_path / "run" / "plan.toml").setup.data.path
    assert data is not None
    assert Path(data).resolve() == (tmp_path / "texts").resolve()


def test_writing_leaves_no_partial_file(tmp_path: Path) -> None:
    write_plan(plan(), tmp_path / "plan.toml")
    assert [path.name for path in tmp_path.iterdir()] == ["plan.toml"]


PREDICTION = Prediction(
    step_time_s=1.5, step_time_range_s=(1.2, 1.9), tokens_per_s=341.3, tokens_per_s_per_gpu=85.3, mfu=None,
    bubble_fraction=0.25, exposed_comm_s=0.01, terms={"compute": 1.0, "bubble": 0.5}, stage_compute_s=(0.5, 1.0),
    idle_fraction=(0.6, 0.3), memory=(StageMemory(0, (0,), {"weights": 2**30}, 2),), memory_limit_bytes=2**31,
    fits=True, origins={"peak": "data sheet"},
)  # fmt: skip

_seconds = st.floats(0, 1e6, allow_subnormal=False)
_shares = st.floats(0, 1)
_words = st.text(st.characters(codec="utf-8", exclude_characters="\x00"), max_size=8)
_predictions = st.builds(
    Prediction,
    step_time_s=_seconds, step_time_range_s=st.tuples(_seconds, _seconds), tokens_per_s=_seconds,
    tokens_per_s_per_gpu=_seconds, mfu=st.none() | _shares, bubble_fraction=_shares, exposed_comm_s=_seconds,
    terms=st.dictionaries(_words, _seconds, max_size=3), stage_compute_s=st.lists(_seconds).map(tuple),
    idle_fraction=st.lists(_shares).map(tuple), fits=st.booleans(), memory_limit_bytes=st.integers(0, 2**50),
    memory=st.lists(
        st.builds(
            StageMemory, pipeline_rank=st.integers(0, 9), stages=st.lists(st.integers(0, 9)).map(tuple),
            parts=st.dictionaries(_words, st.integers(0, 2**50), max_size=3), in_flight=st.integers(0, 99),
        ),
        min_size=1, max_size=3,
    ).map(tuple),
    origins=st.dictionaries(_words, st.sampled_from(["measured", "fitted", "data sheet", "guessed"]), max_size=2),
)  # fmt: skip


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(["1f1b", "gpipe", "zb-h1"]), st.sampled_from([1, 2, 4]), st.sampled_from([1, 2]),
    st.sampled_from(["none", "selective", "full"]), st.integers(0, 3), st.booleans(), st.floats(0.5, 1e3),
    st.floats(0.25, 80), st.floats(1, 1000), st.none() | _predictions,
)  # fmt: skip
def test_written_plans_are_read_back_unchanged(
    schedule: str, micro_batch: int, tp: int, recompute: str, zero: int, overlap: bool, bucket: float,
    memory_gib: float, link: float, prediction: Prediction | None,
) -> None:  # fmt: skip
    overrides = [
        f"layout.schedule='{schedule}'", f"batch.micro_batch={micro_batch}", f"layout.tp={tp}",
        f"layout.recompute='{recompute}'", f"layout.zero={zero}", f"layout.overlap={str(overlap).lower()}",
        f"layout.bucket_mib={bucket!r}", f"cluster.memory_gib={memory_gib!r}", f"cluster.intra_node={link!r}",
        f"cluster.gpus={4 * tp}", "claims.model_exceeds_one_gpu=true", "tune.change=['stages']",
    ]  # fmt: skip
    try:
        written = replace(plan(*overrides), prediction=prediction)
    except AnswerIsNo:
        assume(False)
        raise
    text = plan_text(written)
    again = parse_plan(text)
    same(written, again)
    assert plan_text(again) == text
