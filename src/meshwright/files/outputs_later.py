"""The objects of the verbs that this version names and does not have yet: their schema is settled first."""

from typing import Any

from pydantic import Field

from meshwright.basics.figures import Mode
from meshwright.files.outputs import Output, Part
from meshwright.files.outputs_run import FindingPart, TrainOutput


class ComparedFigure(Part):
    """One figure of both sides."""

    name: str
    unit: str
    first: float | None
    others: list[float | None]
    spread: tuple[float, float] | None = Field(description="of the first over its repeats")
    significant: bool | None = Field(description="null: no repeats, cannot be said")


class CompareOutput(Output):
    """compare: what moved, and whether it is beyond the spread."""

    mode: Mode
    figures: list[ComparedFigure]
    significant: list[str]
    verdict: str


class RehearseOutput(TrainOutput):
    """rehearse: as train, on emulated devices."""

    fault: str | None


class ScalePoint(Part):
    """One number of devices."""

    devices: int
    mode: Mode
    weak: bool = Field(description="true: the batch grows with the devices")
    step_time_s: float
    tokens_per_s: float
    efficiency: float


class ScaleOutput(Output):
    """scale: a scalability test."""

    points: list[ScalePoint]
    efficiency: dict[str, float]
    law: dict[str, Any] = Field(description="the fitted law, its coefficients and its residual")
    knee: int | None = Field(description="devices beyond which more do not pay; null: not reached")
    loss_split: dict[str, float] = Field(description="what the lost efficiency went into, shares")


class MeasuredConstant(Part):
    """A constant of the predictor as this machine has it."""

    name: str
    value: float
    unit: str
    spread: tuple[float, float]


class CalibrateOutput(Output):
    """calibrate: this machine's devices and links, measured."""

    devices: list[dict[str, Any]]
    links: list[dict[str, Any]]
    coefficients: list[MeasuredConstant]


class ExportOutput(Output):
    """export, import: the files written, and what the other framework cannot express."""

    files: list[str]
    not_expressible: list[str]


class ImportOutput(ExportOutput):
    """import: another framework's configuration as a job."""


class ExploreOutput(Output):
    """explore: where the page is served."""

    path: str
    findings: list[FindingPart]
