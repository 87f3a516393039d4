"""One message for one destination, as the core sees it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Hashable

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Work(Generic[T]):
    """Something to send.

    Attributes:
        item: what is handed back when its turn has come.
        topic: whose turn it takes; its work keeps the order in which it was added, by tenant.
        size: bytes that it counts for when turns are planned; an estimate will do.
        tenant: whose turn it takes inside the topic; None is a tenant too.
        weight: the topic's share beside other topics.
        tenant_weight: the tenant's share beside others of its topic.
        batch: how many messages the topic sends in one turn, where its deficit covers them.
        key: a call carries at most one of a key; None: it does not matter.
        direct: it goes before all topics, up to half of each call while topics wait.
    """

    item: T
    topic: str
    size: int = 0
    tenant: str | None = None
    weight: float = 1.0
    tenant_weight: float = 1.0
    batch: int = 1
    key: Hashable | None = None
    direct: bool = False
