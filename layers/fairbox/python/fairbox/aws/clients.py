"""boto3 clients with bounded time-outs."""

from __future__ import annotations

from typing import Any, Final
from urllib.parse import urlsplit

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, InvalidRegionError, NoRegionError

from fairbox.aws.gc_pause import gc_paused
from fairbox.aws.service_errors import service_error
from fairbox.errors import FairboxError, InvalidInput, NotConfigured
from fairbox.model.deadline import NO_TIME, out_of_time
from fairbox.settings import REGIONS, Settings

_CONFIG: Final = Config(
    connect_timeout=2,
    read_timeout=5,
    max_pool_connections=64,
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


def make_client(
    service: str,
    endpoint_url: str | None = None,
    region: str | None = None,
    read_timeout: float | None = None,
) -> Any:
    """Return a boto3 client of the environment's credentials.

    Args:
        service: boto3's name of it.
        endpoint_url: in place of the SDK's own.
        region: in place of the environment's.
        read_timeout: seconds for which a call waits for an answer; None: 5.

    Raises:
        NotConfigured: the environment names no region.
        InvalidInput: the region or the endpoint, given or of the environment, is none.
        Unavailable: what the environment names of the SDK is not there, such as a profile.
    """
    config = _CONFIG
    if read_timeout is not None:
        config = config.merge(Config(read_timeout=read_timeout))
    try:
        with gc_paused():
            client = boto3.client(  # type: ignore[call-overload]
                service,
                region_name=region or Settings.from_env().region,
                config=config,
                endpoint_url=endpoint_url,
            )
            _check_url(client.meta.endpoint_url)
            return bounded(client)
    except NoRegionError:
        raise _without_region() from None
    except InvalidRegionError as error:
        told = error.kwargs["region_name"]
        raise InvalidInput("region", f"a name such as eu-west-1, got {told!r}") from error
    except BotoCoreError as error:
        raise service_error(service, error, f"client {service}") from error
    except ValueError as error:
        field = "AWS_ENDPOINT_URL" if endpoint_url is None else "endpoint_url"
        raise InvalidInput(field, "an http or https URL") from error


def _without_region() -> FairboxError:
    """Return the error of an environment that names no region, or names it by an empty text."""
    values = Settings.from_env().values
    empty = next((name for name in REGIONS if name in values), None)
    if empty is None:
        return NotConfigured(REGIONS[0])
    return InvalidInput(empty, "a region such as eu-west-1, got empty text")


def _check_url(text: str) -> None:
    """Refuse with ValueError what botocore takes for an endpoint and fails to call."""
    url = urlsplit(text)
    if url.scheme not in ("http", "https") or url.port == 0:  # a port past 65535 is refused there
        raise ValueError(text)
