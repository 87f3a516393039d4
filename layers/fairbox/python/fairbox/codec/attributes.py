"""The names that the tables know: attributes, indexes, fixed keys.

Names are short because DynamoDB bills them with every item.
"""

from __future__ import annotations

from typing import Final

NEEDS: Final = "cv"  # N, of every item but messages: codec version a reader must know; absent: 1

PK: Final = "pk"
SK: Final = "sk"

OUTSTANDING_INDEX: Final = "OutstandingAllTopics"
DELIVERED_INDEX: Final = "DeliveredAllTopics"

# message (lanes `ready` and `later` of the outbox, lane `dead` of the deliveries table)
VERSION: Final = "v"  # N, codec version that a reader must know; absent: 1
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
DIRECT: Final = "di"  # BOOL, it goes before other messages; only where it does
PENDING: Final = "p"  # SS, subscriptions that still lack it
STATES: Final = "s"  # M: subscription -> state
GONE: Final = "g"  # S
REASON: Final = "r"  # S
DUE: Final = "d"  # N, ms: of a delayed message, in lane `dead` only (else it is in the key)
REDRIVEN: Final = "n"  # N, how often it was put back from the dead letters
DIED_AT: Final = "a"  # N, ms: in lane `dead`
RAW: Final = "raw"  # S, an unreadable item as JSON, in lane `dead`
HOLDER: Final = "ct"  # B, of who holds a received message, or a dead letter
CLAIM_UNTIL: Final = "cl"  # N, ms, when it may be received again
CLAIM_COUNT: Final = "cn"  # N, how often it was received
CONSUMER: Final = "hn"  # B, the token of the claim and the name that its consumer gave
EDITS: Final = "ed"  # N, how often an operator changed it
SKIPPED: Final = "sn"  # M of S: reason by subscription for which an operator skipped it
MOVED: Final = "mv"  # BOOL, an operator put it here from another due time

# hint row (one for sixteen shards): for each of them, the name with its place behind
HINT_AFTER: Final = "f"  # B, the UUID up to which all was claimed
HINT_LOOK: Final = "l"  # N, ms, when to look at what receives have passed
HINT_TIMES: Final = "g"  # B, when to scan from the head, segments read, delayed messages passed

# walk position (one for each shard of a pushed topic, beside its hint rows)
WALK_SHARED: Final = "ws"  # S, places of the walks that subscriptions share
WALK_APART: Final = "wa#"  # S, with a subscription's name behind: its places

# shard row (sort key `!` of its `ready` lane)
HEAD: Final = "!"
BUCKET: Final = "q"  # S, "0" to "7": hash key of OutstandingAllTopics
LOOK_AT: Final = "l"  # N, ms: range key of OutstandingAllTopics
READY_COUNT: Final = "rc"  # N, messages in lane `ready`
LATER_COUNT: Final = "lc"  # N, messages in lane `later`
READY_DEATHS: Final = "rd"  # N, deaths less redrives, of messages from lane `ready`
LATER_DEATHS: Final = "ld"  # N, the same of lane `later`
READY_SEQUENCE: Final = "rs"  # S, stream sequence number that last changed the counts of `ready`
LATER_SEQUENCE: Final = "ls"  # S, the same of lane `later`
BACKOFF: Final = "bo"  # N, seconds by which a visit that could send nothing last moved `look_at` on
RECOUNT: Final = "rq"  # N, absent: the counts are right; 0: a recount is asked for; ms: one began
PURGED_DEAD: Final = "pd"  # N, dead letters purged or cancelled by operators
ROW_VERSION: Final = "ve"  # N, counts every change of what is held (ordered topics)
HOLDS: Final = "ho"  # B, what visits hold back, and where they begin, packed (pushed topics)
HELD: Final = "hd"  # B, the messages that consumers hold, packed (pulled topics)
HELD_AFTER: Final = "fr"  # B, the UUID behind which messages lie that are not held
HELD_SINCE: Final = "fs"  # N, ms, when the lane was last read from its head
SETTLED: Final = "oe"  # BOOL, no older shard of an ordered topic lists the shard's keys
# recounts of shards (partition `recount`: one item each; what they gather lies beside it)
RECOUNT_STATE: Final = "cu"  # S, how far a recount is, as JSON
RECOUNT_MARKS: Final = "b"  # B, keys that were read, or that changed: a mark of nine bytes each
# projected into OutstandingAllTopics
PROJECTED_COUNTS: Final = (READY_COUNT, LATER_COUNT, READY_DEATHS, LATER_DEATHS, PURGED_DEAD)

# topics (partition `config`)
CONFIG: Final = "config"
CONFIG_VERSION: Final = "n"  # N, counts every change of a topic or subscription (row `!`)
ORDERING: Final = "od"  # S, `none` or `key`
EPOCHS: Final = "ep"  # L of [number, shards, since (ms), closed (ms; absent: open)]
RETRY: Final = "re"  # L: attempts, base (s), cap (s)
DEDUP_WINDOW: Final = "dw"  # N, s
RETENTION: Final = "rt"  # N, s, of the ledger
MESSAGE_RETENTION: Final = "mr"  # N, s, of a pulled topic whose messages expire
MAX_OUTSTANDING: Final = "mo"  # N, messages past which a topic takes no more
PARTITION: Final = "pq"  # L of a partitioned queue's name, the partition, how many there are
ON_DEAD: Final = "bl"  # BOOL, keys of the topic wait for their dead letters
WIDTHS: Final = "wi"  # L, like the epochs, of [number, partitions, since (ms)]
PAUSED: Final = "pa"  # BOOL, receiving from the topic gives nothing
DELETING: Final = "dl"  # N, ms, since when a topic takes no messages: it is being deleted
DESTINATION: Final = "ds"  # S, of a subscription row
MAX_ATTEMPTS: Final = "ma"  # N, of a subscription row
TIMEOUT: Final = "to"  # N, s, of a subscription row
WEIGHT: Final = "we"  # N, of a topic or subscription row; only where it is not the default
MINI_BATCH: Final = "mb"  # N, of a topic row; only where it is not 1
TENANT_WEIGHTS: Final = "tw"  # M of N, of a topic row; only where there are any
SINCE: Final = "si"  # N, ms, when a subscription was added
MAX_IN_FLIGHT: Final = "mf"  # N, of a subscription row
RATE: Final = "ra"  # N, messages a second, of a subscription row
STANDING: Final = "st"  # M of a subscription row: its circuit, its pause
STANDING_VERSION: Final = "sv"  # N of a subscription row, counts every change of `st`
SPENT: Final = "sp"  # N, ms, of a subscription row: until when its rate is used up
ANNOUNCED: Final = "an"  # N, counts circuits that opened and pauses that changed (row `!`)
CHANGED_TOPIC: Final = "t"  # B, with a number behind: digest of a topic that changed (row `!`)
CHANGE_NUMBER: Final = "u"  # N, with the same number: `n` plus `an` before that (row `!`)
BUSIEST: Final = "bt"  # SS, topics whose figures are metrics by topic (row `!`)
RANKED_HOUR: Final = "bh"  # N, hours since 1970 UTC, when these were ranked (row `!`)
RANKED_VERSION: Final = "bv"  # N, the `n` that was seen then, or when some joined (row `!`)

# inside a subscription's standing
CIRCUIT: Final = "c"  # S
CIRCUIT_UNTIL: Final = "u"  # N, ms
CIRCUIT_FAILURES: Final = "n"  # N
CIRCUIT_SINCE: Final = "o"  # N, ms
CIRCUIT_REASON: Final = "r"  # S
PAUSED_AT: Final = "p"  # N, ms
PAUSE_REASON: Final = "w"  # S

# deliveries table
EXPIRES_AT: Final = "x"  # N, s: TTL
LEDGER_DAY: Final = "y"  # S, UTC day, "#", 0 to 7: hash key of DeliveredAllTopics
LEDGER_TIME: Final = "w"  # N, ms: range key of DeliveredAllTopics
LEDGER_PACKED: Final = "b"  # B, the deliveries of a ledger row
LEDGER_COUNT: Final = "c"  # N, how many they are
FOLLOWER: Final = "fo"  # B, of a waiting key: the UUID of its first message that was passed
DEDUP_REF: Final = "m"  # S, of a deduplication row: the ref of the message that was first
HEARTBEAT: Final = "hb"  # N, ms, of the heartbeat row: when it was written (outbox, batches)
CURSOR: Final = "cu"  # S, of `repair`: where the scan goes on, as JSON (outbox table)
POSITION: Final = (
    "po"  # N, of a replay's cursor: the last position that was put back (outbox table)
)

# inside a subscription's state
STATE_ATTEMPTS: Final = "n"  # N, attempts counted
STATE_DUE: Final = "d"  # N, ms, when the next may be made
STATE_HISTORY: Final = "h"  # L of [attempt, at (ms), error], the newest ten, texts cut to fit
STATE_DEAD: Final = "g"  # BOOL, it died for this subscription
