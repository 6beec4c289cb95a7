"""The page: complete, self-contained, and safe with any text."""

import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest

from meshwright.reports.headline import headline, shown_run
from meshwright.reports.page import page
from meshwright.reports.story import Story


class _Reader(HTMLParser):
    """Collects the tags' addresses, the text outside scripts, and the JSON of the pictures."""

    def __init__(self) -> None:
        super().__init__()
        self.addresses: list[str] = []
        self.tags: list[str] = []
        self.text: list[str] = []
        self.pictures: dict[str, object] = {}
        self._inside = ""
        self._plot: str | None = None

    def handle_starttag(self, tag, attrs) -> None:
        named = dict(attrs)
        self.tags.append(tag)
        self.addresses += [named[key] for key in ("src", "href", "action", "data") if named.get(key)]
        self._inside = tag
        self._plot = named.get("data-plot")

    def handle_endtag(self, tag) -> None:
        self._inside = ""

    def handle_data(self, data) -> None:
        if self._inside == "script":
            if self._plot:
                self.pictures[self._plot] = json.loads(data)
        elif self._inside != "style":
            self.text.append(data)


def _read(html: str) -> _Reader:
    reader = _Reader()
    reader.feed(html)
    return reader


@pytest.fixture(scope="module")
def tuned_page(tuned) -> str:
    return page(tuned)


def test_nothing_is_loaded_from_elsewhere(tuned_page) -> None:
    assert _read(tuned_page).addresses == []
    css = re.search(r"<style>(.*?)</style>", tuned_page, re.S)
    assert css is not None
    assert "url(" not in css.group(1)
    assert "@import" not in css.group(1)


def test_text_from_files_stays_text(tuned_page) -> None:
    reader = _read(tuned_page)
    assert "<b>and</b>" in "".join(reader.text)  # the finding's cause, shown as it is written
    assert "b" not in reader.tags


def test_names_cannot_break_out_of_the_pictures(tuned) -> None:
    evil = '</script><script>alert(1)</script><img src="x">'
    story = replace(tuned, runs=tuple(replace(view, name=view.name + evil) for view in tuned.runs), turns=())
    reader = _read(page(story))
    assert reader.addresses == []
    assert len(reader.pictures) == 7
    labels = [data["name"] for data in reader.pictures["plot-loss"]["data"]]
    assert labels[0].startswith("run-1&lt;/script&gt;")


def test_every_section_of_a_tuning_page(tuned_page) -> None:
    text = " ".join(_read(tuned_page).text)
    for title in (
        "What the loop changed", "Findings", "Step time, repeat by repeat", "Timeline of a step: run-1",
        "Where each rank's time goes", "Where the predicted step goes", "Memory by pipeline rank", "Loss", "Stages",
        "What could not be said: run-1", "Where the figures come from", "stages balanced by the measured unit times",
        "kernels: no kernel was recorded on a CPU",
    ):  # fmt: skip
        assert title in text, title


def test_predicted_stands_beside_measured_with_the_error(tuned) -> None:
    step = headline(tuned).tiles[0]
    assert (step.name, step.mode) == ("step time", "dilated")
    assert step.predicted is not None
    assert step.measured is not None
    assert any(remark.startswith("prediction off by") for remark in step.remarks)
    assert any("K = 4" in remark and "repeats" in remark for remark in step.remarks)


def test_the_headline_shows_the_run_of_the_plan_that_was_kept(tuned) -> None:
    assert shown_run(tuned).name == "run-2"
    undone = replace(tuned, turns=(replace(tuned.turns[0], kept=False),))
    assert shown_run(undone).name == "run-1"
    assert "1 change undone" in headline(undone).verdict


def test_a_run_that_recorded_little_says_so_and_shows_no_zeros(tuned) -> None:
    bare = replace(
        tuned.runs[0], result=None, metrics=(), memory=(), diagnosis=None, timeline=None, environment={}, name="bare"
    )
    html = page(Story("Run bare", bare.plan, (bare,), missing=("bare: a timeline not recorded",)))
    reader = _read(html)
    text = " ".join(reader.text)
    assert "bare: a timeline not recorded" in text
    assert "The run recorded no result." in text
    assert "plot-loss" not in reader.pictures
    assert "dilated, " not in text


def test_a_plan_alone_is_all_predicted(tuned) -> None:
    plan = tuned.plan
    html = page(Story("Plan for uneven", plan, plan_timeline=tuned.runs[0].predicted_timeline))
    reader = _read(html)
    assert sorted(reader.pictures) == ["plot-memory", "plot-terms", "plot-timeline"]
    assert "every figure on this page is predicted" in " ".join(reader.text)


def test_the_template_package_data_is_there() -> None:
    import meshwright.reports.page as module

    names = {path.name for path in (Path(module.__file__).parent / "templates").iterdir()}
    assert {"report.html.jinja", "report.css", "report.js"} <= names
