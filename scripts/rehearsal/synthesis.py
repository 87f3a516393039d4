"""Synthesis of the application with many sets of settings, on every core."""

from __future__ import annotations

import multiprocessing
import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

from scripts.rehearsal.templates import ROOT, read_assembly
from stacks.config import load_context
from stacks.node import use_bundled_node

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from scripts.rehearsal.templates import Application

_PACKAGE: Final = ("submit.py", "code.zip", "environment.zip")


def synthesise(overrides: Mapping[str, str]) -> Application:
    """Return the stacks of `cdk.json` with context values over it.

    The package of the pipeline's jobs is empty: its content decides nothing about an update, and
    it has 90 MB.

    Raises:
        ConfigError: a setting is invalid.
    """
    os.environ["CDK_VALIDATION"] = "false"
    use_bundled_node()
    # the CDK starts Node when it is imported, so it comes after the line above
    from stacks.application import build_application  # noqa: PLC0415
    from stacks.packages import PipelinePackage  # noqa: PLC0415

    with tempfile.TemporaryDirectory(prefix="fairbox-rehearsal-") as temporary:
        folder = Path(temporary)
        parts = [folder / name for name in _PACKAGE]
        for part in parts:
            part.write_text(part.name, encoding="utf-8")
        # assets are measured where they lie
        context = load_context(ROOT / "cdk.json", dict(overrides)) | {
            "aws:cdk:disable-asset-staging": True
        }
        outdir = folder / "assembly"
        build_application(
            ROOT, context=context, outdir=outdir, package=PipelinePackage(*parts)
        ).synth()
        return read_assembly(outdir)


def synthesise_all(
    wanted: Sequence[Mapping[str, str]], *, workers: int | None = None
) -> list[Application]:
    """Return the stacks for each set of context values, in their order."""
    context = multiprocessing.get_context("spawn")
    with context.Pool(workers or min(2, os.cpu_count() or 1)) as pool:
        return pool.map(synthesise, wanted, chunksize=1)
