"""`make deploy`: refusals, the changes that it shows, and nothing deployed unasked."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import boto3
import pytest
from botocore.exceptions import ClientError, EndpointConnectionError
from moto import mock_aws
from moto.server import ThreadedMotoServer

from scripts import deploy
from scripts.template_changes import changes_of
from tests.stacks.conftest import ROOT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.stacks.assembly import Assembly

ACCOUNT = "123456789012"
"""The account of moto."""
REGION = "eu-west-1"
RELEASE = "emr-spark-8.1.0"
TOPIC = "AWS::SNS::Topic"


def template(*ids: str, description: str = "Fairbox: some.", **outputs: str) -> str:
    return json.dumps(
        {
            "Description": description,
            "Resources": {id_: {"Type": TOPIC} for id_ in ids or ("One",)},
            "Outputs": {key: {"Value": value} for key, value in outputs.items()},
        }
    )


class Lambda:
    """Lambda's limits in an account: moto has none."""

    def __init__(self, limit: int, free: int | None = None) -> None:
        self.limit = limit
        self.free = limit if free is None else free

    def get_account_settings(self) -> Any:
        limits = {
            "ConcurrentExecutions": self.limit,
            "UnreservedConcurrentExecutions": self.free,
        }
        return {"AccountLimit": limits}


class Emr:
    """The releases of EMR in a region: moto has none."""

    def __init__(self, *labels: str, error: Exception | None = None) -> None:
        self.labels = labels
        self.error = error

    def list_release_labels(self, *, Filters: dict[str, str]) -> Any:  # noqa: N803 - the SDK's
        if self.error:
            raise self.error
        return {"ReleaseLabels": [one for one in self.labels if one.startswith(Filters["Prefix"])]}


class Deployer:
    """Runs the script against an account of moto's; the CDK, which would deploy, is a list."""

    def __init__(self, assembly: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.assembly = assembly
        self.capsys = capsys
        self.functions: Any = Lambda(1000)
        self.emr: Any = Emr(RELEASE)
        self.synthesised: list[list[str]] = []
        self.deployed: list[list[str]] = []
        self.regions: list[str] = []
        self.failing = ""
        self.asked: list[str] = []

    def client(self, service: str, region: str | None) -> Any:
        own = {"lambda": self.functions, "emr": self.emr}
        return own.get(service) or boto3.client(service, region_name=region)  # type: ignore[call-overload] # the name is no literal

    def run(self, command: list[str], **options: Any) -> Any:
        if "app.py" in command:
            self.synthesised.append(command)
        else:
            self.deployed.append(command)
            self.regions.append(options["env"]["AWS_REGION"])
        return subprocess.CompletedProcess(command, int(self.failing in command))

    def __call__(self, *arguments: str, answer: str | None = None) -> tuple[int, str, list[str]]:
        """Return the exit code, what was printed, and the lines of standard error."""

        def ask(question: str) -> str:
            self.asked.append(question)
            return answer or ""

        code = deploy.main(
            [*arguments, "--assembly", str(self.assembly), "--cdk", "CDK"],
            client=self.client,
            run=self.run,
            ask=None if answer is None else ask,
        )
        printed = self.capsys.readouterr()
        return code, printed.out, printed.err.splitlines()

    def refused(self, *arguments: str) -> str:
        """Return the one line of a refusal."""
        code, out, err = self("--yes", *arguments)
        assert (code, out, self.deployed) == (1, "", [])
        (line,) = err
        assert line.startswith("fairbox: ")
        return line


@pytest.fixture
def account(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """CloudFormation in an account that holds nothing."""
    for name in ("AWS_PROFILE", "AWS_REGION"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_DEFAULT_REGION", REGION)
    with mock_aws():
        yield boto3.client("cloudformation", region_name=REGION)


@pytest.fixture
def run(account: Any, assembly: Assembly, capsys: pytest.CaptureFixture[str]) -> Deployer:
    capsys.readouterr()
    return Deployer(assembly.folder, capsys)


def test_it_shows_where_what_will_change_and_deploys_what_it_showed(run: Deployer) -> None:
    code, out, err = run(answer="y")
    assert (code, err) == (0, [])
    first, *stacks = out.splitlines()
    assert first == (
        f"fairbox: deployment Fairbox (profile default) to account {ACCOUNT}, region {REGION}"
    )
    assert len(stacks) == 7
    assert all(line.endswith("added (new stack)") for line in stacks)
    (command,) = run.deployed
    assert command == [
        *("CDK", "deploy", "--all", "--app", str(run.assembly)),
        *("--require-approval", "broadening"),
    ]
    assert run.regions == [REGION]
    assert run.asked == ["Deploy? [y/N] "]


@pytest.mark.parametrize("answer", ["", "n", "no", "yess"])
def test_any_other_answer_deploys_nothing(run: Deployer, answer: str) -> None:
    code, _, err = run(answer=answer)
    assert (code, err, run.deployed) == (1, ["fairbox: nothing was deployed"], [])


def test_without_anybody_to_ask_it_deploys_only_where_it_was_told_to(run: Deployer) -> None:
    code, _, err = run()
    assert (code, run.deployed) == (1, [])
    assert err == ["fairbox: there is nobody to ask: YES=1 deploys without a question"]
    assert run("--yes")[0] == 0
    assert run.deployed[0][-1] == "never"


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        (
            "account=999999999999",
            f"999999999999, and the credentials or the shell say {ACCOUNT}",
        ),
        ("region=us-east-1", f"us-east-1, and the credentials or the shell say {REGION}"),
        ("account=me", "expected an account's 12 digits"),
        ("profile=staging", "expected one of default, local"),
        ("name=Fair-box", "expected a letter, then letters and digits"),
        ("log_retention_days=31", "expected one of"),
    ],
)
def test_another_account_or_region_or_a_wrong_setting_is_refused(
    run: Deployer, setting: str, said: str
) -> None:
    assert said in run.refused("-c", setting)


def test_the_account_and_region_of_the_settings_are_deployed_to(
    run: Deployer, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run("--yes", "-c", f"account={ACCOUNT}", "-c", f"region={REGION}")[0] == 0
    monkeypatch.delenv("AWS_DEFAULT_REGION")
    assert "no region is given" in Deployer(run.assembly, run.capsys).refused()
    assert run("--yes", "-c", "region=eu-west-3")[0] == 0
    assert run.regions == [REGION, "eu-west-3"]


def test_a_stack_of_somebody_else_is_not_touched(run: Deployer, account: Any) -> None:
    body = template(description="Another team's")
    account.create_stack(StackName="FairboxApi", TemplateBody=body)
    assert run.refused() == "fairbox: stack FairboxApi is not Fairbox's: choose another name"


def test_a_name_that_differs_by_case_alone_is_taken(run: Deployer, account: Any) -> None:
    account.create_stack(StackName="FAIRBOXStorage", TemplateBody=template())
    assert "FAIRBOXStorage has this name but for the case" in run.refused()


def test_a_database_of_somebody_else_is_not_taken(run: Deployer) -> None:
    glue = boto3.client("glue", region_name=REGION)
    glue.create_database(DatabaseInput={"Name": "fairbox"})
    assert "Glue has a database fairbox already: choose another name" in run.refused()


def test_a_pipeline_whose_release_is_not_there_is_refused_with_what_to_set(run: Deployer) -> None:
    run.emr = Emr("emr-7.13.0", f"{RELEASE}-preview")
    assert run.refused() == (
        f"fairbox: EMR has no release {RELEASE} in {REGION}, which the pipeline runs on: set"
        " pipeline to false (CONTEXT='-c pipeline=false'), or choose another region"
    )


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (ClientError({"Error": {"Code": "AccessDenied"}}, "ListReleaseLabels"), "AccessDenied"),
        (EndpointConnectionError(endpoint_url="u"), 'Could not connect to the endpoint URL: "u"'),
    ],
)
def test_a_release_that_nobody_may_ask_for_is_said_and_does_no_harm(
    run: Deployer, error: Exception, reason: str
) -> None:
    run.emr = Emr(error=error)
    code, _, err = run("--yes")
    assert (code, len(run.deployed)) == (0, 1)
    assert err == [f"fairbox: not checked: whether EMR has release {RELEASE} here ({reason})"]


def test_a_database_that_nobody_may_look_for_is_said_and_does_no_harm(
    run: Deployer, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Denied:
        def get_database(self, **_: str) -> None:
            raise ClientError({"Error": {"Code": "AccessDeniedException"}}, "GetDatabase")

    clients = run.client
    monkeypatch.setattr(
        run, "client", lambda s, region: Denied() if s == "glue" else clients(s, region)
    )
    code, _, err = run("--yes")
    assert (code, len(run.deployed)) == (0, 1)
    assert err == [
        "fairbox: not checked: whether Glue has a database fairbox (AccessDeniedException)"
    ]


def test_a_profile_does_not_overwrite_the_deployment_of_another(
    run: Deployer, account: Any
) -> None:
    body = template(Profile="production")
    account.create_stack(StackName="FairboxDelivery", TemplateBody=body)
    assert run.refused() == (
        "fairbox: deployment Fairbox is of profile production, not default: give this profile a"
        " name of its own, or ADOPT=1 takes the deployment over"
    )
    assert run("--yes", "--adopt")[0] == 0


def test_a_deployment_of_a_release_without_profiles_is_changed(run: Deployer, account: Any) -> None:
    account.create_stack(StackName="FairboxDelivery", TemplateBody=template(Version="0.2.0"))
    assert run("--yes")[0] == 0


def test_what_is_replaced_or_removed_is_named(
    run: Deployer, account: Any, assembly: Assembly
) -> None:
    now = assembly.templates["FairboxAccess"]["Resources"]
    (parameter,) = (id_ for id_, one in now.items() if one["Type"] == "AWS::SSM::Parameter")
    old = {"Name": "/old", "Type": "String", "Value": "{}"}
    resources = {parameter: now[parameter] | {"Properties": old}, "Old": {"Type": TOPIC}}
    before = json.loads(template()) | {"Resources": resources}
    account.create_stack(StackName="FairboxAccess", TemplateBody=json.dumps(before))
    _, out, _ = run(answer="n")
    lines = out.splitlines()
    at = lines.index("  FairboxAccess: 4 added, 1 replaced, 1 removed")
    assert lines[at + 1 : at + 3] == [
        f"    replaced: AWS::SSM::Parameter {parameter}",
        f"    removed: {TOPIC} Old",
    ]


def test_a_pipeline_that_is_no_longer_wanted_is_said_to_stay(
    run: Deployer, account: Any, local_assembly: Assembly
) -> None:
    account.create_stack(StackName="FairboxPipeline", TemplateBody=template())
    run.assembly = local_assembly.folder
    _, _, err = run("--yes", "-c", "pipeline=false")
    remedy = "aws cloudformation delete-stack --stack-name FairboxPipeline"
    assert err == [f"fairbox: FairboxPipeline stays: {remedy}"]


def test_an_earlier_release_goes_in_from_the_last_stack_to_the_first(
    run: Deployer, account: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "v0.2.0").mkdir()
    shutil.copy(deploy.ROOT / "cdk.json", tmp_path / "v0.2.0")
    account.create_stack(StackName="FairboxDelivery", TemplateBody=template(Version="0.4.1"))
    code, out, err = run("--yes", "--backwards", "--root", "v0.2.0")
    assert code == 0
    assert run.synthesised[0][0] == str(tmp_path / "v0.2.0/.venv/bin/python")
    assert "  release 0.4.1 is replaced by 0.2.0" in out.splitlines()
    (note,) = err
    assert note.startswith("fairbox: roll back the producers to 0.2.0 first, and wait for")
    stacks = [command[3] for command in run.deployed]
    assert [command[:3] for command in run.deployed] == [["CDK", "deploy", "--exclusively"]] * 7
    assert stacks[-1] == "Fairbox/Storage"
    assert stacks.index("Fairbox/Access") < stacks.index("Fairbox/Api")
    assert stacks.index("Fairbox/Api") < stacks.index("Fairbox/Delivery")
    assert stacks.index("Fairbox/Delivery") < stacks.index("Fairbox/Batches")


@pytest.mark.parametrize(("before", "said"), [("0.1.4", 0), ("0.3.0", 0), ("0.0.9", 1)])
def test_a_long_way_is_gone_in_steps(run: Deployer, account: Any, before: str, said: int) -> None:
    account.create_stack(StackName="FairboxDelivery", TemplateBody=template(Version=before))
    _, out, err = run("--yes")
    assert f"  release {before} is replaced by 0.2.0" in out.splitlines()
    notes = ["fairbox: upgrade minor versions one after the other: docs/how-to/upgrade.md"]
    assert err == notes[:said]


def test_the_way_back_stops_where_a_stack_fails(run: Deployer) -> None:
    run.failing = "Fairbox/Api"
    assert run("--yes", "--backwards")[0] == 1
    assert run.deployed[-1][3] == "Fairbox/Api"
    assert "Fairbox/Delivery" not in [command[3] for command in run.deployed]


def test_settings_may_lie_in_a_file_outside_the_clone(
    run: Deployer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "shop.json").write_text('{"name": "Shop"}')
    monkeypatch.chdir(tmp_path)
    _, out, _ = run("--settings", "shop.json", answer="n")
    assert out.startswith("fairbox: deployment Shop (profile shop.json) ")
    assert run.synthesised[0][2:4] == ["--settings", str(tmp_path / "shop.json")]


class TestQuotas:
    @pytest.fixture
    def reserving(self, run: Deployer, checked: tuple[Assembly, object]) -> Deployer:
        run.assembly = checked[0].folder
        return run

    def test_a_new_account_takes_the_default_and_is_told_what_it_lacks(self, run: Deployer) -> None:
        run.functions = Lambda(10)
        code, _, err = run("--yes")
        assert (code, len(run.deployed)) == (0, 1)
        assert err == [
            "fairbox: Lambda runs 10 functions at once in this account: see docs/how-to/quotas.md"
        ]

    @pytest.mark.parametrize(
        ("limit", "free", "left"), [(10, 10, 0), (50, 50, 0), (1000, 103, 3), (100, 90, 0)]
    )
    def test_a_reservation_that_the_account_does_not_have_is_refused_before_anything_is_made(
        self, reserving: Deployer, limit: int, free: int, left: int
    ) -> None:
        reserving.functions = Lambda(limit, free)
        assert reserving.refused() == (
            f"fairbox: reserve_concurrency takes 4 more executions, and Lambda has {left} to"
            " reserve in this account: leave it false, or ask for more (docs/how-to/quotas.md)"
        )

    def test_what_is_reserved_already_is_not_asked_for_again(
        self, reserving: Deployer, account: Any, checked: tuple[Assembly, object]
    ) -> None:
        reserving.functions = Lambda(1000, 100)
        function = {"Type": TOPIC, "Properties": {"ReservedConcurrentExecutions": 4}}
        body = json.loads(template()) | {"Resources": {"All": function}}
        account.create_stack(StackName="FairboxDelivery", TemplateBody=json.dumps(body))
        assert reserving("--yes")[0] == 0

    def test_a_reservation_that_fits_is_made(self, reserving: Deployer) -> None:
        reserving.functions = Lambda(1000, 104)
        assert reserving("--yes")[0] == 0


class TestChanges:
    def test_nothing_changed(self) -> None:
        same = {"Resources": {"A": {"Type": TOPIC}}}
        assert list(changes_of("S", same, same).lines()) == ["S: no change"]

    def test_outputs_alone(self) -> None:
        before = {"Resources": {}, "Outputs": {"A": {"Value": "1"}}}
        assert list(changes_of("S", before, {"Resources": {}}).lines()) == ["S: outputs changed"]

    @pytest.mark.parametrize(
        ("before", "after", "line"),
        [
            ({"DelaySeconds": 1}, {"DelaySeconds": 2}, "S: 1 changed"),
            ({"FifoQueue": True}, {"FifoQueue": True, "DelaySeconds": 2}, "S: 1 changed"),
            ({}, {"FifoQueue": True}, "S: 1 replaced"),
            ({"QueueName": "a"}, {}, "S: 1 replaced"),
        ],
    )
    def test_a_property_that_is_set_at_creation_only_replaces(
        self, before: Any, after: Any, line: str
    ) -> None:
        templates = [
            {"Resources": {"Q": {"Type": "AWS::SQS::Queue", "Properties": one}}}
            for one in (before, after)
        ]
        assert next(iter(changes_of("S", *templates).lines())) == line

    def test_another_type_replaces(self) -> None:
        templates = [{"Resources": {"A": {"Type": t}}} for t in ("AWS::SQS::Queue", TOPIC)]
        assert list(changes_of("S", *templates).lines())[1:] == ["  replaced: AWS::SNS::Topic A"]


@pytest.fixture
def aws() -> Iterator[Callable[[], dict[str, str]]]:
    """The variables of a shell whose AWS is moto's server."""
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield lambda: {
        **{k: v for k, v in os.environ.items() if not k.startswith("AWS_")},
        "AWS_ENDPOINT_URL": f"http://{host}:{port}",
        "AWS_ACCESS_KEY_ID": "a",
        "AWS_SECRET_ACCESS_KEY": "b",
        "AWS_REGION": REGION,
        "CDK_VALIDATION": "false",
    }
    server.stop()


@pytest.mark.extended  # a synthesis of its own
def test_the_program_checks_synthesises_shows_and_calls_the_cdk(
    aws: Callable[[], dict[str, str]], tmp_path: Path
) -> None:
    told = tmp_path / "told"
    cdk = tmp_path / "cdk"
    cdk.write_text(f'#!/bin/sh\necho "$AWS_DEFAULT_REGION $@" > {told}\nexit 3\n')
    cdk.chmod(0o755)
    command = [
        *(sys.executable, str(ROOT / "scripts/deploy.py"), "--cdk", str(cdk)),
        *("--assembly", str(tmp_path / "out"), "-c", "profile=local", "-c", "name=Shop"),
        *("-c", "webhook_allow_private=false"),
    ]

    def program(*more: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*command, *more],
            env=aws(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )

    wrong = program("-c", "account=999999999999", "--yes")
    assert (wrong.returncode, wrong.stdout, wrong.stderr.count("\n")) == (1, "", 1)
    done = program("--yes")
    assert done.returncode == 3, done.stderr
    assert "deployment Shop (profile local)" in done.stdout
    assert "ShopStorage: " in done.stdout
    assert told.read_text() == (
        f"{REGION} deploy --all --app {tmp_path / 'out'} --require-approval never\n"
    )
