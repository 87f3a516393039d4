"""Every route of the API: those of `routes`, and the one that answers with their document."""

from __future__ import annotations

import json
from functools import cache
from typing import TYPE_CHECKING, Final

from fairbox.api import routes
from fairbox.api.route import Answer, Route

if TYPE_CHECKING:
    from fairbox.api.api_context import Api
    from fairbox.api.request import Request


def show_openapi(api: Api, request: Request) -> Answer:  # noqa: ARG001 - every endpoint gets it
    """Show this document."""
    return Answer(200, _openapi_text())


@cache
def _openapi_text() -> str:
    # imported where it is used: no other request pays for it
    from fairbox.api.openapi import openapi  # noqa: PLC0415

    return json.dumps(openapi(ROUTES), separators=(",", ":"))


ROUTES: Final = (*routes.ROUTES, Route("GET", "/openapi.json", show_openapi))
