"""Findings, and the register of the checks that make them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Final, Literal, TypeVar

from fairbox.doctor.aws import NotAnswered
from fairbox.errors import FAILED, NewerVersion

if TYPE_CHECKING:
    from fairbox.doctor.examined_deployment import Deployment

T = TypeVar("T")
Status = Literal["ok", "warn", "fail", "not checked"]


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of a check for one thing.

    Attributes:
        check: the check's name.
        subject: what it looked at.
        status: `ok`; `warn`: to be looked at; `fail`: a guarantee is broken; `not checked`: it
            could not be looked at, and `detail` says why.
        detail: what was found.
        advice: what to do; empty where nothing is.
    """

    check: str
    subject: str
    status: Status
    detail: str = ""
    advice: str = ""

    def fields(self) -> dict[str, str]:
        """Return it as JSON has it."""
        return asdict(self)


Examination = Callable[["Deployment"], Iterable[Finding]]


@dataclass(frozen=True, slots=True)
class Check:
    """A check: its name, what it looks at in a line, what it expects, and how it looks."""

    name: str
    title: str
    summary: str
    examine: Examination


CHECKS: Final[dict[str, Check]] = {}


def check(name: str, title: str) -> Callable[[Examination], Examination]:
    """Register a check; its docstring is its summary."""

    def declare(examine: Examination) -> Examination:
        CHECKS[name] = Check(name, title, " ".join((examine.__doc__ or "").split()), examine)
        return examine

    return declare


@dataclass(frozen=True, slots=True)
class Reporter:
    """Makes the findings of one check about one subject."""

    check: str
    subject: str

    def ok(self, detail: str = "") -> Finding:
        """It is as it should be."""
        return Finding(self.check, self.subject, "ok", detail)

    def warn(self, detail: str, advice: str) -> Finding:
        """Somebody should look at it."""
        return Finding(self.check, self.subject, "warn", detail, advice)

    def fail(self, detail: str, advice: str) -> Finding:
        """A guarantee is broken until something is done."""
        return Finding(self.check, self.subject, "fail", detail, advice)

    def odd(self, error: Exception) -> Finding:
        """Something raised what nobody expected of it."""
        told = f"it cannot be looked at: {type(error).__name__}: {error}"
        return self.warn(told, "Correct what it names; if that is right, report this line.")

    def unknown(self, reason: str, advice: str = "") -> Finding:
        """It could not be looked at."""
        return Finding(self.check, self.subject, "not checked", reason, advice)

    def bad_or_ok(self, bad: Iterable[Finding], detail: str = "") -> Iterator[Finding]:
        """Yield what is bad; where nothing is, that it is as it should be."""
        found = list(bad)
        yield from found or [self.ok(detail)]


def each(
    name: str,
    subjects: Iterable[T],
    examine: Callable[[Reporter, T], Iterable[Finding]],
    label: Callable[[T], str] = str,
) -> Iterator[Finding]:
    """Examine each subject by itself: one that cannot be asked about does not end the others."""
    for subject in subjects:
        report = Reporter(name, label(subject))
        try:
            # a list: findings of a subject that then fails are not told by halves
            yield from list(examine(report, subject))
        except NotAnswered as error:
            yield report.unknown(str(error), error.advice)
        except (*FAILED, NewerVersion):  # not of the subject alone: they end the check
            raise
        except Exception as error:  # noqa: BLE001 - one odd subject must not end the others
            yield report.odd(error)
