"""Where a figure comes from: its mode (how it was obtained) and the origin of the constants behind it."""

from dataclasses import dataclass
from typing import Literal

Mode = Literal["measured", "dilated", "emulated", "predicted"]
"""measured: real time on the real devices. dilated: each stage action stretched to K times its own thread CPU
time. emulated: each unit takes a stated time. predicted: computed by the predictor."""

Origin = Literal["measured", "fitted", "data sheet", "guessed"]

ValueOrigin = Literal["user", "file", "default", "detected"]
"""Where the value of a setting comes from: typed in the job (or --set), read from a file that it names, a default,
or detected on this machine."""


@dataclass(frozen=True, slots=True)
class Constant:
    """A number the predictor uses, with its origin and its source (a URL, a document, a command)."""

    value: float
    origin: Origin
    source: str = ""
