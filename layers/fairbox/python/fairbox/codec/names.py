"""The names that the tables know: attributes, indexes, fixed keys.

Names are short because DynamoDB bills them with every item.
"""

from __future__ import annotations

from typing import Final

CODEC_VERSION: Final = 1

PK: Final = "pk"
SK: Final = "sk"

OUTSTANDING_INDEX: Final = "OutstandingAllTopics"
DELIVERED_INDEX: Final = "DeliveredAllTopics"

# message (lanes `ready` and `later` of the outbox, lane `dead` of the deliveries table)
VERSION: Final = "v"  # N, codec version
SIZE: Final = "z"  # N, bytes of the body as published; on every message and on nothing else
BODY: Final = "b"  # B, the body, maybe compressed
CODING: Final = "e"  # S, "z": zlib
OFFLOADED: Final = "o"  # S, bucket/key of an offloaded body
CONTENT_TYPE: Final = "t"  # S
HEADERS: Final = "h"  # M of S
PARTITION_KEY: Final = "k"  # S
DEDUP_KEY: Final = "u"  # S
FAIRNESS_KEY: Final = "f"  # S
BATCH_ITEM: Final = "i"  # S
PENDING: Final = "p"  # SS, subscriptions that still lack it
STATES: Final = "s"  # M: subscription -> state
GONE: Final = "g"  # S
REASON: Final = "r"  # S
DUE: Final = "d"  # N, ms: of a delayed message, in lane `dead` only (else it is in the key)
REDRIVEN: Final = "n"  # N, how often it was put back from the dead letters
DIED_AT: Final = "a"  # N, ms: in lane `dead`
RAW: Final = "raw"  # S, an unreadable item as JSON, in lane `dead`

# shard row (sort key `!` of its `ready` lane)
HEAD: Final = "!"
BUCKET: Final = "q"  # S, "0" or "1": hash key of OutstandingAllTopics
LOOK_AT: Final = "l"  # N, ms: range key of OutstandingAllTopics
READY_COUNT: Final = "rc"
LATER_COUNT: Final = "lc"
READY_DEATHS: Final = "rd"
LATER_DEATHS: Final = "ld"
READY_SEQUENCE: Final = "rs"
LATER_SEQUENCE: Final = "ls"
BACKOFF: Final = "bo"
PURGED_DEAD: Final = "pd"
# projected into OutstandingAllTopics
PROJECTED_COUNTS: Final = (READY_COUNT, LATER_COUNT, READY_DEATHS, LATER_DEATHS, PURGED_DEAD)

# topics (partition `config`)
CONFIG: Final = "config"
CONFIG_VERSION: Final = "n"
ORDERING: Final = "od"
EPOCHS: Final = "ep"
RETRY: Final = "re"
DEDUP_WINDOW: Final = "dw"
RETENTION: Final = "rt"
DESTINATION: Final = "ds"
MAX_ATTEMPTS: Final = "ma"
TIMEOUT: Final = "to"
SINCE: Final = "si"

# deliveries table
EXPIRES_AT: Final = "x"  # N, s: TTL
LEDGER_DAY: Final = "y"  # S, UTC day: hash key of DeliveredAllTopics
LEDGER_TIME: Final = "w"  # N, ms: range key of DeliveredAllTopics
LEDGER_PACKED: Final = "b"
LEDGER_COUNT: Final = "c"
DEDUP_REF: Final = "m"
CURSOR: Final = "cu"

# inside a subscription's state
STATE_ATTEMPTS: Final = "n"
STATE_DUE: Final = "d"
STATE_HISTORY: Final = "h"
STATE_DEAD: Final = "g"
