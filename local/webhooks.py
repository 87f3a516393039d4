"""Keys that sign webhooks here: `make up WEBHOOK_SECRET=TOPIC/SUBSCRIPTION=whsec_...`."""

from __future__ import annotations

import json
import re
from typing import Any, Final

from fairbox.errors import InvalidInput
from fairbox.model.webhook_signatures import parse_secret

from local.cloudformation.identities import ACCOUNT, REGION
from local.workspace import LocalError

SECRET_VARIABLE: Final = "FAIRBOX_LOCAL_WEBHOOK_SECRET"  # noqa: S105 - a variable's name
NAME: Final = "webhooks-local1"
_NAME: Final = re.compile(r"[\w.-]+/[\w.-]+")
SETTINGS: Final = {"webhook_secrets": f"arn:aws:secretsmanager:{REGION}:{ACCOUNT}:secret:{NAME}"}
"""The settings with which the application signs webhooks."""


def keys_of(text: str) -> dict[str, list[str]]:
    """Return the keys by topic and subscription, from pairs with commas between.

    Raises:
        LocalError: a pair is malformed, or its key is none.
    """
    keys: dict[str, list[str]] = {}
    for pair in filter(None, text.split(",")):
        name, _, key = pair.partition("=")
        if not _NAME.fullmatch(name):
            # a key without a name would be shown as one
            raise LocalError("WEBHOOK_SECRET: expected TOPIC/SUBSCRIPTION=whsec_...")
        try:
            parse_secret(key)
        except InvalidInput as error:
            raise LocalError(f"WEBHOOK_SECRET of {name}: {error}") from None
        keys.setdefault(name, []).append(key)
    return keys


def keep_keys(text: str, secretsmanager: Any) -> None:
    """Keep the keys, if there are any, where the functions look for them."""
    if keys := keys_of(text):
        secretsmanager.create_secret(Name=NAME, SecretString=json.dumps(keys))
