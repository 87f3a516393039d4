"""Schedule expressions of EventBridge: `rate(...)`, `cron(...)` and `at(...)`."""

from __future__ import annotations

import calendar
import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Final
from zoneinfo import ZoneInfo

_UNITS: Final = {"minute": 60, "hour": 3600, "day": 86400}
_MONTHS: Final = [
    "JAN",
    "FEB",
    "MAR",
    "APR",
    "MAY",
    "JUN",
    "JUL",
    "AUG",
    "SEP",
    "OCT",
    "NOV",
    "DEC",
]
_DAYS: Final = ["SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"]
_FURTHEST: Final = 366 * 30

DayTest = Callable[[date], bool]


@dataclass(frozen=True)
class Rate:
    """Fires every `seconds` after it was started."""

    seconds: int

    def next_after(self, moment: datetime) -> datetime | None:
        """Return the next time after `moment`, itself a time at which it fired."""
        return moment + timedelta(seconds=self.seconds)


@dataclass(frozen=True)
class Once:
    """Fires once."""

    at: datetime

    def next_after(self, moment: datetime) -> datetime | None:
        """Return the one time while it lies ahead."""
        return self.at if self.at > moment else None


@dataclass(frozen=True)
class Cron:
    """Fires at the times its fields allow, on the minute."""

    minutes: frozenset[int]
    hours: frozenset[int]
    months: frozenset[int]
    years: frozenset[int]
    day: DayTest
    zone: ZoneInfo

    def next_after(self, moment: datetime) -> datetime | None:
        """Return the first matching minute after `moment`, None if none comes within years."""
        local = moment.astimezone(self.zone)
        for ahead in range(_FURTHEST):
            day = local.date() + timedelta(days=ahead)
            if day.year not in self.years or day.month not in self.months or not self.day(day):
                continue
            for hour in sorted(self.hours):
                for minute in sorted(self.minutes):
                    found = datetime(
                        day.year, day.month, day.day, hour, minute, tzinfo=self.zone
                    ).astimezone(UTC)
                    if found > moment:
                        return found
        return None


Expression = Rate | Once | Cron


def parse(expression: str, zone: str = "UTC") -> Expression:
    """Return what an expression means; raises `ValueError` saying what is wrong with it."""
    match = re.fullmatch(r"(rate|cron|at)\((.*)\)", expression.strip())
    if match is None:
        raise ValueError(f"{expression!r} is no rate(...), cron(...) or at(...)")
    kind, inner = match.groups()
    if kind == "rate":
        return _rate(inner)
    if kind == "at":
        return Once(datetime.fromisoformat(inner).replace(tzinfo=ZoneInfo(zone)).astimezone(UTC))
    return _cron(inner, ZoneInfo(zone))


def _rate(inner: str) -> Rate:
    match = re.fullmatch(r"([1-9]\d*) (minute|hour|day)(s?)", inner)
    if match is None or (match[1] == "1") is bool(match[3]):
        raise ValueError(f"rate({inner}) is not 'rate(1 minute)' or 'rate(n minutes)', hours, days")
    return Rate(int(match[1]) * _UNITS[match[2]])


def _cron(inner: str, zone: ZoneInfo) -> Cron:
    fields = inner.upper().split()
    if len(fields) != 6:
        raise ValueError(f"cron({inner}) has {len(fields)} fields: expected 6")
    minute, hour, day_of_month, month, day_of_week, year = fields
    if (day_of_month == "?") is (day_of_week == "?"):
        raise ValueError(f"cron({inner}): exactly one of the two day fields must be '?'")
    by_date = day_of_week == "?"
    return Cron(
        minutes=_numbers(minute, 0, 59),
        hours=_numbers(hour, 0, 23),
        months=_numbers(month, 1, 12, _MONTHS),
        years=_numbers(year, 1970, 2199),
        day=_month_day(day_of_month) if by_date else _week_day(day_of_week),
        zone=zone,
    )


def _numbers(field: str, low: int, high: int, names: list[str] | None = None) -> frozenset[int]:
    """Return what a field of lists, ranges and steps allows."""
    found: set[int] = set()
    for part in field.split(","):
        span, _, step = part.partition("/")
        if span == "*":
            first, last = low, high
        else:
            begin, dash, end = span.partition("-")
            first = _number(begin, low, names)
            last = _number(end, low, names) if dash else (high if step else first)
        if not low <= first <= last <= high or (step and not int(step or 0)):
            raise ValueError(f"{part!r} is not between {low} and {high}")
        found.update(range(first, last + 1, int(step or 1)))
    return frozenset(found)


def _number(text: str, low: int, names: list[str] | None) -> int:
    if names is not None and text in names:
        return names.index(text) + low
    if not text.isdigit():
        raise ValueError(f"{text!r} is not known in a cron field")
    return int(text)


def _month_day(field: str) -> DayTest:
    if field == "L":
        return lambda day: day.day == calendar.monthrange(day.year, day.month)[1]
    if field.endswith("W"):
        wanted = _number(field[:-1], 1, None)
        return lambda day: day.day == _nearest_weekday(day.year, day.month, wanted)
    days = _numbers(field, 1, 31)
    return lambda day: day.day in days


def _nearest_weekday(year: int, month: int, wanted: int) -> int:
    last = calendar.monthrange(year, month)[1]
    for shift in (0, -1, 1, -2, 2):
        number = min(wanted, last) + shift
        if 1 <= number <= last and date(year, month, number).isoweekday() <= 5:
            return number
    raise AssertionError("a month has a weekday within two days of each date")


def _week_day(field: str) -> DayTest:
    if "#" in field:
        name, _, nth = field.partition("#")
        weekday, turn = _number(name, 1, _DAYS), _number(nth, 1, None)
        return lambda day: _day_number(day) == weekday and (day.day + 6) // 7 == turn
    if field.endswith("L"):
        weekday = _number(field[:-1] or "7", 1, _DAYS)
        return lambda day: _day_number(day) == weekday and _is_last_week(day)
    days = _numbers(field, 1, 7, _DAYS)
    return lambda day: _day_number(day) in days


def _day_number(day: date) -> int:
    return day.isoweekday() % 7 + 1  # Sunday is 1


def _is_last_week(day: date) -> bool:
    return day.day + 7 > calendar.monthrange(day.year, day.month)[1]
