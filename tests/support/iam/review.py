"""Holds recorded requests to the grants of a deployment, in both directions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from tests.support.iam.policy import Grant, decide, grants_of

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

    from tests.support.iam.deployment import Deployment
    from tests.support.iam.recording import Seen

Exceptions = Mapping[str, Mapping[str, str]]
"""By principal: grants that no test uses, as text with resources by name, each with its reason."""


def missing(deployment: Deployment, seen: Iterable[Seen]) -> Iterator[str]:
    """Yield a line for each request that no grant allows, with the test that made it."""
    principals = deployment.principals
    told = set()
    for one in seen:
        for request in deployment.asked(one.request):
            allowed = decide(principals.get(one.who, ()), request).allowed
            if not allowed and (one.who, request) not in told:
                told.add((one.who, request))
                yield f"{one.who} may not {request}: {one.test}"


def unused(
    deployment: Deployment, seen: Iterable[Seen], who: Collection[str]
) -> dict[str, set[Grant]]:
    """Return the grants of these principals that no request uses, by principal."""
    principals = deployment.principals
    left = {name: grants_of(principals[name]) for name in who}
    for one in seen:
        if one.who not in left:
            continue
        for request in deployment.asked(one.request):
            left[one.who] -= decide(principals[one.who], request).grants
    return left


def without_reason(
    deployment: Deployment, left: Mapping[str, set[Grant]], reasons: Exceptions
) -> Iterator[str]:
    """Yield a line for each unused grant that has no reason."""
    for who, grants in left.items():
        for grant in sorted(grants):
            named = str(replace(grant, resource=deployment.short(grant.resource)))
            if named not in reasons.get(who, {}):
                yield f"{who} never does what it may: {named}"


def without_grant(
    deployment: Deployment, left: Mapping[str, set[Grant]], reasons: Exceptions
) -> Iterator[str]:
    """Yield a line for each reason whose grant is gone, or is used."""
    for who, given in reasons.items():
        named = {str(replace(g, resource=deployment.short(g.resource))) for g in left[who]}
        for grant in sorted(set(given) - named):
            yield f"{who} does it, or may not any more: {grant}"
