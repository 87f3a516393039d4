"""Keys of webhook subscriptions, from Secrets Manager or the Parameter Store."""

from __future__ import annotations

import json
import threading
from typing import TYPE_CHECKING, Final

from botocore.exceptions import BotoCoreError, ClientError

from fairbox.errors import InvalidInput, NotConfigured, Unavailable
from fairbox.model.regions import region_of
from fairbox.model.webhook_signatures import parse_secret
from fairbox.settings import WEBHOOK_SECRETS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from fairbox.destinations.bounded_clients import Clients
    from fairbox.model.clock import Clock
    from fairbox.model.topics import Subscription

KEPT_SECONDS: Final = 300.0
AGAIN_SECONDS: Final = 5.0


class WebhookKeys:
    """Gives each subscription the keys that sign its webhooks; read again after five minutes.

    The text of a secret, or of a secure parameter, is a JSON object:
    `{"topic/subscription": ["whsec_...", ...]}`. While keys are being changed a subscription has
    two, and messages carry a signature of each. An empty list lets messages go unsigned; a
    subscription that is not named sends none.

    Args:
        clients: gives boto3 clients by service name and region; see `make_clients`.
        arns: the secrets and parameters, whose objects are put together.
    """

    def __init__(self, clients: Clients, arns: Sequence[str], clock: Clock) -> None:
        self._clients = clients
        self._arns = arns
        self._clock = clock
        self._lock = threading.Lock()
        self._read_at = float("-inf")
        self._keys: Mapping[str, list[bytes]] = {}

    def __call__(self, subscription: Subscription) -> Sequence[bytes]:
        """Return the subscription's keys; none: its messages go unsigned.

        Raises:
            NotConfigured: there are secrets, and none names the subscription.
            Unavailable: the secrets cannot be read, and no earlier reading is at hand.
            InvalidInput: a secret is not such an object; the error does not show it.
        """
        if not self._arns:
            return ()

        with self._lock:
            name = f"{subscription.topic}/{subscription.name}"
            # one that is not named may have been added just now
            kept = KEPT_SECONDS if name in self._keys else AGAIN_SECONDS
            if self._clock.now() - self._read_at >= kept:
                self._keys = self._read()
                self._read_at = self._clock.now()
            if name not in self._keys:
                raise NotConfigured(f"{name} in webhook_secrets (its keys, or [] for unsigned)")
            return self._keys[name]

    def _read(self) -> Mapping[str, list[bytes]]:
        keys: dict[str, list[bytes]] = {}
        for arn in self._arns:
            try:
                text = self._text(arn)
            except (ClientError, BotoCoreError, KeyError) as error:
                if self._keys:
                    return self._keys  # better an old key than an unsigned message
                raise Unavailable("reading webhook keys", type(error).__name__) from error
            keys |= _parse(arn, text)
        return keys

    def _text(self, arn: str) -> str:
        region = region_of(arn, WEBHOOK_SECRETS)
        if arn.split(":")[2:3] == ["ssm"]:
            client = self._clients("ssm", region=region)
            answer = client.get_parameter(Name=arn, WithDecryption=True)
            return str(answer["Parameter"]["Value"])
        client = self._clients("secretsmanager", region=region)
        return str(client.get_secret_value(SecretId=arn)["SecretString"])


def _parse(arn: str, text: str) -> dict[str, list[bytes]]:
    try:
        given = json.loads(text)
        return {str(name): [parse_secret(key) for key in keys] for name, keys in given.items()}
    # `from None`: the parser's error carries the whole secret
    except (ValueError, AttributeError, TypeError):
        raise InvalidInput(arn, "a JSON object of lists of whsec_ keys") from None
