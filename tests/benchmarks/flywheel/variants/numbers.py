"""Origins about whole numbers: bases, lattice points, digits, cubes, divisors."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from random import Random
from typing import Any

from tests.benchmarks.flywheel.variants.base import Origin


def _bases(floor: int, divisor: int, number: int) -> int | None:
    """From the divisors of a constant, since b + u divides c·b + d exactly when it divides c·u − d."""
    if divisor < 10 or number < 10 or divisor // 10 != 1:
        return None
    unit, tens, last = divisor % 10, number // 10, number % 10
    rest = abs(tens * unit - last)
    if rest == 0 or max(unit, tens, last) > floor:
        return None
    bases = [k - unit for k in range(1, rest + 1) if rest % k == 0 and k - unit > floor]
    return sum(bases) if len(bases) > 1 else None


def _pairs(bound: int, square: int, product: int, other: int) -> int | None:
    """For each y, by the roots of the quadratic in x."""
    count = 0
    for y in range(-bound, bound + 1):
        inside = (product * y) ** 2 + 4 * square * other * y * y
        root = math.isqrt(inside)
        if root * root != inside:
            return None
        for top in {product * y + root, product * y - root}:
            count += top % (2 * square) == 0 and abs(top // (2 * square)) <= bound
    return count


def _digits(digits: int, divisor: int, year: int) -> int | None:
    """By a table over the sets of digits used and the remainder so far, no number being written out."""
    ways: Counter[tuple[int, int]] = Counter({(0, 0): 1})
    for _ in range(digits):
        after: Counter[tuple[int, int]] = Counter()
        for (used, left), n in ways.items():
            for digit in range(1, digits + 1):
                if not used >> digit & 1:
                    after[used | 1 << digit, (10 * left + digit) % divisor] += n
        ways = after
    found = sum(n for (_, left), n in ways.items() if left == 0)
    return abs(found - year) if found else None


def _cubes(limit: int, divisor: int, modulus: int) -> int | None:
    """For each pair, by the cubes that complete it."""
    cubes = Counter(pow(n, 3, divisor) for n in range(1, limit + 1))
    sums = Counter[int]()
    for (a, n), (b, m) in itertools.product(cubes.items(), repeat=2):
        sums[(a + b) % divisor] += n * m
    return sum(n * cubes[-left % divisor] for left, n in sums.items()) % modulus


def _remainders(shift: int, factor: int, add: int, square: int) -> int | None:
    """By the remainder theorem: n = −shift leaves a constant, whose divisors say it all."""
    rest = abs(factor * (add - shift) * (shift * shift + square))
    found = [k - shift for k in range(shift + 1, rest + 1) if rest % k == 0]
    return sum(found) if len(found) > 1 else None


def _draw_bases(d: Random) -> dict[str, Any]:
    return {"floor": 9, "divisor": 10 + d.randint(2, 9), "number": 10 * d.randint(3, 9) + d.randint(1, 9)}


def _draw_pairs(d: Random) -> dict[str, Any]:
    p, q, r, s = (d.randint(1, 7) for _ in range(4))
    if p * s <= q * r:
        p, q, r, s = r, s, p, q
    # (px + qy)(rx − sy), which has a term in xy
    bound = d.choice((40, 50, 60, 80))
    return {"bound": bound, "square": p * r, "product": p * s - q * r or 1, "other": q * s}


NUMBERS = (
    Origin(
        problem="aime25-0",
        name="bases-that-divide",
        parameters={"floor": 9, "divisor": 17, "number": 97},
        program=(
            "def solve(floor, divisor, number):\n"
            "    # bases above floor in which divisor divides number; both are written with two digits\n"
            "    (a, b), (c, d) = map(int, str(divisor)), map(int, str(number))\n"
            "    top = floor + 10 ** 5\n"
            "    return sum(base for base in range(floor + 1, top) if (c * base + d) % (a * base + b) == 0)\n"
        ),
        truth=_bases,
        draw=_draw_bases,
        wording=(
            "A number base is greater than {floor}, and the number written {divisor} in that base divides the number "
            "written {number} in the same base. Add up all bases for which this is so."
        ),
        afresh=(
            "Which bases b > {floor} make the two-digit numeral {divisor}, read in base b, a factor of the numeral "
            "{number}, also read in base b? Give the total of these bases."
        ),
    ),
    Origin(
        problem="aime25-3",
        name="lattice-points-of-a-form",
        parameters={"bound": 100, "square": 12, "product": 1, "other": 6},
        program=(
            "def solve(bound, square, product, other):\n"
            "    # whole x and y from -bound to bound with square*x*x == product*x*y + other*y*y\n"
            "    numbers = range(-bound, bound + 1)\n"
            "    return sum(square * x * x == product * x * y + other * y * y for x in numbers for y in numbers)\n"
        ),
        truth=_pairs,
        draw=_draw_pairs,
        wording=(
            "Let x and y be whole numbers, none above {bound} in absolute value. In how many ordered pairs (x, y) is "
            "{square} times the square of x equal to {product} times xy plus {other} times the square of y?"
        ),
        afresh=(
            "Count the points with whole coordinates, neither of which exceeds {bound} in absolute value, that "
            "satisfy this equation: {square} times x squared equals {product} times xy plus {other} times y squared."
        ),
    ),
    Origin(
        problem="aime25-4",
        name="arrangements-of-digits",
        parameters={"digits": 8, "divisor": 22, "year": 2025},
        program=(
            "from itertools import permutations\n\n\n"
            "def solve(digits, divisor, year):\n"
            "    # arrangements of the digits from 1 on that are multiples of divisor, and how far year is from it\n"
            "    signs = '123456789'[:digits]\n"
            "    count = sum(int(''.join(order)) % divisor == 0 for order in permutations(signs))\n"
            "    return abs(count - year)\n"
        ),
        truth=_digits,
        draw=lambda d: {
            "digits": d.choice((6, 7, 8)),
            "divisor": d.choice((4, 7, 11, 12, 13, 14, 24, 28, 33, 36, 44)),
            "year": d.choice((1999, 2024, 2031, 3000)),
        },
        wording=(
            "Write whole numbers with the first {digits} digits, counted from one on, each of them exactly once. Some"
            " of these numbers are divisible by {divisor}. How far is their count from {year}?"
        ),
        afresh=(
            "Every arrangement of the digits from one up to {digits}, none left out and none repeated, is read as a "
            "number. Let N be how many of them are multiples of {divisor}. What is the difference between N and "
            "{year}?"
        ),
    ),
    Origin(
        problem="aime25-14",
        name="sums-of-three-cubes",
        parameters={"limit": 729, "divisor": 2187, "modulus": 1000},
        program=(
            "def solve(limit, divisor, modulus):\n"
            "    # triples of numbers up to limit whose cubes add up to a multiple of divisor\n"
            "    ways = [1] + [0] * (divisor - 1)\n"
            "    cubes = {}\n"
            "    for n in range(1, limit + 1):\n"
            "        cubes[n * n * n % divisor] = cubes.get(n * n * n % divisor, 0) + 1\n"
            "    for _ in 'abc':\n"
            "        after = [0] * divisor\n"
            "        for left, n in enumerate(ways):\n"
            "            if n:\n"
            "                for cube, m in cubes.items():\n"
            "                    after[(left + cube) % divisor] += n * m\n"
            "        ways = after\n"
            "    return ways[0] % modulus\n"
        ),
        truth=_cubes,
        draw=lambda d: {
            "limit": d.choice((81, 125, 243, 256, 343)),
            "divisor": d.choice((243, 343, 512, 625, 729)),
            "modulus": 1000,
        },
        wording=(
            "Take positive whole numbers a, b, c in order, none above {limit}, such that the sum of their cubes is "
            "divisible by {divisor}. The number of such triples is divided by {modulus}; what remains?"
        ),
        afresh=(
            "How many ordered triples (a, b, c), with positive a, b and c of at most {limit}, have cubes whose sum is"
            " a multiple of {divisor}? Answer with the remainder of that count after division by {modulus}."
        ),
    ),
    Origin(
        problem="aime25-16",
        name="divisors-of-a-product",
        parameters={"shift": 2, "factor": 3, "add": 3, "square": 9},
        program=(
            "def solve(shift, factor, add, square):\n"
            "    # positive n for which n + shift divides factor*(n + add)*(n*n + square)\n"
            "    fits = lambda n: factor * (n + add) * (n * n + square) % (n + shift) == 0\n"
            "    return sum(n for n in range(1, 10 ** 5) if fits(n))\n"
        ),
        truth=_remainders,
        draw=lambda d: {
            "shift": d.randint(2, 6),
            "factor": d.randint(2, 7),
            "add": d.randint(7, 12),
            "square": d.randint(3, 15),
        },
        wording=(
            "For a positive whole number n, the number n + {shift} is a divisor of {factor} times (n + {add}) times "
            "(n squared + {square}). Find the sum of all such n."
        ),
        afresh=(
            "Add up every positive whole n such that (n + {shift}) goes without remainder into the product of "
            "{factor}, (n + {add}) and (n times n + {square})."
        ),
    ),
)
