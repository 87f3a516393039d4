"""Lambda functions: one message a call, which waits for the function's answer."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, Final

from botocore.exceptions import BotoCoreError, ClientError

from fairbox.destinations.batching import fitting
from fairbox.destinations.outcomes import of_error, refused, too_large
from fairbox.dispatch.ports import TAKEN, Limits, Outcome
from fairbox.errors import InvalidInput

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from fairbox.tables.stored_messages import StoredMessage

_ARN = re.compile(
    r"arn:aws[a-z-]*:lambda:[a-z0-9-]+:[0-9]{12}:function:[A-Za-z0-9_-]{1,64}"
    r"(?::[A-Za-z0-9$_-]{1,128})?"
)
_ANSWER_BYTES: Final = 1024 * 1024
"""The most that is read of a failure: its trace may be long, and the end is needed to parse it."""


class Lambda:
    """A function, invoked with the envelope. An error that it raises refuses the message.

    Args:
        client_for: gives the client that waits for an answer for a number of seconds.
        arn: of a function, a version or an alias.

    Raises:
        InvalidInput: the ARN is not that of a function.
    """

    limits = Limits(1, 6 * 1024 * 1024)
    quick = False

    def __init__(self, client_for: Callable[[float], Any], arn: str) -> None:
        if _ARN.fullmatch(arn) is None:
            raise InvalidInput("destination", "lambda: and the ARN of a function")
        self._client_for = client_for
        self._arn = arn

    def size(self, message: StoredMessage) -> int:
        """Return the bytes of the envelope."""
        return len(fitting(message, self.limits.bytes))

    def send(self, messages: Sequence[StoredMessage], timeout: float) -> list[Outcome]:
        """Invoke the function for each message, `timeout` seconds each."""
        return [self._send(message, timeout) for message in messages]

    def _send(self, message: StoredMessage, timeout: float) -> Outcome:
        payload = fitting(message, self.limits.bytes)
        if len(payload) > self.limits.bytes:
            return too_large(len(payload), self.limits.bytes)

        try:
            # in whole seconds, because each time-out has a client of its own
            response = self._client_for(max(1.0, float(int(timeout)))).invoke(
                FunctionName=self._arn, InvocationType="RequestResponse", Payload=payload
            )
            # Lambda answers with status 200 also where the function raised an error
            if not response.get("FunctionError"):
                return TAKEN
            return refused(_reason(response["Payload"].read(_ANSWER_BYTES)))
        except (ClientError, BotoCoreError) as error:
            return of_error(error)


def _reason(payload: bytes) -> str:
    """Return the error that the function raised."""
    try:
        error = json.loads(payload)
    # the function's own code writes this answer
    except (ValueError, RecursionError):
        error = None
    if not isinstance(error, dict):
        return f"the function failed: {payload[:1000].decode(errors='replace')}"
    return f"{error.get('errorType', 'the function failed')}: {error.get('errorMessage', '')}"
