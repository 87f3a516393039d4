"""Deprecated methods of `Batches`; the next minor release removes them."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

from fairbox.client.batch_context import BatchPart

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from fairbox.batches.cleanup import OrphanCheck
    from fairbox.batches.models import Emptied
    from fairbox.client.batch_maintenance import BatchMaintenance


class DeprecatedBatchMethods(BatchPart):
    """Methods that only functions need, and that `BatchMaintenance` has now."""

    def cascade(self, emptied: Iterable[Emptied]) -> list[str]:
        """Deprecated: use `BatchMaintenance.cascade`."""
        return self._moved("cascade", "cascade").cascade(emptied)

    def tell(self, batch: str) -> list[str]:
        """Deprecated: use `BatchMaintenance.notify_parent`."""
        return self._moved("tell", "notify_parent").notify_parent(batch)

    def due(self) -> Iterator[str]:
        """Deprecated: use `BatchMaintenance.due_for_check`."""
        return self._moved("due", "due_for_check").due_for_check()

    def look(
        self,
        batch: str,
        *,
        open_hours: int = 7 * 24,
        sealed_hours: int = 14 * 24,
        dry_run: bool = False,
    ) -> OrphanCheck:
        """Deprecated: use `BatchMaintenance.check_orphan`."""
        return self._moved("look", "check_orphan").check_orphan(
            batch, open_hours=open_hours, sealed_hours=sealed_hours, dry_run=dry_run
        )

    def erase(self, batch: str, *, limit: int | None = None) -> bool:
        """Deprecated: use `BatchMaintenance.erase`."""
        return self._moved("erase", "erase").erase(batch, limit=limit)

    def known(self, item_ids: Iterable[str]) -> tuple[list[str], list[str]]:
        """Deprecated: use `BatchMaintenance.split_known`."""
        return self._moved("known", "split_known").split_known(item_ids)

    def _moved(self, old: str, new: str) -> BatchMaintenance:
        # imported where it is used: no cold start pays for it
        from fairbox.client.batch_maintenance import BatchMaintenance  # noqa: PLC0415

        home = f"{BatchMaintenance.__module__}.{BatchMaintenance.__name__}"
        message = f"Batches.{old} is deprecated: use {home}.{new}"
        warnings.warn(message, DeprecationWarning, stacklevel=3)
        return BatchMaintenance(self)
