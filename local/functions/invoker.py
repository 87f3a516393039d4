"""The port of the functions: one call that blocks until the function has answered."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True)
class InvokeResult:
    """A function's answer: JSON in `payload`; `function_error` is None where it succeeded."""

    payload: bytes
    function_error: str | None


class Invoker(Protocol):
    """Runs functions by logical id or physical name; thread-safe."""

    def invoke(self, function: str, payload: bytes) -> InvokeResult:
        """Block until `function` has answered `payload` (JSON)."""
        ...
