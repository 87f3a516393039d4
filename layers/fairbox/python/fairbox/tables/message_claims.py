"""Claims in place: conditional statements over messages of unordered pulled topics."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fairbox.tables.calls import Rows
from fairbox.tables.keys import message_key
from fairbox.tables.partiql import Statement, execute, raise_first, same, statement
from fairbox.tables.stored_messages import (
    CLAIM_COUNT,
    CLAIM_UNTIL,
    CONSUMER,
    EDITS,
    GONE,
    HOLDER,
    REASON,
    REDRIVEN,
    SIZE,
    STATES,
    number,
    read_message,
    states_value,
)
from fairbox.tables.write_expressions import WriteExpressions

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from fairbox.model.receipts import Receipt
    from fairbox.tables.stored_messages import Claim, Saved, StoredMessage, SubscriptionState


@dataclass(frozen=True, slots=True)
class Claiming:
    """A claim to be written, with the message as it was read and its new states."""

    stored: StoredMessage
    claim: Claim
    states: Mapping[str, SubscriptionState]


class Claims(Rows):
    """Writes claims, and ends them by their tokens."""

    def claim(self, claims: Sequence[Claiming], *others: Statement) -> list[int]:
        """Claim messages that are unchanged since they were read.

        The other statements go with the first call; their results are not returned.

        Returns:
            0 for each that is held now, else the end of another's claim (ms), or -1.

        Raises:
            Throttled, Unavailable: the first error, if no message is known to be held.
        """
        statements = [*others, *(self._claim(c) for c in claims)]
        answers = execute(self._calls, statements)[len(others) :]
        ends = [
            # ours, when the answer to an earlier try was lost
            0 if a.done or a.old.get(HOLDER) == {"B": c.claim.token} else _end_of(a.old)
            for a, c in zip(answers, claims, strict=True)
        ]
        # what is held must reach its consumer, whatever happened to the others
        if all(ends):
            raise_first(answers)
        return ends

    def _claim(self, claiming: Claiming) -> Statement:
        stored, claim = claiming.stored, claiming.claim
        values = _claim_values(claim)
        if claiming.states != stored.states:
            values[STATES] = states_value(claiming.states)

        wheres, parameters = as_read_places(stored)
        return statement(
            "UPDATE",
            self._table,
            message_key(stored.ref, stored.lane),
            clauses=" ".join(f'SET "{name}" = ?' for name in values),
            values=list(values.values()),
            wheres=wheres,
            parameters=parameters,
        )

    def delete(self, receipts: Sequence[Receipt]) -> list[Receipt]:
        """Delete messages by their receipts; return the stale ones. Messages gone count as done."""
        statements = [self._guarded(r, "DELETE FROM") for r in receipts]
        return self._end(receipts, statements, bool)

    def release(self, receipts: Sequence[Receipt], until: int) -> list[Receipt]:
        """Let go of messages, uncounted, from `until` (ms) on; return the stale receipts."""
        clauses = (
            f'SET "{CLAIM_UNTIL}" = ? SET "{CLAIM_COUNT}" = "{CLAIM_COUNT}" - ? REMOVE "{HOLDER}"'
        )
        values = (number(until), number(1))
        statements = [self._guarded(r, "UPDATE", clauses, values) for r in receipts]

        def stale(old: dict[str, Any]) -> bool:
            # ours, when the answer to an earlier try was lost
            return HOLDER in old or old.get(CLAIM_UNTIL) != number(until)

        return self._end(receipts, statements, stale)

    def extend(self, receipts: Sequence[Receipt], until: int) -> list[Receipt]:
        """Hold messages until then (ms); return the stale receipts."""
        clauses, values = f'SET "{CLAIM_UNTIL}" = ?', (number(until),)
        statements = [self._guarded(r, "UPDATE", clauses, values) for r in receipts]
        return self._end(receipts, statements, lambda _: True)

    def _guarded(
        self, receipt: Receipt, verb: str, clauses: str = "", values: Sequence[dict[str, Any]] = ()
    ) -> Statement:
        return statement(
            verb,
            self._table,
            message_key(receipt.ref),
            clauses=clauses,
            values=values,
            wheres=[f'"{HOLDER}" = ? AND "{GONE}" IS MISSING'],
            parameters=[{"B": receipt.token}],
        )

    def _end(
        self,
        receipts: Sequence[Receipt],
        statements: Sequence[Statement],
        stale: Callable[[dict[str, Any]], bool],
    ) -> list[Receipt]:
        answers = execute(self._calls, statements)
        # a statement that failed says nothing of its receipt: the whole call may be made again
        raise_first(answers)
        return [r for r, a in zip(receipts, answers, strict=True) if not a.done and stale(a.old)]

    def save(self, after: StoredMessage, before: StoredMessage) -> Saved:
        """Write claim, states, gone and reason if claim, states and edits are as in `before`.

        Returns:
            `saved`; `absent` if there is no such message; the present message if it differs.
        """
        old = self._calls.refused("update_item", **self.save_action(after, before))
        if old is None:
            return "saved"
        if not old:
            return "absent"

        there = read_message(old)
        wanted = after.claim, dict(after.states), after.gone, after.reason
        # ours, when the answer to an earlier try was lost
        ours = (there.claim, there.states, there.gone, there.reason) == wanted
        return "saved" if ours else there

    def save_action(self, after: StoredMessage, before: StoredMessage) -> dict[str, Any]:
        """Return the update that `save` makes, for transactions too."""
        values: dict[str, Any] = {}
        if after.claim != before.claim and after.claim is not None:
            values |= _claim_values(after.claim)
        if after.states != before.states:
            values[STATES] = states_value(after.states)
        if after.gone:
            values[GONE] = {"S": after.gone}
        if after.reason != before.reason:
            values[REASON] = {"S": after.reason}

        write = as_read(before)
        for n, (name, value) in enumerate(values.items()):
            write.put(f"s{n}", name, value)
        # a message that is given back has no holder: its receipt is stale then
        if after.claim != before.claim and after.claim is not None and not after.claim.token:
            write.put("r0", HOLDER, None)

        return {
            "TableName": self._table,
            "Key": message_key(after.ref, after.lane),
            **write.expressions,
            **write.bound,
            "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
        }


def _end_of(item: dict[str, Any]) -> int:
    """Return the end of the claim that an item has (ms); -1: it has none, or is gone."""
    claimed = HOLDER in item and GONE not in item
    return int(item[CLAIM_UNTIL]["N"]) if claimed else -1


def _claim_values(claim: Claim) -> dict[str, Any]:
    values: dict[str, Any] = {CLAIM_COUNT: number(claim.count), CLAIM_UNTIL: number(claim.until)}
    if claim.token:
        values[HOLDER] = {"B": claim.token}
    if claim.consumer:
        # behind the token: a later claim without a name leaves it, and it does not count there
        values[CONSUMER] = {"B": claim.token + claim.consumer.encode()}
    return values


def _fences(stored: StoredMessage) -> dict[str, dict[str, Any] | None]:
    """Return the attributes of a message that any change of it changes; None: one is missing.

    A claim sets its end later than the one that has passed, so that no end comes twice.
    """
    claim = stored.claim
    return {
        GONE: None if stored.gone is None else {"S": stored.gone},
        CLAIM_UNTIL: None if claim is None else number(claim.until),
        EDITS: number(stored.edits) if stored.edits else None,
        REDRIVEN: number(stored.redriven) if stored.redriven else None,
    }


def as_read_places(stored: StoredMessage) -> tuple[list[str], list[dict[str, Any]]]:
    """Return the fences of `as_read` for statements: conditions with places, and parameters."""
    wheres, parameters = same(_fences(stored))
    return [f'"{SIZE}" IS NOT MISSING', *wheres], parameters


def as_read(stored: StoredMessage) -> WriteExpressions:
    """Return the conditions under which a message is as it was read."""
    write = WriteExpressions()
    write.present("z", SIZE)
    fences = _fences(stored)
    fences[STATES] = states_value(stored.states) if stored.states else None
    for n, (name, value) in enumerate(fences.items()):
        write.same(f"w{n}", name, value)
    return write
