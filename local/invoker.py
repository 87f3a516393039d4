"""What triggers and routes know of functions: one call, and its result."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True)
class InvokeResult:
    """A function's answer as JSON, or its error: `function_error` is None where it succeeded."""

    payload: bytes
    function_error: str | None


class Invoker(Protocol):
    """Calls functions by logical id, physical name or ARN."""

    def invoke(self, function: str, payload: bytes) -> InvokeResult:
        """Call and wait for the result; thread-safe; waits while all processes are busy."""

    def kill(self, function: str) -> int:
        """SIGKILL the busy processes, or else any, and return how many."""

    def functions(self) -> list[str]:
        """Return the logical ids."""
