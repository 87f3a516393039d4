"""boto3 clients with bounded time-outs."""

from __future__ import annotations

import gc
import os
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit
from weakref import WeakSet

import boto3
from boto3.resources.base import ServiceResource
from botocore.client import BaseClient
from botocore.config import Config
from botocore.exceptions import BotoCoreError, InvalidRegionError, NoRegionError

from fairbox.errors import FairboxError, InvalidInput, NotConfigured
from fairbox.model.clock import NO_TIME, check_seconds, out_of_time
from fairbox.sdk.service_errors import service_error
from fairbox.settings import REGIONS, Settings

if TYPE_CHECKING:
    from collections.abc import Iterator

_CONNECT_SECONDS: Final = 2.0
_READ_SECONDS: Final = 5.0
_CONFIG: Final = Config(
    connect_timeout=_CONNECT_SECONDS,
    read_timeout=_READ_SECONDS,
    max_pool_connections=64,
    retries={"mode": "standard", "total_max_attempts": 1},  # Calls retries, once, in one place
)


def client_config(deadline: float | None = None) -> Config:
    """Return the botocore `Config` of Fairbox's own clients, for a client that you make yourself.

    It repeats nothing: Fairbox does, and botocore's retries would multiply with those.

    Args:
        deadline: of the `Outbox`, in seconds: one call takes at most a third of it, so that
            there is time for another; None: 7 s, of them 2 to connect.
    """
    if deadline is None:
        return _CONFIG
    # a twelfth and a quarter: together the third that one call may take
    connect = min(_CONNECT_SECONDS, check_seconds(deadline) / 12)
    read = min(_READ_SECONDS, deadline / 4)
    return _CONFIG.merge(Config(connect_timeout=connect, read_timeout=read))


class NoTimeLeftError(BotoCoreError):
    """No call may begin any more; see `fairbox.model.clock.calls_until`."""

    fmt = NO_TIME


def bounded(client: Any) -> Any:
    """Return a boto3 client whose calls keep to `calls_until`, retries by any code included."""
    client.meta.events.register_first("before-send", _refuse_late)
    return apart_after_fork(client)


def apart_after_fork(client: Any) -> Any:
    """Return a boto3 client that opens connections of its own in a process that is forked.

    The connections of the process before would be shared, and each get answers of the other.
    """
    if isinstance(client, BaseClient):  # a double has no connections
        _clients.add(client)
    return client


def low_level(client: Any) -> Any:
    """Return a client that boto3 made as one; that of a resource changes values on their way.

    Raises:
        InvalidInput: it is a resource, or a resource's client.
    """
    wrong = isinstance(client, ServiceResource)
    if isinstance(client, BaseClient):
        service = client.meta.service_model
        wrong = service.service_name != "dynamodb" or _changes_values(client)
    if wrong:
        raise InvalidInput("dynamodb", 'boto3.client("dynamodb"), not a resource or its client')
    return apart_after_fork(client)


def _changes_values(client: BaseClient) -> bool:
    """Whether handlers change the parameters of a call, as those of boto3's resources do."""
    model = client.meta.service_model.operation_model("GetItem")
    event = "provide-client-params.dynamodb.GetItem"
    # asked of the handlers themselves: nothing else on a client tells that it is a resource's
    answers = client.meta.events.emit(event, params={}, model=model)
    return any(changed is not None for _, changed in answers)


def _close_connections() -> None:
    for client in list(_clients):
        client.close()


# weak: a client that nobody uses is not kept for this
_clients: Final[WeakSet[BaseClient]] = WeakSet()


if hasattr(os, "register_at_fork"):  # Windows forks nothing
    os.register_at_fork(after_in_child=_close_connections)


def _refuse_late(**_: Any) -> None:
    if out_of_time():
        raise NoTimeLeftError


def make_client(
    service: str,
    endpoint_url: str | None = None,
    region: str | None = None,
    read_timeout: float | None = None,
    deadline: float | None = None,
) -> Any:
    """Return a boto3 client of the environment's credentials.

    Args:
        service: boto3's name of it.
        endpoint_url: in place of the SDK's own.
        region: in place of the environment's.
        read_timeout: seconds for which a call waits for an answer; None: 5.
        deadline: as for `client_config`.

    Raises:
        NotConfigured: the environment names no region.
        InvalidInput: the region or the endpoint, given or of the environment, is invalid.
        Unavailable: an SDK setting of the environment, such as a profile, does not exist.
    """
    config = client_config(deadline)
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
    # botocore refuses a malformed endpoint so
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
    """Refuse with ValueError an endpoint that botocore accepts and fails to call."""
    url = urlsplit(text)
    if url.scheme not in ("http", "https") or url.port == 0:  # a port past 65535 is refused there
        raise ValueError(text)


@contextmanager
def gc_paused() -> Iterator[None]:
    """Pause the collector; afterwards it is as it was.

    Making a boto3 client loads a model of some ten thousand objects, all of which stay. The
    collections that this sets off each walk everything imported before: a tenth of a cold start.
    """
    # a caller may have switched it off for good
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
