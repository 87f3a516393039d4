"""The codec: items of the tables to models and back; nothing else spells an attribute name.

Items are DynamoDB's wire dicts (`{"S": ...}`), as the low-level client and stream images have them.
"""

from fairbox.codec.attributes import (
    BUCKET,
    DELIVERED_INDEX,
    EXPIRES_AT,
    LATER_COUNT,
    LATER_DEATHS,
    LEDGER_DAY,
    LEDGER_TIME,
    LOOK_AT,
    OUTSTANDING_INDEX,
    PK,
    PROJECTED_COUNTS,
    READY_COUNT,
    READY_DEATHS,
    SIZE,
    SK,
)

__all__ = [
    "BUCKET",
    "DELIVERED_INDEX",
    "EXPIRES_AT",
    "LATER_COUNT",
    "LATER_DEATHS",
    "LEDGER_DAY",
    "LEDGER_TIME",
    "LOOK_AT",
    "OUTSTANDING_INDEX",
    "PK",
    "PROJECTED_COUNTS",
    "READY_COUNT",
    "READY_DEATHS",
    "SIZE",
    "SK",
]
