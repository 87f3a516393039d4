"""Consumers on AWS Lambda that process each message once: an inbox table in their transactions.

An inbox makes a consumer's own DynamoDB transaction idempotent by (subscription, message id). The
package makes no calls and imports no SDK: the consumer puts the inbox's action into the transaction
that it writes anyway.
"""

from fairbox.inbox.inbox import Inbox
from fairbox.inbox.lambda_events import Event

__all__ = ["Event", "Inbox"]
