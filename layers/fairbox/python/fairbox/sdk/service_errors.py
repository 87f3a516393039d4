"""Errors of boto3 as those of Fairbox: not allowed, or unavailable and whether to repeat."""

from __future__ import annotations

import re
from typing import Any, Final

from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    NoAuthTokenError,
    NoCredentialsError,
    ParamValidationError,
    PartialCredentialsError,
    ProfileNotFound,
    SSOTokenLoadError,
    UnauthorizedSSOTokenError,
)

from fairbox.errors import FairboxError, NotAllowed, Unavailable

_DENIED: Final = frozenset(
    {
        "AccessDenied", "AccessDeniedException", "AuthFailure", "ExpiredToken",
        "ExpiredTokenException", "IncompleteSignature", "IncompleteSignatureException",
        "InvalidAccessKeyId", "InvalidClientTokenId", "InvalidSignatureException",
        "MissingAuthenticationToken", "MissingAuthenticationTokenException", "NotAuthorized",
        "SignatureDoesNotMatch", "UnrecognizedClientException",
    }
)  # fmt: skip
_WITHOUT_CREDENTIALS: Final = (
    NoAuthTokenError,
    NoCredentialsError,
    PartialCredentialsError,
    SSOTokenLoadError,
    UnauthorizedSSOTokenError,
)
_NEVER: Final = (ParamValidationError, ProfileNotFound)
_REPEATABLE: Final = frozenset(  # of the answers below 500
    {
        "LimitExceededException", "OperationAborted", "ProvisionedThroughputExceededException",
        "RequestLimitExceeded", "RequestTimeout", "SlowDown", "ThrottledException", "Throttling",
        "ThrottlingException", "TooManyRequestsException", "TransactionConflictException",
        "TransactionInProgressException",
    }
)  # fmt: skip
_TOLD: Final = re.compile(
    r"User: (?P<role>\S+) is not authorized to perform: (?P<action>[\w:*]+)"
    r"(?: on resource: \"?(?P<resource>[^\s\"]+)\"?)?(?: because (?P<why>.*))?"
)


def service_error(
    service: str, error: ClientError | BotoCoreError, operation: str = ""
) -> FairboxError:
    """Return the error as `NotAllowed` or `Unavailable`.

    Args:
        service: IAM's name of it, such as `dynamodb`; empty: the operation alone is named.
        error: the error of the call.
        operation: its description in the error's text; empty: the operation's name.
    """
    # only errors of an answer have it; those of the connection do not
    name = getattr(error, "operation_name", operation)
    action = f"{service}:{name}" if service else operation
    operation = operation or name

    if isinstance(error, ClientError):
        code, message = code_of(error), error.response["Error"].get("Message", "")
        detail = f"{code}: {message}" if message else code
        if code in _DENIED:
            return _not_allowed(action, detail)
        # `same_token`: the call may have been carried out before its answer was lost
        passing = answer_is_passing(error)
        return Unavailable(operation, detail, "same_token" if passing else "never")

    detail = f"{type(error).__name__}: {error}"
    if isinstance(error, _WITHOUT_CREDENTIALS):
        return NotAllowed(action, detail)
    return Unavailable(operation, detail, "never" if isinstance(error, _NEVER) else "same_token")


def code_of(error: ClientError) -> str:
    """Return the service's code of an error; empty where it gave none."""
    return error.response["Error"].get("Code", "")


def answer_is_passing(error: ClientError) -> bool:
    """Whether the same call may succeed: a fault of the service's side, or its load."""
    response: Any = error.response
    status = response.get("ResponseMetadata", {}).get("HTTPStatusCode", 500)
    return status >= 500 or code_of(error) in _REPEATABLE


def _not_allowed(action: str, detail: str) -> NotAllowed:
    told = _TOLD.search(detail)
    # services word their refusals as they like; this pattern is IAM's own
    if told is None:
        return NotAllowed(action, detail)
    return NotAllowed(
        told["action"], told["why"] or "no policy allows it", told["resource"] or "", told["role"]
    )
