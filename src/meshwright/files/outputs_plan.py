"""Parts of what `plan` and `predict` print on request."""

from pydantic import Field

from meshwright.files.outputs_base import Part


class ParetoPart(Part):
    """A plan that no other beats in both memory and time."""

    layout: str
    micro_batch: int
    micro_batches: int
    memory_gib: float = Field(description="of the pipeline rank that needs most")
    step_time_s: float
    slower: float = Field(description="share by which the step is longer than the fastest plan's")


class RelaxationPart(Part):
    """One thing that could be otherwise, and the best plan of the job then."""

    change: str
    gain: float | None = Field(description="share of tokens a second (and device, where there are more); null: no plan")
    tokens_per_s: float | None
    layout: str
    micro_batch: int | None


class BudgetPart(Part):
    """What a number of tokens takes at the predicted rate, without restarts and evaluation."""

    tokens: float
    steps: int
    days: float
    gpu_hours: float
    energy_mwh: float | None = Field(description="every board at its rated power all the time; null: power unknown")
    board_watts: float | None
    cost: float | None = Field(description="gpu_hours times the price asked for; null: no price given")


class BucketPart(Part):
    """One size of the gradient exchange's buckets."""

    mib: float
    rounds: int
    buffer_gib: float
    exchange_s: float = Field(description="all rounds, hidden or not")
    latency_share: float = Field(description="of the exchange, what rounds cost beside their bytes")
    step_time_s: float
    knee: bool = Field(description="the smallest with two rounds or more that cost less than 5 %")
