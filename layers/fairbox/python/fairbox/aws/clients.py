"""boto3 clients with bounded time-outs."""

from __future__ import annotations

from typing import Any, Final

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, NoRegionError

from fairbox.aws.gc_pause import gc_paused
from fairbox.errors import InvalidInput, NotConfigured, Unavailable
from fairbox.model.deadline import NO_TIME, out_of_time
from fairbox.settings import Settings

_CONFIG: Final = Config(
    connect_timeout=2,
    read_timeout=5,
    max_pool_connections=32,
    retries={"mode": "standard", "total_max_attempts": 1},  # Calls retries, once, in one place
)


class NoTimeLeftError(BotoCoreError):
    """No call may begin any more; see `fairbox.model.deadline`."""

    fmt = NO_TIME


def bounded(client: Any) -> Any:
    """Return a boto3 client whose calls keep to `calls_until`, retries by any code included."""
    client.meta.events.register_first("before-send", _refuse_late)
    return client


def _refuse_late(**_: Any) -> None:
    if out_of_time():
        raise NoTimeLeftError


def make_client(service: str, endpoint_url: str | None = None, region: str | None = None) -> Any:
    """Return a boto3 client of the environment's credentials.

    Args:
        service: boto3's name of it.
        endpoint_url: in place of the SDK's own.
        region: in place of the environment's.

    Raises:
        NotConfigured: the environment names no region.
        InvalidInput: the endpoint is no URL.
        Unavailable: what the environment names of the SDK is not there, such as a profile.
    """
    try:
        with gc_paused():
            client = boto3.client(  # type: ignore[call-overload]
                service,
                region_name=region or Settings.from_env().region,
                config=_CONFIG,
                endpoint_url=endpoint_url,
            )
            return bounded(client)
    except NoRegionError:
        raise NotConfigured("AWS_REGION") from None
    except ValueError as error:
        if endpoint_url is None:
            raise
        raise InvalidInput("endpoint_url", "an http or https URL") from error
    except BotoCoreError as error:
        raise Unavailable(f"client {service}", str(error)) from error
