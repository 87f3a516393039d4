"""`fairbox env`, and the name of a deployment on the command line."""

from __future__ import annotations

import json
import subprocess
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tests.support.cli_runs import Cli

VALUES = {"FAIRBOX_OUTBOX_TABLE": "ShopStorage-Outbox", "FAIRBOX_API_URL": "https://a/$b 'c'"}


class Parameters:
    """SSM, with the parameters of some deployments."""

    def __init__(self, **values: dict[str, str]) -> None:
        self.values = {f"/fairbox/{name}": json.dumps(one) for name, one in values.items()}

    def get_parameter(self, *, Name: str) -> Any:  # noqa: N803 - the SDK's
        return {"Parameter": {"Value": self.values[Name]}}


@pytest.fixture
def named(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> Cli:
    monkeypatch.delenv("FAIRBOX_STACK", raising=False)
    cli.clients["ssm"] = Parameters(Shop=VALUES, Fairbox={"FAIRBOX_OUTBOX_TABLE": "default"})
    return cli


def test_a_shell_takes_what_it_prints(named: Cli) -> None:
    exports = named.ok("env", "--name", "Shop").out
    shell = f'{exports}\nprintf \'%s|\' "$FAIRBOX_STACK" "$FAIRBOX_OUTBOX_TABLE" "$FAIRBOX_API_URL"'
    done = subprocess.run(["sh", "-c", shell], capture_output=True, text=True, check=True)
    assert done.stdout == "Shop|ShopStorage-Outbox|https://a/$b 'c'|"


def test_with_json_it_is_one_object(named: Cli) -> None:
    assert named.ok("env", "--name", "Shop", "--json").json == {"FAIRBOX_STACK": "Shop"} | VALUES


def test_the_name_is_the_environment_s_else_the_default(
    named: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert named.ok("env").lines == [
        "export FAIRBOX_STACK=Fairbox",
        "export FAIRBOX_OUTBOX_TABLE=default",
    ]
    monkeypatch.setenv("FAIRBOX_STACK", "Shop")
    assert named.ok("env").lines[0] == "export FAIRBOX_STACK=Shop"


def test_a_name_that_no_deployment_has_is_a_wrong_value(named: Cli) -> None:
    run = named("env", "--name", "Shop;ls")
    assert (run.code, run.out) == (2, "")
    assert run.err.count("\n") == 1
    assert "a letter, then letters and digits" in run.err


def test_the_doctor_looks_at_the_deployment_of_the_name(named: Cli) -> None:
    tables = {f"FAIRBOX_{name.upper()}_TABLE": name for name in ("outbox", "deliveries", "batches")}
    named.clients["ssm"] = Parameters(Shop=tables)
    named.clients["dynamodb"] = named.application.client
    asked: list[str] = []

    class Stacks:
        def list_stack_resources(self, *, StackName: str) -> Any:  # noqa: N803 - the SDK's
            asked.append(StackName)
            return {"StackResourceSummaries": []}

    named.clients["cloudformation"] = Stacks()
    run = named("doctor", "--name", "Shop", "--check", "stacks", "--all")
    assert run.code == 0, run.err
    assert asked == ["ShopStorage", "ShopBatches", "ShopDelivery", "ShopApi", "ShopMonitoring"]
