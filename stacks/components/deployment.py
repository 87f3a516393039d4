"""The deployment that a construct is part of: its name, and the page that explains its alarms.

Both are context of the application, so that every construct finds them without being handed them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import jsii
from aws_cdk import IStringProducer, Lazy
from fairbox.model.deployment import DEFAULT_NAME

if TYPE_CHECKING:
    from aws_cdk import App, IResolveContext
    from constructs import IConstruct

    from stacks.config import Config

_NAME: Final = "fairbox:name"
_RUNBOOK: Final = "fairbox:runbook"


def name_deployment(app: App, config: Config) -> None:
    """Tell every construct of `app` its deployment; before the first one is made."""
    app.node.set_context(_NAME, config.name)
    app.node.set_context(_RUNBOOK, config.runbook_url)


def deployment_name(scope: IConstruct) -> str:
    """Return the name of the deployment that `scope` is part of."""
    return str(scope.node.try_get_context(_NAME) or DEFAULT_NAME)


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
