"""Names of a deployment: its stacks, and the parameter that names its resources."""

from __future__ import annotations

import re
from typing import Final

from fairbox.errors import InvalidInput

DEFAULT_NAME: Final = "Fairbox"
NAME_LENGTH: Final = 20
"""CloudFormation cuts the names that it makes from longer names of stacks."""
NAME: Final = re.compile(rf"[A-Za-z][A-Za-z0-9]{{0,{NAME_LENGTH - 1}}}")
"""No hyphen: names of resources begin with this name, a part and a hyphen, and so do grants."""
NAME_EXPECTED: Final = f"a letter, then letters and digits, {NAME_LENGTH} at most"
STACK_PARTS: Final = ("Storage", "Batches", "Delivery", "Api", "Monitoring")
"""Ends of the names of the stacks that run the application."""

FEEDS_PART: Final = "Feeds"
"""The same, of the stack that is there with setting `feeds` alone."""


def stacks_of(name: str, *, feeds: bool) -> tuple[str, ...]:
    """Return the names of the stacks that run a deployment, which may have feeds."""
    return tuple(f"{name}{part}" for part in (*STACK_PARTS, *[FEEDS_PART] * feeds))


def parameter_of(name: str) -> str:
    """Return the name of the SSM parameter that holds a deployment's variables, a JSON object.

    Raises:
        InvalidInput: no deployment has such a name.
    """
    # else a name with a slash would read another parameter
    if NAME.fullmatch(name) is None:
        raise InvalidInput("name of a deployment", NAME_EXPECTED)
    return f"/fairbox/{name}"
