"""The HTTP API under schemathesis: every check, every phase, over data that is there."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import schemathesis
from fairbox.api.openapi import openapi
from fairbox.api.routes import ROUTES
from fairbox.testing.application import MemoryApplication
from hypothesis import strategies as st
from schemathesis.config import SchemathesisConfig
from schemathesis.engine import events, from_schema

from tests.fuzz.data import TOPICS, Seeded
from tests.fuzz.excuses import excused
from tests.fuzz.gateway import CREDENTIALS, InProcess, SignedOnly, gateway

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from schemathesis.engine.recorder import ScenarioRecorder

    from tests.fuzz.data import Names

FORMATS: Final = ("fairbox-topic", "fairbox-ref", "fairbox-batch", "fairbox-item")
REFILL_EVERY: Final = 300
_SHOWN: Final = 900


@dataclass(kw_only=True)
class Findings:
    """The result of a run: cases by phase, and each finding once, with a request that shows it."""

    cases: Counter[str] = field(default_factory=Counter)
    statuses: Counter[int] = field(default_factory=Counter)
    excused: Counter[str] = field(default_factory=Counter)
    failures: dict[str, str] = field(default_factory=dict)
    errors: list[str] = field(default_factory=list)

    @property
    def good(self) -> bool:
        """Whether nothing was found."""
        return not self.failures and not self.errors

    def take(self, phase: str, recorder: ScenarioRecorder) -> None:
        """Add what a scenario recorded."""
        self.cases[phase] += len(recorder.interactions)
        for interaction in recorder.interactions.values():
            if interaction.response is not None:
                self.statuses[interaction.response.status_code] += 1
        for case_id, checks in recorder.checks.items():
            for check in checks:
                if check.failure_info is not None:
                    self._fail(case_id, check, recorder)

    def _fail(self, case_id: str, check: Any, recorder: ScenarioRecorder) -> None:
        operation = recorder.cases[case_id].value.operation.label
        interaction = recorder.interactions.get(case_id)
        response = interaction.response if interaction else None
        status = response.status_code if response else 0
        body = response.content if response else b""
        if excused(check.name, operation, status, body):
            self.excused[check.name] += 1
            return
        failure = check.failure_info.failure
        self.failures.setdefault(
            f"{check.name}: {operation}: {status}: {failure.title}",
            f"{failure.message[:_SHOWN]}\n{check.failure_info.code_sample[:_SHOWN]}\n"
            f"{body[:_SHOWN].decode(errors='replace')}",
        )


def settings(
    *,
    examples: int,
    seed: int,
    phases: Mapping[str, Any],
    excluded: Iterable[str] = (),
    url: str | None = None,
) -> SchemathesisConfig:
    """Return schemathesis' settings: every check but the excluded, every phase as it is told."""
    checks: dict[str, Any] = {"enabled": True}
    # 413 is how more items than a call takes are refused
    refused = ["400", "403", "404", "405", "409", "413", "415", "422"]
    checks["negative_data_rejection"] = {"expected-statuses": refused}
    checks |= {name: {"enabled": False} for name in excluded}
    return SchemathesisConfig.from_dict(
        {
            "seed": seed,
            "checks": checks,
            "continue-on-failure": True,
            "generation": {"max-examples": examples, "allow-x00": True},
            "phases": dict(phases),
            "auth": {"openapi": {"sigv4": {"api_key": CREDENTIALS}}},
            "warnings": False,
            # a large add takes a busy machine longer than its default; the gateway has its own 30 s
            "request-timeout": 120,
            **({"base-url": url} if url else {}),
        }
    )


def document() -> dict[str, Any]:
    """Return the API's document; names may be taken from what is there."""
    told = openapi(ROUTES)
    for path in told["paths"].values():
        for operation in path.values():
            for parameter in operation["parameters"]:
                name = f"fairbox-{parameter['name']}".replace("-id", "-batch")
                if parameter["in"] == "path" and name in FORMATS:
                    parameter["schema"] = parameter["schema"] | {"format": name}
    schemas = told["components"]["schemas"]
    for model in ("ItemsIn", "FailsIn"):
        items = schemas[model]["properties"]["items"]["items"]
        items["format"] = "fairbox-item"
    publish = told["paths"]["/topics/{topic}/messages"]["post"]["requestBody"]
    # any type stands for binary mode, which asks for headers: no document ties the two
    del publish["content"]["*/*"]
    publish["required"] = True
    return told


def register(names: Names) -> None:
    """Let names be drawn from what is there."""
    pools = (TOPICS, names.refs, names.batches, names.items)
    for form, pool in zip(FORMATS, pools, strict=True):
        schemathesis.openapi.format(form, st.sampled_from(pool))


def run(schema: Any, findings: Findings) -> Findings:
    """Run the phases that a schema's settings name, and add what they find."""
    for event in from_schema(schema).execute():
        if isinstance(event, events.ScenarioFinished):
            findings.take(event.phase.value, event.recorder)
        elif isinstance(event, events.NonFatalError):
            findings.errors.append(f"{event.label}: {event.info.format()}")
        elif isinstance(event, events.FatalError):
            raise event.exception
    return findings


def run_in_process(
    findings: Findings, *, examples: int, seed: int, phases: Mapping[str, Any]
) -> Findings:
    """Fuzz the API over an application in memory, `examples` for each operation and phase."""
    application = MemoryApplication()
    seeded = Seeded(application)
    register(seeded.names)
    invoker = InProcess(application, refill=seeded.fill, every=REFILL_EVERY)
    schema = schemathesis.openapi.from_dict(
        document(), config=settings(examples=examples, seed=seed, phases=phases)
    )
    schema.app = SignedOnly(gateway(invoker).app)
    run(schema, findings)
    findings.errors += [*invoker.errors, *(str(line) for line in invoker.log.failures)]
    return findings


def run_at(
    url: str, findings: Findings, *, examples: int, seed: int, phases: Mapping[str, Any]
) -> Findings:
    """Fuzz the API of an application that runs; what is there is what requests have made."""
    application = MemoryApplication()
    register(Seeded(application).names)  # names that are well formed, though not there
    told = document()
    del told["security"]  # the local gateway lets in what is not signed
    schema = schemathesis.openapi.from_dict(
        told,
        config=settings(
            examples=examples,
            seed=seed,
            phases=phases,
            url=url,
            excluded=("ignored_auth", "missing_required_header"),  # for the same reason
        ),
    )
    return run(schema, findings)
