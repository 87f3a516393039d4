"""The variables that `FAIRBOX_STACK` stands for: read from the parameter, once, where one lacks."""

from __future__ import annotations

import io
import json
from typing import TYPE_CHECKING, Any
from unittest.mock import MagicMock

import boto3
import pytest
from botocore.exceptions import EndpointConnectionError
from botocore.stub import Stubber
from fairbox import Batches, Outbox, Queue
from fairbox.aws import deployed_settings
from fairbox.errors import InvalidInput, NotAllowed, NotConfigured, Unavailable
from fairbox.observability.metrics import Metrics
from fairbox.settings import DEPLOYED, Settings
from fairbox.testing import ManualClock

if TYPE_CHECKING:
    from collections.abc import Iterator

VARIABLES = {name: f"its-{name.lower()}" for name in DEPLOYED}
STACK = Settings({"FAIRBOX_STACK": "Shop"})
ASKED = "ssm:GetParameter of /fairbox/Shop"


class Aws:
    """boto3's clients without a network; SSM answers what it is told to."""

    def __init__(self) -> None:
        self.made: list[str] = []
        self.ssm = boto3.client("ssm", region_name="eu-west-1")
        self.answers = Stubber(self.ssm)
        self.answers.activate()

    def client(self, service: str, **_: object) -> Any:
        self.made.append(service)
        other = MagicMock()
        other.meta.endpoint_url = "https://aws.example"
        return self.ssm if service == "ssm" else other

    def holds(self, value: str, name: str = "/fairbox/Shop") -> None:
        answer = {"Parameter": {"Name": name, "Value": value}}
        self.answers.add_response("get_parameter", answer, {"Name": name})

    def refuses(self, code: str) -> None:
        self.answers.add_client_error("get_parameter", code)


@pytest.fixture
def aws(monkeypatch: pytest.MonkeyPatch) -> Iterator[Aws]:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "none")
    monkeypatch.setattr(deployed_settings, "_read", {})
    aws = Aws()
    yield aws
    aws.answers.assert_no_pending_responses()


def test_the_name_of_a_deployment_is_all_that_the_clients_need(
    aws: Aws, monkeypatch: pytest.MonkeyPatch
) -> None:
    aws.holds(json.dumps(VARIABLES))
    monkeypatch.setattr(boto3, "client", aws.client)
    for name in DEPLOYED:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("FAIRBOX_STACK", "Shop")

    found = Outbox.from_env().tables
    assert (found.outbox, found.deliveries, found.batches) == (
        "its-fairbox_outbox_table",
        "its-fairbox_deliveries_table",
        "its-fairbox_batches_table",
    )
    assert Outbox.from_env().bodies is not None
    assert Queue.from_env() is not None
    assert Batches.from_env() is not None
    assert aws.made.count("ssm") == 1  # a second call would have had no answer


def test_what_is_set_stays(aws: Aws) -> None:
    aws.holds(json.dumps(VARIABLES))
    settings = Settings({**STACK.values, "FAIRBOX_OUTBOX_TABLE": "mine", "PATH": "/bin"})
    found = deployed_settings.settings_with(DEPLOYED, settings, aws.client)
    assert found.required("FAIRBOX_OUTBOX_TABLE") == "mine"
    assert found.required("FAIRBOX_API_URL") == "its-fairbox_api_url"
    assert found.required("PATH") == "/bin"


def test_an_empty_variable_is_one_that_lacks(aws: Aws) -> None:
    aws.holds(json.dumps(VARIABLES))
    settings = Settings({**VARIABLES, **STACK.values, "FAIRBOX_OUTBOX_TABLE": ""})
    found = deployed_settings.settings_with(DEPLOYED, settings, aws.client)
    assert found.required("FAIRBOX_OUTBOX_TABLE") == "its-fairbox_outbox_table"


@pytest.mark.parametrize("settings", [{**VARIABLES, **STACK.values}, {}, VARIABLES])
def test_nothing_is_asked_where_nothing_lacks_or_no_deployment_is_named(
    aws: Aws, settings: dict[str, str]
) -> None:
    found = deployed_settings.settings_with(DEPLOYED, Settings(settings), aws.client)
    assert found.values == settings
    assert aws.made == []


def test_without_a_name_the_variable_that_lacks_is_named(aws: Aws) -> None:
    with pytest.raises(NotConfigured, match="FAIRBOX_OUTBOX_TABLE"):
        Outbox.from_env(Settings({}), client=aws.client)


@pytest.mark.parametrize(
    ("code", "said"),
    [
        (
            "ParameterNotFound",
            f"{ASKED} failed: no deployment Shop of this release is in this account and region",
        ),
        (
            "AccessDeniedException",
            "not allowed: ssm:GetParameter on /fairbox/Shop: the Access stack's policies allow it",
        ),
        ("ThrottlingException", f"{ASKED} failed: ThrottlingException"),
    ],
)
def test_a_refusal_names_the_parameter_the_action_and_what_to_do(
    aws: Aws, code: str, said: str
) -> None:
    aws.refuses(code)
    with pytest.raises((NotAllowed, Unavailable)) as refused:
        Outbox.from_env(STACK, client=aws.client)
    assert str(refused.value) == said


def test_a_refusal_is_not_remembered(aws: Aws) -> None:
    aws.refuses("ThrottlingException")
    aws.holds(json.dumps(VARIABLES))
    with pytest.raises(Unavailable):
        Outbox.from_env(STACK, client=aws.client)
    assert Outbox.from_env(STACK, client=aws.client).tables.outbox == "its-fairbox_outbox_table"


@pytest.mark.parametrize("value", ["", "tables", "[]"])
def test_a_parameter_of_somebody_else_is_refused(aws: Aws, value: str) -> None:
    aws.holds(value or " ")
    with pytest.raises(Unavailable, match="it holds no JSON object"):
        Outbox.from_env(STACK, client=aws.client)


@pytest.mark.parametrize("name", ["Shop-two", "../Shop", "7", "S" * 21])
def test_a_name_that_no_deployment_has_is_refused_unasked(aws: Aws, name: str) -> None:
    with pytest.raises(InvalidInput, match="a letter, then letters and digits"):
        Outbox.from_env(Settings({"FAIRBOX_STACK": name}), client=aws.client)
    assert aws.made == []


def test_a_service_that_does_not_answer_is_said_to() -> None:
    class Silent:
        def get_parameter(self, **_: str) -> None:
            raise EndpointConnectionError(endpoint_url="https://ssm")

    with pytest.raises(Unavailable, match="EndpointConnectionError"):
        deployed_settings.read_variables("Shop", lambda _: Silent())


@pytest.mark.parametrize(
    ("settings", "namespace"),
    [
        ({}, "Fairbox"),
        ({"FAIRBOX_STACK": "Shop"}, "Shop"),
        ({"FAIRBOX_STACK": "Shop", "FAIRBOX_METRICS_NAMESPACE": "Mine"}, "Mine"),
    ],
)
def test_figures_go_into_the_namespace_of_the_deployment(
    settings: dict[str, str], namespace: str
) -> None:
    out = io.StringIO()
    Metrics(ManualClock(), out, settings=Settings(settings)).emit({"Sent": 1})
    (metrics,) = json.loads(out.getvalue())["_aws"]["CloudWatchMetrics"]
    assert metrics["Namespace"] == namespace
