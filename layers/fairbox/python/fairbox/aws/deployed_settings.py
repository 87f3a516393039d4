"""The names of a deployment's resources, from its SSM parameter."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from botocore.exceptions import BotoCoreError, ClientError

from fairbox.errors import NotAllowed, Unavailable
from fairbox.model.deployment import parameter_of
from fairbox.sdk.service_errors import code_of, service_error
from fairbox.settings import STACK, Settings

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

MakeClient = Callable[[str], Any]
_read: Final[dict[tuple[MakeClient, str], Mapping[str, str]]] = {}
_reading: Final = threading.Lock()


def settings_with(names: Iterable[str], settings: Settings | None, client: MakeClient) -> Settings:
    """Return settings that take the missing ones of the variables `names` from the deployment.

    The parameter is read once in a process, if one of `names` is missing and `FAIRBOX_STACK` names
    a deployment. Variables that are set already stay.

    Args:
        names: the variables that the caller uses.
        settings: settings in place of the environment's.
        client: makes boto3 clients by service name.

    Raises:
        InvalidInput: `FAIRBOX_STACK` is no name of a deployment.
        NotAllowed: the parameter may not be read.
        Unavailable: it does not exist, or SSM did not answer.
    """
    settings = settings or Settings.from_env()
    name = settings.optional(STACK)
    if name is None or not settings.lacks(names):
        return settings
    # one reading for all threads that start at once
    with _reading:
        if (client, name) not in _read:
            _read[client, name] = read_variables(name, client)
        return settings.over(_read[client, name])


def read_variables(name: str, client: MakeClient) -> dict[str, str]:
    """Return the variables of a deployment, read anew.

    Raises:
        InvalidInput: no deployment has such a name.
        NotAllowed, Unavailable: as for `settings_with`.
    """
    parameter = parameter_of(name)
    try:
        answer = client("ssm").get_parameter(Name=parameter)
    except (ClientError, BotoCoreError) as error:
        operation = f"ssm:GetParameter of {parameter}"
        if isinstance(error, ClientError) and code_of(error) == "ParameterNotFound":
            detail = f"no deployment {name} of this release is in this account and region"
            raise Unavailable(operation, detail, "never") from error

        failure = service_error("ssm", error, operation)
        if isinstance(failure, NotAllowed):
            hint = "the Access stack's policies allow it"
            failure = NotAllowed("ssm:GetParameter", hint, parameter, failure.role)
        raise failure from error

    try:
        values = json.loads(answer["Parameter"]["Value"])
        # a later release may write numbers: variables are text
        return {str(variable): str(value) for variable, value in values.items()}
    except (ValueError, AttributeError) as error:
        raise Unavailable(f"reading {parameter}", "it holds no JSON object", "never") from error
