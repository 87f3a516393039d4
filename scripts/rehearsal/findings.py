"""Findings of a rehearsal: the rule, the place, the reason and the remedy."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum


class Level(IntEnum):
    """Weight of a finding."""

    NOTE = 0
    """Harmless, but an operator should know it."""
    UNDECIDED = 1
    """The templates alone do not decide it."""
    REFUSED = 2
    """CloudFormation refuses it, or it loses data."""


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One finding on one stack.

    Attributes:
        rule: short name, such as `export-gone`.
        stack: name of the stack.
        subject: logical id, export or quota.
        text: the reason, in one sentence.
        remedy: the action to take.
    """

    level: Level
    rule: str
    stack: str
    subject: str
    text: str
    remedy: str
