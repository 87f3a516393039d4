"""Synthesises the application once for each set of settings that the tests look at."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from fairbox_cdk.config import load_context
from fairbox_cdk.node import use_bundled_node

from tests.stacks.assembly import Assembly
from tests.support.pipeline_package import build_host_package

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

# the CDK starts Node when it is imported, by tests and by what they import
use_bundled_node()

ROOT = Path(__file__).parents[2]
ACCOUNT = "111122223333"
SETTINGS = {
    "destinations": ",".join(
        (
            f"arn:aws:sqs:us-east-1:{ACCOUNT}:billing",
            f"arn:aws:sqs:us-east-1:{ACCOUNT}:shipping",
            f"arn:aws:sqs:us-east-1:{ACCOUNT}:orders-*",
            f"arn:aws:sns:us-east-1:{ACCOUNT}:news",
            f"arn:aws:events:us-east-1:{ACCOUNT}:event-bus/orders",
            f"arn:aws:kinesis:us-east-1:{ACCOUNT}:stream/clicks",
            f"arn:aws:lambda:us-east-1:{ACCOUNT}:function:enrich",
            f"arn:aws:kms:us-east-1:{ACCOUNT}:key/5b1c",
        )
    ),
    "webhook_secrets": f"arn:aws:secretsmanager:us-east-1:{ACCOUNT}:secret:webhook-AbCdEf"
    f",arn:aws:ssm:us-east-1:{ACCOUNT}:parameter/webhooks",
    "alarm_topic_arn": f"arn:aws:sns:us-east-1:{ACCOUNT}:pager",
    "reserve_concurrency": "true",
    "feeds": "true",
    "tracing": "true",
    "subnet_ids": "subnet-0a1b2c3d,subnet-0a1b2c3e",
    "security_group_ids": "sg-0a1b2c3d",
    "log_key": f"arn:aws:kms:us-east-1:{ACCOUNT}:key/1234abcd-12ab-34cd-56ef-1234567890ab",
    "alarm_topic_key": f"arn:aws:kms:us-east-1:{ACCOUNT}:key/2234abcd-12ab-34cd-56ef-1234567890ab",
    "warm_read_units": "12000",
    "warm_write_units": "4000",
}
"""Every setting that adds a resource or a permission."""
MOST_DESTINATIONS = ",".join(
    f"arn:aws:{service}:ap-southeast-2:{ACCOUNT}:{'x' * 60}-{number:02}"
    for service in ("sqs", "sns", "events", "kinesis", "lambda", "kms")
    for number in range(63)
)


@pytest.fixture(scope="session", autouse=True)
def _quick_synthesis() -> Iterator[None]:
    """Leave the CDK's own check of templates to the lint test."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CDK_VALIDATION", "false")
        patch.delenv("CDK_OUTDIR", raising=False)
        patch.delenv("CDK_CONTEXT_JSON", raising=False)
        yield


@pytest.fixture(scope="session")
def assembly(tmp_path_factory: pytest.TempPathFactory) -> Assembly:
    """The application as `cdk.json` has it."""
    return synthesise(tmp_path_factory.mktemp("default"), {})


@pytest.fixture(scope="session")
def local_assembly(tmp_path_factory: pytest.TempPathFactory) -> Assembly:
    """The application as the local one takes it."""
    return synthesise(tmp_path_factory.mktemp("local"), {"profile": "local"})


@pytest.fixture(scope="session")
def keyed(tmp_path_factory: pytest.TempPathFactory) -> Assembly:
    """The application under a key of its own, with feeds."""
    settings = {"encryption_key": "create", "feeds": "true"}
    return synthesise(tmp_path_factory.mktemp("keyed"), settings)


@pytest.fixture(scope="session")
def other(tmp_path_factory: pytest.TempPathFactory) -> Assembly:
    """A second deployment, whose name begins like the default's."""
    return synthesise(tmp_path_factory.mktemp("other"), {"name": "FairboxTwo"})


@pytest.fixture(scope="session")
def longest(tmp_path_factory: pytest.TempPathFactory) -> Assembly:
    """The application under the longest name, with all destinations, and an address for alarms."""
    settings: dict[str, Any] = {"name": "A" * 20, "encryption_key": "create"}
    settings["alarm_email"] = "ops@example.com"
    settings["destinations"] = MOST_DESTINATIONS
    # what a governed account asks for, of the CDK's own context
    settings["@aws-cdk/core:permissionsBoundary"] = {"name": "boundary"}
    settings["@aws-cdk/core:bootstrapQualifier"] = "acme1"
    return synthesise(tmp_path_factory.mktemp("longest"), settings | {"feeds": "true"})


@pytest.fixture(scope="session")
def checked(tmp_path_factory: pytest.TempPathFactory) -> tuple[Assembly, list[dict[str, Any]]]:
    """The application with every setting, and the findings of the AwsSolutions rules on it."""
    folder = tmp_path_factory.mktemp("checked")
    return synthesise(folder, SETTINGS, nag=True), _findings(folder)


def synthesise(folder: Path, overrides: Mapping[str, Any], *, nag: bool = False) -> Assembly:
    """Synthesise the application into a folder, with these settings over those of `cdk.json`."""
    from aws_cdk import Validations  # noqa: PLC0415 - after Node is named
    from cdk_nag import AwsSolutionsChecks  # noqa: PLC0415
    from fairbox_cdk.application import build_application  # noqa: PLC0415

    context = load_context(ROOT / "cdk.json", overrides)
    # the names are those of the real package; its environment is packaging's own test
    package = build_host_package(ROOT, folder, ["orjson"])
    app = build_application(context=context, outdir=folder, package=package)
    if nag:
        Validations.of(app).add_plugins(AwsSolutionsChecks(app))
    try:
        app.synth()
    except RuntimeError:
        # findings stop the synthesis when its report has been written; a test reads it
        if not nag or not _findings(folder):
            raise
    return Assembly(folder)


def _findings(folder: Path) -> list[dict[str, Any]]:
    report = json.loads((folder / "validation-report.json").read_text())
    return [
        violation
        for plugin in report["pluginReports"]
        if plugin["pluginName"] == "AwsSolutions"
        for violation in plugin["violations"]
    ]
