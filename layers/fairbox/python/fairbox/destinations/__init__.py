"""The destinations of messages: SQS, SNS, EventBridge, Kinesis, Lambda, webhooks, topics."""

from fairbox.destinations.bounded_clients import Clients, make_clients
from fairbox.destinations.factory import DestinationFactory
from fairbox.model.webhook_signatures import parse_secret

__all__ = ["Clients", "DestinationFactory", "make_clients", "parse_secret"]
