"""The range of PyTorch that the trainer was verified with; known without importing PyTorch."""

from meshwright.basics.errors import InputError, bad_input

SUPPORTED_TORCH = "2.13"


def refusal(found: str) -> InputError | None:
    """One clear line when this version of PyTorch is outside the supported range; None when it is inside."""
    if ".".join(found.split("+")[0].split(".")[:2]) == SUPPORTED_TORCH:
        return None
    return bad_input(
        f"the trainer supports torch {SUPPORTED_TORCH}.x", field="torch", value=found,
        legal=f"pip install 'torch=={SUPPORTED_TORCH}.*'",
    )  # fmt: skip
