"""Memory by pipeline rank on the page: every kind, the range, the limit of each rank, and how likely it runs out."""

from collections.abc import Mapping
from dataclasses import replace

from meshwright.basics.quantities import GIB
from meshwright.files.prediction import Prediction, StageMemory
from meshwright.reports.memory_bars import memory_bars

PARTS = {
    "weights": 4 * GIB, "gradients": 8 * GIB, "master": 2 * GIB, "optimizer": 4 * GIB, "activations": 10 * GIB,
    "logits": 3 * GIB, "reserve": GIB, "context": GIB,
}  # fmt: skip


def rank(number: int, parts: Mapping[str, int] = PARTS, **more: object) -> StageMemory:
    return StageMemory(number, (number,), parts, 2, **more)  # type: ignore[arg-type]


def prediction(*ranks: StageMemory, limit: int = 40 * GIB) -> Prediction:
    fits = all(one.total <= (one.limit or limit) for one in ranks)
    return Prediction(
        1.0, (0.8, 1.2), 1e3, 1e2, 0.4, 0.1, 0.0, {"compute": 1.0}, (0.9,) * len(ranks), (0.1,) * len(ranks), ranks,
        limit, fits, {},
    )  # fmt: skip


def test_every_kind_is_a_bar_where_the_one_before_ended() -> None:
    picture = memory_bars(prediction(rank(0), rank(1)))
    stacked = {trace["name"]: (trace["base"][0], trace["x"][0]) for trace in picture.data if trace["type"] == "bar"}
    assert {name: length * GIB for name, (_, length) in stacked.items()} == PARTS
    end = 0.0
    for base, length in stacked.values():
        assert base == end
        end += length
    assert end * GIB == sum(PARTS.values())


def test_the_range_is_a_whisker_and_the_probability_is_said() -> None:
    sure = rank(0, p_oom=0.0002, range=(30 * GIB, 35 * GIB))
    picture = memory_bars(prediction(sure, rank(1, p_oom=0.63, range=(38 * GIB, 46 * GIB))))
    (whiskers,) = (trace for trace in picture.data if trace["name"] == "nine of ten runs")
    totals = whiskers["x"]
    assert [t + up for t, up in zip(totals, whiskers["error_x"]["array"], strict=True)] == [35.0, 46.0]
    assert [t - down for t, down in zip(totals, whiskers["error_x"]["arrayminus"], strict=True)] == [30.0, 38.0]
    assert picture.layout["xaxis"]["range"][1] > 46
    assert picture.table is not None
    columns = dict(zip(picture.table.head, zip(*picture.table.rows, strict=True), strict=True))
    assert columns["runs out"] == ("below 0.1 %", "63 %")
    assert columns["limit"] == ("40.00 GiB", "40.00 GiB")
    assert columns["nine of ten runs"] == ("30.00 GiB to 35.00 GiB", "38.00 GiB to 46.00 GiB")


def test_the_caption_gives_verdict_and_probability_of_the_fullest() -> None:
    full = replace(rank(1), parts={**PARTS, "activations": 20 * GIB}, p_oom=0.9995, range=None)
    picture = memory_bars(prediction(rank(0, p_oom=0.1), full))
    assert "Pipeline rank 1 needs most: 43.00 GiB of 40.00 GiB (108%): does not fit" in picture.caption
    assert "probability above 99.9 %" in picture.caption


def test_what_is_not_estimated_is_said_and_not_drawn() -> None:
    picture = memory_bars(prediction(rank(0)))
    assert "probability" not in picture.caption
    assert all(trace["name"] != "nine of ten runs" for trace in picture.data)
    assert picture.table is not None
    assert picture.table.rows[0].count("not estimated") == 2


def test_ranks_of_a_mixed_cluster_have_limits_of_their_own() -> None:
    picture = memory_bars(prediction(rank(0, limit=80 * GIB), rank(1, limit=40 * GIB)))
    lines = picture.layout["shapes"]
    assert [(line["x0"], line["y0"], line["y1"]) for line in lines] == [(80.0, -0.5, 0.5), (40.0, 0.5, 1.5)]
    assert picture.layout["annotations"][0]["text"] == "limit 40.00 GiB to 80.00 GiB"
    assert len(memory_bars(prediction(rank(0), rank(1))).layout["shapes"]) == 1
