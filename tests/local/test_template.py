"""Templates: intrinsic functions, names across stacks, and refusals."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from local.cloudformation.assembly import Assembly
from local.cloudformation.resources import refuse_unknown
from local.cloudformation.template import TemplateError
from local.functions.specs import function_specs
from local.workspace import LocalError
from tests.local.assemblies import read_template, sample_function, table

if TYPE_CHECKING:
    from pathlib import Path


def resolved(folder: Path, value: Any, **stack: Any) -> Any:
    resources = {"Queue": {"Type": "AWS::SQS::Queue"}, "Table": table(), **stack.pop("more", {})}
    resources["Probe"] = {"Type": "AWS::IAM::Policy", "Properties": {"Value": value}}
    template = read_template(folder, {"App": {"Resources": resources, **stack}})
    return template.properties("Probe").get("Value")


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ({"Ref": "AWS::Region"}, "us-east-1"),
        ({"Ref": "Table"}, "App-Table"),
        ({"Ref": "Queue"}, "http://127.0.0.1:5000/123456789012/App-Queue"),
        ({"Fn::GetAtt": ["Queue", "Arn"]}, "arn:aws:sqs:us-east-1:123456789012:App-Queue"),
        ({"Fn::GetAtt": "Queue.QueueName"}, "App-Queue"),
        ({"Fn::Join": ["/", [{"Ref": "Table"}, "index", 1]]}, "App-Table/index/1"),
        ({"Fn::Sub": "${AWS::Region}:${Table}:${Queue.Arn}:${!Kept}"},
         "us-east-1:App-Table:arn:aws:sqs:us-east-1:123456789012:App-Queue:${Kept}"),
        ({"Fn::Sub": ["${Mine}-x", {"Mine": {"Ref": "Table"}}]}, "App-Table-x"),
        ({"Fn::Select": [2, {"Fn::Split": ["/", {"Ref": "AWS::StackId"}]}]}, "local"),
        ({"Ref": "Size"}, "7"),
    ],
)  # fmt: skip
def test_an_intrinsic_function_gives_what_cloudformation_gives(
    tmp_path: Path, value: Any, expected: Any
) -> None:
    parameters = {"Size": {"Type": "String", "Default": "7"}}
    assert resolved(tmp_path, value, Parameters=parameters) == expected


@pytest.mark.parametrize(
    ("value", "named"),
    [
        ({"Ref": "Missing"}, "Missing"),
        ({"Ref": "AWS::NoValue"}, "AWS::NoValue"),
        ({"Fn::If": ["Yes", "then", "else"]}, "Fn::If"),
        ({"Fn::ImportValue": "nobody"}, "nobody"),
        ({"Fn::GetAtt": ["Table", "StreamArn"]}, "StreamArn"),
    ],
)
def test_what_cannot_be_resolved_is_named(tmp_path: Path, value: Any, named: str) -> None:
    with pytest.raises(LocalError, match=named):
        resolved(tmp_path, value)


def test_an_export_of_one_stack_is_imported_by_another(tmp_path: Path) -> None:
    storage = {
        "Resources": {"Table": table()},
        "Outputs": {"Out": {"Value": {"Ref": "Table"}, "Export": {"Name": "Storage:Table"}}},
    }
    value = {"Value": {"Fn::ImportValue": "Storage:Table"}}
    delivery = {"Resources": {"Probe": {"Type": "AWS::IAM::Policy", "Properties": value}}}
    template = read_template(tmp_path, {"Storage": storage, "Delivery": delivery})
    assert template.properties("Probe") == {"Value": "Storage-Table"}
    assert template.outputs() == {"Storage.Out": "Storage-Table"}


def test_one_logical_id_in_two_stacks_is_named_with_its_stack(tmp_path: Path) -> None:
    stacks = {name: {"Resources": {"Table": table()}} for name in ("One", "Two")}
    template = read_template(tmp_path, stacks)
    assert [template.physical(name) for name in ("One.Table", "Two.Table")] == [
        "One-Table",
        "Two-Table",
    ]


def test_an_attribute_that_the_engine_gave_is_resolved(tmp_path: Path) -> None:
    value = {"StreamArn": {"Fn::GetAtt": ["Table", "StreamArn"]}}
    probe = {"Type": "AWS::IAM::Policy", "Properties": value}
    template = read_template(tmp_path, {"App": {"Resources": {"Table": table(), "Probe": probe}}})
    with pytest.raises(LocalError, match="StreamArn"):
        template.properties("Probe")
    template.identities.learn(template.resources["Table"], "StreamArn", "arn:stream")
    assert template.properties("Probe") == {"StreamArn": "arn:stream"}


def test_a_resource_with_a_condition_is_refused_by_name(tmp_path: Path) -> None:
    resources = {"Queue": {"Type": "AWS::SQS::Queue", "Condition": "Never"}}
    with pytest.raises(TemplateError, match="Queue of App: Condition"):
        read_template(tmp_path, {"App": {"Resources": resources}})


def test_long_names_are_shortened_and_stay_distinct(tmp_path: Path) -> None:
    buckets = {f"{'Archive' * 12}{n}": {"Type": "AWS::S3::Bucket"} for n in (1, 2)}
    fifo = {"Type": "AWS::SQS::Queue", "Properties": {"FifoQueue": True}}
    template = read_template(tmp_path, {"App": {"Resources": {**buckets, "Doorbell" * 12: fifo}}})
    names = [template.physical(name) for name in buckets]
    assert len(set(names)) == 2
    assert all(len(name) == 63 and name == name.lower() for name in names)
    queue = template.physical("Doorbell" * 12)
    assert queue.endswith(".fifo")
    assert len(queue) == 80


def test_a_resource_of_an_unknown_type_is_refused_by_name_and_type(tmp_path: Path) -> None:
    resources = {
        "Known": {"Type": "AWS::SQS::Queue"},
        "Role": {"Type": "AWS::IAM::Role"},
        "Machine": {"Type": "AWS::StepFunctions::StateMachine"},
    }
    template = read_template(tmp_path, {"App": {"Resources": resources}})
    with pytest.raises(LocalError) as refused:
        refuse_unknown(template)
    assert "Machine (AWS::StepFunctions::StateMachine)" in str(refused.value)
    assert "Known" not in str(refused.value)
    assert "Role" not in str(refused.value)


def test_a_folder_without_an_assembly_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(LocalError, match="make synth"):
        Assembly.load(tmp_path)


def test_a_function_has_its_own_settings_and_the_given_endpoints(tmp_path: Path) -> None:
    function = sample_function(
        Environment={"Variables": {"TABLE": {"Ref": "Table"}}},
        ReservedConcurrentExecutions=2,
        Timeout=7,
        LoggingConfig={"LogGroup": "/log/sample", "LogFormat": "JSON"},
    )
    role = {"Type": "AWS::IAM::Role"}
    stack = {"Resources": {"Sample": function, "Table": table(), "Role": role}}
    template = read_template(tmp_path, {"App": stack})
    spec = function_specs(template, variables={"AWS_ENDPOINT_URL": "http://here"})["Sample"]
    assert (spec.physical, spec.timeout, spec.reserved) == ("App-Sample", 7.0, 2)
    assert (spec.task_root / "handler.py").is_file()
    assert spec.environment == {"AWS_ENDPOINT_URL": "http://here", "TABLE": "App-Table"}
    variables = spec.process_environment("127.0.0.1:1", instance="i")
    assert variables["AWS_LAMBDA_LOG_GROUP_NAME"] == "/log/sample"
    assert variables["AWS_LAMBDA_LOG_FORMAT"] == "JSON"
    assert variables["AWS_LAMBDA_FUNCTION_NAME"] == "App-Sample"
    assert "HOME" not in variables


def test_a_function_behind_a_custom_resource_is_left_out(tmp_path: Path) -> None:
    provider = sample_function(Runtime="nodejs22.x")
    emptier = {
        "Type": "Custom::S3AutoDeleteObjects",
        "Properties": {"ServiceToken": {"Fn::GetAtt": ["Provider", "Arn"]}},
    }
    role = {"Type": "AWS::IAM::Role"}
    resources = {"Provider": provider, "Emptier": emptier, "Role": role}
    template = read_template(tmp_path, {"App": {"Resources": resources}})
    assert function_specs(template, variables={}) == {}


def test_a_function_of_another_runtime_is_refused(tmp_path: Path) -> None:
    resources = {"Other": sample_function(Runtime="nodejs22.x"), "Role": {"Type": "AWS::IAM::Role"}}
    template = read_template(tmp_path, {"App": {"Resources": resources}})
    with pytest.raises(LocalError, match=r"Other .*nodejs22\.x"):
        function_specs(template, variables={})


def test_a_layer_of_installed_packages_is_replaced_by_the_environment(tmp_path: Path) -> None:
    function = sample_function(Layers=[{"Ref": "Layer"}])
    layer = {
        "Type": "AWS::Lambda::LayerVersion",
        "Properties": {"Content": {"S3Key": "a1b2c3.zip"}},
    }
    resources = {"Sample": function, "Layer": layer, "Role": {"Type": "AWS::IAM::Role"}}
    template = read_template(tmp_path, {"App": {"Resources": resources}})
    folder = template.assembly.assets["a1b2c3.zip"] / "python"
    (folder / "library").mkdir(parents=True)
    assert function_specs(template, variables={})["Sample"].layers == (folder.resolve(),)
    (folder / "pydantic-2.0.dist-info").mkdir()
    assert function_specs(template, variables={})["Sample"].layers == ()


def test_a_template_error_is_a_local_error() -> None:
    assert issubclass(TemplateError, LocalError)


def test_a_stack_that_runs_on_aws_alone_is_passed_over(tmp_path: Path) -> None:
    spark = {"Spark": {"Type": "AWS::EMRServerless::Application"}}
    stacks = {"FairboxPipeline": {"Resources": spark}, "App": {"Resources": {"Table": table()}}}
    template = read_template(tmp_path, stacks)
    refuse_unknown(template)
    assert list(template.resources) == ["Table"]
    with pytest.raises(LocalError, match="EMRServerless"):
        refuse_unknown(read_template(tmp_path / "other", {"Other": {"Resources": spark}}))
