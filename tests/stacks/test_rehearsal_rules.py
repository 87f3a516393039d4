"""Every rule of the rehearsal finds a planted violation, and nothing where there is none."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import pytest

from scripts.rehearsal.accepted import Accepted
from scripts.rehearsal.account import Account
from scripts.rehearsal.findings import Level
from scripts.rehearsal.limits import check_limits, check_new_account
from scripts.rehearsal.plan import Step
from scripts.rehearsal.report import Report
from scripts.rehearsal.templates import STORED, Stack, in_order, previous_release, read_stored

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from scripts.rehearsal.findings import Finding
    from scripts.rehearsal.templates import Application

Resources = dict[str, dict[str, Any]]


def of(type_: str, policy: str | None = None, **properties: Any) -> dict[str, Any]:
    """A resource with both policies."""
    body: dict[str, Any] = {"Type": type_, "Properties": properties}
    return body | ({"DeletionPolicy": policy, "UpdateReplacePolicy": policy} if policy else {})


def stack(
    resources: Resources, *, name: str = "Store", needs: tuple[str, ...] = (), **exports: Any
) -> Stack:
    outputs = {
        key: {"Value": value, "Export": {"Name": f"{name}:{key}"}} for key, value in exports.items()
    }
    return Stack(name=name, template={"Resources": resources, "Outputs": outputs}, needs=needs)


def user(value: Any, *, name: str = "User") -> Stack:
    return stack({"Probe": of("AWS::SNS::TopicPolicy", Topics=[value])}, name=name)


def found(*applications: Application) -> list[tuple[str, str]]:
    """(rule, subject) of what the last of these deployments finds."""
    account = Account()
    last: list[Finding] = []
    for application in applications:
        last = account.deploy(application)
    return [(finding.rule, finding.subject) for finding in last]


QUEUE = {"Queue": of("AWS::SQS::Queue")}
TABLE = {
    "AttributeDefinitions": [],
    "KeySchema": [{"AttributeName": "pk", "KeyType": "HASH"}],
}
IMPORT = {"Fn::ImportValue": "Store:Arn"}
ARN = {"Fn::GetAtt": ["Queue", "Arn"]}


def index(name: str, projection: str = "ALL") -> dict[str, Any]:
    return {"IndexName": name, "KeySchema": [], "Projection": {"ProjectionType": projection}}


def table(*indexes: dict[str, Any], **more: Any) -> Resources:
    return {
        "Table": of(
            "AWS::DynamoDB::Table", "Retain", **TABLE, GlobalSecondaryIndexes=[*indexes], **more
        )
    }


def log_group(name: str = "/fixed", policy: str = "RetainExceptOnCreate") -> dict[str, Any]:
    return of("AWS::Logs::LogGroup", policy, LogGroupName=name)


KEPT_QUEUE = {"Queue": of("AWS::SQS::Queue", "Retain")}
BUCKET = {"Bucket": of("AWS::S3::Bucket", "Retain")}
TOPIC = {"Topic": of("AWS::SNS::Topic", TopicName="fixed")}
FIRST = {"First": log_group("/same")}
STREAM_ARN = {"Fn::GetAtt": ["Table", "StreamArn"]}

RULES: dict[str, tuple[list[Application], tuple[str, str]]] = {
    "an export in use goes": (
        [(stack(QUEUE, Arn=ARN), user(IMPORT)), (stack(QUEUE), user("text"))],
        ("export-gone", "Store:Arn"),
    ),
    "an export in use goes, of a stack that is no longer synthesised": (
        [(stack(QUEUE, Arn=ARN), user(IMPORT)), (stack(QUEUE),)],
        ("export-gone", "Store:Arn"),
    ),
    "an export in use becomes a text": (
        [(stack(QUEUE, Arn=ARN), user(IMPORT)), (stack(QUEUE, Arn="given"), user("given"))],
        ("export-changed", "Store:Arn"),
    ),
    "an export in use changes with its resource": (
        [
            (stack(QUEUE, Arn=ARN), user(IMPORT)),
            (stack({"Queue": of("AWS::SQS::Queue", FifoQueue=True)}, Arn=ARN), user(IMPORT)),
        ],
        ("export-changed", "Store:Arn"),
    ),
    "an attribute in use changes in place": (
        [
            (
                stack(table(StreamSpecification={"StreamViewType": view}), Arn=STREAM_ARN),
                user(IMPORT),
            )
            for view in ("NEW_IMAGE", "KEYS_ONLY")
        ],
        ("export-changed", "Store:Arn"),
    ),
    "nobody says whether an attribute in use changes": (
        [
            (
                stack(
                    {"Topic": of("AWS::SNS::Topic", DisplayName=name)},
                    Arn={"Fn::GetAtt": ["Topic", "TopicName.x"]},
                ),
                user(IMPORT),
            )
            for name in ("a", "b")
        ],
        ("attribute", "Store:Arn"),
    ),
    "an import has no export": ([(user(IMPORT),)], ("export-missing", "Store:Arn")),
    "two stacks export one name": (
        [
            (stack(QUEUE, Arn=ARN),),
            (
                stack(QUEUE, Arn=ARN),
                Stack(
                    name="Other",
                    template={"Outputs": {"A": {"Value": "x", "Export": {"Name": "Store:Arn"}}}},
                ),
            ),
        ],
        ("export-taken", "Store:Arn"),
    ),
    "a stack is no longer synthesised": (
        [(stack(QUEUE), user("text")), (stack(QUEUE),)],
        ("stack-stays", "User"),
    ),
    "a resource becomes another type": (
        [(stack({"One": of("AWS::SNS::Topic")}),), (stack({"One": of("AWS::IAM::Role")}),)],
        ("type-changed", "One"),
    ),
    "a queue is replaced": (
        [(stack(QUEUE),), (stack({"Queue": of("AWS::SQS::Queue", QueueName="new")}),)],
        ("data-replaced", "Queue"),
    ),
    "a kept bucket is replaced": (
        [
            (stack(BUCKET),),
            (stack({"Bucket": of("AWS::S3::Bucket", "Retain", BucketName="new")}),),
        ],
        ("data-replaced", "Bucket"),
    ),
    "a table may be replaced": (
        [
            (stack(table()),),
            (stack({"Table": of("AWS::DynamoDB::Table", "Retain", KeySchema=[])}),),
        ],
        ("data-replaced", "Table"),
    ),
    "a log group loses its policy when it is replaced": (
        [
            (stack({"Logs": log_group("/a", "Retain")}),),
            (stack({"Logs": log_group("/b", "Delete")}),),
        ],
        ("data-replaced", "Logs"),
    ),
    "a kept log group is replaced": (
        [(stack({"Logs": log_group("/a")}),), (stack({"Logs": log_group("/b")}),)],
        ("data-left-behind", "Logs"),
    ),
    "what a data resource depends on is replaced": (
        [
            (
                stack(
                    {
                        "Name": of("AWS::SQS::Queue", FifoQueue=fifo),
                        "Topic": of("AWS::SNS::Topic", TopicName={"Ref": "Name"}),
                    }
                ),
            )
            for fifo in (False, True)
        ],
        ("data-replaced", "Topic"),
    ),
    "a queue goes with its messages": (
        [(stack(QUEUE | BUCKET),), (stack(BUCKET),)],
        ("data-deleted", "Queue"),
    ),
    "a queue gets another logical id": (
        [(stack(QUEUE),), (stack({"Renamed": QUEUE["Queue"]}),)],
        ("data-deleted", "Queue"),
    ),
    "a kept bucket goes": (
        [(stack(QUEUE | BUCKET),), (stack(QUEUE),)],
        ("data-abandoned", "Bucket"),
    ),
    "two stacks take one name": (
        [(stack(TOPIC), stack(TOPIC, name="Other"))],
        ("name-taken", "Topic"),
    ),
    "one stack takes a name twice": (
        [(stack({"First": log_group("/same"), "Second": log_group("/same")}),)],
        ("name-taken", "Second"),
    ),
    "a named resource gets another logical id": (
        [(stack(FIRST),), (stack({"Second": FIRST["First"]}),)],
        ("name-taken", "Second"),
    ),
    "a named resource is replaced under its name": (
        [
            (
                stack(
                    {"Topic": of("AWS::SNS::Topic", TopicName="fixed", FifoTopic=fifo)},
                ),
            )
            for fifo in (False, True)
        ],
        ("name-taken", "Topic"),
    ),
    "two mappings read one queue for one function": (
        [
            (
                stack(
                    {
                        key: of(
                            "AWS::Lambda::EventSourceMapping", EventSourceArn="q", FunctionName="f"
                        )
                        for key in ("First", "Second")
                    }
                ),
            )
        ],
        ("name-taken", "Second"),
    ),
    "a name of before comes back": (
        [
            (stack(QUEUE | FIRST),),
            (stack(QUEUE),),
            (stack(QUEUE | FIRST),),
        ],
        ("name-taken", "First"),
    ),
    "a failed creation leaves a name": (
        [(stack({"Logs": log_group(policy="Retain")}),)],
        ("create-repeated", "Logs"),
    ),
    "two indexes change at once": (
        [(stack(table(index("a"))),), (stack(table(index("b"))),)],
        ("indexes", "Table"),
    ),
    "an index changes what it projects": (
        [(stack(table(index("a"))),), (stack(table(index("a", "KEYS_ONLY"))),)],
        ("indexes", "Table"),
    ),
    "a number is lowered that only rises": (
        [
            (stack(table(WarmThroughput={"ReadUnitsPerSecond": 24_000})),),
            (stack(table()),),
            (stack(table(WarmThroughput={"ReadUnitsPerSecond": 12_000})),),
        ],
        ("lowered", "Table"),
    ),
    "a resource has a condition": (
        [(stack({"Queue": QUEUE["Queue"] | {"Condition": "Wanted"}}),)],
        ("condition", "Queue"),
    ),
    "a type says only perhaps": (
        [
            (stack({"App": of("AWS::EMRServerless::Application", ReleaseLabel=label)}),)
            for label in ("a", "b")
        ],
        ("perhaps-replaced", "App"),
    ),
    "a custom resource goes": (
        [(stack(QUEUE | {"Own": of("Custom::Own")}),), (stack(QUEUE),)],
        ("custom-removed", "Own"),
    ),
    "resources depend on each other": (
        [
            (
                stack(
                    {
                        "A": of("AWS::SNS::Topic", DisplayName={"Fn::Sub": "${B.Arn}"}),
                        "B": of("AWS::SQS::Queue") | {"DependsOn": "A"},
                    }
                ),
            )
        ],
        ("cycle", "A"),
    ),
}


@pytest.mark.parametrize("case", RULES)
def test_a_rule_finds_its_planted_violation(case: str) -> None:
    applications, expected = RULES[case]
    assert expected in found(*applications)


HARMLESS: dict[str, list[Application]] = {
    "an export that nobody imports goes": [(stack(QUEUE, Arn=ARN),), (stack(QUEUE),)],
    "an export goes after its last import": [
        (stack(QUEUE, Arn=ARN), user(IMPORT)),
        (stack(QUEUE, Arn=ARN), user("text")),
        (stack(QUEUE), user("text")),
    ],
    "a property changes in place": [
        (stack(QUEUE, Arn=ARN), user(IMPORT)),
        (stack({"Queue": of("AWS::SQS::Queue", DelaySeconds=1)}, Arn=ARN), user(IMPORT)),
    ],
    "a name moves from a stack that is updated first": [
        (stack(QUEUE | TOPIC), user("text")),
        (
            stack(QUEUE | {"Topic": of("AWS::IAM::Role", RoleName="a")}),
            stack({"Named": of("AWS::IAM::Role", RoleName="b")}, name="User"),
        ),
        (
            stack(QUEUE | {"Topic": of("AWS::IAM::Role", RoleName="c")}),
            stack({"Named": of("AWS::IAM::Role", RoleName="a")}, name="User"),
        ),
    ],
    "two APIs have a stage of one name": [
        (
            stack(
                {
                    id_: of("AWS::ApiGatewayV2::Stage", ApiId=id_, StageName="$default")
                    for id_ in ("First", "Second")
                }
            ),
        )
    ],
    "one index is added": [(stack(table()),), (stack(table(index("a"))),)],
    "a role is replaced": [
        (stack({"Role": of("AWS::IAM::Role", Path=path)}),) for path in ("/", "/a/")
    ],
    "a name with the stack's id returns with the stack": [
        (stack({"Logs": log_group() | {"Properties": {"LogGroupName": {"Ref": "AWS::StackId"}}}}),)
    ],
}


@pytest.mark.parametrize("case", HARMLESS)
def test_what_is_harmless_is_not_found(case: str) -> None:
    assert found(*HARMLESS[case]) == []


def test_a_stack_is_not_deleted_before_those_that_import_from_it() -> None:
    account = Account()
    account.deploy((stack(QUEUE, Arn=ARN), user(IMPORT)))
    assert [one.rule for one in account.copy().delete("Store")] == ["export-gone", "data-deleted"]
    assert [one.rule for one in account.delete_all(["Store", "User"])] == ["data-deleted"]
    assert account.stacks == {}


def test_a_fixed_name_that_is_kept_blocks_the_next_stack_and_one_with_the_stack_s_id_does_not() -> (
    None
):
    unique = {"Fn::Select": [2, {"Fn::Split": ["/", {"Ref": "AWS::StackId"}]}]}
    for name, expected in (("/fixed", ["name-taken"]), ({"Fn::Join": ["", ["/", unique]]}, [])):
        application = (stack({"Logs": of("AWS::Logs::LogGroup", "RetainExceptOnCreate",
                                         LogGroupName=name)}),)  # fmt: skip
        account = Account()
        account.deploy(application)
        account.delete("Store")
        assert [one.rule for one in account.deploy(application)] == expected


def limits(
    resources: Resources, *, sizes: dict[str, int] | None = None, new: bool = False
) -> list[str]:
    """Texts of the findings on a stack's limits, or on a new account's quotas."""
    application = (Stack(name="Store", template={"Resources": resources}, sizes=sizes or {}),)
    account = Account()
    account.deploy(application)
    checked = check_new_account(account) if new else check_limits(account, application)
    return [finding.text for finding in checked]


def policy(characters: int) -> dict[str, Any]:
    return {"Statement": [{"Effect": "Allow", "Action": "x" * characters, "Resource": "*"}]}


def function(**properties: Any) -> dict[str, Any]:
    return of("AWS::Lambda::Function", Code={"S3Key": "code"}, **properties)


ROLE = {"Role": of("AWS::IAM::Role", AssumeRolePolicyDocument=policy(10))}
LAYER = {"Layer": of("AWS::Lambda::LayerVersion", Content={"S3Key": "layer"})}
LIMITS: dict[str, tuple[Resources, Resources, dict[str, int], str]] = {
    "resources": (
        {f"Topic{i}": of("AWS::SNS::Topic") for i in range(500)},
        {"OneMore": of("AWS::SNS::Topic")},
        {},
        "501 resources, and 500 is the most",
    ),
    "bytes of a template": (
        {},
        {"Topic": of("AWS::SNS::Topic", DisplayName="x" * 1_000_000)},
        {},
        "bytes, and 1,000,000 is the most",
    ),
    "a managed policy": (
        {"Policy": of("AWS::IAM::ManagedPolicy", PolicyDocument=policy(6_000))},
        {"Policy": of("AWS::IAM::ManagedPolicy", PolicyDocument=policy(6_144))},
        {},
        "characters, and 6,144 is the most",
    ),
    "a role's policies together": (
        ROLE
        | {
            "One": of("AWS::IAM::Policy", Roles=[{"Ref": "Role"}], PolicyDocument=policy(9_000)),
        },
        {"Two": of("AWS::IAM::Policy", Roles=[{"Ref": "Role"}], PolicyDocument=policy(1_200))},
        {},
        "characters of inline policies, and 10,240 is the most",
    ),
    "a trust policy": (
        ROLE,
        {"Role": of("AWS::IAM::Role", AssumeRolePolicyDocument=policy(2_048))},
        {},
        "characters of trust, and 2,048 is the most",
    ),
    "variables": (
        {"F": function(Environment={"Variables": {"A": "x" * 4_000}})},
        {"F": function(Environment={"Variables": {"A": "x" * 4_000, "B": {"Ref": "Queue" * 9}}})},
        {},
        "bytes of variables, and 4,096 is the most",
    ),
    "layers": (
        {"F": function(Layers=["a", "b", "c", "d", "e"])},
        {"F": function(Layers=["a", "b", "c", "d", "e", "f"])},
        {},
        "6 layers, and 5 is the most",
    ),
    "bytes unzipped": (
        {"F": function()} | LAYER,
        {"F": function(Layers=[{"Ref": "Layer"}])},
        {"code": 200 * 1024 * 1024, "layer": 51 * 1024 * 1024},
        "bytes unzipped, and 262,144,000 is the most",
    ),
}


@pytest.mark.parametrize("case", LIMITS)
def test_a_limit_is_found_where_it_is_exceeded_and_not_before(case: str) -> None:
    below, more, sizes, expected = LIMITS[case]
    assert limits(below, sizes=sizes) == []
    (text,) = limits(below | more, sizes=sizes)
    assert text.endswith(expected)


@pytest.mark.parametrize(
    ("properties", "said"),
    [
        ({"ReservedConcurrentExecutions": 1}, "a new account has none to spare"),
        ({"MemorySize": 3009}, "3008 MB at most"),
    ],
)
def test_a_new_account_s_quotas_are_known(properties: dict[str, Any], said: str) -> None:
    assert limits({"F": function(MemorySize=3008)}, new=True) == []
    (text,) = limits({"F": function(**properties)}, new=True)
    assert text.endswith(said)


def test_an_account_s_quota_of_alarms_counts_every_stack() -> None:
    alarms = {f"Alarm{i}": of("AWS::CloudWatch::Alarm") for i in range(301)}
    account = Account()
    account.deploy(tuple(stack(alarms, name=f"S{i}") for i in range(17)))
    assert [one.rule for one in check_new_account(account)] == ["quota"]


def test_stacks_that_need_each_other_are_an_error() -> None:
    with pytest.raises(ValueError, match="A, B"):
        in_order([stack({}, name="A", needs=("B",)), stack({}, name="B", needs=("A",))])


def release() -> Application:
    return read_stored(STORED / "0.1.0.json")


def changed(change: Callable[[str, dict[str, Any]], None]) -> Application:
    """The release with a change to every resource."""
    stacks = []
    for one in release():
        template = copy.deepcopy(dict(one.template))
        for id_, resource in list(template["Resources"].items()):
            change(id_, resource)
        stacks.append(Stack(name=one.name, template=template, needs=one.needs))
    return tuple(stacks)


def with_queue_names(id_: str, resource: dict[str, Any]) -> None:
    if resource["Type"] == "AWS::SQS::Queue":
        resource["Properties"]["QueueName"] = id_


def with_other_keys(_: str, resource: dict[str, Any]) -> None:
    if resource["Type"] == "AWS::DynamoDB::Table":
        resource["Properties"]["KeySchema"][1]["AttributeName"] = "other"


def without_policies(_: str, resource: dict[str, Any]) -> None:
    if resource["Type"] == "AWS::Logs::LogGroup":
        resource["Properties"]["LogGroupName"] = "/fixed"


def in_a_fixed_group(_: str, resource: dict[str, Any]) -> None:
    if resource["Type"] == "AWS::Lambda::Function":
        resource["Properties"]["FunctionName"] = "one-name"


@pytest.mark.parametrize(
    ("mutation", "rules"),
    [
        (with_queue_names, {"data-replaced", "export-changed"}),
        (with_other_keys, {"data-replaced"}),
        (without_policies, {"name-taken", "data-left-behind"}),
        (in_a_fixed_group, {"name-taken", "export-changed"}),
    ],
)
def test_a_mutant_of_the_release_is_refused(
    mutation: Callable[[str, dict[str, Any]], None], rules: set[str]
) -> None:
    assert rules <= {rule for rule, _ in found(release(), changed(mutation))}


def test_the_previous_release_is_the_newest_one_before(tmp_path: Any) -> None:
    assert previous_release("0.2.0").name == "0.1.0.json"
    with pytest.raises(FileNotFoundError, match=r"0\.1\.0"):
        previous_release("0.1.0")


def report(findings: Iterable[Finding], *accepted: Accepted) -> Report:
    step = Step(group="setting", title="a -> b", findings=tuple(findings))
    return Report(steps=[step], accepted=accepted)


def test_the_table_tells_step_verdict_finding_and_remedy_and_what_is_accepted() -> None:
    account = Account()
    account.deploy((stack(QUEUE),))
    findings = account.deploy((stack(BUCKET),))
    plainly = report(findings)
    text = "\n".join(plainly.lines())
    assert len(plainly.refused) == 1
    assert "a -> b  REFUSED" in text
    assert "data-deleted: Store Queue" in text
    assert "-> keep it, or retain it" in text

    one = Accepted(step="a*", rule="data-deleted", stack="Store", subject="*", reason="It is so.")
    accepting = report(findings, one)
    assert (accepting.refused, accepting.superfluous) == ([], [])
    assert "-> It is so." in "\n".join(accepting.lines())


def test_what_is_accepted_and_not_found_must_go() -> None:
    one = Accepted(step="*", rule="data-deleted", stack="*", subject="*", reason="It was so.")
    assert report([], one).superfluous == [one]
    assert "superfluous: data-deleted" in "\n".join(report([], one).lines())


def test_a_note_and_what_is_undecided_refuse_nothing() -> None:
    findings = Account().deploy((stack({"Queue": QUEUE["Queue"] | {"Condition": "Wanted"}}),))
    assert [one.level for one in findings] == [Level.UNDECIDED]
    assert report(findings).refused == []
    assert "a -> b  undecided" in "\n".join(report(findings).lines())
