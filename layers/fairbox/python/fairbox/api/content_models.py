"""Content that takes the place of a message's own: body, headers, media type."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pydantic import Field

from fairbox.api.base_models import In
from fairbox.api.models import Encoding  # noqa: TC001 - pydantic reads it
from fairbox.api.patterns import ContentType, Headers  # noqa: TC001 - pydantic reads them
from fairbox.api.publish_routes import body_bytes
from fairbox.client.redrive import Content

if TYPE_CHECKING:
    from fairbox.api.request import Request


class ContentIn(In):
    """Content of a message; null: as it is."""

    body: Any = Field(
        default=None,
        description="Text, read by `body_encoding`; or any other JSON value, which is stored as it"
        " was written.",
    )
    body_encoding: Encoding | None = Field(
        default=None, description="How a text body is to be read; `utf-8` unless it is given."
    )
    headers: Headers | None = Field(default=None, description="All of them.")
    content_type: ContentType | None = Field(
        default=None, description="Else it stays, with a new body too."
    )

    def content(self, request: Request) -> Content:
        """Return the content that the request's body has.

        Raises:
            InvalidInput: a field is not what it takes.
        """
        body = None
        if self.body is not None:
            body, _ = body_bytes(self.body, self.body_encoding, request.body)
        return Content(body=body, headers=self.headers, content_type=self.content_type)
