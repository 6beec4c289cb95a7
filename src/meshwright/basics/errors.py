"""The errors a person sees. Each carries the exit code of DESIGN's table; none shows a traceback."""

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Complaint:
    """One thing that is wrong with an input, in the reader's terms."""

    field: str  # as the user wrote it, for example "layout.tp"; empty when the whole file is meant
    value: str  # the value found, printed; empty when nothing was given
    rule: str  # what must hold
    legal: str = ""  # legal values, or the nearest known name
    file: str = ""

    def __str__(self) -> str:
        place = ": ".join(part for part in (self.file, self.field) if part)
        shown = f" = {self.value}" if self.value else ""
        hint = f" ({self.legal})" if self.legal else ""
        return f"{place}{shown}: {self.rule}{hint}" if place else f"{self.rule}{hint}"


@dataclass(eq=False)
class InputError(Exception):
    """Unreadable or ill-typed input, unknown names, wrong usage: exit code 2. Lists every complaint."""

    complaints: tuple[Complaint, ...]
    exit_code: int = field(default=2, init=False)

    def __str__(self) -> str:
        return "\n".join(str(complaint) for complaint in self.complaints)


@dataclass(eq=False)
class AnswerIsNo(Exception):
    """Well-formed input whose answer is no (invalid layout, nothing fits): exit code 1."""

    message: str
    exit_code: int = field(default=1, init=False)

    def __str__(self) -> str:
        return self.message


@dataclass(eq=False)
class RunFailed(Exception):
    """A run that had started failed: exit code 3."""

    message: str
    exit_code: int = field(default=3, init=False)

    def __str__(self) -> str:
        return self.message


def bad_input(rule: str, *, field: str = "", value: object = "", legal: str = "", file: str = "") -> InputError:
    """An `InputError` with a single complaint."""
    return InputError((Complaint(field=field, value=str(value), rule=rule, legal=legal, file=file),))
