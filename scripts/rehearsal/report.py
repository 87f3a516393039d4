"""The table of a rehearsal: step, verdict, finding, remedy."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import groupby
from typing import TYPE_CHECKING

from scripts.rehearsal.findings import Level

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from scripts.rehearsal.accepted import Accepted
    from scripts.rehearsal.findings import Finding
    from scripts.rehearsal.plan import Step

_WORDS = {Level.NOTE: "note", Level.UNDECIDED: "undecided", Level.REFUSED: "REFUSED"}


@dataclass(kw_only=True)
class Report:
    """The steps, judged by what is accepted.

    Attributes:
        whole: whether every step was rehearsed, so that each acceptance must be needed.
    """

    steps: Sequence[Step]
    accepted: Sequence[Accepted]
    whole: bool = True
    _needed: set[Accepted] = field(default_factory=set)

    @property
    def refused(self) -> list[tuple[Step, Finding]]:
        """Refusals that nothing accepts."""
        return [
            (step, found)
            for step in self.steps
            for found in step.findings
            if found.level is Level.REFUSED and self._accepting(step, found) is None
        ]

    @property
    def superfluous(self) -> list[Accepted]:
        """Acceptances of what no longer occurs; none unless all was rehearsed."""
        for step in self.steps:
            for found in step.findings:
                self._accepting(step, found)
        return [one for one in self.accepted if one not in self._needed] if self.whole else []

    def _accepting(self, step: Step, found: Finding) -> Accepted | None:
        for one in self.accepted:
            if one.covers(step.title, found):
                self._needed.add(one)
                return one
        return None

    def lines(self) -> Iterator[str]:
        """Yield the table; what several steps find alike is told once, at the first."""
        told: set[Finding] = set()
        for name, steps in groupby(self.steps, key=lambda step: step.group):
            group = list(steps)
            if not any(step.findings for step in group):
                yield f"{name}: {len(group)} steps  ok"
                continue
            yield f"{name}:"
            for step in group:
                yield f"    {step.title}  {self._verdict(step)}"
                for found in step.findings:
                    if found not in told:
                        told.add(found)
                        yield from self._told(step, found)
        for one in self.superfluous:
            yield f"superfluous: {one.rule} on {one.stack} {one.subject} is accepted, and not found"
        found_count = len({found for step in self.steps for found in step.findings})
        yield (
            f"{len(self.steps)} steps, {found_count} different findings, "
            f"{len(self.refused)} refused and not accepted"
        )

    def _verdict(self, step: Step) -> str:
        levels = [f.level for f in step.findings if self._accepting(step, f) is None]
        if not levels:
            return "ok" if not step.findings else "accepted"
        return {Level.NOTE: "ok, with a note"}.get(max(levels), _WORDS[max(levels)])

    def _told(self, step: Step, found: Finding) -> Iterable[str]:
        accepting = self._accepting(step, found)
        word = "accepted" if accepting else _WORDS[found.level]
        yield f"        {word:<9}  {found.rule}: {found.stack} {found.subject}"
        yield f"                   {found.text}"
        yield f"                   -> {accepting.reason if accepting else found.remedy}"
