"""Limits of a stack and of a function, and quotas of a new account.

Sizes of policies and variables are estimates: names that AWS makes are counted as long as they are
at most, and the region as the longest.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, Final

from scripts.rehearsal.findings import Finding, Level
from scripts.rehearsal.registry import at
from scripts.rehearsal.values import REF, SYMBOL

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from scripts.rehearsal.account import Account, Resource
    from scripts.rehearsal.templates import Application, Stack

TEMPLATE_BYTES: Final = 1_000_000
PER_TEMPLATE: Final = {"Resources": 500, "Outputs": 200, "Parameters": 200, "Mappings": 200}
INLINE_POLICIES: Final = 10_240
"""Characters of all inline policies of a role, white space not counted."""
MANAGED_POLICY: Final = 6_144
TRUST_POLICY: Final = 2_048
VARIABLES_BYTES: Final = 4_096
LAYERS: Final = 5
UNZIPPED_BYTES: Final = 250 * 1024 * 1024
"""Of a function's code and its layers together."""
NEW_ACCOUNT_MEMORY_MB: Final = 3_008
PER_ACCOUNT: Final = {
    "AWS::ApiGatewayV2::Route": 300,  # of one API
    "AWS::CloudWatch::Alarm": 5_000,
    "AWS::DynamoDB::Table": 2_500,
    "AWS::Events::Rule": 300,  # of one bus
    "AWS::IAM::ManagedPolicy": 1_500,
    "AWS::IAM::Role": 1_000,
}
_FUNCTION: Final = "AWS::Lambda::Function"
_LONGEST: Final = {
    "<AWS::Region>": "ap-southeast-1",
    "<AWS::AccountId>": "123456789012",
    "<AWS::Partition>": "aws-us-gov",
    "<AWS::URLSuffix>": "amazonaws.com.cn",
}
_NAME_LENGTH: Final = 64
_ADDRESS: Final = len("arn:aws-us-gov:dynamodb:ap-southeast-1:123456789012:table/")


def check_limits(account: Account, application: Application) -> Iterator[Finding]:
    """Yield what exceeds a limit among the stacks of an application, as they are deployed."""
    for stack in application:
        resources = account.stacks[stack.name].resources
        yield from _template(stack)
        yield from _policies(stack, resources)
        for resource in resources.values():
            if resource.type.name == _FUNCTION:
                yield from _function(stack, resource, resources)


def check_new_account(account: Account) -> Iterator[Finding]:
    """Yield what the quotas of a new account refuse: 10 executions at once, none to reserve."""
    everything = [r for stack in account.stacks.values() for r in stack.resources.values()]
    for resource in everything:
        if resource.type.name != _FUNCTION:
            continue
        if resource.properties.get("ReservedConcurrentExecutions") is not None:
            yield _quota(
                resource,
                "it reserves concurrency, of which a new account has none to spare",
                "reserve none, or ask for a higher quota of concurrent executions",
            )
        if resource.properties.get("MemorySize", 0) > NEW_ACCOUNT_MEMORY_MB:
            yield _quota(
                resource,
                f"a new account gives a function {NEW_ACCOUNT_MEMORY_MB} MB at most",
                "take less memory",
            )
    for type_, most in PER_ACCOUNT.items():
        count = sum(resource.type.name == type_ for resource in everything)
        if count > most:
            first = next(r for r in everything if r.type.name == type_)
            yield _quota(first, f"{count} of {type_}, and an account has {most}", "make fewer")


def _template(stack: Stack) -> Iterator[Finding]:
    size = len(json.dumps(stack.template, indent=1).encode())
    if size > TEMPLATE_BYTES:
        yield _limit(stack.name, "template", size, TEMPLATE_BYTES, "bytes")
    for section, most in PER_TEMPLATE.items():
        count = len(stack.template.get(section, {}))
        if count > most:
            yield _limit(stack.name, section, count, most, section.lower())


def _policies(stack: Stack, resources: Mapping[str, Resource]) -> Iterator[Finding]:
    inline: dict[str, int] = {}
    for resource in resources.values():
        properties = resource.properties
        match resource.type.name:
            case "AWS::IAM::ManagedPolicy":
                size = _characters(properties["PolicyDocument"])
                if size > MANAGED_POLICY:
                    yield _limit(
                        stack.name, resource.logical_id, size, MANAGED_POLICY, "characters"
                    )
            case "AWS::IAM::Role":
                own = [policy["PolicyDocument"] for policy in properties.get("Policies", [])]
                role = f"<{resource.place}#{resource.generation}.{REF}>"
                inline[role] = inline.get(role, 0) + sum(map(_characters, own))
                size = _characters(properties["AssumeRolePolicyDocument"])
                if size > TRUST_POLICY:
                    yield _limit(
                        stack.name, resource.logical_id, size, TRUST_POLICY, "characters of trust"
                    )
            case "AWS::IAM::Policy":
                for role in properties.get("Roles", []):
                    size = _characters(properties["PolicyDocument"])
                    inline[str(role)] = inline.get(str(role), 0) + size
    for role, size in inline.items():
        if size > INLINE_POLICIES:
            yield _limit(stack.name, role, size, INLINE_POLICIES, "characters of inline policies")


def _function(
    stack: Stack, function: Resource, resources: Mapping[str, Resource]
) -> Iterator[Finding]:
    name, properties = function.logical_id, function.properties
    variables = properties.get("Environment", {}).get("Variables", {})
    size = sum(
        len(key) + len(_rendered(str(value), addresses=True)) for key, value in variables.items()
    )
    if size > VARIABLES_BYTES:
        yield _limit(stack.name, name, size, VARIABLES_BYTES, "bytes of variables")
    layers = properties.get("Layers", [])
    if len(layers) > LAYERS:
        yield _limit(stack.name, name, len(layers), LAYERS, "layers")
    own = [found[2] for layer in layers if (found := SYMBOL.fullmatch(str(layer)))]
    keys = [*at(properties, ("Code", "S3Key"))]
    for logical_id in own:
        keys += at(resources[logical_id].properties, ("Content", "S3Key"))
    size = sum(stack.sizes.get(key, 0) for key in keys)
    if size > UNZIPPED_BYTES:
        yield _limit(stack.name, name, size, UNZIPPED_BYTES, "bytes unzipped")


def _characters(document: Any) -> int:
    """Return the length of a policy document as IAM counts it, white space left out."""
    return len(re.sub(r"\s", "", _rendered(json.dumps(document, separators=(",", ":")))))


def _rendered(text: str, *, addresses: bool = False) -> str:
    """Return a text with its symbols as long as the values for which they stand.

    A reference is a name, or an address as of a queue; with `addresses` it is taken for one.
    """

    def value(found: re.Match[str]) -> str:
        stack, logical_id, _, attribute = found.groups()
        name = f"{stack}-{logical_id}-1234567890ab"[:_NAME_LENGTH]
        return name if attribute == REF and not addresses else name + "x" * _ADDRESS

    text = SYMBOL.sub(value, text)
    for symbol, longest in _LONGEST.items():
        text = text.replace(symbol, longest)
    return text


def _limit(stack: str, subject: str, size: int, most: int, unit: str) -> Finding:
    return Finding(
        level=Level.REFUSED,
        rule="limit",
        stack=stack,
        subject=subject,
        text=f"{size:,} {unit}, and {most:,} is the most",
        remedy="make it smaller, or split it",
    )


def _quota(resource: Resource, text: str, remedy: str) -> Finding:
    return Finding(
        level=Level.REFUSED,
        rule="quota",
        stack=resource.stack,
        subject=resource.logical_id,
        text=text,
        remedy=remedy,
    )
