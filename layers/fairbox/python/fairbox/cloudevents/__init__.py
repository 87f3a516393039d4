"""CloudEvents 1.0: the envelope of delivered messages, and the events that producers send.

Headers of a message and attributes of its envelope:

- `ce-NAME` becomes attribute NAME, `traceparent` and `tracestate` become theirs, `type` becomes
  `type` where there is no `ce-type`. So `id`, `source`, `type`, `subject` and `time` are the
  producer's where it gave them; else the message id, `/fairbox/topics/TOPIC`, `fairbox.message`
  and the id's time. A value that the attribute does not take leaves the default in place.
- `fairboxref` is always the message's ref. `partitionkey` is its partition key.
- Every other header travels as a transport header where the destination has them (HTTP headers,
  message attributes), and in structured mode also in `fairboxheaders`, a JSON object as text, so
  that destinations without transport headers, or with too few, lose none.

The package `cloudevents` of PyPI is not used: it parses data and writes it anew, so bytes do not
survive; it decodes base64 leniently, keeps the last of duplicated members, makes up a missing id,
and its import costs a tenth of a cold start with a dependency on `dateutil`.
"""

from fairbox.cloudevents.events import CloudEvent
from fairbox.cloudevents.parsing import parse_batch, parse_binary, parse_structured
from fairbox.cloudevents.writing import (
    BATCH_TYPE,
    STRUCTURED_TYPE,
    attributes_of,
    binary_headers,
    envelope,
    split_headers,
)

__all__ = [
    "BATCH_TYPE",
    "STRUCTURED_TYPE",
    "CloudEvent",
    "attributes_of",
    "binary_headers",
    "envelope",
    "parse_batch",
    "parse_binary",
    "parse_structured",
    "split_headers",
]
