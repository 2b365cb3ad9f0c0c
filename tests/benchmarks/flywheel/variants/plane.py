"""Origins about figures and curves: areas, tangents, parabolas, shortest paths."""

from __future__ import annotations

import cmath
import itertools
import math
from fractions import Fraction
from random import Random
from typing import Any

from tests.benchmarks.flywheel.variants.base import Origin

Point = tuple[float, float]


def _area(points: list[Point]) -> float:
    around = zip(points, points[1:] + points[:1], strict=True)
    return abs(sum(x1 * y2 - x2 * y1 for (x1, y1), (x2, y2) in around)) / 2


def _heptagon(ad: int, de: int, eb: int, af: int, fg: int, gc: int, area: int) -> int | None:
    """In coordinates: an angle is chosen, and all is scaled to the known area in the end."""

    def on_other(length: float) -> Point:
        return length * math.cos(1.1), length * math.sin(1.1)

    a, d, e, b = (0.0, 0.0), (float(ad), 0.0), (float(ad + de), 0.0), (float(ad + de + eb), 0.0)
    f, g, c = on_other(af), on_other(af + fg), on_other(af + fg + gc)
    m, n = (2 * f[0] - d[0], 2 * f[1] - d[1]), (2 * e[0] - g[0], 2 * e[1] - g[1])
    found = area * _area([a, f, n, b, c, e, m]) / _area([d, e, g, f])
    return round(found) if abs(found - round(found)) < 1e-6 else None


def _trapezoid(radius: int, area: int) -> int | None:
    """From the sum and the product of the parallel sides."""
    total = Fraction(area, radius)
    if total <= 4 * radius:
        return None
    found = total**2 - 2 * Fraction(2 * radius) ** 2
    return int(found) if found.denominator == 1 else None


def _tangents(x: int, y: int, up: int, right: int) -> int | None:
    """By bisection on the distance of the circle's centre from the line, for a radius of one."""
    side = math.hypot(right, up)

    def distance(k: float) -> float:
        return (right * (x - k - right / 2) - up * (y - up / 2)) / side

    ends = []
    for side_of in (1.0, -1.0):
        low, high = -1e6, 1e6
        for _ in range(200):
            middle = (low + high) / 2
            low, high = (middle, high) if distance(middle) > side_of else (low, middle)
        ends.append((low + high) / 2)
    found = Fraction(sum(ends)).limit_denominator(1000)
    if abs(float(found) - sum(ends)) > 1e-6 or found <= 0:
        return None
    return found.numerator + found.denominator


def _turned(shift: int, angle: int) -> int | None:
    """By walking along the turned parabola and looking where it crosses the other one."""
    turn = cmath.exp(1j * math.radians(angle))

    def above(t: float) -> tuple[complex, float]:
        point = complex(t, t * t - shift) * turn
        return point, point.imag - (point.real**2 - shift)

    steps = [n / 64 for n in range(-64 * 12, 64 * 12 + 1)]
    crossings = []
    for low, high in itertools.pairwise(steps):
        if above(low)[1] * above(high)[1] < 0:
            for _ in range(80):
                middle = (low + high) / 2
                low, high = (middle, high) if above(low)[1] * above(middle)[1] > 0 else (low, middle)
            crossings.append(above(low)[0])
    fourth = [point.imag for point in crossings if point.real > 1e-9 and point.imag < -1e-9]
    if len(fourth) != 1:
        return None
    for c in range(1, 7):
        for a in range(1, 7):
            root = (a - c * fourth[0]) ** 2
            whole = math.isqrt(round(root)) ** 2 == round(root)
            if math.gcd(a, c) == 1 and abs(root - round(root)) < 1e-6 and not whole:
                return a + round(root) + c
    return None


def _sawtooth(steepness: int) -> int | None:
    """In a formula: all roots but one come in pairs."""
    if steepness % 4 != 2:
        return None
    rest, factor = 1 + 4 * steepness**2, 1
    for n in range(2, steepness):
        while rest % (n * n) == 0:
            rest, factor = rest // (n * n), factor * n
    return 1 + factor + rest + 2 * steepness


def _triangle(total: int) -> int | None:
    """In a formula: a third and one, squared, three quarters of it times the root of three."""
    found = Fraction(3, 4) * (Fraction(total, 3) + 1) ** 2
    return int(found) + 3 if found.denominator == 1 else None


def _shortest(ab: int, bc: int, cd: int, de: int, ea: int, angle: int) -> int | None:
    """By descending a direction at a time with ever smaller steps."""
    corners = _pentagon(ab, bc, cd, de, ea, angle)
    if corners is None:
        return None
    at, step = sum(corners) / 5, float(ab)

    def total(point: complex) -> float:
        return sum(abs(point - corner) for corner in corners)

    while step > 1e-13:
        best = min((at + step * cmath.exp(1j * n * math.pi / 8) for n in range(16)), key=total)
        at, step = (best, step) if total(best) < total(at) else (at, step / 2)
    for p in (2, 3, 5, 6, 7, 10, 11, 13):
        for n in range(1, 200):
            m = total(at) - n * math.sqrt(p)
            if m > 0.5 and abs(m - round(m)) < 1e-9:
                return round(m) + n + p
    return None


def _pentagon(ab: float, bc: float, cd: float, de: float, ea: float, angle: float) -> list[complex] | None:
    turn = math.cos(math.radians(angle))
    ac, ad = (math.sqrt(x * x + y * y - 2 * x * y * turn) for x, y in ((ab, bc), (de, ea)))
    cosines = [
        (ac * ac + ad * ad - cd * cd) / (2 * ac * ad),
        (ab * ab + ac * ac - bc * bc) / (2 * ab * ac),
        (ad * ad + ea * ea - de * de) / (2 * ad * ea),
    ]
    if any(abs(cosine) >= 1 for cosine in cosines):
        return None
    cad, bac, dae = map(math.acos, cosines)
    return [0j, ab * cmath.exp(-1j * bac), complex(ac), ad * cmath.exp(1j * cad), ea * cmath.exp(1j * (cad + dae))]


def _on_a_line(ac: int, bd: int, ce: int, df: int, af: int, cg: int, dg: int) -> int | None:
    """In coordinates."""
    cd = af - ac - df
    b, c, d, e = ac + cd - bd, ac, ac + cd, ac + ce
    if not 0 < b < c < d < e < af:
        return None
    x = Fraction(cg**2 - dg**2 + cd**2, 2 * cd)
    height = math.sqrt(max(0.0, cg**2 - float(x) ** 2))
    found = (e - b) * height / 2
    return round(found) if height > 1e-9 and abs(found - round(found)) < 1e-9 else None


def _draw_heptagon(d: Random) -> dict[str, Any]:
    near, far = d.randint(2, 9), d.randint(2, 14)
    ratio = d.choice(((1, 4, 2), (1, 3, 1), (1, 2, 2)))
    sides = dict(zip(("ad", "de", "eb"), (near * part for part in ratio), strict=True))
    others = dict(zip(("af", "fg", "gc"), ((far + 9) * part for part in ratio), strict=True))
    return {**sides, **others, "area": 24 * d.randint(3, 30)}


def _draw_pentagon(d: Random) -> dict[str, Any]:
    k = d.randint(3, 9)
    return {"ab": 2 * k * 7, "bc": 7 * k, "cd": 24 * k, "de": 13 * k, "ea": 26 * k, "angle": 60}


def _draw_line(d: Random) -> dict[str, Any]:
    cd, cg, dg = d.choice(((14, 15, 13), (21, 17, 10), (25, 24, 7), (21, 20, 13), (14, 40, 30), (28, 25, 17)))
    ab, bc, de, ef = (d.randint(5, 19) for _ in range(4))
    return {
        **{"ac": ab + bc, "bd": bc + cd, "ce": cd + de, "df": de + ef},
        **{"af": ab + bc + cd + de + ef, "cg": cg, "dg": dg},
    }


PLANE = (
    Origin(
        problem="aime25-1",
        name="area-of-a-heptagon",
        parameters={"ad": 4, "de": 16, "eb": 8, "af": 13, "fg": 52, "gc": 26, "area": 288},
        program=(
            "from fractions import Fraction\n\n\n"
            "def solve(ad, de, eb, af, fg, gc, area):\n"
            "    # coordinates along AB and along AC; a ratio of areas does not depend on the angle\n"
            "    def size(*points):\n"
            "        around = zip(points, points[1:] + points[:1])\n"
            "        return abs(sum(p[0] * q[1] - q[0] * p[1] for p, q in around))\n\n"
            "    a, d, e, b = (0, 0), (ad, 0), (ad + de, 0), (ad + de + eb, 0)\n"
            "    f, g, c = (0, af), (0, af + fg), (0, af + fg + gc)\n"
            "    m = (2 * f[0] - d[0], 2 * f[1] - d[1])\n"
            "    n = (2 * e[0] - g[0], 2 * e[1] - g[1])\n"
            "    answer = area * Fraction(size(a, f, n, b, c, e, m), size(d, e, g, f))\n"
            "    return int(answer) if answer.denominator == 1 else float(answer)\n"
        ),
        truth=_heptagon,
        draw=_draw_heptagon,
        wording=(
            "On side AB of a triangle ABC lie first D, then E, with AD = {ad}, DE = {de} and EB = {eb}. On side AC "
            "lie first F, then G, with AF = {af}, FG = {fg} and GC = {gc}. D is mirrored in the point F, which gives "
            "M, and G in the point E, which gives N. Quadrilateral DEGF has area {area}. What is the area of AFNBCEM?"
        ),
        afresh=(
            "A triangle with corners A, B and C: going from A to B one comes through D and E, in steps of {ad}, {de} "
            "and {eb}. Going from A to C one comes through F and G, in steps of {af}, {fg} and {gc}. F is the middle "
            "of D and M, and E is the middle of G and N. If DEGF covers an area of {area}, how much does AFNBCEM "
            "cover?"
        ),
    ),
    Origin(
        problem="aime25-5",
        name="trapezoid-around-a-circle",
        parameters={"radius": 3, "area": 72},
        program=(
            "from fractions import Fraction\n\n\n"
            "def solve(radius, area):\n"
            "    # the two legs are as long as the parallel sides together; the height is two radii\n"
            "    leg = Fraction(area, 2 * radius)\n"
            "    offset_squared = leg ** 2 - (2 * radius) ** 2\n"
            "    answer = 2 * (leg ** 2 + offset_squared)\n"
            "    return int(answer) if answer.denominator == 1 else float(answer)\n"
        ),
        truth=_trapezoid,
        draw=lambda d: {"radius": (radius := d.randint(2, 9)), "area": radius * d.randint(4 * radius + 1, 60)},
        wording=(
            "A circle of radius {radius} touches all sides of an isosceles trapezoid of area {area}. The parallel "
            "sides are not equally long. Add up the squares of their lengths."
        ),
        afresh=(
            "An isosceles trapezoid whose bases differ has an incircle of radius {radius} and encloses an area of "
            "{area}. What do the squares of both bases come to together?"
        ),
    ),
    Origin(
        problem="aime25-7",
        name="a-line-that-touches",
        parameters={"x": 25, "y": 20, "right": 4, "up": 3},
        program=(
            "from fractions import Fraction\n\n\n"
            "def solve(x, y, right, up):\n"
            "    # the points as far from right + k as from up*i + k: right*(x - k) - up*y == half\n"
            "    half = Fraction(right ** 2 - up ** 2, 2)\n"
            "    # the two k for which that line touches the circle lie evenly about the one through its centre\n"
            "    total = 2 * (x - (up * y + half) / right)\n"
            "    return total.numerator + total.denominator\n"
        ),
        truth=_tangents,
        draw=lambda d: {"x": d.randint(15, 60), "y": d.randint(3, 20), "right": d.randint(2, 9), "up": d.randint(2, 9)},
        wording=(
            "A circle in the complex plane has its centre at {x} + {y}i, and a line consists of the points that are "
            "as far from {right} + k as from {up}i + k, where k is real. For certain values of k the line touches the"
            " circle. Their sum is a fraction in lowest terms; add its numerator and its denominator."
        ),
        afresh=(
            "For which real k does exactly one complex z lie both on a given circle around {x} + {y}i and at equal "
            "distances from the points {right} + k and {up}i + k? Add the possible k, write the sum as a reduced "
            "fraction, and give numerator plus denominator."
        ),
    ),
    Origin(
        problem="aime25-8",
        name="a-turned-parabola",
        parameters={"shift": 4, "angle": 60},
        program=(
            "from fractions import Fraction\n"
            "from math import radians, tan\n\n\n"
            "def solve(shift, angle):\n"
            "    # both curves meet on their line of symmetry y = -x*s, where y*y - s*s*y - s*s*shift == 0\n"
            "    square = Fraction(1 / tan(radians(angle) / 2) ** 2).limit_denominator(1000)\n"
            "    # y = (square - root(square**2 + shift * square * 2**2)) / 2, over one denominator\n"
            "    under = square ** 2 + 2 ** 2 * square * shift\n"
            "    a, c = square.numerator, 2 * square.denominator\n"
            "    return a + int(under * square.denominator ** 2) + c\n"
        ),
        truth=_turned,
        draw=lambda d: {"shift": d.randint(2, 9), "angle": d.choice((60, 90))},
        wording=(
            "The parabola y = x squared - {shift} is turned about the origin by {angle} degrees against the clock. In"
            " the fourth quadrant it meets its image in one point. The y-coordinate there is (a - root of b) / c with"
            " positive whole numbers, a and c having no common factor. Find a + b + c."
        ),
        afresh=(
            "Subtract {shift} from x squared and call the curve P. Rotating P counterclockwise by {angle} degrees "
            "about the origin gives a second curve. Where both cross with x positive and y negative, y has the form "
            "(a minus the square root of b) over c, in positive whole numbers with a and c coprime. What is a + b + "
            "c?"
        ),
    ),
    Origin(
        problem="aime25-10",
        name="parabola-and-sawtooth",
        parameters={"steepness": 34},
        program=(
            "from fractions import Fraction\n"
            "from math import isqrt, sqrt\n\n\n"
            "def solve(steepness):\n"
            "    # rising pieces y = x - m, falling ones y = m - x, for even m; on both steepness*y*y == x\n"
            "    whole, roots = Fraction(0), {}\n"
            "    for m in range(0, steepness + 2 * 2, 2):\n"
            "        sign = 1 if m // 2 % 2 == 0 else -1\n"
            "        under = 1 + 2 * 2 * steepness * m\n"
            "        for other in (1, -1):\n"
            "            y = (sign + other * sqrt(under)) / (2 * steepness)\n"
            "            if -1 <= y < 1:\n"
            "                whole += Fraction(sign, 2 * steepness)\n"
            "                roots[under] = roots.get(under, 0) + other\n"
            "    total = {}\n"
            "    for under, times in roots.items():\n"
            "        factor = max(n for n in range(1, isqrt(under) + 1) if under % (n * n) == 0)\n"
            "        free = under // factor ** 2\n"
            "        total[free] = total.get(free, 0) + times * factor\n"
            "    whole += Fraction(total.pop(1, 0), 2 * steepness)\n"
            "    c, b = next(((free, times) for free, times in total.items() if times), (1, 0))\n"
            "    part = Fraction(b, 2 * steepness)\n"
            "    d = whole.denominator * part.denominator\n"
            "    while d % 2 == 0 and (whole * (d // 2)).denominator == (part * (d // 2)).denominator == 1:\n"
            "        d //= 2\n"
            "    d = min(n for n in range(1, d + 1) if (whole * n).denominator == (part * n).denominator == 1)\n"
            "    return int(whole * d) + int(part * d) + c + d\n"
        ),
        truth=_sawtooth,
        draw=lambda d: {"steepness": 4 * d.randint(2, 30) + 2},
        wording=(
            "A zigzag line rises from (-1, -1) to (1, 1), falls from there to (3, -1), and goes on like this for ever"
            " in both directions. The parabola x = {steepness} y squared meets it in finitely many points. The sum of"
            " their y-coordinates is (a + b root c) / d in positive whole numbers, with no common factor of a, b and "
            "d, and with no square dividing c. Find a + b + c + d."
        ),
        afresh=(
            "The graph of f climbs in a straight line from (-1, -1) to (1, 1), drops in another one to (3, -1), and "
            "then repeats itself without end, to the left too. Add up the second coordinates of all points where it "
            "is cut by the curve x = {steepness} times y squared. In lowest terms that is (a + b times the square "
            "root of c) over d, where c is free of squares. Give a + b + c + d."
        ),
    ),
    Origin(
        problem="aime25-11",
        name="a-finite-region",
        parameters={"total": 75},
        program=(
            "from fractions import Fraction\n\n\n"
            "def solve(total):\n"
            "    # (x - y)(1 + z) < 0 and (y - z)(1 + x) < 0: the finite region is -1 < x < y < z\n"
            "    centre = Fraction(total, 1 + 2)\n"
            "    low, half = (-1, -1, total + 2), (-1, Fraction(total + 1, 2), Fraction(total + 1, 2))\n"
            "    u, v = [n - centre for n in low], [n - centre for n in half]\n"
            "    # the cross product has three equal parts in a plane x + y + z = total\n"
            "    part = abs(u[1] * v[2] - u[2] * v[1]) / 2\n"
            "    return int(part) + 1 + 2 if part.denominator == 1 else float(part)\n"
        ),
        truth=_triangle,
        draw=lambda d: {"total": 3 * (2 * d.randint(3, 40) + 1)},
        wording=(
            "In the plane x + y + z = {total}, look at the points for which x - yz is less than y - zx, and this is "
            "less than z - xy. They form three regions, one of them finite. Its area is a times the root of b, in "
            "whole numbers with no square dividing b. Find a + b."
        ),
        afresh=(
            "Points whose coordinates add up to {total} are kept if z - xy exceeds y - zx, and y - zx exceeds x - yz."
            " Of the three pieces that this leaves of the plane, just one is bounded. Write its area as a times the "
            "square root of a square-free b. What is a + b?"
        ),
    ),
    Origin(
        problem="aime25-13",
        name="shortest-sum-of-distances",
        parameters={"ab": 14, "bc": 7, "cd": 24, "de": 13, "ea": 26, "angle": 60},
        program=(
            "from cmath import exp\n"
            "from math import acos, cos, radians, sqrt\n\n\n"
            "def solve(ab, bc, cd, de, ea, angle):\n"
            "    # the corners, with A at the origin and C to the right of it\n"
            "    ac = sqrt(ab ** 2 + bc ** 2 - 2 * ab * bc * cos(radians(angle)))\n"
            "    ad = sqrt(de ** 2 + ea ** 2 - 2 * de * ea * cos(radians(angle)))\n"
            "    corner = lambda p, q, r: acos((p ** 2 + q ** 2 - r ** 2) / (2 * p * q))\n"
            "    cad = corner(ac, ad, cd)\n"
            "    b = ab * exp(-1j * corner(ab, ac, bc))\n"
            "    e = ea * exp(1j * (cad + corner(ad, ea, de)))\n"
            "    points = [0j, b, complex(ac), ad * exp(1j * cad), e]\n"
            "    # Weiszfeld's iteration to the point with the least sum of distances\n"
            "    x = sum(points) / len(points)\n"
            "    for _ in range(10 ** 5):\n"
            "        weights = [1 / abs(x - p) for p in points]\n"
            "        x = sum(w * p for w, p in zip(weights, points)) / sum(weights)\n"
            "    least = sum(abs(x - p) for p in points)\n"
            "    squarefree = [p for p in range(2, 40) if all(p % (n * n) for n in range(2, 1 + p))]\n"
            "    for p in squarefree:\n"
            "        for n in range(1, int(least)):\n"
            "            m = least - n * sqrt(p)\n"
            "            if m > 0 and abs(m - round(m)) < 1e-9:\n"
            "                return round(m) + n + p\n"
        ),
        truth=_shortest,
        draw=_draw_pentagon,
        wording=(
            "A convex pentagon ABCDE has AB = {ab}, BC = {bc}, CD = {cd}, DE = {de} and EA = {ea}; its angles at B "
            "and E have {angle} degrees. The least possible sum of the distances from a point to the five corners is "
            "m + n root p in positive whole numbers, with no square dividing p. Find m + n + p."
        ),
        afresh=(
            "Villages A, B, C, D, E are the corners of a convex pentagon. The sides measure AB = {ab}, BC = {bc}, CD "
            "= {cd}, DE = {de}, EA = {ea}, and at B and at E there is an angle of {angle} degrees. A well is dug so "
            "that its distances from all five have the smallest sum, which is m plus n times the square root of a "
            "square-free p. What is m + n + p?"
        ),
    ),
    Origin(
        problem="aime25-15",
        name="six-points-on-a-line",
        parameters={"ac": 26, "bd": 22, "ce": 31, "df": 33, "af": 73, "cg": 40, "dg": 30},
        program=(
            "from math import sqrt\n\n\n"
            "def solve(ac, bd, ce, df, af, cg, dg):\n"
            "    cd = af - ac - df\n"
            "    be = bd - cd + ce\n"
            "    # Heron for CDG; BGE has the same height\n"
            "    s = (cd + cg + dg) / 2\n"
            "    area = sqrt(s * (s - cd) * (s - cg) * (s - dg)) * be / cd\n"
            "    return round(area) if abs(area - round(area)) < 1e-6 else area\n"
        ),
        truth=_on_a_line,
        draw=_draw_line,
        wording=(
            "A, B, C, D, E, F are points on a line, in this order, and G is a point beside it. AC = {ac}, BD = {bd}, "
            "CE = {ce}, DF = {df}, AF = {af}, CG = {cg} and DG = {dg}. What is the area of triangle BGE?"
        ),
        afresh=(
            "Along a straight road stand posts A to F in alphabetical order. The distances are AC = {ac}, BD = {bd}, "
            "CE = {ce}, DF = {df} and AF = {af}. A tower G away from the road is {cg} from C and {dg} from D. How "
            "large is the triangle with corners B, G and E?"
        ),
    ),
)
