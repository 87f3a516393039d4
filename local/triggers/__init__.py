"""Triggers of functions: streams, queues and schedules, with the repetitions and delays of AWS."""

from local.triggers.attach import Trigger, TriggerSettings, attach
from local.triggers.queues import QueueMapping
from local.triggers.schedules import Place, Schedule, run_now
from local.triggers.streams import StreamMapping

__all__ = [
    "Place",
    "QueueMapping",
    "Schedule",
    "StreamMapping",
    "Trigger",
    "TriggerSettings",
    "attach",
    "run_now",
]
