"""Findings that are accepted, each with its reason; one that no longer occurs must go."""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from scripts.rehearsal.findings import Finding


@dataclass(frozen=True, kw_only=True)
class Accepted:
    """One accepted kind of finding; step, stack and subject are patterns with `*`."""

    step: str
    rule: str
    stack: str
    subject: str
    reason: str

    def covers(self, step: str, finding: Finding) -> bool:
        """Whether it accepts a finding of a step."""
        return finding.rule == self.rule and all(
            fnmatchcase(text, pattern)
            for text, pattern in (
                (step, self.step),
                (finding.stack, self.stack),
                (finding.subject, self.subject),
            )
        )


ACCEPTED: Final = (
    Accepted(
        step="roll back",
        rule="data-abandoned",
        stack="*Storage",
        subject="ArchiveMembers*",
        reason="The stream stays, and writes what it has buffered; the next upgrade makes another."
        " Left alone it costs nothing.",
    ),
    Accepted(
        step="roll back",
        rule="data-deleted",
        stack="*Delivery",
        subject="DoorbellsApart*",
        reason="A doorbell is a hint. The messages stay in the table, and the sweep of the older"
        " release visits their shards.",
    ),
    Accepted(
        step="upgrade again",
        rule="name-taken",
        stack="*",
        subject="*Logs*",
        reason="A roll-back leaves vended logs behind, under their fixed name. Delete the log group"
        " before the next upgrade: docs/how-to/upgrade.md says so.",
    ),
    Accepted(
        step="*warm_*",
        rule="lowered",
        stack="*Storage",
        subject="Outbox*",
        reason="DynamoDB never lowers the warm throughput of a table; the settings say so.",
    ),
    Accepted(
        step="*removal_policy=destroy -> *",
        rule="custom-removed",
        stack="*Storage",
        subject="*AutoDeleteObjectsCustomResource*",
        reason="The CDK's handler empties a bucket only if its tag still asks for it, and the same"
        " update takes the tag away before the handler is called.",
    ),
)
