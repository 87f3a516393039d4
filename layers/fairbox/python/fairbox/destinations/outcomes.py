"""Outcomes of calls: errors of AWS told apart, and their text made safe."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    ConnectionClosedError,
    CredentialRetrievalError,
    NoCredentialsError,
    ReadTimeoutError,
)
from botocore.exceptions import ConnectionError as NotConnectedError

from fairbox.dispatch.ports import Blame, Outcome
from fairbox.sdk.clients import NoTimeLeftError

if TYPE_CHECKING:
    from collections.abc import Mapping


MAX_ERROR: Final = 200
_THROTTLING: Final = frozenset(
    {
        "EC2ThrottledException", "KMSThrottling", "KMSThrottlingException", "KmsThrottled",
        "LimitExceededException", "OverLimit", "PriorRequestNotComplete",
        "ProvisionedThroughputExceededException", "RequestLimitExceeded", "RequestThrottled",
        "RequestThrottledException", "SlowDown", "Throttled", "ThrottledException", "Throttling",
        "ThrottlingException", "TooManyRequestsException", "TransactionInProgressException",
    }
)  # fmt: skip
_AWAY: Final = frozenset({"ServiceUnavailable", "ServiceUnavailableException"})
_OF_THE_DESTINATION: Final = frozenset(
    {
        "AccessDenied", "AccessDeniedException", "AuthorizationError", "InternalError",
        "InternalException", "InternalFailure", "InternalServerError", "NonExistentQueue",
        "NotFound", "QueueDoesNotExist", "ResourceNotFoundException", "ServiceException",
    }
)  # fmt: skip
_TOO_MANY: Final = 429
_SERVICE_UNAVAILABLE: Final = 503
_SERVER_ERROR: Final = 500
_NOT_LET_IN: Final = frozenset({401, 403, 404})


def clean(text: str) -> str:
    """Return the text in one line of at most 200 characters, without control characters."""
    # cut before it is cleaned: an answer may be long, and most of it is thrown away
    spaced = "".join(c if c.isprintable() else " " for c in text[: 8 * MAX_ERROR])
    return " ".join(spaced.split())[:MAX_ERROR]


def refused(reason: str, retry_after: float | None = None, *, fault: Blame = "unknown") -> Outcome:
    """Return the outcome of a message that counts an attempt; `fault` says whose it is."""
    return Outcome("refused", clean(reason), retry_after, fault)


def throttled(reason: str, retry_after: float | None = None) -> Outcome:
    """Return the outcome of a message that the destination defers."""
    return Outcome("throttled", clean(reason), retry_after)


def unreachable(reason: str) -> Outcome:
    """Return the outcome of a message that did not reach the destination."""
    return Outcome("unreachable", clean(reason))


def gone(reason: str) -> Outcome:
    """Return the outcome of a message whose receiver no longer wants messages."""
    return Outcome("gone", clean(reason))


def too_large(size: int, limit: int) -> Outcome:
    """Return the outcome of a message that does not fit even alone, and never will."""
    reason = f"{size} bytes do not fit the destination's limit of {limit} bytes"
    return replace(refused(reason, fault="message"), final=True)


def of_entry(code: str, text: str) -> Outcome:
    """Return the outcome of an entry that failed by itself, or of a whole call that did."""
    reason = f"{code}: {text}" if text else code
    if code in _THROTTLING:
        return throttled(reason)
    if code in _AWAY:
        return unreachable(reason)
    return refused(reason, fault="destination" if code in _OF_THE_DESTINATION else "unknown")


def of_error(error: ClientError | BotoCoreError) -> Outcome:
    """Return the outcome of every message of a call that raised."""
    if isinstance(error, ClientError):
        return _of_client_error(error)
    # no call was made, so no attempt counts
    if isinstance(error, NoTimeLeftError):
        return throttled(str(error))
    # the call may have been carried out: an attempt counts
    if isinstance(error, ReadTimeoutError):
        return refused("no answer in time", fault="destination")
    if isinstance(error, ConnectionClosedError):
        return refused("the connection was closed without an answer", fault="destination")
    away = NotConnectedError | NoCredentialsError | CredentialRetrievalError
    if isinstance(error, away):
        return unreachable(f"cannot connect: {type(error).__name__}")
    return refused(f"{type(error).__name__}: {error}")


def _of_client_error(error: ClientError) -> Outcome:
    response: Mapping[str, Any] = error.response
    status = response.get("ResponseMetadata", {}).get("HTTPStatusCode")
    code = str(response.get("Error", {}).get("Code", ""))
    text = str(response.get("Error", {}).get("Message", ""))
    code = code.removeprefix("AWS.SimpleQueueService.") or "error"

    if status == _TOO_MANY:
        return throttled(f"{code}: {text}")
    # some services throttle with 503
    if status == _SERVICE_UNAVAILABLE and code not in _THROTTLING:
        return unreachable(f"{code}: {text}")
    if status in _NOT_LET_IN or (isinstance(status, int) and status >= _SERVER_ERROR):
        # by its code first: throttling may come with any status
        failed = of_entry(code, text)
        return replace(failed, fault="destination") if failed.verdict == "refused" else failed
    return of_entry(code, text)
