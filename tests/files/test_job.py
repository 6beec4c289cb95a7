"""Jobs are read strictly: every complaint at once, each naming field, value, rule and legal values."""

import math
import tomllib

import pytest
import tomli_w
from hypothesis import given, settings
from hypothesis import strategies as st

from meshwright.basics.errors import Complaint, InputError
from meshwright.files.complaints import keys_of
from meshwright.files.job import Job, parse_job, parse_override, read_job
from meshwright.files.setup import Profiling, Setup, Tuning
from meshwright.files.tables import JobTables, ModelTable
from meshwright.layout.claims import CLAIMS
from meshwright.layout.proposal import Wanted
from meshwright.model.architecture import Architecture
from meshwright.model.training import Training

GOOD = """
[model]
layers = 4
hidden = 64
heads = 4
vocab = 512
[batch]
global = 8
seq_len = 32
"""


def complaints(text: str, *overrides: str) -> tuple[Complaint, ...]:
    with pytest.raises(InputError) as caught:
        parse_job(text, overrides=overrides)
    return caught.value.complaints


def only(text: str, *overrides: str) -> Complaint:
    (complaint,) = complaints(text, *overrides)
    return complaint


def test_smallest_job() -> None:
    job = parse_job(GOOD)
    assert job.tables.batch.global_ == 8
    assert job.tables.training.optimizer == "adamw"
    assert job.origins["batch.global"] == "user"
    assert job.origins["training.optimizer"] == "default"
    assert not job.given("layout.tp")


def test_all_complaints_at_once() -> None:
    text = GOOD + "[layout]\ntp = 0\nzero = 4\nschedule = '1fb1'\n[training]\nlr = -1.0\n"
    assert [c.field for c in complaints(text)] == ["training.lr", "layout.tp", "layout.zero", "layout.schedule"]


def test_unknown_key_names_the_nearest_of_its_table() -> None:
    found = only(GOOD + "[layout]\nschedul = '1f1b'\n")
    assert (found.field, found.rule) == ("layout.schedul", "unknown key")
    assert found.legal == "did you mean layout.schedule?"


def test_key_of_another_table_is_named_there() -> None:
    assert only(GOOD + "[layout]\nmicro_batch = 2\n").legal == "did you mean batch.micro_batch?"


def test_unknown_table_names_the_nearest() -> None:
    found = only(GOOD + "[trainig]\nlr = 1.0\n")
    assert (found.rule, found.legal) == ("unknown table", "did you mean training?")


def test_wrong_literal_lists_the_legal_values() -> None:
    found = only(GOOD + "[layout]\nrecompute = 'ful'\n")
    assert found.value == '"ful"'
    assert found.legal == "did you mean 'full'? legal: none | selective | full"


@pytest.mark.parametrize(
    ("value", "rule"),
    [
        ("0", "must be at least 1"),
        ("-3", "must be at least 1"),
        ("true", "must be a whole number"),
        ("2.0", "must be a whole number"),
        ("'2'", "must be a whole number"),
        ("nan", "must be a whole number"),
        ("inf", "must be a whole number"),
        ("1000000000000000000", "must be at most 1000000"),
        ("[1]", "must be a whole number"),
        ("1979-05-27", "must be a whole number"),
    ],
)
def test_degrees_are_whole_numbers_from_one(value: str, rule: str) -> None:
    found = only(GOOD + f"[layout]\ntp = {value}\n")
    assert (found.field, found.rule, found.legal) == ("layout.tp", rule, "from 1 to 1000000")


@pytest.mark.parametrize("value", ["nan", "inf", "-inf", "0.0", "-1.0", "1e18", "true", "'fast'"])
def test_learning_rates_are_finite_and_above_zero(value: str) -> None:
    assert only(GOOD + f"[training]\nlr = {value}\n").field == "training.lr"


@pytest.mark.parametrize("value", ["nan", "inf", "0", "true", "''", "[]", "1e18"])
def test_links_are_names_or_rates(value: str) -> None:
    assert only(GOOD + f"[cluster]\nintra_node = {value}\n").field == "cluster.intra_node"


def test_nested_entries_are_named_by_their_place() -> None:
    assert only(GOOD + "[layout]\nstages = [['embed'], [3]]\n").field == "layout.stages[1][0]"


def test_syntax_error_names_the_line() -> None:
    found = only("format = 1\n[model\nconfig = 'x'\n")
    assert "line 2" in found.rule
    assert found.legal == "the line reads: [model"


def test_newer_format_is_refused_before_anything_else() -> None:
    found = only("format = 2\nfuture = true\n")
    assert (found.field, found.value) == ("format", "2")


def test_missing_file_lists_what_is_there(tmp_path) -> None:
    (tmp_path / "jobb.toml").write_text(GOOD)
    with pytest.raises(InputError, match=r"there is no such file \(in that folder: jobb.toml\)"):
        read_job(tmp_path / "job.toml")


@pytest.mark.parametrize("content", [b"\xff\xfe\x00", b"a = '\x00'"])
def test_files_that_are_not_text(tmp_path, content: bytes) -> None:
    (tmp_path / "job.toml").write_bytes(content)
    with pytest.raises(InputError):
        read_job(tmp_path / "job.toml")


def test_folder_is_not_a_job(tmp_path) -> None:
    with pytest.raises(InputError, match="is a folder"):
        read_job(tmp_path)


def test_model_needs_exactly_one_source() -> None:
    batch = "[batch]\nglobal = 8\nseq_len = 32\n"
    assert only("[model]\nname = 'a'\nparams = '1B'\n" + batch).rule.startswith("give one of")
    assert only("[model]\nname = 'a'\nlayers = 3\n" + batch).value == "name, layers"
    assert [c.field for c in complaints("[model]\nlayers = 3\nheads = 2\n" + batch)] == ["model.hidden", "model.vocab"]
    assert only("[model]\n" + batch).field == "model"


def test_overrides() -> None:
    job = parse_job(GOOD, overrides=["layout.tp=4", "training.optimizer=sgd", "layout.stages=[['embed']]"])
    assert (job.tables.layout.tp, job.tables.training.optimizer) == (4, "sgd")
    assert job.tables.layout.stages == [["embed"]]
    assert job.origins["layout.tp"] == "user"


def test_override_of_the_model_replaces_its_source() -> None:
    model = parse_job(GOOD, overrides=["model.name=llama-3-8b"]).tables.model
    assert (model.name, model.layers) == ("llama-3-8b", None)


@pytest.mark.parametrize("text", ["layout.tp", "=4", ".tp=4", "layout..tp=4", "format.x=1"])
def test_malformed_overrides(text: str) -> None:
    with pytest.raises(InputError):
        parse_job("format = 1\n" + GOOD, overrides=[text])


def test_override_cannot_smuggle_a_second_key() -> None:
    assert parse_override("layout.tp=4\nlayout.pp=2") == (("layout", "tp"), "4\nlayout.pp=2")


def test_tables_hold_what_the_values_hold() -> None:
    """Every field of the values can be written in a job, with the same default."""
    plain = set(keys_of(ModelTable)) - {"config", "name", "params", "label"}
    assert plain == set(Architecture.__slots__) - {"name", "config_path", "note", "scan_width"}
    tables = parse_job(GOOD).tables
    assert set(keys_of(type(tables.layout))) == set(Wanted.__slots__) - {"micro_batch", "micro_batches"}
    for table, value in ((tables.training, Training()), (tables.tune, Tuning()), (tables.profile, Profiling())):
        for name in type(value).__slots__:
            default = getattr(value, name)
            assert getattr(table, name) == (list(default) if isinstance(default, tuple) else default)
    assert tables.search.risk == Setup.__dataclass_fields__["risk"].default
    assert set(keys_of(type(tables.claims))) == set(CLAIMS)


_SCALARS = st.one_of(
    st.none(), st.booleans(), st.integers(-(10**20), 10**20), st.floats(), st.text(max_size=8), st.just([]),
    st.lists(st.one_of(st.integers(), st.text(max_size=3), st.just({"a": 1})), max_size=3), st.dates(),
)  # fmt: skip
_KEYS = st.one_of(
    st.sampled_from([key for name, f in JobTables.model_fields.items() for key in ("tp", "gpu", "global", name)]),
    st.text(st.characters(codec="utf-8"), min_size=1, max_size=6),
)


def _without_none(value: object) -> object:
    if isinstance(value, dict):
        return {key: _without_none(entry) for key, entry in value.items() if entry is not None}
    return value


@settings(max_examples=150, deadline=None)
@given(st.dictionaries(_KEYS, st.one_of(_SCALARS, st.dictionaries(_KEYS, _SCALARS, max_size=4)), max_size=6))
def test_any_toml_is_a_job_or_a_list_of_complaints(data: dict[str, object]) -> None:
    found: Job | InputError
    try:
        found = parse_job(tomli_w.dumps(_without_none(data)))
    except InputError as error:
        found = error
    if isinstance(found, InputError):
        assert found.complaints
        assert all(c.rule for c in found.complaints)
        assert all(len(str(c)) < 1200 for c in found.complaints)


@settings(max_examples=100, deadline=None)
@given(st.text(max_size=60))
def test_any_text_is_a_job_or_a_list_of_complaints(text: str) -> None:
    with pytest.raises(InputError):
        parse_job(text)


@given(st.one_of(st.booleans(), st.integers(-(10**9), 10**9), st.floats(allow_nan=False), st.text(max_size=10)))
def test_override_values_are_read_as_toml_spells_them(value: object) -> None:
    written = tomli_w.dumps({"v": value}).removeprefix("v = ").rstrip("\n")
    if "\n" not in written:
        (path, read) = parse_override(f"a.b={written}")
        assert path == ("a", "b")
        assert read == value or (isinstance(value, float) and math.isclose(read, value))
        assert tomllib.loads(f"v = {written}")["v"] == read


def test_a_mark_of_byte_order_is_no_content(tmp_path) -> None:
    file = tmp_path / "job.toml"
    file.write_text(GOOD, encoding="utf-8-sig")
    assert read_job(file).tables.model.layers == 4
