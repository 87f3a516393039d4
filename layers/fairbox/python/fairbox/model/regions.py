"""Regions of AWS, as ARNs and the URLs of queues name them."""

from __future__ import annotations

import re
from typing import Final

from fairbox.errors import InvalidInput

_REGION: Final = re.compile(r"[a-z]{2,}(?:-[a-z]+)+-[0-9]+")
_ARN: Final = re.compile(r"arn:([^:]*):[^:]+:([^:]*):")
_HOST: Final = re.compile(r"https?://(?:[^/?#@]*@)?([^/?#:]+)", re.IGNORECASE)
_SQS: Final = re.compile(r"(?:.+\.)?sqs(?:-fips)?\.([^.]+)\..+")
_LEGACY: Final = re.compile(r"(?:([^.]+)\.)?queue\.amazonaws\.com(?:\.cn)?")
_LEGACY_REGION: Final = "us-east-1"  # of queue.amazonaws.com
_OF_AWS: Final = (".amazonaws.com", ".amazonaws.com.cn", ".amazonaws.eu", ".api.aws")
_PARTITIONS: Final = {
    "cn-": "aws-cn",
    "us-gov-": "aws-us-gov",
    "us-iso-": "aws-iso",
    "us-isob-": "aws-iso-b",
    "eu-isoe-": "aws-iso-e",
    "us-isof-": "aws-iso-f",
    "eusc-": "aws-eusc",
}


def partition_of(region: str) -> str:
    """Return the partition of a region; those of one partition share accounts and credentials."""
    return next((p for start, p in _PARTITIONS.items() if region.startswith(start)), "aws")


def region_of(address: str, field: str = "destination") -> str | None:
    """Return the region of an ARN or of a queue's URL; None: it names none.

    A URL names one if its host is that of SQS: regional, FIPS, dual-stack, of a VPC endpoint, or
    of the old form `eu-west-1.queue.amazonaws.com`. Any other host is an endpoint of its own.

    Raises:
        InvalidInput: it names an invalid region, or one that is not of the ARN's partition.
    """
    if (arn := _ARN.match(address)) is not None:
        partition, region = arn.groups()
        if not _REGION.fullmatch(region):
            raise InvalidInput(field, f"an ARN with a region such as eu-west-1, not {region!r}")
        # credentials of one partition do not exist in another
        if partition_of(region) != partition:
            raise InvalidInput(
                field, f"arn:{partition_of(region)}:, the partition of {region}, not {partition}"
            )
        return region

    found = _HOST.match(address)
    return None if found is None else _region_of_host(found[1].lower(), field)


def _region_of_host(host: str, field: str) -> str | None:
    # older SDKs gave these URLs, which stored subscriptions may have
    if (legacy := _LEGACY.fullmatch(host)) is not None:
        region = legacy[1] or _LEGACY_REGION
    elif (sqs := _SQS.fullmatch(host)) is not None:
        region = sqs[1]
    else:
        return None

    if _REGION.fullmatch(region):
        return region
    # a host of one's own may begin with `sqs.`: it is an endpoint, and names no region
    if not host.partition(f".{region}")[2].endswith(_OF_AWS) and legacy is None:
        return None
    raise InvalidInput(field, f"a URL with a region such as eu-west-1, not {region!r}")


def check_reachable(address: str, home: str | None, field: str = "destination") -> None:
    """Refuse an address that cannot be called from a region.

    Args:
        address: an ARN or a URL, or a name without a region.
        home: the caller's region; None, or a name that AWS does not have: it is not known, and
            only the address itself is checked.
        field: the name of the field, for the error.

    Raises:
        InvalidInput: its region is invalid, or of another partition than the caller's, where the
            caller's credentials do not exist.
    """
    region = region_of(address, field)
    if region is None or home is None or not _REGION.fullmatch(home):
        return
    own, other = partition_of(home), partition_of(region)
    if own != other:
        raise InvalidInput(field, f"one of partition {own}, as {home} is: {region} is of {other}")
