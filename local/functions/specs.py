"""Lambda functions of the template: code from the assets, environment, limits."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from local.cloudformation.identities import (
    ACCOUNT,
    CREDENTIALS,
    FUNCTION,
    LAYER,
    MAPPING,
    REGION,
)
from local.workspace import LocalError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from local.cloudformation.template import Template

DEFAULT_TIMEOUT = 3
DEFAULT_MEMORY = 128


@dataclass(frozen=True, kw_only=True)
class FunctionSpec:
    """The specification of one function."""

    name: str  # logical id
    physical: str
    handler: str
    task_root: Path
    layers: tuple[Path, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    timeout: float = DEFAULT_TIMEOUT  # seconds
    memory: int = DEFAULT_MEMORY  # MB; told to the function, not enforced
    reserved: int | None = None  # ReservedConcurrentExecutions
    from_queues: int = 0  # MaximumConcurrency of all its queues together
    log_group: str = ""
    log_format: str = "Text"  # or "JSON": a line is an object

    @property
    def arn(self) -> str:
        """The function's ARN."""
        return f"arn:aws:lambda:{REGION}:{ACCOUNT}:function:{self.physical}"

    def process_environment(self, runtime_api: str, *, instance: str) -> dict[str, str]:
        """Return all environment variables of a process, which inherits none."""
        return {
            "PATH": "/usr/local/bin:/usr/bin:/bin",
            "LANG": "C.UTF-8",
            "TZ": ":UTC",
            "PYTHONPATH": ":".join(str(path) for path in (self.task_root, *self.layers)),
            "PYTHONNOUSERSITE": "1",
            "AWS_REGION": REGION,
            "AWS_DEFAULT_REGION": REGION,
            "AWS_CONFIG_FILE": "/dev/null",
            "AWS_SHARED_CREDENTIALS_FILE": "/dev/null",
            "AWS_EC2_METADATA_DISABLED": "true",
            **CREDENTIALS,
            **self.environment,
            "_HANDLER": self.handler,
            "AWS_EXECUTION_ENV": f"AWS_Lambda_python3.{sys.version_info.minor}",
            "AWS_LAMBDA_FUNCTION_NAME": self.physical,
            "AWS_LAMBDA_FUNCTION_MEMORY_SIZE": str(self.memory),
            "AWS_LAMBDA_FUNCTION_VERSION": "$LATEST",
            "AWS_LAMBDA_INITIALIZATION_TYPE": "on-demand",
            "AWS_LAMBDA_LOG_FORMAT": self.log_format,
            "AWS_LAMBDA_LOG_GROUP_NAME": self.log_group or f"/aws/lambda/{self.physical}",
            "AWS_LAMBDA_LOG_STREAM_NAME": f"[$LATEST]{instance}",
            "AWS_LAMBDA_RUNTIME_API": runtime_api,
            "LAMBDA_TASK_ROOT": str(self.task_root),
        }


def function_specs(template: Template, *, variables: Mapping[str, str]) -> dict[str, FunctionSpec]:
    """Return the template's functions by name; each gets `variables` (endpoints).

    Functions that only serve skipped custom resources are left out.

    Raises:
        LocalError: a function is not Python, or its code is no asset of the assembly.
    """
    providers = _custom_resource_providers(template)
    return {
        name: _spec(name, template, variables)
        for name in template.of_type(FUNCTION)
        if name not in providers
    }


def _custom_resource_providers(template: Template) -> set[str]:
    """Names of the functions behind custom resources, which nothing calls here."""
    arns = {
        template.properties(name).get("ServiceToken")
        for name, resource in template.resources.items()
        if resource.type.startswith("Custom::")
    }
    return {name for name in template.of_type(FUNCTION) if template.attribute(name, "Arn") in arns}


def _spec(name: str, template: Template, variables: Mapping[str, str]) -> FunctionSpec:
    properties = template.properties(name)
    runtime = properties.get("Runtime", "")
    if not runtime.startswith("python"):
        raise LocalError(f"{name} (AWS::Lambda::Function) has runtime {runtime!r}: Python is run")
    environment = properties.get("Environment", {}).get("Variables", {})
    logging = properties.get("LoggingConfig", {})
    return FunctionSpec(
        name=name,
        physical=template.physical(name),
        handler=properties["Handler"],
        task_root=_asset(name, properties.get("Code", {}), template),
        layers=_layers(properties.get("Layers", []), template),
        environment={**variables, **{key: str(value) for key, value in environment.items()}},
        timeout=float(properties.get("Timeout", DEFAULT_TIMEOUT)),
        memory=int(properties.get("MemorySize", DEFAULT_MEMORY)),
        reserved=properties.get("ReservedConcurrentExecutions"),
        from_queues=_from_queues(template, template.physical(name)),
        log_group=logging.get("LogGroup", ""),
        log_format=logging.get("LogFormat", "Text"),
    )


def _from_queues(template: Template, function: str) -> int:
    from_queues = [
        n for n, r in template.of_type(MAPPING).items() if "ScalingConfig" in r.properties
    ]
    mappings = map(template.properties, from_queues)
    return sum(
        int(one["ScalingConfig"].get("MaximumConcurrency", 0))
        for one in mappings
        if one["FunctionName"] == function
    )


def _layers(arns: list[str], template: Template) -> tuple[Path, ...]:
    """Return the `python` folders of the layers, in order, without third-party packages.

    A layer of installed packages (it has their `.dist-info`) is built for another machine: the
    project's own environment stands in for it.
    """
    by_arn = {template.ref(name): name for name in template.of_type(LAYER)}
    folders = []
    for arn in arns:
        if arn not in by_arn:
            raise LocalError(f"layer {arn} is not in the template")
        name = by_arn[arn]
        folder = _asset(name, template.properties(name).get("Content", {}), template) / "python"
        if not any(folder.glob("*.dist-info")):
            folders.append(folder)
    return tuple(folders)


def _asset(name: str, code: Mapping[str, Any], template: Template) -> Path:
    key = code.get("S3Key", "")
    folder = template.assembly.assets.get(key)
    if folder is None or not folder.is_dir():
        raise LocalError(f"the code of {name} is no folder among the assembly's assets")
    return folder.resolve()
