"""The rehearsal of this application: its settings, and its upgrade from the last release."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

import pytest

from scripts.rehearsal import __main__ as program
from scripts.rehearsal import plan, variations
from scripts.rehearsal.accepted import ACCEPTED
from scripts.rehearsal.account import Account
from scripts.rehearsal.findings import Level
from scripts.rehearsal.report import Report
from scripts.rehearsal.synthesis import synthesise
from scripts.rehearsal.templates import (
    STORED,
    previous_release,
    read_assembly,
    read_stored,
    store,
)
from stacks.assets import library_version
from stacks.config import Config, config_from_context, load_context
from tests.stacks.conftest import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from scripts.rehearsal.plan import Step
    from scripts.rehearsal.templates import Application
    from tests.stacks.assembly import Assembly

RELEASE = "0.1.0"
FAULTS = {
    "alarm_topic_arn": {"export-gone", "data-deleted"},
    "pipeline": {"export-gone", "data-abandoned"},
    "encryption_key": {"export-gone", "data-abandoned"},
}
"""Refusals of release 0.1.0 when one of three settings was changed, or changed back."""


@cache
def default() -> Application:
    return synthesise({})


def refused(steps: Iterable[Step]) -> list[str]:
    report = Report(steps=list(steps), accepted=ACCEPTED, whole=False)
    return [f"{step.title}: {found.rule} {found.subject}" for step, found in report.refused]


@pytest.mark.parametrize("setting", FAULTS)
def test_a_setting_is_changed_and_changed_back(setting: str) -> None:
    values = dict(variations.variations())[setting]
    changes = [(overrides, synthesise(overrides)) for overrides in values]
    assert refused(plan.change(setting, default(), changes)) == []


@pytest.mark.parametrize("setting", FAULTS)
def test_the_release_with_three_settings_that_could_not_be_changed_is_found(setting: str) -> None:
    before = read_stored(STORED / f"{RELEASE}.json")
    changed = {stack.name: stack for stack in read_stored(STORED / f"faults/{setting}.json")}
    after = tuple(changed.get(stack.name, stack) for stack in before)
    if setting == "pipeline":
        after = tuple(stack for stack in after if stack.name != "FairboxPipeline")
    found = {
        finding.rule
        for step in plan.change(setting, before, [({setting: "changed"}, after)])
        for finding in step.findings
        if finding.level is Level.REFUSED
    }
    assert FAULTS[setting] <= found


def test_the_last_release_is_upgraded_rolled_back_and_upgraded_again() -> None:
    path = previous_release(library_version(ROOT))
    assert refused(plan.upgrade(path.stem, read_stored(path), default())) == []


def test_the_stacks_are_created_and_again_after_their_deletion() -> None:
    assert [one for one in refused(plan.creation(default())) if "quota" not in one] == []


def test_the_defaults_fit_the_quotas_of_a_new_account() -> None:
    assert [one for one in refused(plan.creation(default())) if "quota" in one] == []


def test_every_setting_is_changed_to_another_value() -> None:
    def config(overrides: dict[str, str]) -> Config:
        return config_from_context(load_context(ROOT / "cdk.json", overrides))

    for name, values in variations.variations():
        assert any(config(overrides) != config({}) for overrides in values), name


def test_a_setting_without_another_value_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    less = {name: values for name, values in variations.OTHERS.items() if name != "pipeline"}
    monkeypatch.setattr(variations, "OTHERS", less)
    with pytest.raises(variations.NoValuesError, match=r"^pipeline: each setting needs"):
        list(variations.variations())


def test_an_unknown_setting_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert program.main(["--setting", "colour"]) == 2
    assert capsys.readouterr().err == "fairbox: colour is not a setting\n"


def test_templates_are_stored_and_read_as_they_are(assembly: Assembly, tmp_path: Path) -> None:
    application = read_assembly(assembly.folder)
    store(application, tmp_path / "1.0.0.json")
    again = read_stored(tmp_path / "1.0.0.json")
    assert [(s.name, s.needs, s.template) for s in again] == [
        (s.name, s.needs, s.template) for s in application
    ]
    names = [stack.name for stack in application]
    for stack in application:
        assert all(names.index(need) < names.index(stack.name) for need in stack.needs)
    assert all(stack.sizes for stack in application if "Delivery" in stack.name)


def test_a_second_deployment_of_the_same_stacks_finds_nothing() -> None:
    account = Account()
    account.deploy(default())
    assert account.deploy(default()) == []


@pytest.mark.extended
@pytest.mark.timeout(600)
def test_everything_is_rehearsed(capsys: pytest.CaptureFixture[str]) -> None:
    code = program.main([])
    assert code == 0, capsys.readouterr().out
