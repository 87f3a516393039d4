"""The reference page of `fairbox doctor`, from the descriptions of its checks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from fairbox.doctor.aws import READS
from fairbox.doctor.examination import checks
from fairbox.model.deployment import DEFAULT_NAME, stacks_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

_INTRODUCTION: Final = """\
`fairbox doctor` looks at a deployment and says, for whatever is not as it should be, what to do. It
changes nothing: it makes describing calls, fewer than 120 for this application, reads the index of
shards that hold work, and counts the messages of five small shards. Only `--placement` scans.

The tables and queues are those that the environment names, the rest is found in the stacks:
{stacks}, those of another deployment with `--name` (or `FAIRBOX_STACK`), or those that `--stack`
names.
Without stacks, what they would have told is `not checked`, never silently ok; on the local
application, which has none, these lines are shown with `--all`. What nobody expected of one thing
is a finding about it, and the others are looked at.

| | |
|---|---|
| `ok` | as it should be; shown with `--all`, and with `--json` |
| `warn` | somebody should look |
| `fail` | a guarantee is broken until something is done; the command exits 1 |
| `not checked` | it could not be looked at; it says why, such as a call that was denied |

`--json` prints a finding a line: `check`, `subject`, `status`, `detail`, `advice`. `--check NAME`
makes one check only, and may be repeated.

A call that is denied says which action the caller lacks, and the other checks go on. Policies
Reader and Operator of stack `FairboxAccess` ([IAM](iam.md)) allow them all, but for destinations of
other services: who may not describe these reads `not checked`.
"""


def parts(
    note: str, table: Callable[[Sequence[str], Iterable[Sequence[str]]], str]
) -> Iterable[str]:
    """Yield the page's parts."""
    yield "# Doctor"
    yield note
    stacks = stacks_of(DEFAULT_NAME, feeds=True)
    yield _INTRODUCTION.format(stacks=", ".join(f"`{name}`" for name in stacks))
    yield "## Checks"
    for check in checks():
        yield f"### {check.name}"
        yield f"{check.title}. {check.summary}"
    yield "## Calls"
    rows = [(service, ", ".join(f"`{call}`" for call in calls)) for service, calls in READS.items()]
    yield table(("service", "calls"), rows)
