"""Families about measures: speed, fuel, temperature, recipes, surfaces, data, stock."""

from __future__ import annotations

from fractions import Fraction
from random import Random

from tests.benchmarks.flywheel.families.base import Family


def _rounded(value: Fraction, digits: int) -> float:
    scaled = value * 10**digits
    return float(Fraction((2 * scaled.numerator + scaled.denominator) // (2 * scaled.denominator), 10**digits))


def _tenths(draw: Random, low: int, high: int) -> float:
    return draw.randint(low * 10, high * 10) / 10


def _trip(distance: int, speed: int) -> float:
    return _rounded(Fraction(distance * 60, speed), 1)


def _fuel(distance: int, usage: float, price: float) -> float:
    return _rounded(Fraction(str(usage)) * Fraction(str(price)) * distance / 100, 2)


def _celsius(fahrenheit: int) -> float:
    return _rounded(Fraction((fahrenheit - 32) * 5, 9), 1)


def _recipe(grams: int, people_before: int, people_now: int) -> float:
    return _rounded(sum((Fraction(grams, people_before) for _ in range(people_now)), Fraction(0)), 1)


def _cans(width: float, height: float, coverage: float) -> int:
    left, cans = Fraction(str(width)) * Fraction(str(height)), 0
    while left > 0:
        left, cans = left - Fraction(str(coverage)), cans + 1
    return cans


def _download(gigabytes: float, megabits: int) -> float:
    return _rounded(Fraction(str(gigabytes)) * 8000 / megabits, 1)


def _stock(stock: int, daily: int, reserve: int) -> int:
    days = 0
    while stock - daily >= reserve:
        stock, days = stock - daily, days + 1
    return days


FAMILIES = (
    Family(
        name="travel-time",
        program=(
            "def solve(distance, speed):\n"
            "    # kilometres, kilometres an hour; gives minutes\n"
            "    return round(distance / speed * 60 + 1e-9, 1)\n"
        ),
        draw=lambda d: {"distance": d.randint(30, 700), "speed": d.randrange(40, 130, 5)},
        truth=_trip,
        wordings=(
            "A truck has to go {distance} km and drives {speed} km/h on average. How many minutes does the trip take?",
            "At {speed} km/h, how many minutes does a car need for {distance} km?",
            "The bus averages {speed} km/h and its route is {distance} km long. Travel time in minutes?",
            "How long, in minutes, is a ride of {distance} km if the train keeps {speed} km/h?",
        ),
    ),
    Family(
        name="fuel-cost",
        program=(
            "def solve(distance, usage, price):\n"
            "    # kilometres, litres for 100 km, price of a litre\n"
            "    return round(distance * usage / 100 * price + 1e-9, 2)\n"
        ),
        draw=lambda d: {"distance": d.randint(80, 990), "usage": _tenths(d, 4, 12), "price": d.randint(135, 219) / 100},
        truth=_fuel,
        wordings=(
            "A car uses {usage} litres of fuel per hundred kilometres, and a litre costs {price} euros. "
            "What does the fuel for {distance} km cost in euros?",
            "Fuel is {price} euros a litre. We drive {distance} km with a van that needs {usage} litres per 100 km. "
            "Fuel bill?",
            "For a trip of {distance} km, consumption is {usage} litres per 100 km and the pump price {price} euros "
            "per "
            "litre. How much money goes into fuel?",
            "The pump shows {price} euros per litre, the motor burns {usage} litres per 100 km, and the tour is "
            "{distance} "
            "km. Fuel expense?",
        ),
    ),
    Family(
        name="fahrenheit-to-celsius",
        program=(
            "def solve(fahrenheit):\n"
            "    # degrees Fahrenheit; gives degrees Celsius\n"
            "    return round((fahrenheit - 32) * 5 / 9 + 1e-9, 1)\n"
        ),
        draw=lambda d: {"fahrenheit": d.randint(-10, 230)},
        truth=_celsius,
        wordings=(
            "The oven manual says {fahrenheit} degrees Fahrenheit. How many degrees Celsius is that?",
            "Convert {fahrenheit} °F to °C.",
            "A sensor in Boston reports {fahrenheit} °F. What is this in Celsius?",
            "What is {fahrenheit} degrees on the Fahrenheit scale when expressed in Celsius?",
        ),
    ),
    Family(
        name="recipe-for-more-people",
        program=(
            "def solve(grams, people_before, people_now):\n"
            "    # grams in the recipe, people it serves, people to be served now\n"
            "    return round(grams / people_before * people_now + 1e-9, 1)\n"
        ),
        draw=lambda d: {
            "grams": d.randrange(100, 990, 10),
            "people_before": d.choice((2, 4, 5, 6)),
            "people_now": d.randint(7, 30),
        },
        truth=_recipe,
        wordings=(
            "A recipe for {people_before} people needs {grams} g of flour. How many grams are needed for "
            "{people_now} people?",
            "I cook for {people_now} people with a recipe that has {grams} g of rice for {people_before}. How much "
            "rice?",
            "The soup takes {grams} g of lentils and serves {people_before}. We will be {people_now} at the table. "
            "Lentils, in "
            "grams?",
            "Scale up: {people_before} portions contain {grams} g of butter; what do {people_now} portions contain?",
        ),
    ),
    Family(
        name="cans-of-paint",
        program=(
            "import math\n\n"
            "def solve(width, height, coverage):\n"
            "    # metres, metres, square metres that one can covers\n"
            "    return math.ceil(round(width * height / coverage, 9))\n"
        ),
        draw=lambda d: {"width": _tenths(d, 12, 40), "height": _tenths(d, 2, 5), "coverage": _tenths(d, 6, 11)},
        truth=_cans,
        wordings=(
            "A wall is {width} m wide and {height} m high. One can of paint covers {coverage} square metres. "
            "How many cans have to be bought?",
            "How many cans of paint, each good for {coverage} square metres, does a wall of {width} m by {height} m "
            "take?",
            "One can is enough for {coverage} square metres. The fence to be painted measures {width} m in width and "
            "{height} m in height. Cans needed?",
            "Paint job: surface {width} m wide, {height} m high; a can does {coverage} square metres. Number of cans?",
        ),
    ),
    Family(
        name="download-time",
        program=(
            "def solve(gigabytes, megabits):\n"
            "    # size in gigabytes, line in megabits a second; gives seconds\n"
            "    return round(gigabytes * 8000 / megabits + 1e-9, 1)\n"
        ),
        draw=lambda d: {"gigabytes": _tenths(d, 1, 90), "megabits": d.choice((16, 25, 40, 50, 80, 100, 250, 400))},
        truth=_download,
        wordings=(
            "A file of {gigabytes} GB is loaded over a line of {megabits} Mbit/s. How many seconds does it take?",
            "With {megabits} Mbit/s of bandwidth, how many seconds does a backup of {gigabytes} GB need?",
            "The network does {megabits} Mbit/s. How long in seconds until an image of {gigabytes} GB has been "
            "transferred?",
            "Seconds to download {gigabytes} GB at a rate of {megabits} Mbit/s?",
        ),
    ),
    Family(
        name="days-until-reorder",
        program=(
            "def solve(stock, daily, reserve):\n"
            "    # pieces in stock, pieces used a day, pieces that must stay in reserve\n"
            "    return (stock - reserve) // daily\n"
        ),
        draw=lambda d: {"stock": d.randint(400, 1900), "daily": d.randint(11, 60), "reserve": d.randint(70, 200)},
        truth=_stock,
        wordings=(
            "There are {stock} filters in stock and {daily} are used every day. A reserve of {reserve} must not be "
            "touched. "
            "For how many full days does the stock last?",
            "A clinic uses {daily} masks a day. It holds {stock} and must keep {reserve} back. For how many full "
            "days is "
            "that enough?",
            "Keep {reserve} bolts untouched; production consumes {daily} a day; {stock} are on the shelf. How many "
            "full "
            "days can we go on?",
            "The warehouse counts {stock} boxes, ships {daily} daily, and holds {reserve} as untouchable reserve. "
            "Full days "
            "of supply?",
        ),
    ),
)
