"""Cloud assemblies for the tests: templates in the CDK's layout."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

from local.cloudformation.assembly import Assembly
from local.cloudformation.identities import Identities
from local.cloudformation.template import Template

SAMPLE = Path(__file__).parent / "sample" / "function"
SAMPLE_KEY = "a1b2c3.zip"


def write_assembly(folder: Path, stacks: dict[str, dict[str, Any]]) -> Path:
    """Write stacks (name to template) as an assembly whose only asset is the sample function."""
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copytree(SAMPLE, folder / "asset.a1b2c3", dirs_exist_ok=True)
    artifacts: dict[str, Any] = {}
    for name, template in stacks.items():
        (folder / f"{name}.template.json").write_text(json.dumps(template), encoding="utf-8")
        assets = {
            "files": {
                "a1b2c3": {
                    "source": {"path": "asset.a1b2c3", "packaging": "zip"},
                    "destinations": {"current": {"bucketName": "assets", "objectKey": SAMPLE_KEY}},
                }
            }
        }
        (folder / f"{name}.assets.json").write_text(json.dumps(assets), encoding="utf-8")
        artifacts[name] = {
            "type": "aws:cloudformation:stack",
            "properties": {"templateFile": f"{name}.template.json"},
        }
    manifest = {"version": "55.0.0", "artifacts": artifacts}
    (folder / "manifest.json").write_text(json.dumps(manifest), encoding="utf-8")
    return folder


def read_template(folder: Path, stacks: dict[str, dict[str, Any]]) -> Template:
    """Write the stacks and read them back."""
    return Template(
        assembly=Assembly.load(write_assembly(folder, stacks)),
        identities=Identities(
            services_endpoint="http://127.0.0.1:5000",
            api_endpoint="http://127.0.0.1:8080",
            feeds_endpoint="ws://127.0.0.1:8081",
        ),
    )


def sample_function(**properties: Any) -> dict[str, Any]:
    """A function resource with the sample's code."""
    code = {"S3Bucket": {"Fn::Sub": "assets-${AWS::AccountId}"}, "S3Key": SAMPLE_KEY}
    return {
        "Type": "AWS::Lambda::Function",
        "Properties": {
            "Code": code,
            "Handler": "handler.handler",
            "Runtime": "python3.13",
            "Role": {"Fn::GetAtt": ["Role", "Arn"]},
            "Timeout": 20,
            **properties,
        },
    }


def table(**properties: Any) -> dict[str, Any]:
    """A table resource with one key and a stream."""
    return {
        "Type": "AWS::DynamoDB::Table",
        "Properties": {
            "AttributeDefinitions": [{"AttributeName": "pk", "AttributeType": "S"}],
            "KeySchema": [{"AttributeName": "pk", "KeyType": "HASH"}],
            "BillingMode": "PAY_PER_REQUEST",
            "StreamSpecification": {"StreamViewType": "NEW_AND_OLD_IMAGES"},
            **properties,
        },
    }
