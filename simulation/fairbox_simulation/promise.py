"""A promise of the documents: where it is made, and what holds the code to it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Promise:
    """One promise.

    Attributes:
        text: as the documents make it.
        page: where they do: a page of `docs`, with a heading's anchor.
        kinds: of breaches that break it: what stands before their colons.
        invariants: functions that yield those, as `module:name`.
        twins: tests that break a rule of the code, and fail unless that is found.
        scenarios: whose worlds are held to it.
        faults: under which they are, where that is not all that the scenarios know.
        checks: other tests that hold the code to it.
    """

    text: str
    page: str
    kinds: tuple[str, ...] = ()
    invariants: tuple[str, ...] = ()
    twins: tuple[str, ...] = ()
    scenarios: tuple[str, ...] = ()
    faults: tuple[str, ...] = ()
    checks: tuple[str, ...] = ()
