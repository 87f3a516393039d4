"""The codec: the one place where attribute names, keys and index names of the tables are spelled.

Names are short because DynamoDB bills them with every item.
"""

from __future__ import annotations

from typing import Final

PK: Final = "pk"
SK: Final = "sk"

OUTSTANDING_INDEX: Final = "OutstandingAllTopics"
DELIVERED_INDEX: Final = "DeliveredAllTopics"

# message (lanes `ready` and `later` of the outbox, lane `dead` of the deliveries table)
SIZE: Final = "z"  # N, bytes of the body as given; on every message and on nothing else

# shard row (sort key `!` of its `ready` lane)
BUCKET: Final = "q"  # S, "0" or "1": hash key of OutstandingAllTopics
LOOK_AT: Final = "l"  # N, ms: range key of OutstandingAllTopics
READY_COUNT: Final = "rc"  # N
LATER_COUNT: Final = "lc"  # N
READY_DEATHS: Final = "rd"  # N, deaths less redrives counted from the `ready` lane
LATER_DEATHS: Final = "ld"  # N, deaths counted from the `later` lane

# ledger row (deliveries table)
EXPIRES_AT: Final = "x"  # N, s: TTL of the deliveries table
LEDGER_DAY: Final = "y"  # S, UTC day: hash key of DeliveredAllTopics
LEDGER_TIME: Final = "w"  # N, ms: range key of DeliveredAllTopics
