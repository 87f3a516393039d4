"""Settings: the only place that reads the environment."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from fairbox.errors import InvalidInput, NotConfigured

if TYPE_CHECKING:
    from collections.abc import Mapping

OUTBOX_TABLE: Final = "FAIRBOX_OUTBOX_TABLE"
DELIVERIES_TABLE: Final = "FAIRBOX_DELIVERIES_TABLE"
BODIES_BUCKET: Final = "FAIRBOX_BODIES_BUCKET"
DOORBELL_QUEUE_URL: Final = "FAIRBOX_DOORBELL_QUEUE_URL"
LATER_QUEUE_URL: Final = "FAIRBOX_LATER_QUEUE_URL"
ARCHIVE_STREAM: Final = "FAIRBOX_ARCHIVE_STREAM"
FAILURES_BUCKET: Final = "FAIRBOX_FAILURES_BUCKET"
WEBHOOK_ALLOW_PRIVATE: Final = "FAIRBOX_WEBHOOK_ALLOW_PRIVATE"
WEBHOOK_SECRETS: Final = "FAIRBOX_WEBHOOK_SECRETS"


@dataclass(frozen=True, slots=True)
class Settings:
    """What the environment says; a name that is needed and missing raises with that name.

    Attributes:
        values: the environment's variables.
    """

    values: Mapping[str, str]

    @classmethod
    def from_env(cls, environment: Mapping[str, str] | None = None) -> Settings:
        """Return the settings of this process, or of the mapping given."""
        return cls(dict(os.environ if environment is None else environment))

    def required(self, name: str) -> str:
        """Return the value.

        Raises:
            NotConfigured: it is missing or empty.
        """
        value = self.values.get(name, "")
        if not value:
            raise NotConfigured(name)
        return value

    def optional(self, name: str) -> str | None:
        """Return the value; None when it is missing or empty."""
        return self.values.get(name) or None

    def flag(self, name: str) -> bool:
        """Return whether the value is `true`; missing is `false`.

        Raises:
            InvalidInput: it is neither.
        """
        value = self.values.get(name, "") or "false"
        if value not in ("true", "false"):
            raise InvalidInput(name, "'true' or 'false'")
        return value == "true"
