"""An examination: every check in its order, and what they come to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

# each registers its checks, in the order in which they are made
from fairbox.doctor import alarms, configuration, functions, queues, table_checks, workload
from fairbox.doctor.aws import NotAnswered
from fairbox.doctor.findings import CHECKS, Check, Finding, Reporter
from fairbox.errors import (
    FairboxError,
    InvalidInput,
    NewerVersion,
    NotAllowed,
    Throttled,
    Unavailable,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from fairbox.doctor.examined_deployment import Deployment

PARTS: Final = (configuration, table_checks, functions, queues, alarms, workload)
ORDER: Final = (
    "settings", "tables", "indexes", "streams", "expiry", "backups", "stacks", "version",
    "functions", "triggers", "schedules", "queues", "dead-letter-queues", "alarms", "lag",
    "archive", "sweep", "counts", "topics", "destinations", "dead-letters", "held-keys",
    "placement",
)  # fmt: skip


def checks() -> list[Check]:
    """Return every check, in order; the last tells what the others were denied."""
    # by a fixed order, so that causes stand before their consequences
    return [*(CHECKS[name] for name in ORDER), PERMISSIONS]


def examine(deployment: Deployment, only: Sequence[str] = ()) -> Iterator[Finding]:
    """Make the checks, and yield what they find.

    Args:
        deployment: the deployment.
        only: names of the checks to make; none: all.

    Raises:
        InvalidInput: there is no check of a name.
    """
    known = [one.name for one in checks()]
    if not set(only) <= set(known):
        raise InvalidInput("check", f"one of {', '.join(known)}")
    for one in checks():
        if not only or one.name in only:
            yield from _made(one, deployment)


def _made(one: Check, deployment: Deployment) -> Iterator[Finding]:
    report = Reporter(one.name, one.title)
    try:
        yield from one.examine(deployment)
    except NotAnswered as error:
        yield report.unknown(str(error), error.advice)
    # tables are asked by the library's own calls, whose errors are not those of `Aws`
    except NotAllowed as error:
        yield report.unknown(str(error), "Allow it: policy Reader of the Access stack does.")
    except (Throttled, Unavailable) as error:
        yield report.unknown(str(error), "Try again, where it should answer.")
    except NewerVersion as error:
        yield report.fail(str(error), "Upgrade this library: docs/how-to/upgrade.md.")
    except FairboxError as error:
        yield report.fail(str(error), "Correct what it names.")
    except Exception as error:  # noqa: BLE001 - one check must not end the others
        yield report.odd(error)


def _permissions(deployment: Deployment) -> Iterator[Finding]:
    report = Reporter("permissions", "caller")
    if deployment.aws.denied:
        yield report.warn(
            f"it lacks {', '.join(deployment.aws.denied)}",
            "Attach policy Reader of the deployment's Access stack to it, and look again.",
        )
    else:
        yield report.ok(f"{deployment.aws.calls} questions, none denied")


PERMISSIONS: Final = Check(
    "permissions",
    "The caller may look",
    "No question was denied. Each that was says which action the caller lacks, and the others "
    "go on.",
    _permissions,
)
