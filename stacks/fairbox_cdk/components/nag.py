"""Acknowledgement of one finding of the AwsSolutions rules on one construct, with its reason."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aws_cdk import Acknowledgment, Stack, Validations

if TYPE_CHECKING:
    from aws_cdk import IResource
    from aws_cdk import aws_apigatewayv2 as apigateway
    from constructs import IConstruct


def acknowledge(construct: IConstruct, rule: str, reason: str) -> None:
    """Accept `rule` (`AwsSolutions-S1`, or `AwsSolutions-IAM5[Resource::*]`) on `construct`."""
    Validations.of(construct).acknowledge(Acknowledgment(id=rule, reason=reason))


def wildcard_finding(owner: IResource, arn: str, rest: str) -> str:
    """The finding on a policy, in another stack than `owner`, that names `arn` of it and `/rest`.

    The rules name a resource by the export that the policy imports.
    """
    stack = Stack.of(owner)
    imported = stack.resolve(stack.export_value(arn))["Fn::ImportValue"]
    return f"AwsSolutions-IAM5[Resource::{imported}/{rest}]"


def own_wildcard_finding(owner: IResource, token: str, *, before: str = "", rest: str) -> str:
    """The finding on a policy, in the stack of `owner`, that names a `token` of it and `/rest`."""
    resolved = Stack.of(owner).resolve(token)
    named = resolved.get("Ref") or ".".join(resolved["Fn::GetAtt"])
    return f"AwsSolutions-IAM5[Resource::{before}<{named}>/{rest}]"


def wildcard_route_finding(api: apigateway.HttpApi, route: str) -> str:
    """The finding on a policy, in another stack than `api`, that names routes of it by wildcard."""
    stack = Stack.of(api)
    imported = stack.resolve(stack.export_value(api.api_id))["Fn::ImportValue"]
    arn = "arn:<AWS::Partition>:execute-api:<AWS::Region>:<AWS::AccountId>"
    return f"AwsSolutions-IAM5[Resource::{arn}:{imported}/{route}]"
