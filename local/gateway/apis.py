"""The template's APIs, and the parts of one of them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from local.cloudformation.identities import HTTP_API
from local.workspace import LocalError

if TYPE_CHECKING:
    from local.cloudformation.template import Template

INTEGRATION = "AWS::ApiGatewayV2::Integration"
ROUTE = "AWS::ApiGatewayV2::Route"
_FUNCTION_URI = re.compile(r"(arn:[^:]+:lambda:[^/]+:function:[^/]+)")


def find_apis(template: Template, protocol: str) -> list[str]:
    """Return the names of the template's APIs of this protocol, HTTP or WEBSOCKET.

    Raises:
        LocalError: an API has another protocol.
    """
    names = []
    for name in template.of_type(HTTP_API):
        found = template.properties(name).get("ProtocolType")
        if found not in ("HTTP", "WEBSOCKET"):
            raise LocalError(
                f"{name} ({HTTP_API}) has protocol {found}: HTTP and WEBSOCKET are run here"
            )
        if found == protocol:
            names.append(name)
    return names


def parts_of(template: Template, api: str, kind: str) -> dict[str, dict[str, Any]]:
    """Return the properties of the API's resources of one type, by name."""
    found = {name: template.properties(name) for name in template.of_type(kind)}
    return {name: p for name, p in found.items() if p.get("ApiId") == template.ref(api)}


def function_of(uri: Any) -> str | None:
    """Return the ARN of the function in the URI of an integration or authorizer."""
    found = _FUNCTION_URI.search(str(uri))
    return found[1] if found else None
