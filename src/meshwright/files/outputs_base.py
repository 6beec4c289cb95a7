"""What every object that a verb prints has in common."""

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

FORMAT: Literal[1] = 1


class Part(BaseModel):
    """A nested object."""

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)  # a verb builds what it prints


class Output(Part):
    """What a verb prints."""

    format: Literal[1] = Field(default=FORMAT, description="version of this schema")
