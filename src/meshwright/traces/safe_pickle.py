"""Reading pickles of plain values (dict, list, tuple, text, numbers) and nothing that could run code."""

import io
import pickle
from pathlib import Path
from typing import Any

from meshwright.basics.errors import bad_input
from meshwright.traces.opening import whole


class _Refused(Exception):
    """The pickle asks for something that plain values never need."""


# The Python implementation: its memo is a dict, so that a forged index cannot make it claim gigabytes.
class _Plain(pickle._Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        raise _Refused(f"it refers to {str(module)[:60]}.{str(name)[:60]}")

    def persistent_load(self, pid: object) -> Any:
        raise _Refused("it refers to something outside the file")


def read_plain_pickle(path: Path) -> object:
    """The plain values in a pickle; no name in it is ever looked up, no function called.

    Raises InputError when the file cannot be read, is cut off, is no pickle, or holds anything but plain values.
    """
    raw = whole(path)
    try:
        return _Plain(io.BytesIO(raw)).load()
    except _Refused as refused:
        rule = f"a pickle that is not plain values ({refused}): refused, because reading it could run code"
        raise bad_input(rule, file=str(path)) from None
    except EOFError:
        raise bad_input("the pickle is cut off", file=str(path)) from None
    except Exception as error:  # damaged bytes make the machine fail in any way
        told = str(error).split("\n")[0][:100] or type(error).__name__
        cut = any(word in told for word in ("truncated", "exhausted", "unpack requires", "index out of range"))
        raise bad_input("the pickle is cut off" if cut else f"not a pickle that can be read ({told})",
                        file=str(path)) from None  # fmt: skip
