"""What a gap between two runs that should be equal looks like. Imports no torch."""

import math
from collections.abc import Mapping

ODD = 20.0  # times larger than the loss's: a gradient norm's relative gap that rounding does not explain
NOTABLE = {True: 5e-5, False: 1e-3}  # relative gap of a norm below which nothing is said, in fp32 and below it
LEAST = 1e-4  # share of the squared norm
ALIKE = 0.03  # how far the estimates from several degrees may be apart to speak for one cause


def gap(ours: float, theirs: float) -> float:
    """Relative difference of two figures."""
    return abs(theirs - ours) / max(abs(ours), 1e-30)


def suspicious(losses: tuple[float, float], norms: tuple[float, float], exact: bool) -> str | None:
    """Why two runs of one training are not merely rounded differently, from their first losses and gradient norms; None
    when they may be. `exact`: both computed in fp32."""
    loss, norm = gap(*losses), gap(*norms)
    if not norm > NOTABLE[exact] or norm <= ODD * loss:
        return None
    repeat = "" if exact else "; repeat both in fp32, where rounding cannot hide it"
    return (
        f"suspicious: the gradient norms differ by {norm:.1%} where the losses differ by {loss:.2g} relative, as when "
        f"gradients are summed twice or not at all{repeat}"
    )


def counted_twice(norms: Mapping[int, float]) -> float | None:
    """The share r of the squared norm that copied parameters have, if their gradients were counted on each of t tensor
    ranks: printed / true = sqrt(1 + (t - 1) r). None when the norms, by tensor degree, do not follow that law.
    """
    if 1 not in norms or len(norms) < 2:
        return None
    found = [((norm / norms[1]) ** 2 - 1) / (degree - 1) for degree, norm in norms.items() if degree > 1]
    mean = math.fsum(found) / len(found)
    if not LEAST < mean < 1 or max(abs(r - mean) for r in found) > ALIKE:
        return None
    return mean


def explain(degree: int, losses: tuple[float, float], norms: tuple[float, float]) -> str:
    """What a gap of the first gradient norm under `degree` tensor ranks may come from, to be said after it; perhaps
    nothing."""
    said = suspicious(losses, norms, exact=True)
    share = counted_twice({1: norms[0], degree: norms[1]}) if degree > 1 else None
    if said and share is not None:
        said += f"; as if copied parameters ({share:.1%} of the squared norm) counted on each of {degree} tensor ranks"
    return f"; {said}" if said else ""
