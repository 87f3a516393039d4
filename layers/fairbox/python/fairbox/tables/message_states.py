"""State of a message where it lies: its failures, its claim, and conditional updates and deletes.

Every update and delete holds for one life of the message only: each redrive begins another, and a
late writer of the life before must not touch it.

Failures are cut so that an attempt costs no write unit more than it must. Decisions need attempts
and due times. The history is for readers: numbers and times always stay, and texts fill the KB that
the item has begun, because that KB is paid for anyway. The archive has each failure as the item had
it, and a dead letter the last error in full.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from fairbox.tables.calls import Rows
from fairbox.tables.item_size import item_size
from fairbox.tables.keys import message_key
from fairbox.tables.partiql import Statement, execute, raise_first, same, statement
from fairbox.tables.stored_messages import (
    CLAIM_COUNT,
    CLAIM_UNTIL,
    CONSUMER,
    EDITS,
    GONE,
    HOLDER,
    MAX_HISTORY,
    PENDING,
    REASON,
    REDRIVEN,
    SIZE,
    SKIPPED,
    STATES,
    Failure,
    StoredMessage,
    SubscriptionState,
    number,
    published_item,
    read_message,
    state_values,
    states_value,
    stored_item,
)
from fairbox.tables.write_expressions import WriteExpressions

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from fairbox.model.receipts import Receipt
    from fairbox.tables.stored_messages import Claim, Saved

LEAST_TEXT: Final = 12
"""Bytes of errors that a failing subscription keeps in any case, such as `HTTP 500: In`."""
_UNIT: Final = 1024
_MARK: Final = 16  # `gone`, and the count of an operator's edits
_CLAIM: Final = 48
_PLACES: Final = {PENDING: "p", STATES: "s", REDRIVEN: "n", SKIPPED: "k"}


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


def marked(table: str, stored: StoredMessage) -> dict[str, Any]:
    """Return the delete of a message that carries `gone`."""
    write = WriteExpressions()
    write.same("g", GONE, {"S": stored.gone})
    write.same("n", REDRIVEN, number(stored.redriven) if stored.redriven else None)
    return _delete(table, stored, write)


def unchanged(table: str, before: StoredMessage, *, same_holder: bool = False) -> dict[str, Any]:
    """Return the delete of a message whose state, and holder if asked, is as it was read."""
    write = _outstanding(before)
    if same_holder:
        write.same("h", HOLDER, {"B": before.holder})
    return _delete(table, before, write)


def update(table: str, stored: StoredMessage, before: StoredMessage) -> dict[str, Any]:
    """Return the update that writes the state where it is as in `before`: pending, states, gone.

    And skips, the reason, and how often the message was redriven.
    """
    write = _outstanding(before)
    old = state_values(before)
    for name, value in state_values(stored).items():
        if value != old[name]:
            write.put(_PLACES[name], name, value)

    if stored.gone:
        write.put("g", GONE, {"S": stored.gone})
    if stored.reason != before.reason:
        write.put("r", REASON, {"S": stored.reason})

    return {
        "TableName": table,
        "Key": message_key(stored.ref, stored.lane),
        **write.expressions,
        **write.bound,
        "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
    }


def _outstanding(before: StoredMessage) -> WriteExpressions:
    write = WriteExpressions()
    # nothing but a message has a size, and one that is gone is left to whoever marked it
    write.present("z", SIZE)
    write.same("g", GONE, None)
    for name, value in state_values(before).items():
        write.same(_PLACES[name], name, value, f"old_{_PLACES[name]}")
    return write


def _delete(table: str, stored: StoredMessage, write: WriteExpressions) -> dict[str, Any]:
    return {
        "TableName": table,
        "Key": message_key(stored.ref, stored.lane),
        **write.expressions,
        "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
        **write.bound,
    }


def fitted(stored: StoredMessage, *, whole: Collection[str] = ()) -> StoredMessage:
    """Return a message whose failures fit the KB that its item takes without their texts.

    A subscription keeps its ten newest failures, all but the last with whole seconds. The texts of
    all subscriptions have equal shares of the room. In each share the newest come first, and leave
    `LEAST_TEXT` bytes to each of the others, or half of the room left. The last error of
    subscriptions in `whole` is not cut.
    """
    if not stored.states:
        return stored

    without = {name: _texts_cut(state, 0) for name, state in stored.states.items()}
    room = -_size(replace(stored, states=without)) % _UNIT
    share = max(LEAST_TEXT, room // len(without))

    states = {
        name: _texts_cut(state, share, whole=name in whole) for name, state in stored.states.items()
    }
    return replace(stored, states=states)


def bare(stored: StoredMessage) -> StoredMessage:
    """Return a message with the last failure of each subscription only, and no text of it."""
    states = {
        name: replace(state, history=tuple(replace(f, error="") for f in state.history[-1:]))
        for name, state in stored.states.items()
    }
    return replace(stored, states=states)


def _texts_cut(state: SubscriptionState, share: int, *, whole: bool = False) -> SubscriptionState:
    """Return a state whose newest failures have texts of `share` bytes together."""
    kept: list[Failure] = []
    newest_first = state.history[: -MAX_HISTORY - 1 : -1]
    for age, failure in enumerate(newest_first):
        last = age == 0
        others = LEAST_TEXT * (len(newest_first) - age - 1)
        most = max(share - others, share // 2, min(share, LEAST_TEXT) if last else 0)
        text = failure.error.encode()[:most].decode(errors="ignore")
        share -= len(text.encode())
        at = failure.at if last else failure.at // 1000 * 1000
        kept.append(Failure(failure.attempt, at, failure.error if last and whole else text))

    return replace(state, due=0 if state.dead else state.due, history=tuple(reversed(kept)))


def _size(stored: StoredMessage) -> int:
    """Return the bytes of a message's item, a little more rather than less."""
    body = stored.packed or (0 if stored.offloaded else stored.size)
    empty = replace(stored, message=replace(stored.message, body=b""))
    item = stored_item(stored, published_item(empty))
    return item_size(item) + body + _MARK + (0 if stored.claim is None else _CLAIM)


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
