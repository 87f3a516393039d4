"""Addresses of the local services, as SDK variables and as clients."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import boto3
from botocore.config import Config

from local.cloudformation.identities import CREDENTIALS, REGION

if TYPE_CHECKING:
    from collections.abc import Mapping

CLIENTS = (
    "cloudwatch",
    "dynamodb",
    "dynamodbstreams",
    "events",
    "firehose",
    "s3",
    "secretsmanager",
    "sns",
    "sqs",
    "ssm",
)
CONNECTIONS = 50


@dataclass(frozen=True, kw_only=True)
class Endpoints:
    """Base URLs: the database, Firehose, Lambda's Invoke, and moto's server for all else."""

    dynamodb: str
    services: str
    firehose: str
    functions: str = ""  # empty: nothing invokes a function by Lambda's API

    def variables(self) -> dict[str, str]:
        """Return the SDK's endpoint variables."""
        return {
            "AWS_ENDPOINT_URL": self.services,
            "AWS_ENDPOINT_URL_DYNAMODB": self.dynamodb,
            "AWS_ENDPOINT_URL_DYNAMODB_STREAMS": self.dynamodb,
            "AWS_ENDPOINT_URL_FIREHOSE": self.firehose,
            "AWS_ENDPOINT_URL_LAMBDA": self.functions or self.services,
            **{
                f"AWS_ENDPOINT_URL_{name}": self.services
                for name in ("SQS", "SNS", "EVENTBRIDGE", "S3", "CLOUDWATCH", "SECRETS_MANAGER")
            },
        }

    def shell_variables(self) -> dict[str, str]:
        """Return the SDK variables of a shell: endpoints, region, dummy credentials."""
        return {
            **self.variables(),
            **CREDENTIALS,
            "AWS_REGION": REGION,
            "AWS_DEFAULT_REGION": REGION,
        }

    def clients(self) -> Mapping[str, Any]:
        """Return one boto3 client for each service, by its boto3 name; thread-safe."""
        session = boto3.Session(
            aws_access_key_id=CREDENTIALS["AWS_ACCESS_KEY_ID"],
            aws_secret_access_key=CREDENTIALS["AWS_SECRET_ACCESS_KEY"],
            region_name=REGION,
        )
        urls = {
            "dynamodb": self.dynamodb,
            "dynamodbstreams": self.dynamodb,
            "firehose": self.firehose,
        }
        config = Config(max_pool_connections=CONNECTIONS)
        made: dict[str, Any] = {}
        for name in CLIENTS:
            url = urls.get(name, self.services)
            made[name] = session.client(name, endpoint_url=url, config=config)  # type: ignore[call-overload] # the name is no literal
        return made


def dynamodb_client(
    variables: Mapping[str, str], *, endpoint: str | None = None, config: Config | None = None
) -> Any:
    """Return a DynamoDB client of a running application.

    Args:
        variables: the shell variables of the application.
        endpoint: an address in place of the variables' own.
        config: boto3's configuration.
    """
    return boto3.client(
        "dynamodb",
        endpoint_url=endpoint or variables["AWS_ENDPOINT_URL_DYNAMODB"],
        region_name=variables["AWS_REGION"],
        aws_access_key_id=variables["AWS_ACCESS_KEY_ID"],
        aws_secret_access_key=variables["AWS_SECRET_ACCESS_KEY"],
        config=config,
    )
