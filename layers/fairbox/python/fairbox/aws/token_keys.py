"""The keys that sign tokens, from the versions of a secret in Secrets Manager."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

from botocore.exceptions import BotoCoreError, ClientError

from fairbox.errors import NotAllowed, NotConfigured, Unavailable
from fairbox.sdk.service_errors import service_error

if TYPE_CHECKING:
    from collections.abc import Callable

    from fairbox.model.clock import Clock

KEPT_SECONDS: Final = 60.0
AGAIN_SECONDS: Final = 5.0
"""Time after which an unknown id lets the secret be read again: the key may be a new one."""
LEAST_CHARACTERS: Final = 32
"""Of a key: RFC 7518 asks for as many bytes as its hash has."""
_STAGES: Final = ("AWSCURRENT", "AWSPREVIOUS")


class SecretKeys:
    """Today's version of a secret and the one before it, read again after a minute.

    A new value of the secret makes today's key the one before; tokens of both are taken.

    Args:
        client: makes boto3's Secrets Manager client, or one that has its methods, when it is
            first needed.
        secret: name or ARN of the secret, whose value is the key.
    """

    def __init__(self, client: Callable[[], Any], secret: str, clock: Clock) -> None:
        self._make_client = client
        self._secret = secret
        self._clock = clock
        self._keys: dict[str, str] = {}
        self._read_at = float("-inf")

    @cached_property
    def client(self) -> Any:
        """The client, made when it is first needed."""
        return self._make_client()

    def current(self) -> tuple[str, str]:
        """Return the id of today's version, and its value.

        Raises:
            NotAllowed, Unavailable: the secret cannot be read.
            NotConfigured: its value is too short.
        """
        return next(iter(self._fresh(KEPT_SECONDS).items()))

    def find(self, id_: str) -> str | None:
        """Return a valid key by its id.

        Raises:
            NotAllowed, Unavailable, NotConfigured: as `current`.
        """
        return self._fresh(KEPT_SECONDS).get(id_) or self._fresh(AGAIN_SECONDS).get(id_)

    def _fresh(self, seconds: float) -> dict[str, str]:
        """Return the keys, read at most so many seconds ago, or as they are if they can not be."""
        now = self._clock.now()
        # below 0: the clock was set back
        if not 0 <= now - self._read_at < seconds:
            try:
                self._keys = dict(filter(None, map(self._read, _STAGES)))
            except (NotAllowed, Unavailable):
                if not self._keys:
                    raise
            # also after a failure: the old keys hold on, and the secret is not asked at each call
            self._read_at = now
        return self._keys

    def _read(self, stage: str) -> tuple[str, str] | None:
        try:
            found = self.client.get_secret_value(SecretId=self._secret, VersionStage=stage)
        except (ClientError, BotoCoreError) as error:
            code = getattr(error, "response", {}).get("Error", {}).get("Code", "")
            if stage != _STAGES[0] and code == "ResourceNotFoundException":
                # a new secret has no version before this one
                return None
            raise service_error("secretsmanager", error, "reading the key of tokens") from error

        key = found.get("SecretString", "")
        if len(key) < LEAST_CHARACTERS:
            raise NotConfigured(f"a key of {LEAST_CHARACTERS} characters or more in the secret")
        return found["VersionId"], key
