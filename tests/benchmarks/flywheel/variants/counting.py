"""Origins about counting and chance: teams, pairs of letters, bands of digits, chords."""

from __future__ import annotations

import math
from fractions import Fraction
from random import Random
from typing import Any

from tests.benchmarks.flywheel.variants.base import Origin


def _flavours(players: int, modulus: int) -> int | None:
    """By sending each player somewhere and keeping the sizes of the three groups alone."""
    sizes = {(0, 0, 0): 1}
    for _ in range(players):
        after: dict[tuple[int, int, int], int] = {}
        for (a, b, c), n in sizes.items():
            for more in ((a + 1, b, c), (a, b + 1, c), (a, b, c + 1)):
                after[more] = after.get(more, 0) + n
        sizes = after
    return sum(n for (a, b, c), n in sizes.items() if a > b > c > 0) % modulus


def _last_pair(pairs: int, mark: int) -> int | None:
    """In a formula: who is paired with whom above the smaller number of the last pair is forced."""
    people = 2 * pairs

    def matchings(n: int) -> int:
        return math.prod(range(n - 1, 0, -2))

    def ending_with(low: int) -> int:
        below, forced = low - 1, people - low - 1
        if forced < 0 or below < forced:
            return 0
        return math.perm(below, forced) * matchings(below - forced)

    good = (people - mark) * ending_with(mark) + sum(ending_with(low) for low in range(1, mark))
    chance = Fraction(good, matchings(people))
    return chance.numerator + chance.denominator if 0 < chance < 1 else None


def _band(rows: int, columns: int) -> int | None:
    """By known formulas, for two and for three rows."""
    width = columns // rows
    if rows not in (2, 3) or columns % rows:
        return None
    ways = math.factorial(columns) * math.factorial(width) ** (rows * (rows - 1))
    if rows == 3:
        ways *= sum(math.comb(width, k) ** 3 for k in range(width + 1))
    total = 0
    for prime in (2, 3, 5, 7, 11, 13):
        while ways % prime == 0:
            ways //= prime
            total += prime
    return total if ways == 1 else None


def _regions(chords: int) -> int | None:
    """In a formula: four thirds of a meeting with a diameter a chord, 17/36 of one for two chords."""
    found = 4 + chords + Fraction(4, 3) * chords + Fraction(17, 36) * math.comb(chords, 2)
    return int(found) if found.denominator == 1 else None


def _draw_band(d: Random) -> dict[str, Any]:
    rows, columns = d.choice(((3, 6), (3, 12), (2, 6), (2, 8), (2, 10)))
    return {"rows": rows, "columns": columns}


def _draw_letters(d: Random) -> dict[str, Any]:
    pairs = d.randint(4, 6)
    return {"pairs": pairs, "mark": d.randint(pairs, 2 * pairs - 2)}


COUNTING = (
    Origin(
        problem="aime25-2",
        name="three-flavours",
        parameters={"players": 9, "modulus": 1000},
        program=(
            "from math import comb\n\n\n"
            "def solve(players, modulus):\n"
            "    # groups a > b > c >= 1 that have all players, and the ways to choose who is in which\n"
            "    total = 0\n"
            "    for c in range(1, players):\n"
            "        for b in range(c + 1, players):\n"
            "            a = players - b - c\n"
            "            if a > b:\n"
            "                total += comb(players, a) * comb(players - a, b)\n"
            "    return total % modulus\n"
        ),
        truth=_flavours,
        draw=lambda d: {"players": d.randint(7, 16), "modulus": d.choice((100, 500, 1000))},
        wording=(
            "A team of {players} players buys ice cream. Each takes chocolate, vanilla or strawberry; every flavour "
            "is taken by somebody, chocolate more often than vanilla and vanilla more often than strawberry. In how "
            "many ways can the players choose? Give the remainder on division by {modulus}."
        ),
        afresh=(
            "A group of {players} hikers splits up over the red, the blue and the green trail. No trail is left "
            "empty; more hikers walk the red trail than the blue one, and more walk the blue one than the green one. "
            "How many assignments of hikers to trails are there, modulo {modulus}?"
        ),
    ),
    Origin(
        problem="aime25-6",
        name="the-last-pair",
        parameters={"pairs": 6, "mark": 7},
        program=(
            "from fractions import Fraction\n\n\n"
            "def solve(pairs, mark):\n"
            "    # all ways to pair the numbers from 1 on; a pair is sorted by its smaller number\n"
            "    def pairings(free):\n"
            "        if not free:\n"
            "            yield ()\n"
            "        for other in free[1:]:\n"
            "            rest = [n for n in free if n not in (free[0], other)]\n"
            "            for last in pairings(rest):\n"
            "                yield last or (free[0], other)\n\n"
            "    found = list(pairings(list(range(1, 2 * pairs + 1))))\n"
            "    chance = Fraction(sum(mark in last for last in found), len(found))\n"
            "    return chance.numerator + chance.denominator\n"
        ),
        truth=_last_pair,
        draw=_draw_letters,
        wording=(
            "The letters at the beginning of the alphabet are put into {pairs} pairs at random, and none is left "
            "over. Each pair is written as a word, its letters in order, and the words are sorted. The chance that "
            "the last word contains letter number {mark} is a fraction in lowest terms. Add its numerator and its "
            "denominator."
        ),
        afresh=(
            "Cards numbered from one on are dealt out at random in {pairs} pairs, to the last card, and each pair is "
            "laid down with its smaller number first. The pairs are then ordered by that number. With what "
            "probability, as a reduced fraction, is card {mark} in the pair that comes last? Report numerator plus "
            "denominator."
        ),
    ),
    Origin(
        problem="aime25-9",
        name="bands-of-a-square",
        parameters={"rows": 3, "columns": 9},
        program=(
            "from itertools import combinations\n"
            "from math import factorial\n\n\n"
            "def solve(rows, columns):\n"
            "    # rows of all the numbers, cut into as many blocks as there are rows; no block repeats a number\n"
            "    width = columns // rows\n"
            "    everything = frozenset(range(columns))\n\n"
            "    def fill(row, block, seen, used):\n"
            "        # the ways to give each block its set in this row and the rows below\n"
            "        if row == rows:\n"
            "            return 1\n"
            "        if block == rows:\n"
            "            return fill(row + 1, 0, seen, frozenset())\n"
            "        total = 0\n"
            "        for chosen in combinations(sorted(everything - seen[block] - used), width):\n"
            "            with_it = seen[:block] + (seen[block] | set(chosen),) + seen[block + 1:]\n"
            "            total += fill(row, block + 1, with_it, used | set(chosen))\n"
            "        return total\n\n"
            "    first = tuple(frozenset(range(b * width, (b + 1) * width)) for b in range(rows))\n"
            "    ways = factorial(columns) * factorial(width) ** (rows * (rows - 1)) * fill(1, 0, first, frozenset())\n"
            "    answer, prime = 0, 2\n"
            "    while ways > 1:\n"
            "        while ways % prime == 0:\n"
            "            ways, answer = ways // prime, answer + prime\n"
            "        prime += 1\n"
            "    return answer\n"
        ),
        truth=_band,
        draw=_draw_band,
        wording=(
            "A grid has {rows} rows and {columns} columns and is cut by vertical lines into equal blocks, as many as "
            "it has rows. It is filled with the numbers from 1 up to the number of columns, so that each row has them"
            " all and each block has them all. Write the number of fillings as a product of powers of primes and add "
            "up each prime times its exponent."
        ),
        afresh=(
            "In how many ways can one fill a band of {rows} rows and {columns} columns, each row holding every number"
            " from 1 to the number of columns once, when upright lines cut it into equally wide blocks, one for each "
            "row, and each block too has to hold every number once? Factor that count into primes and give the sum of"
            " the primes, each as often as it occurs."
        ),
    ),
    Origin(
        problem="aime25-12",
        name="chords-of-a-disk",
        parameters={"chords": 25},
        program=(
            "from fractions import Fraction\n"
            "from itertools import permutations, product\n\n\n"
            "def solve(chords):\n"
            "    # one region, one more for each segment, one more for each meeting of two of them\n"
            "    quarters = range(2 + 2)\n"
            "    apart = [(p, q) for p, q in product(quarters, quarters) if p != q]\n"
            "    # a chord meets one diameter if its quarters are next to each other, else both\n"
            "    with_diameters = Fraction(sum(2 if abs(p - q) == 2 else 1 for p, q in apart), len(apart))\n"
            "    meets = total = 0\n"
            "    for (p, q), (r, s) in product(apart, apart):\n"
            "        for order in permutations(range(2 + 2)):\n"
            "            a, b, c, d = zip((p, q, r, s), order)\n"
            "            low, high = min(a, b), max(a, b)\n"
            "            meets += (low < c < high) != (low < d < high)\n"
            "            total += 1\n"
            "    pairs = chords * (chords - 1) // 2\n"
            "    answer = 1 + 2 + 1 + chords + chords * with_diameters + pairs * Fraction(meets, total)\n"
            "    return int(answer) if answer.denominator == 1 else float(answer)\n"
        ),
        truth=_regions,
        draw=lambda d: {"chords": d.randint(6, 120)},
        wording=(
            "Two diameters at right angles cut a disk into quadrants. Then {chords} more chords are drawn, each "
            "between two random points of the circle that lie in different quadrants. What is the expected number of "
            "regions?"
        ),
        afresh=(
            "A round cake is cut crosswise through its centre into four equal sectors. After that come {chords} "
            "straight cuts; each joins two points of the rim that are chosen at random under the condition that they "
            "belong to different sectors. Into how many pieces is the cake divided on average?"
        ),
    ),
)
