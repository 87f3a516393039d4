"""A guarantee of the documents, and the tests that hold the code to it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Guarantee:
    """One guarantee.

    Attributes:
        text: as the documents make it.
        page: where they do: a page of `docs`, with a heading's anchor.
        kinds: of breaches that break it: what stands before their colons.
        invariants: functions that yield those, as `module:name`.
        mutants: tests that break a rule of the code, and fail unless that is found.
        scenarios: whose worlds are held to it.
        faults: under which they are, where that is not all that the scenarios know.
        checks: other tests that hold the code to it.
    """

    text: str
    page: str
    kinds: tuple[str, ...] = ()
    invariants: tuple[str, ...] = ()
    mutants: tuple[str, ...] = ()
    scenarios: tuple[str, ...] = ()
    faults: tuple[str, ...] = ()
    checks: tuple[str, ...] = ()
