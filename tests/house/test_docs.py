"""The documents name what exists: files, verbs, make targets, floors."""

import re
import tomllib
from pathlib import Path

import pytest

from meshwright.cli.application import VERBS
from meshwright.cli.later import LATER

REPOSITORY = Path(__file__).parents[2]
DOCUMENTS = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "docs/architecture.md")
PACKAGE = REPOSITORY / "src" / "meshwright"


def _text(name: str) -> str:
    return (REPOSITORY / name).read_text()


@pytest.mark.parametrize("name", DOCUMENTS)
def test_every_file_that_a_document_names_exists(name: str) -> None:
    inside = re.findall(r"`([\w./*-]+\.(?:py|toml|md|txt)|[\w./-]+/)`", _text(name))
    links = re.findall(r"\]\((?!http)([^)#]+)\)", _text(name))
    # Files that people or runs write have no place in the repository.
    written = {"job.toml", "plan.toml", "machine.toml", "tune.md", "runs/", "runs/NAME/"}
    for path in {*inside, *links} - written:
        places = (REPOSITORY, (REPOSITORY / name).parent, PACKAGE)
        assert (
            any(list(place.glob(path.rstrip("/"))) for place in places if not path.startswith(".."))
            or ((REPOSITORY / name).parent / path).exists()
        ), path


def test_the_readme_lists_the_verbs_there_are() -> None:
    table = _text("README.md").split("## Verbs")[1].split("\n## ")[0]
    assert re.findall(r"^\| `(\w+)`", table, re.M) == [verb.__name__ for verb in VERBS]
    missing = _text("README.md").split("## Limits")[1]
    assert all(f"`{name}`" in missing for name in LATER)


def test_make_targets_and_settings_in_the_documents_exist() -> None:
    makefile = _text("Makefile")
    for name in DOCUMENTS:
        for target in re.findall(r"(?:^|`)make ([a-z]+)", _text(name), re.M):
            assert re.search(rf"^{target}:", makefile, re.M), target
    for setting in ("PYTHON", "TORCH_INDEX"):
        assert f"{setting} ?=" in makefile


def test_the_floors_drawn_are_the_floors_held() -> None:
    contracts = tomllib.loads(_text("pyproject.toml"))["tool"]["importlinter"]["contracts"]
    (layers,) = (contract["layers"] for contract in contracts if contract["id"] == "floors")
    held = [{room.strip() for room in layer.split("|")} for layer in layers]
    picture = _text("docs/architecture.md").split("## The floors")[1].split("```")[1]
    drawn: list[set[str]] = []
    for line in picture.strip("\n").splitlines():
        floor, room = line[:1].strip(), line[3:].split("  ")[0]
        if floor or not drawn:
            drawn.append(set())
        drawn[-1] |= {name.strip().rstrip("/") for name in room.split(",")}
    assert drawn == held
    rooms = {path.name for path in PACKAGE.iterdir() if (path / "__init__.py").exists()}
    assert rooms <= set().union(*held)


def test_the_import_contract_about_torch_covers_every_room_but_the_trainer() -> None:
    contracts = tomllib.loads(_text("pyproject.toml"))["tool"]["importlinter"]["contracts"]
    (covered,) = (contract["source_modules"] for contract in contracts if contract["id"] == "torch")
    rooms = {path.name for path in PACKAGE.iterdir() if (path / "__init__.py").exists()}
    assert {name.removeprefix("meshwright.") for name in covered} >= rooms - {"trainer"}
