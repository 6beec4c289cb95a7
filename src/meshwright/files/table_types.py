"""The types of values in the tables that people type."""

from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, PlainValidator


def _not_blank(text: str) -> str:
    if not text.strip():
        raise ValueError("must not be empty")
    return text


def _link(value: Any) -> str | float:
    if isinstance(value, str) and value.strip():
        return value
    if isinstance(value, int | float) and not isinstance(value, bool) and 0 < value <= 1e6:
        return float(value)
    raise ValueError("must be a link of the catalogue or a number of GB/s above 0")


def _parameters(value: Any) -> str | int:
    if isinstance(value, str) and value.strip():
        return value
    if isinstance(value, int) and not isinstance(value, bool) and 0 < value <= 10**14:
        return value
    raise ValueError('must be a number of parameters such as "1.2B"')


Text = Annotated[str, AfterValidator(_not_blank)]
Count = Annotated[int, Field(ge=1, le=10**9)]  # tokens, steps
Samples = Annotated[int, Field(ge=1, le=10**6)]  # a step; beyond it a prediction would take minutes
Degree = Annotated[int, Field(ge=1, le=10**6)]
Size = Annotated[float, Field(gt=0, le=1e6)]
Share = Annotated[float, Field(ge=0, lt=1)]
Peaks = Annotated[dict[str, Size], Field(min_length=1)]
LinkName = Annotated[str | float, PlainValidator(_link)]
Parameters = Annotated[str | int, PlainValidator(_parameters)]


class Table(BaseModel):
    """A TOML table: every key is known and has exactly its type; numbers are finite."""

    model_config = ConfigDict(
        extra="forbid", strict=True, allow_inf_nan=False, frozen=True, defer_build=True
    )  # a job builds the schema of all its tables at once
