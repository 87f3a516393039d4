"""A package of the pipeline that runs here: the real jobs, and packages of this interpreter."""

from __future__ import annotations

import re
from importlib.metadata import distribution
from pathlib import Path
from typing import TYPE_CHECKING

from fairbox_cdk.packages import REQUIREMENTS, PipelinePackage, build_code, write_zip

if TYPE_CHECKING:
    from collections.abc import Iterable


def build_host_package(root: Path, output: Path, names: Iterable[str]) -> PipelinePackage:
    """Build a package whose environment has the distributions `names` of this interpreter."""
    package = PipelinePackage.below(root, output)
    build_code(root, output)
    write_zip(package.environment, {_site(): sorted(_files(names))})
    return package


def locked_names(root: Path) -> set[str]:
    """Return the names of the distributions in the environment's lock."""
    return set(re.findall(r"^([\w.-]+)==", (root / REQUIREMENTS).read_text(), re.MULTILINE))


def _site() -> Path:
    return Path(str(distribution("orjson").locate_file("")))


def _files(names: Iterable[str]) -> set[Path]:
    listed = (_site() / str(file) for name in names for file in distribution(name).files or ())
    return {p for p in listed if p.suffix != ".pyc" and ".." not in p.parts and p.is_file()}
