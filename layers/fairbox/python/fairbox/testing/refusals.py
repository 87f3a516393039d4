"""Refusals of the in-memory engine, and their translation into botocore's own exceptions."""

from __future__ import annotations

from typing import Any, Final

from botocore.exceptions import ClientError, ParamValidationError

PARAMETER_VALUES: Final = "One or more parameter values were invalid: "


class Refusal(Exception):
    """A request that the engine refuses: the error's code, its message, further response fields."""

    def __init__(self, code: str, message: str, **fields: Any) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.fields = fields

    def as_client_error(self, operation: str) -> ClientError:
        """The exception that boto3's client raises for the same refusal."""
        return client_error(self.code, self.message, operation, **self.fields)


class KeyTypeRefusal(Refusal):
    """A key of a table or an index whose value is of another type than the schema's.

    A single call refuses it like any other; a transaction is cancelled for it.
    """

    def __init__(self, message: str) -> None:
        super().__init__("ValidationException", message)


def client_error(code: str, message: str, operation: str, **fields: Any) -> ClientError:
    """A ClientError as botocore makes it; `fields` stand beside ``Error`` in its response."""
    server_side = code in {"InternalServerError", "ServiceUnavailable"}
    response: Any = {
        "Error": {"Code": code, "Message": message},
        "ResponseMetadata": {
            "HTTPStatusCode": 500 if server_side else 400,
            "RetryAttempts": 0,
            "RequestId": "",
            "HTTPHeaders": {},
        },
        "message": message,
        **fields,
    }
    return ClientError(response, operation)


def parameter_error(report: str) -> ParamValidationError:
    """The error that botocore raises for a request that its service model does not know."""
    return ParamValidationError(report=report)


def invalid(message: str) -> Refusal:
    """A ValidationException."""
    return Refusal("ValidationException", message)


def invalid_parameter(message: str) -> Refusal:
    """A ValidationException about the values of parameters, with the service's opening words."""
    return invalid(PARAMETER_VALUES + message)
