"""The range around a predicted step: how far measured steps of the same kind of plan lay from predictions that had
never seen their source (`bench/fit_constants.py --write`)."""

from collections.abc import Mapping
from typing import Literal, get_args

from meshwright.basics.figures import Constant
from meshwright.files.setup import Setup
from meshwright.predictor.constants import FITTED

Kind = Literal["busy", "waiting", "experts"]
KINDS: tuple[Kind, ...] = get_args(Kind)

_GUESS = (Constant(0.75, "guessed", "no measured rows of this kind"), Constant(1.25, "guessed", "likewise"))
_WAITING = 0.15
_WAITS = ("tp_comm", "cp_comm", "ep_comm", "pp_comm", "dp_comm", "bubble", "host")


def kind_of(setup: Setup, terms: Mapping[str, float], step_time_s: float) -> Kind:
    """The kind of plan: with experts; else by whether its devices wait (for links, each other or the host) for more
    than 15 % of the step, or are busy with products."""
    if setup.proposal.arch.experts:
        return "experts"
    waits = sum(terms[name] for name in _WAITS)
    return "waiting" if waits > _WAITING * step_time_s else "busy"


def spread_of(setup: Setup, terms: Mapping[str, float], step_time_s: float) -> tuple[Constant, Constant]:
    """Between which multiples of the predicted step nine of ten measured ones lie. Guessed on CPUs."""
    known = FITTED.get("ranges", {}).get(kind_of(setup, terms, step_time_s))
    if known is None or setup.proposal.cluster.device.kind != "gpu":
        return _GUESS
    source = f"{FITTED['source']}: rows of this kind, their document held out"
    return Constant(known[0], "fitted", source), Constant(known[1], "fitted", source)
