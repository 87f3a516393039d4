"""The steps of a rehearsal: creation, every setting, the upgrade and its roll-back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from scripts.rehearsal.account import Account
from scripts.rehearsal.limits import check_limits, check_new_account
from scripts.rehearsal.variations import title

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from scripts.rehearsal.findings import Finding
    from scripts.rehearsal.templates import Application


@dataclass(frozen=True, kw_only=True)
class Step:
    """One deployment, and its findings; `group` has the steps that belong together."""

    group: str
    title: str
    findings: tuple[Finding, ...]


def deploy(account: Account, application: Application, group: str, title: str) -> Step:
    """Deploy an application in an account; return the step."""
    found = [*account.deploy(application), *check_limits(account, application)]
    return Step(group=group, title=title, findings=tuple(found))


def creation(application: Application) -> Iterator[Step]:
    """Create every stack in a new account, delete all, and create them again."""
    account = Account()
    group = "creation"
    created = deploy(account, application, group, "create")
    quotas = tuple(check_new_account(account))
    yield Step(group=group, title="create in a new account", findings=created.findings + quotas)
    gone = account.delete_all(stack.name for stack in application)
    yield Step(group=group, title="delete every stack", findings=tuple(gone))
    yield deploy(account, application, group, "create again")


def change(
    name: str, default: Application, others: Sequence[tuple[Mapping[str, Any], Application]]
) -> Iterator[Step]:
    """Change a setting to each other value and back, and from each value to the next."""
    account = Account()
    account.deploy(default)
    at = title({})
    stops = [stop for overrides, to in others for stop in ((overrides, to), ({}, default))]
    # from one value to the next, without the default between them
    if len(others) > 1:
        stops += [*others, *reversed(others[:-1]), ({}, default)]
    for overrides, to in stops:
        yield deploy(account, to, name, f"{at} -> {title(overrides)}")
        at = title(overrides)
        if left := account.stacks.keys() - {stack.name for stack in to}:
            yield _without(account, left, default, name, at)
    for overrides, created in others:
        account = Account()
        account.deploy(created)
        yield deploy(account, default, name, f"created with {title(overrides)} -> {title({})}")


def _without(
    account: Account, left: Iterable[str], default: Application, group: str, at: str
) -> Step:
    """Delete the stacks that are left over, beside the journey, and go back to the defaults."""
    account = account.copy()
    gone = account.delete_all(left)
    back = deploy(account, default, group, "")
    names = ", ".join(sorted(left))
    return Step(
        group=group,
        title=f"{at}, {names} deleted -> {title({})}",
        findings=(*gone, *back.findings),
    )


def upgrade(version: str, before: Application, now: Application) -> Iterator[Step]:
    """Upgrade from a released version, roll back, and upgrade again.

    A roll-back goes in reverse order: a stack's new exports can go when nobody imports them.
    """
    account = Account()
    account.deploy(before)
    group = f"upgrade from {version}"
    yield deploy(account, now, group, "upgrade")
    yield deploy(account, before[::-1], group, "roll back")
    yield deploy(account, now, group, "upgrade again")
