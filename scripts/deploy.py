"""Deployment: checks of account, names and quotas, then the changes, a question, `cdk deploy`.

Of an earlier release, whose folder `--root` is, stack by stack from the last to the first.

Whatever is refused is one line, and nothing has been deployed then.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from dataclasses import dataclass, field
from graphlib import TopologicalSorter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import boto3
from botocore.exceptions import BotoCoreError, ClientError
from fairbox.model.versions import VERSION_OUTPUT
from fairbox.settings import Settings
from fairbox_cdk.config import (
    DEFAULT_PROFILE,
    PROFILE,
    PROFILE_OUTPUT,
    Config,
    ConfigError,
    load_context,
)
from fairbox_cdk.config import config_from_context as read_config

from scripts.template_changes import Changes, changes_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

ROOT: Final = Path(__file__).resolve().parent.parent
OURS: Final = "Fairbox:"
"""Beginning of the descriptions of Fairbox's stacks, in every release."""
UNRESERVED: Final = 100
"""Executions that Lambda leaves to functions without a reservation, where there are as many."""
QUOTAS: Final = "docs/how-to/quotas.md"
UPGRADE: Final = "docs/how-to/upgrade.md"


class RefusedError(Exception):
    """A deployment that must not begin; the message says what to do."""


@dataclass(frozen=True, kw_only=True)
class Target:
    """The place of a deployment.

    Attributes:
        client: makes clients of its region by service name.
        deployed: CloudFormation's descriptions of all its stacks, by name.
    """

    config: Config
    profile: str
    account: str
    region: str
    client: Callable[[str], Any]
    deployed: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


def main(
    arguments: Sequence[str] | None = None,
    *,
    client: Callable[[str, str | None], Any] | None = None,
    run: Callable[..., Any] = subprocess.run,
    ask: Callable[[str], str] | None = None,
) -> int:
    """Deploy; return 1 if it is refused or was not wanted, else what `cdk deploy` returned.

    Args:
        arguments: of the command line.
        client: makes a client by service and region, by default boto3's.
        run: starts a program, as `subprocess.run` does.
        ask: puts a question; None: there is nobody to ask.
    """
    options = _options(arguments)
    if ask is None and sys.stdin.isatty():
        ask = input
    try:
        target = _target(options, client or _client)
        templates = _templates(options, run)
        _check_names(target, templates, adopt=options.adopt)
        _check_release(target, templates)
        _check_reservations(target, templates)
        changes = _changes(target, templates)
    except (ConfigError, RefusedError) as error:
        print(f"fairbox: {error}", file=sys.stderr)
        return 1
    _show(target, changes)
    _show_release(target, templates)
    if not options.yes and not _wanted(ask):
        return 1
    region = {"AWS_REGION": target.region, "AWS_DEFAULT_REGION": target.region}
    approval = "never" if options.yes else "broadening"
    common = ["--app", str(options.assembly), "--require-approval", approval]
    for chosen in _steps(options):
        command = [options.cdk, "deploy", *chosen, *common]
        done = run(command, env=os.environ | region, check=False)
        if done.returncode:
            return int(done.returncode)
    return 0


def _steps(options: argparse.Namespace) -> Iterator[list[str]]:
    """Yield what each `cdk deploy` is told to deploy.

    Backwards, a stack goes before those that it imports from: CloudFormation keeps an export that
    only the newer release has until nobody imports it.
    """
    if not options.backwards:
        yield ["--all"]
        return
    stacks = _artifacts(options.assembly)
    needs = {id_: stacks.keys() & set(one.get("dependencies", [])) for id_, one in stacks.items()}
    for id_ in reversed(list(TopologicalSorter(needs).static_order())):
        yield ["--exclusively", stacks[id_].get("displayName", id_)]


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        *("-c", "--context"), action="append", default=[], metavar="KEY=VALUE", help="a setting"
    )
    parser.add_argument("--settings", type=Path, metavar="FILE", help="settings as a JSON object")
    parser.add_argument("--yes", action="store_true", help="do not ask")
    parser.add_argument(
        "--adopt", action="store_true", help="take over a deployment that has another profile"
    )
    parser.add_argument("--cdk", default="cdk", help="the CDK command line")
    parser.add_argument("--root", type=Path, default=ROOT, help="the folder of the release")
    parser.add_argument("--backwards", action="store_true", help="from the last stack to the first")
    parser.add_argument("--assembly", type=Path, help="is written; default: cdk.out of the release")
    options = parser.parse_args(arguments)
    for pair in options.context:
        if "=" not in pair:
            parser.error(f"{pair!r} is not KEY=VALUE")
    options.root = options.root.resolve()
    options.assembly = options.assembly or options.root / "cdk.out"
    return options


def _client(service: str, region: str | None) -> Any:
    return boto3.client(service, region_name=region)  # type: ignore[call-overload] # the name is no literal


def _target(options: argparse.Namespace, client: Callable[[str, str | None], Any]) -> Target:
    """Read the settings; refuse an account or a region that is not theirs."""
    overrides = dict(pair.split("=", 1) for pair in options.context)
    context = load_context(options.root / "cdk.json", overrides, settings=options.settings)
    config = read_config(context)
    given = Settings.from_env().region or boto3.session.Session().region_name
    region = given or config.region
    if not region:
        raise RefusedError("no region is given: set AWS_REGION, or setting region")
    config.check_target(None, region)
    identity = _asked(client("sts", region), "get_caller_identity")
    account = str(identity["Account"])
    config.check_target(account, region)
    target = Target(
        config=config,
        profile=str(context.get(PROFILE, DEFAULT_PROFILE)),
        account=account,
        region=region,
        client=lambda service: client(service, region),
    )
    return Target(**{**vars(target), "deployed": _deployed(target)})


def _asked(client: Any, operation: str, **arguments: Any) -> Any:
    """Return the answer of AWS; what it refuses is refused here."""
    try:
        return getattr(client, operation)(**arguments)
    except ClientError as error:
        reason = error.response["Error"]
        raise RefusedError(f"{operation}: {reason.get('Code')}: {reason.get('Message')}") from error
    except BotoCoreError as error:
        raise RefusedError(f"{operation}: {error}") from error


def _deployed(target: Target) -> dict[str, Mapping[str, Any]]:
    client = target.client("cloudformation")
    found: dict[str, Mapping[str, Any]] = {}
    more: dict[str, str] = {}
    while True:
        page = _asked(client, "describe_stacks", **more)
        # a stack under review has only a change set, which nobody carried out
        found |= {
            stack["StackName"]: stack
            for stack in page["Stacks"]
            if stack["StackStatus"] != "REVIEW_IN_PROGRESS"
        }
        if not page.get("NextToken"):
            return found
        more = {"NextToken": page["NextToken"]}


def _templates(
    options: argparse.Namespace, run: Callable[..., Any]
) -> dict[str, Mapping[str, Any]]:
    """Synthesise, and return the templates by the names of their stacks."""
    context = [part for pair in options.context for part in ("-c", pair)]
    if options.settings:
        # where the program stands, a relative path means another file
        context += ["--settings", str(options.settings.resolve())]
    # another release has packages of its own
    python = sys.executable if options.root == ROOT else str(options.root / ".venv/bin/python")
    command = [python, "app.py", *context, "--output", str(options.assembly)]
    if run(command, cwd=options.root, check=False).returncode:
        raise RefusedError("the application cannot be synthesised, see above")
    return {
        artifact["properties"].get("stackName", id_): json.loads(
            (options.assembly / artifact["properties"]["templateFile"]).read_text("utf-8")
        )
        for id_, artifact in _artifacts(options.assembly).items()
    }


def _artifacts(assembly: Path) -> dict[str, dict[str, Any]]:
    """Return the manifest's entries of stacks, by their ids."""
    artifacts = json.loads((assembly / "manifest.json").read_text("utf-8"))["artifacts"]
    return {id_: a for id_, a in artifacts.items() if a["type"] == "aws:cloudformation:stack"}


def _check_names(
    target: Target, templates: Mapping[str, Mapping[str, Any]], *, adopt: bool
) -> None:
    """Refuse names that somebody else has, and a deployment that another profile made."""
    own = {stack.lower() for stack in templates}
    for name, stack in target.deployed.items():
        if name.lower() not in own:
            continue
        ours = str(stack.get("Description", "")).startswith(OURS)
        if name not in templates:
            raise RefusedError(f"stack {name} has this name but for the case: choose another name")
        if not ours:
            raise RefusedError(f"stack {name} is not Fairbox's: choose another name")
        if stack["StackStatus"].endswith("IN_PROGRESS"):
            raise RefusedError(f"stack {name} is {stack['StackStatus']}: wait for its end")
        outputs = {one["OutputKey"]: one["OutputValue"] for one in stack.get("Outputs", [])}
        before = outputs.get(PROFILE_OUTPUT, target.profile)
        if before != target.profile and not adopt:
            raise RefusedError(
                f"deployment {target.config.name} is of profile {before}, not {target.profile}:"
                " give this profile a name of its own, or ADOPT=1 takes the deployment over"
            )
    _check_database(target)


def _check_database(target: Target) -> None:
    """Refuse a database of Glue that somebody else made: its creation would fail half-way."""
    config = target.config
    if not config.pipeline or f"{config.name}Pipeline" in target.deployed:
        return
    try:
        target.client("glue").get_database(Name=config.glue_database)
    except ClientError as error:
        code = error.response["Error"].get("Code")
        if code != "EntityNotFoundException":
            _note(f"not checked: whether Glue has a database {config.glue_database} ({code})")
        return
    raise RefusedError(f"Glue has a database {config.glue_database} already: choose another name")


def _check_release(target: Target, templates: Mapping[str, Mapping[str, Any]]) -> None:
    """Refuse a pipeline where EMR has not got its release: its stack would fail as the last."""
    for label in {
        one["Properties"]["ReleaseLabel"]
        for template in templates.values()
        for one in template.get("Resources", {}).values()
        if one["Type"] == "AWS::EMRServerless::Application"
    }:
        try:
            answer = target.client("emr").list_release_labels(Filters={"Prefix": label})
        except (ClientError, BotoCoreError) as error:
            code = error.response["Error"].get("Code") if isinstance(error, ClientError) else error
            _note(f"not checked: whether EMR has release {label} here ({code})")
            continue
        if label not in answer["ReleaseLabels"]:
            raise RefusedError(
                f"EMR has no release {label} in {target.region}, which the pipeline runs on: set"
                " pipeline to false (CONTEXT='-c pipeline=false'), or choose another region"
            )


def _check_reservations(target: Target, templates: Mapping[str, Mapping[str, Any]]) -> None:
    """Refuse reservations that Lambda would refuse when half of the stacks are made."""
    try:
        limits = target.client("lambda").get_account_settings()["AccountLimit"]
    except ClientError as error:
        _note(f"not checked: Lambda's quota ({error.response['Error'].get('Code')})")
        return
    limit, free = limits["ConcurrentExecutions"], limits["UnreservedConcurrentExecutions"]
    reserved = sum(map(_reserved, templates.values()))
    if reserved:
        reserved -= sum(_reserved(_template(target, s)) for s in templates if s in target.deployed)
    left = max(0, free - min(UNRESERVED, limit))
    if reserved > left:
        raise RefusedError(
            f"reserve_concurrency takes {reserved} more executions, and Lambda has {left} to"
            f" reserve in this account: leave it false, or ask for more ({QUOTAS})"
        )
    if limit < UNRESERVED:
        _note(f"Lambda runs {limit} functions at once in this account: see {QUOTAS}")


def _reserved(template: Mapping[str, Any]) -> int:
    resources = template.get("Resources", {}).values()
    key = "ReservedConcurrentExecutions"
    return sum(one.get("Properties", {}).get(key, 0) for one in resources)


def _template(target: Target, stack: str) -> Mapping[str, Any]:
    """Return the deployed template of a stack, as it was given."""
    answer = _asked(
        target.client("cloudformation"), "get_template", StackName=stack, TemplateStage="Original"
    )
    body = answer["TemplateBody"]
    return dict(json.loads(body) if isinstance(body, str) else body)


def _changes(target: Target, templates: Mapping[str, Mapping[str, Any]]) -> list[Changes]:
    return [
        changes_of(stack, _template(target, stack) if stack in target.deployed else None, after)
        for stack, after in templates.items()
    ]


def _show(target: Target, changes: Sequence[Changes]) -> None:
    config = target.config
    print(
        f"fairbox: deployment {config.name} (profile {target.profile})"
        f" to account {target.account}, region {target.region}"
    )
    for change in changes:
        new = "" if change.stack in target.deployed else " (new stack)"
        first, *rest = change.lines()
        print(f"  {first}{new}")
        for line in rest:
            print(f"  {line}")
    pipeline = f"{config.name}Pipeline"
    if not config.pipeline and pipeline in target.deployed:
        _note(f"{pipeline} stays: aws cloudformation delete-stack --stack-name {pipeline}")


def _show_release(target: Target, templates: Mapping[str, Mapping[str, Any]]) -> None:
    """Say from which release to which this goes, and what a long way needs."""
    delivery = f"{target.config.name}Delivery"
    outputs = target.deployed.get(delivery, {}).get("Outputs", [])
    before = {one["OutputKey"]: one["OutputValue"] for one in outputs}.get(VERSION_OUTPUT)
    if before is None:
        return
    after = templates[delivery]["Outputs"][VERSION_OUTPUT]["Value"]
    if before == after:
        return
    print(f"  release {before} is replaced by {after}")
    (major, minor), (new_major, new_minor) = (
        map(int, version.split(".")[:2]) for version in (before, after)
    )
    if major == new_major and abs(minor - new_minor) <= 1:
        return
    if (major, minor) > (new_major, new_minor):
        _note(f"roll back the producers to {after} first, and wait for their messages: {UPGRADE}")
    else:
        _note(f"upgrade minor versions one after the other: {UPGRADE}")


def _note(text: str) -> None:
    print(f"fairbox: {text}", file=sys.stderr)


def _wanted(ask: Callable[[str], str] | None) -> bool:
    if ask is None:
        _note("there is nobody to ask: YES=1 deploys without a question")
        return False
    if ask("Deploy? [y/N] ").strip().lower() in {"y", "yes"}:
        return True
    _note("nothing was deployed")
    return False


if __name__ == "__main__":
    sys.exit(main())
