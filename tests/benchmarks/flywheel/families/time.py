"""Families about dates, times and schedules."""

from __future__ import annotations

import calendar
import datetime
from random import Random

from tests.benchmarks.flywheel.families.base import Family, listed

_DAY = datetime.timedelta(days=1)


def _date(draw: Random) -> str:
    return (datetime.date(2023, 1, 1) + datetime.timedelta(days=draw.randint(0, 1400))).isoformat()


def _two_dates(draw: Random) -> dict[str, str]:
    first = datetime.date.fromisoformat(_date(draw))
    return {"first": first.isoformat(), "last": (first + datetime.timedelta(days=draw.randint(20, 400))).isoformat()}


def _clock(minutes: int) -> str:
    return f"{minutes // 60 % 24:02d}:{minutes % 60:02d}"


def _minutes(clock: str) -> int:
    return int(clock[:2]) * 60 + int(clock[3:])


def _days_between(first: str, last: str) -> int:
    day, count = datetime.date.fromisoformat(first), 0
    while day.isoformat() != last:
        day, count = day + _DAY, count + 1
    return count


def _deadline(date: str, days: int) -> str:
    day = datetime.date.fromisoformat(date)
    for _ in range(days):
        day += _DAY
    return day.isoformat()


def _end(start: str, minutes: int) -> str:
    hour, minute = int(start[:2]), int(start[3:]) + minutes
    while minute >= 60:
        hour, minute = hour + 1, minute - 60
    return f"{hour % 24:02d}:{minute:02d}"


def _weekday(date: str) -> str:
    return calendar.day_name[datetime.date.fromisoformat(date).weekday()]


def _zone(time: str, offset_here: int, offset_there: int) -> str:
    return f"{(int(time[:2]) - offset_here + offset_there) % 24:02d}{time[2:]}"


def _free(start: str, end: str, meetings: list[str]) -> int:
    busy = {m for meeting in meetings for m in range(_minutes(meeting[:5]), _minutes(meeting[6:]))}
    return sum(minute not in busy for minute in range(_minutes(start), _minutes(end)))


def _draw_meetings(draw: Random) -> dict[str, object]:
    start = draw.randrange(7 * 60, 10 * 60, 15)
    at, meetings = start + draw.randrange(15, 60, 15), []
    for _ in range(3):
        end = at + draw.randrange(15, 90, 15)
        meetings.append(f"{_clock(at)}-{_clock(end)}")
        at = end + draw.randrange(15, 75, 15)
    return {"start": _clock(start), "end": _clock(at + draw.randrange(30, 120, 15)), "meetings": meetings}


def _workdays(date: str, days: int) -> str:
    day = datetime.date.fromisoformat(date)
    weeks, rest = divmod(days, 5)
    day += 7 * weeks * _DAY
    for _ in range(rest):
        day += _DAY * (3 if day.weekday() == 4 else 2 if day.weekday() == 5 else 1)
    return day.isoformat()


def _weekday_start(draw: Random) -> str:
    day = datetime.date.fromisoformat(_date(draw))
    return (day - _DAY * max(0, day.weekday() - 4)).isoformat()


FAMILIES = (
    Family(
        name="days-between-dates",
        program=(
            "from datetime import date\n\n"
            "def solve(first, last):\n"
            "    # two dates, year-month-day\n"
            "    return (date.fromisoformat(last) - date.fromisoformat(first)).days\n"
        ),
        draw=_two_dates,
        truth=_days_between,
        wordings=(
            "A project runs from {first} to {last}. How many days lie between the two dates?",
            "How many days is it from {first} until {last}?",
            "Count the days between the signing on {first} and the handover on {last}.",
            "The lease ends on {last} and began on {first}. How many days apart are these dates?",
        ),
    ),
    Family(
        name="deadline-in-days",
        program=(
            "from datetime import date, timedelta\n\n"
            "def solve(date, days):\n"
            "    # starting date, year-month-day, and number of days to add\n"
            "    import datetime\n"
            "    return (datetime.date.fromisoformat(date) + timedelta(days=days)).isoformat()\n"
        ),
        draw=lambda d: {"date": _date(d), "days": d.randint(11, 180)},
        truth=_deadline,
        wordings=(
            "The contract was signed on {date}. Payment is due {days} days later. On which date is it due?",
            "What is the due date if an invoice of {date} has to be paid within {days} days?",
            "Warranty lasts {days} days and starts on {date}. Which date is its last, counted from the start?",
            "Notice was given on {date}; the period is {days} days. Tell me the date on which it ends.",
        ),
    ),
    Family(
        name="end-of-meeting",
        program=(
            "def solve(start, minutes):\n"
            "    # start as hours:minutes, length in minutes\n"
            "    hours, begun = start.split(':')\n"
            "    total = int(hours) * 60 + int(begun) + minutes\n"
            "    return f'{total // 60 % 24:02d}:{total % 60:02d}'\n"
        ),
        draw=lambda d: {"start": _clock(d.randrange(7 * 60, 22 * 60, 5)), "minutes": d.randrange(35, 200, 5)},
        truth=_end,
        wordings=(
            "A meeting begins at {start} and takes {minutes} minutes. At what time does it end?",
            "If the workshop is {minutes} minutes long and starts at {start}, when is it over?",
            "The call has been booked for {minutes} minutes, beginning at {start}. When will the room be free again?",
            "Kick-off at {start}, duration {minutes} minutes: what time do we finish?",
        ),
    ),
    Family(
        name="weekday-of-date",
        program=(
            "import datetime\n\n"
            "def solve(date):\n"
            "    # a date, year-month-day\n"
            "    return datetime.date.fromisoformat(date).strftime('%A')\n"
        ),
        draw=lambda d: {"date": _date(d)},
        truth=_weekday,
        wordings=(
            "The release is planned for {date}. Which day of the week is that?",
            "On what weekday does {date} fall?",
            "Is {date} a Monday, a Tuesday, or what? Name the day of the week.",
            "Someone was born on {date}. What weekday was it?",
        ),
    ),
    Family(
        name="time-in-another-zone",
        program=(
            "def solve(time, offset_here, offset_there):\n"
            "    # time here as hours:minutes; hours ahead of UTC here and there\n"
            "    hours, minutes = time.split(':')\n"
            "    return f'{(int(hours) - offset_here + offset_there) % 24:02d}:{minutes}'\n"
        ),
        draw=lambda d: {
            "time": _clock(d.randrange(6 * 60, 20 * 60, 5)),
            "offset_here": d.randint(2, 5),
            "offset_there": d.randint(6, 11),
        },
        truth=_zone,
        wordings=(
            "It is {time} here, where clocks are {offset_here} hours ahead of UTC. What time is it in an office "
            "that is {offset_there} hours ahead of UTC?",
            "Our zone is UTC+{offset_here} and theirs is UTC+{offset_there}. When it is {time} for us, what do their "
            "clocks show?",
            "We are at UTC+{offset_here}; the supplier sits at UTC+{offset_there}. Our clock says {time}. What is the "
            "local time at the supplier's?",
            "A call at {time} our time (we are {offset_here} hours ahead of UTC): which local time is that for "
            "colleagues "
            "who are {offset_there} hours ahead of UTC?",
        ),
    ),
    Family(
        name="free-time-in-calendar",
        program=(
            "def solve(start, end, meetings):\n"
            "    # start and end of the day, meetings as from-to\n"
            "    def minutes(clock):\n"
            "        hours, rest = clock.split(':')\n"
            "        return int(hours) * 60 + int(rest)\n"
            "    free = minutes(end) - minutes(start)\n"
            "    for meeting in meetings:\n"
            "        begin, stop = meeting.split('-')\n"
            "        free -= minutes(stop) - minutes(begin)\n"
            "    return free\n"
        ),
        draw=_draw_meetings,
        truth=_free,
        wordings=(
            "My working day is from {start} to {end}. There are meetings at {meetings}. How many minutes are free?",
            "With meetings at {meetings}, how many free minutes are left in a working day that goes from {start} to "
            "{end}?",
            "The calendar shows {meetings} as booked. The shift starts at {start} and finishes at {end}. How much free "
            "time, in minutes, remains?",
            "I begin at {start} and leave at {end}. Booked meetings: {meetings}. Tell me the unbooked minutes of the "
            "day.",
        ),
        show={"meetings": listed},
    ),
    Family(
        name="working-days-later",
        program=(
            "import datetime\n\n"
            "def solve(date, days):\n"
            "    # starting date, year-month-day, and number of working days, Monday to Friday\n"
            "    day = datetime.date.fromisoformat(date)\n"
            "    while days:\n"
            "        day += datetime.timedelta(days=1)\n"
            "        days -= day.weekday() < 5\n"
            "    return day.isoformat()\n"
        ),
        draw=lambda d: {"date": _weekday_start(d), "days": d.randint(3, 30)},
        truth=_workdays,
        wordings=(
            "An order of {date} is delivered after {days} working days, Monday to Friday. On which date does it "
            "arrive?",
            "Counting only working days, what date is {days} working days after {date}?",
            "The repair takes {days} business days, weekends not counted, and was accepted on {date}. When is it "
            "ready?",
            "Shipping was confirmed on {date} with a delivery time of {days} working days (no weekends). Delivery "
            "date?",
        ),
    ),
)
