"""Opens the destinations of subscriptions, and keeps them for reuse."""

from __future__ import annotations

import ipaddress
import re
import threading
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from fairbox.destinations.addresses import is_public, resolve
from fairbox.errors import InvalidInput, NotConfigured
from fairbox.model.regions import region_of
from fairbox.model.topics import SCHEMES, Subscription
from fairbox.settings import FEEDS_TABLE

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable, Sequence

    from fairbox.destinations.bounded_clients import Clients
    from fairbox.destinations.feed import PublishMany
    from fairbox.destinations.outbound import IdleConnections
    from fairbox.dispatch.ports import Destination, Outcome
    from fairbox.model.clock import Clock
    from fairbox.model.messages import Message

_MAX_KEPT: Final = 1000
# By scheme, which is the name of the service too: the class. A process imports only the kinds of
# destinations that it sends to, because imports are cold-start time.
_BATCHED: Final = {"sqs": "Sqs", "sns": "Sns", "events": "EventBridge", "kinesis": "Kinesis"}

_EXAMPLES: Final = {
    "sqs": "https://sqs.eu-west-1.amazonaws.com/123456789012/billing",
    "sns": "arn:aws:sns:eu-west-1:123456789012:orders",
    "events": "default",
    "kinesis": "arn:aws:kinesis:eu-west-1:123456789012:stream/orders",
    "lambda": "arn:aws:lambda:eu-west-1:123456789012:function:billing",
}
_QUEUE_ARN: Final = re.compile(r"arn:aws:sqs:([a-z0-9-]+):(\d{12}):([A-Za-z0-9_-]+(?:\.fifo)?)")


def _no_feeds(*_: object) -> object:
    raise NotConfigured(FEEDS_TABLE)


class DestinationFactory:
    """Opens destinations by the scheme of their address.

    Args:
        clients: gives boto3 clients by service name and region; see `make_clients`.
        clock: gives the time of webhooks' attempts.
        add_to_topic: adds messages to a pulled topic; one outcome each, in order.
        publish: publishes to feeds, as `Feeds.publish_many`; by default there are none.
        secrets: gives a subscription's keys for webhooks; none: unsigned.
        allow_private: whether webhooks may use `http` and go to private addresses.
        lookup: gives a host's addresses, or raises OSError.
        tls: verifies certificates for webhooks; by default with the system's authorities.
    """

    def __init__(
        self,
        *,
        clients: Clients,
        clock: Clock,
        add_to_topic: Callable[[Sequence[Message]], list[Outcome]],
        publish: PublishMany = _no_feeds,
        secrets: Callable[[Subscription], Sequence[bytes]] = lambda _: (),
        allow_private: bool = False,
        lookup: Callable[[str, int], Sequence[str]] = resolve,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._clients = clients
        self._clock = clock
        self._add_to_topic = add_to_topic
        self._publish = publish
        self._secrets = secrets
        self._allow_private = allow_private
        self._lookup = lookup
        self._tls = tls
        self._idle: IdleConnections | None = None
        self._kept: dict[Subscription, Destination] = {}
        self._lock = threading.Lock()

    def open(self, subscription: Subscription) -> Destination:
        """Return the destination of a subscription, the same for the same subscription.

        Raises:
            InvalidInput: the address is none that can be used; the field is `destination`.
        """
        with self._lock:
            destination = self._kept.get(subscription)
            if destination is None:
                # under the lock: two threads would open two sets of connections
                destination = self._make(subscription)
                if len(self._kept) >= _MAX_KEPT:  # those of subscriptions that were changed
                    self._kept.clear()
                self._kept[subscription] = destination
            return destination

    def _make(self, subscription: Subscription) -> Destination:
        scheme, _, address = subscription.destination.partition(":")
        if scheme in _BATCHED:
            return _kind(scheme)(self._clients(scheme, region=region_of(address)), address)
        if scheme == "lambda":
            return self._lambda(address)
        if scheme == "topic":
            return self._topic(subscription, address)
        if scheme == "feed":
            return self._feed(address)
        if scheme in ("https", "http"):
            return self._webhook(subscription)
        raise InvalidInput("destination", f"one of {', '.join(SCHEMES)}, then ':' and address")

    def _lambda(self, address: str) -> Destination:
        from fairbox.destinations.lambda_ import Lambda  # noqa: PLC0415 - when first needed

        region = region_of(address)
        return Lambda(lambda s: self._clients("lambda", region=region, read_timeout=s), address)

    def _topic(self, subscription: Subscription, name: str) -> Destination:
        from fairbox.destinations.topic import PulledTopic  # noqa: PLC0415 - when first needed

        # the message would come back to the topic that it leaves, for ever
        if name == subscription.topic:
            raise InvalidInput("destination", "another topic than the subscription's own")
        try:
            return PulledTopic(name, self._add_to_topic)
        except InvalidInput as error:
            raise InvalidInput("destination", f"topic: and {error.expected}") from None

    def _feed(self, name: str) -> Destination:
        from fairbox.destinations.feed import PublishedFeed  # noqa: PLC0415 - when first needed

        try:
            return PublishedFeed(name, self._publish)
        except InvalidInput as error:
            raise InvalidInput("destination", f"feed: and {error.expected}") from None

    def _webhook(self, subscription: Subscription) -> Destination:
        from fairbox.destinations import outbound  # noqa: PLC0415 - when first needed
        from fairbox.destinations.webhook import Webhook  # noqa: PLC0415 - when first needed

        url = outbound.Url.parse(subscription.destination)
        if url.scheme != "https" and not self._allow_private:
            raise InvalidInput("destination", "https, not http")
        # a name is judged when it is resolved, at each call
        if not self._allow_private and _is_address(url.host) and not is_public(url.host):
            raise InvalidInput("destination", "a host with a public address")

        # one limit for all webhooks: file descriptors are the process's
        self._idle = self._idle or outbound.IdleConnections()
        caller = outbound.Caller(
            url,
            allow_private=self._allow_private,
            lookup=self._lookup,
            tls=self._tls,
            idle=self._idle,
        )
        return Webhook(caller, clock=self._clock, secrets=lambda: self._secrets(subscription))


def _kind(scheme: str) -> Callable[[Any, str], Destination]:
    kind: Callable[[Any, str], Destination]
    kind = getattr(import_module("fairbox.destinations.aws_services"), _BATCHED[scheme])
    return kind


def check_aws_address(scheme: str, address: str) -> None:
    """Refuse an address that the destination's own parser refuses, with an example.

    Raises:
        InvalidInput: it is no address of this kind.
    """
    try:
        if scheme == "lambda":
            import_module("fairbox.destinations.lambda_").Lambda(None, address)
        else:
            # without a client: only calls need one, and the address is checked before
            _kind(scheme)(None, address)
    except InvalidInput as error:
        example = _EXAMPLES[scheme]
        arn = _QUEUE_ARN.fullmatch(address)
        # people give queues by ARN, as all other resources; its URL can be told from it
        if scheme == "sqs" and arn is not None:
            example = "https://sqs.{}.amazonaws.com/{}/{}".format(*arn.groups())
        raise InvalidInput("destination", f"{error.expected}, such as {scheme}:{example}") from None


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
