"""The network between nodes as people describe it, and what one device gets of it."""

import re
from dataclasses import replace

from meshwright.basics.errors import InputError, bad_input
from meshwright.basics.figures import Constant
from meshwright.cluster.catalogue import link, link_names, rate_of, stated_link
from meshwright.cluster.device import Link
from meshwright.cluster.names import spellings

_COUNT = re.compile(r"^(\d+)\s*[x×]\s*", re.IGNORECASE)
_PER = re.compile(r"\s*(?:per|a)\s+(node|gpu|device)\s*$", re.IGNORECASE)
_RATE = re.compile(r"(?<![\w.])(\d+(?:\.\d+)?)\s*(G(?:B|b|bit|bits|Byte|Bytes)(?:/s|ps)?)(?![\w/])")
_FAMILIES = {"infiniband": "ib", "ib": "ib", "roce": "roce", "ethernet": "ethernet", "omnipath": "omnipath"}
_MOST_ADAPTERS = 1024


def network(written: str | float, field: str = "cluster.inter_node") -> tuple[Link, int | None]:
    """The link of one adapter and the adapters a node, where the text says ("8x HDR200 IB", "4x100Gb RoCE per node",
    "800 Gbps per node": one adapter of that rate); None where it leaves them open (one a device).

    Raises InputError for an unknown name (naming the nearest) and for a kind without a rate ("RoCE").
    """
    if not isinstance(written, str):
        return link(written, field), None
    for text in spellings(written.strip()):
        found = _described(text, field)
        if found is not None:
            return found
    family = next((name for word, name in _FAMILIES.items() if re.search(rf"\b{word}\b", written.lower())), None)
    rows = [name for name in link_names() if family and name.startswith(f"{family}-")]
    if rows:
        raise bad_input("leaves the rate open", field=field, value=repr(written), legal=" | ".join(rows))
    return link(written, field), None


def _described(text: str, field: str) -> tuple[Link, int | None] | None:
    known = _known(text, field)
    if known is not None:
        return known, None
    count = _COUNT.match(text)
    rest = text[count.end() :] if count else text
    per = _PER.search(rest)
    rest = rest[: per.start()] if per else rest
    adapters = int(count[1]) if count else 1 if per and per[1].lower() == "node" else None
    if adapters is not None and not 1 <= adapters <= _MOST_ADAPTERS:
        raise bad_input("adapters a node", field=field, value=repr(text), legal=f"1 to {_MOST_ADAPTERS}")
    one = _adapter(rest.strip(), field)
    return None if one is None else (one, adapters)


def _adapter(text: str, field: str) -> Link | None:
    """One adapter: a name, a rate, or both ("100Gb RoCE", "200 Gb/s HDR InfiniBand", "OmniPath 100 Gb/s")."""
    known = _known(text, field)
    if known is not None:
        return known
    rate = _RATE.search(text)
    if rate is None:
        return None
    gb = rate_of(f"{rate[1]} {rate[2]}", field)
    words = (text[: rate.start()] + " " + text[rate.end() :]).lower().split()
    if gb is None or not all(word in _FAMILIES or _known(word, field) for word in words):
        return None
    families = [_FAMILIES[word] for word in words if word in _FAMILIES]
    names = [*words, *families, *(f"{family}-{gb * 8:g}" for family in families)]
    same = [one for name in names if (one := _known(name, field)) and one.bytes_per_s.value == gb * 1e9]
    return same[0] if same else stated_link(gb, field)


def _known(text: str, field: str) -> Link | None:
    try:
        return link(text, field)
    except InputError:
        return None


def one_devices_share(of: Link, gpus_per_node: int, adapters: int | None, oversubscription: float) -> Link:
    """The link at the rate that one device gets when all of its node send: the adapters' rate over the devices, at
    most one adapter's, divided by the oversubscription of the fabric. It keeps its name."""
    share = min(1.0, (adapters or gpus_per_node) / gpus_per_node) / oversubscription
    if share == 1.0:
        return of
    reasons = [f"{gpus_per_node} devices on {adapters} adapters"] if adapters and adapters < gpus_per_node else []
    reasons += [f"oversubscribed {oversubscription:g} to 1"] if oversubscription > 1 else []
    rate = of.bytes_per_s
    return replace(
        of, bytes_per_s=Constant(rate.value * share, rate.origin, f"{rate.source} ({', '.join(reasons)})")
    )  # fmt: skip
