"""Grants that no test uses, each with its reason."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tests.support.iam.requests import arn

if TYPE_CHECKING:
    from tests.support.iam.review import Exceptions

_LISTED: Final = (
    "AWS's own key policy for users of tables lists it; the documentation names only Decrypt for"
    " reads and writes of items; which call asks for it was not tried on AWS"
)
_TABLE_KEY: Final = {f"kms:{action} on Key (UseKeyThroughDynamodb)": _LISTED for action in (
    "DescribeKey", "Encrypt", "GenerateDataKey", "ReEncryptFrom", "ReEncryptTo",
)}  # fmt: skip
_TABLE_KEY_TO_READ: Final = dict(list(_TABLE_KEY.items())[:1])
_WRITERS: Final = (
    *("ack_batches", "api", "cascade_batches", "clean_orphans", "deliver_shard", "mark_delivered"),
    *("relay", "repair", "count_outstanding", "sweep", "feeds_connect"),
    *("feeds_poll", "feeds_visit"),
)

_SMOKE_QUEUES: Final = "goes with ReceiveMessage; a smoke test's queues lie under SQS's own key"

UNUSED: Final[Exceptions] = {
    **dict.fromkeys(_WRITERS, _TABLE_KEY),
    "feeds_ring": _TABLE_KEY_TO_READ,
    "canary": {
        **_TABLE_KEY,
        "dynamodb:PartiQLInsert on Deliveries": "its topics hold too few messages to be passed",
        "kms:Decrypt on Key (UseKeyThroughSqs)": _SMOKE_QUEUES,
    },
}
"""Of functions."""

_ARCHIVE: Final = "people and the pipeline's commands read the archive, the library does not"
_VARIABLES: Final = {
    f"ssm:GetParameter on {arn('ssm', 'parameter/fairbox/Fairbox')} (ReadVariables)": (
        "read once by a program that starts with FAIRBOX_STACK alone; the scenario has variables"
    )
}
UNUSED_BY_USERS: Final[Exceptions] = {
    **dict.fromkeys(("Producer", "Consumer"), _TABLE_KEY | _VARIABLES),
    "TokenIssuer": _VARIABLES,
    "Operator": {
        **_VARIABLES,
        **_TABLE_KEY,
        "s3:GetObject on ArchiveBucket/* (ReadTheArchive)": _ARCHIVE,
        "s3:ListBucket on ArchiveBucket (ListBuckets)": _ARCHIVE,
    },
    "Reader": {
        **_VARIABLES,
        **_TABLE_KEY_TO_READ,
        "s3:GetObject on ArchiveBucket/* (ReadBodiesAndArchive)": _ARCHIVE,
        "s3:ListBucket on ArchiveBucket (ListBuckets)": _ARCHIVE,
    },
}
"""Of the managed policies, without those of `fairbox doctor` and of the API's routes."""
