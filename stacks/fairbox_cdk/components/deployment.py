"""The deployment that a construct is part of: its name, its place, the page about its alarms.

All are context of the deployment, so that every construct in it finds them without being handed
them.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import jsii
from aws_cdk import Environment, IStringProducer, Lazy, Stack, Stage, Token
from fairbox.model.deployment import DEFAULT_NAME

if TYPE_CHECKING:
    from aws_cdk import IResolveContext
    from constructs import Construct, IConstruct

    from fairbox_cdk.config import Config

FLAGS: Final = Path(__file__).parent.parent / "feature_flags.json"
"""Feature flags of the CDK under which the templates are made and tested."""
_NAME: Final = "fairbox:name"
_RUNBOOK: Final = "fairbox:runbook"
_PLACE: Final = "fairbox:place"


def feature_flags() -> dict[str, Any]:
    """Return the CDK's feature flags of a deployment, as context."""
    return dict(json.loads(FLAGS.read_text("utf-8")))


def found_place(scope: Construct, given: Environment | None) -> Environment | None:
    """Return the account and region that are `given`, else those of the stack or stage around.

    None: nobody has said them, so those of the credentials count.
    """
    if given:
        return given
    around = [one for one in reversed(scope.node.scopes) if isinstance(one, Stack | Stage)]
    known = {
        key: value
        for key, value in (("account", around[0].account), ("region", around[0].region))
        if value and not Token.is_unresolved(value)
    }
    return Environment(**known) if known else None


def name_deployment(scope: Construct, config: Config, place: Environment | None) -> None:
    """Tell every construct below `scope` its deployment; before the first one is made."""
    # an application around it has flags of its own, under which other templates would come out
    for flag, value in feature_flags().items():
        scope.node.set_context(flag, value)
    scope.node.set_context(_NAME, config.name)
    scope.node.set_context(_RUNBOOK, config.runbook_url)
    if place:
        known = {"account": place.account, "region": place.region}
        scope.node.set_context(_PLACE, {key: value for key, value in known.items() if value})


def deployment_name(scope: IConstruct) -> str:
    """Return the name of the deployment that `scope` is part of."""
    return str(scope.node.try_get_context(_NAME) or DEFAULT_NAME)


def environment(scope: IConstruct) -> Environment | None:
    """Return account and region of the deployment that `scope` is part of, where they are said."""
    place = scope.node.try_get_context(_PLACE)
    return Environment(**place) if place else None


def runbook_url(scope: IConstruct, section: str) -> str:
    """Return the address of a section of the runbook, by its heading."""
    page = scope.node.try_get_context(_RUNBOOK) or ""
    return f"{page}#{section.lower().replace(' ', '-')}"


@jsii.implements(IStringProducer)
class _Name:
    """The name, once the construct is known in whose template it stands."""

    def produce(self, context: IResolveContext) -> str:
        return deployment_name(context.scope)


NAME: Final = Lazy.uncached_string(_Name())
"""The deployment's name, in values that are made before the construct that has them."""
