"""A route of the HTTP API, and its answer."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from fairbox.api.models import NoQuery

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pydantic import BaseModel

    from fairbox.api.api_context import Api
    from fairbox.api.request import Request


@dataclass(frozen=True, slots=True)
class Answer:
    """Status, body and headers of an answer; a text is JSON already, None is no body."""

    status: int
    body: BaseModel | str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Route:
    """The requests of one method and path, and the function that answers them.

    Attributes:
        method, path: `{name}` stands for one part of the path, `{name+}` for the rest of it.
        endpoint: answers; its name is the operation's in the OpenAPI document.
        query: the model of its parameters.
    """

    method: str
    path: str
    endpoint: Callable[[Api, Request], Answer]
    query: type[BaseModel] = NoQuery

    @property
    def rule(self) -> str:
        """The path as a regular expression without groups."""
        path = re.sub(r"\{\w+\}", "[^/]+", self.path.replace(".", r"\."))
        return re.sub(r"\{\w+\+\}", ".+", path)

    def params(self, path: str) -> dict[str, str]:
        """Return the path's parameters by name."""
        pattern = re.sub(r"\{(\w+)\+\}", r"(?P<\1>.+)", self.path.replace(".", r"\."))
        match = re.fullmatch(re.sub(r"\{(\w+)\}", r"(?P<\1>[^/]+)", pattern), path, re.DOTALL)
        return match.groupdict() if match else {}

    def answer(self, api: Api, request: Request) -> Answer:
        """Answer a request whose parameters are checked first.

        Raises:
            FairboxError: it is refused, and nothing is done.
        """
        # endpoints with parameters read them themselves, in their own order of refusals
        if self.query is NoQuery:
            request.parameters(NoQuery)
        return self.endpoint(api, request)
