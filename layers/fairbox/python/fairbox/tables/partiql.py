"""Conditional writes of single items, 25 a call, each answered for itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from fairbox.errors import FairboxError, NotAllowed, Throttled, Unavailable

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from fairbox.tables.calls import Calls

PER_CALL: Final = 25
_REFUSED: Final = frozenset({"ConditionalCheckFailed", "DuplicateItem"})
_THROTTLED: Final = frozenset({"ProvisionedThroughputExceeded", "ThrottlingError"})
_TRANSIENT: Final = frozenset(
    {"RequestLimitExceeded", "TransactionConflict", "InternalServerError"}
)
_DENIED: Final = "AccessDenied"
_OPERATION: Final = "batch_execute_statement"
_SHOW_OLD: Final = {"ReturnValuesOnConditionCheckFailure": "ALL_OLD"}


@dataclass(frozen=True, slots=True)
class Statement:
    """One PartiQL statement over one item, with its parameters in order.

    `shows_old`: ask for the item as it is where the condition does not hold.
    """

    text: str
    parameters: tuple[dict[str, Any], ...]
    shows_old: bool = True


def statement(
    verb: str,
    table: str,
    key: Mapping[str, dict[str, Any]],
    *,
    clauses: str = "",
    values: Sequence[dict[str, Any]] = (),
    wheres: Sequence[str] = (),
    parameters: Sequence[dict[str, Any]] = (),
) -> Statement:
    """Return a statement over one item: `UPDATE` or `DELETE FROM`.

    `values` are the parameters of an update's clauses, `SET` and `REMOVE`, and `parameters` those
    of the conditions beside the key.
    """
    conditions = " AND ".join([*(f'"{name}" = ?' for name in key), *wheres])
    text = " ".join(filter(None, (verb, f'"{table}"', clauses, "WHERE", conditions)))
    return Statement(text, (*values, *key.values(), *parameters))


def insertion(table: str, item: Mapping[str, dict[str, Any]]) -> Statement:
    """Return the statement that writes an item where none lies under its key.

    Unlike a put it needs no condition for that: it is refused where the key is taken. The answer
    does not show the item there, because producers may not read.
    """
    fields = ", ".join(f"'{name}': ?" for name in item)
    return Statement(f'INSERT INTO "{table}" VALUE {{{fields}}}', tuple(item.values()), False)


def same(values: Mapping[str, dict[str, Any] | None]) -> tuple[list[str], list[dict[str, Any]]]:
    """Return conditions that attributes have these values (None: they are missing); parameters."""
    wheres = [f'"{n}" IS MISSING' if v is None else f'"{n}" = ?' for n, v in values.items()]
    return wheres, [value for value in values.values() if value is not None]


@dataclass(frozen=True, slots=True)
class Answer:
    """The result of a statement.

    Attributes:
        done: it was carried out.
        old: the item as it is, where the condition did not hold; empty when there is none, and of
            an insertion.
        error: why it is not known to have been carried out; None: it was, or its condition failed.
    """

    done: bool
    old: dict[str, Any]
    error: FairboxError | None = None


def execute(calls: Calls, statements: Sequence[Statement]) -> list[Answer]:
    """Carry statements out, 25 a call, and answer for each in order.

    A statement that is throttled or in conflict is repeated with back-off. One that was carried out
    although its answer was lost fails its condition then; the caller recognises that.
    """
    answers: list[Answer] = []
    for start in range(0, len(statements), PER_CALL):
        if start and calls.out_of_time:
            late = Answer(done=False, old={}, error=Throttled(_OPERATION))
            answers += [late] * (len(statements) - start)
            break
        answers += _call(calls, statements[start : start + PER_CALL])
    return answers


def raise_first(answers: Sequence[Answer]) -> None:
    """Raise the first error, if there is one."""
    for answer in answers:
        if answer.error is not None:
            raise answer.error


def _call(calls: Calls, statements: Sequence[Statement]) -> list[Answer]:
    answers: dict[int, Answer] = {}
    waiting = list(range(len(statements)))
    for _ in calls.tries():
        try:
            response = calls.call(
                _OPERATION,
                Statements=[
                    {
                        "Statement": statements[n].text,
                        "Parameters": list(statements[n].parameters),
                        **(_SHOW_OLD if statements[n].shows_old else {}),
                    }
                    for n in waiting
                ],
            )
        except (Throttled, Unavailable) as error:
            # `call` has given up: statements that were answered before keep their answers
            answers |= {n: Answer(done=False, old={}, error=error) for n in waiting}
            break

        for n, part in zip(waiting, response["Responses"], strict=True):
            answers[n] = _answer(part)
        waiting = [n for n in waiting if isinstance(answers[n].error, Throttled)]
        if not waiting:
            break

    return [answers[n] for n in range(len(statements))]


def _answer(part: dict[str, Any]) -> Answer:
    error = part.get("Error")
    if error is None:
        return Answer(done=True, old={})

    code = error["Code"]
    if code in _REFUSED:
        return Answer(done=False, old=error.get("Item", part.get("Item", {})))
    # `_call` repeats what is called throttled
    if code in _THROTTLED or code in _TRANSIENT:
        return Answer(done=False, old={}, error=Throttled(_OPERATION))

    detail = f"{code}: {error.get('Message', '')}"
    # each statement is allowed or not for itself
    if code == _DENIED:
        return Answer(done=False, old={}, error=NotAllowed(f"dynamodb:{_OPERATION}", detail))
    return Answer(done=False, old={}, error=Unavailable(_OPERATION, detail, "never"))
