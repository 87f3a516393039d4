"""Rules of others: AwsSolutions of cdk-nag, and what CloudFormation takes, by cfn-lint."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.stacks.conftest import ROOT

if TYPE_CHECKING:
    from pathlib import Path

    from tests.stacks.assembly import Assembly

CDK_S_OWN = ["W3005"]
"""A function depends on its role by name beside its reference: the CDK writes it so."""


def test_the_solutions_rules_have_no_finding_left(
    checked: tuple[Assembly, list[dict[str, Any]]],
) -> None:
    left = [
        (finding["ruleName"], construct["constructPath"])
        for finding in checked[1]
        for construct in finding["violatingConstructs"]
    ]
    assert left == []


def test_the_solutions_rules_do_find_what_is_wrong(tmp_path: Path) -> None:
    from aws_cdk import App, Stack, Validations, aws_sqs  # noqa: PLC0415 - after Node is named
    from cdk_nag import AwsSolutionsChecks  # noqa: PLC0415

    app = App(outdir=str(tmp_path))
    aws_sqs.Queue(Stack(app, "Careless"), "Queue")
    Validations.of(app).add_plugins(AwsSolutionsChecks(app))
    with pytest.raises(RuntimeError):
        app.synth()
    assert "AwsSolutions-SQS" in (tmp_path / "validation-report.json").read_text()


def test_findings_are_accepted_one_by_one_with_a_reason() -> None:
    for source in (ROOT / "stacks").rglob("*.py"):
        text = source.read_text()
        assert "acknowledge(app" not in text
        assert "acknowledge(self, " not in text


@pytest.mark.extended  # a linter over every template
@pytest.mark.parametrize(
    # `checked` has every resource of the other
    "which",
    [pytest.param("local_assembly", marks=pytest.mark.extended), "checked"],
)
def test_the_templates_are_what_cloudformation_takes(
    which: str, request: pytest.FixtureRequest
) -> None:
    from cfnlint import api, config  # noqa: PLC0415 - its schemas take a second to load

    found = request.getfixturevalue(which)
    assembly: Assembly = found[0] if which == "checked" else found
    settings = config.ManualArgs(regions=["us-east-1"], ignore_checks=CDK_S_OWN)
    for path in sorted(assembly.folder.glob("*.template.json")):
        matches = api.lint(path.read_text(), config=settings)
        assert [str(match) for match in matches] == []
