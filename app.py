"""Synthesis of the application: `python app.py [-c KEY=VALUE] [--settings FILE]`, or by `cdk`."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from fairbox_cdk.node import use_bundled_node

ROOT = Path(__file__).resolve().parent


def main(arguments: list[str] | None = None) -> int:
    """Write the cloud assembly; on failure, print one line and return 1."""
    options = _options(arguments)
    use_bundled_node()
    # the CDK starts Node when it is imported, so it comes after the line above
    from fairbox_cdk.application import build_application  # noqa: PLC0415
    from fairbox_cdk.assets import AssetError  # noqa: PLC0415
    from fairbox_cdk.config import ConfigError, load_context  # noqa: PLC0415

    overrides = dict(pair.split("=", 1) for pair in options.context)
    # under the CDK command line, its own folder
    outdir = None if "CDK_OUTDIR" in os.environ and options.output is None else options.output
    if outdir is None and "CDK_OUTDIR" not in os.environ:
        outdir = ROOT / "cdk.out"
    try:
        context = load_context(ROOT / "cdk.json", overrides, settings=options.settings)
        build_application(context=context, outdir=outdir).synth()
    except (AssetError, ConfigError) as error:
        print(f"fairbox: {error}", file=sys.stderr)  # noqa: T201 - this is a program
        return 1
    return 0


def _options(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Synthesise the application's templates.")
    parser.add_argument(
        *("-c", "--context"),
        action="append",
        default=[],
        type=_pair,
        metavar="KEY=VALUE",
        help="a context value, such as profile=local",
    )
    parser.add_argument("--settings", type=Path, metavar="FILE", help="settings as a JSON object")
    parser.add_argument("--output", type=Path, help="folder of the assembly (default: cdk.out)")
    return parser.parse_args(arguments)


def _pair(text: str) -> str:
    if "=" not in text:
        raise argparse.ArgumentTypeError(f"{text!r} is not KEY=VALUE")
    return text


if __name__ == "__main__":
    sys.exit(main())
