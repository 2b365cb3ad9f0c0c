"""Programs for the problems that have no variants here, each with the numbers of its problem as parameters.

By the problem's id; nothing of a problem's text or answer is kept. They are verified where the problems' file is.
"""

from __future__ import annotations

from typing import Any

PROGRAMS: dict[str, tuple[dict[str, Any], str]] = {
    "aime25-17": (
        {"rows": 2, "columns": 2, "red": 2},
        "from itertools import product\n\n\n"
        "def solve(rows, columns, red):\n"
        "    # row by row, by the colours of the segments between two rows (1 is red)\n"
        "    ways = {top: 1 for top in product((0, 1), repeat=columns)}\n"
        "    for _ in range(rows):\n"
        "        after = {}\n"
        "        for top, n in ways.items():\n"
        "            for upright in product((0, 1), repeat=columns + 1):\n"
        "                bottom = tuple(red - top[c] - upright[c] - upright[c + 1] for c in range(columns))\n"
        "                if all(side in (0, 1) for side in bottom):\n"
        "                    after[bottom] = after.get(bottom, 0) + n\n"
        "        ways = after\n"
        "    return sum(ways.values())\n",
    ),
    "aime25-18": (
        {"first": 4, "last": 63, "minus_above": 1, "minus_below": 4},
        "from fractions import Fraction\n\n\n"
        "def solve(first, last, minus_above, minus_below):\n"
        "    # the exponents; the logarithms to the bases k and k + 1 leave log(last + 1) / log(first)\n"
        "    answer = Fraction(1)\n"
        "    for k in range(first, last + 1):\n"
        "        answer *= Fraction(k * k - minus_above, k * k - minus_below)\n"
        "    power = next(n for n in range(1, last + 1) if first ** n >= last + 1)\n"
        "    assert first ** power == last + 1\n"
        "    answer *= power\n"
        "    return answer.numerator + answer.denominator\n",
    ),
    "aime25-19": (
        {"a": 84, "b": 60, "times_de": 1, "times_hj": 2, "times_fg": 3},
        "from cmath import exp, phase\n"
        "from math import degrees, pi, radians, sin\n\n\n"
        "def solve(a, b, times_de, times_hj, times_fg):\n"
        "    # triangle with B at the origin and C at sin A, so that BA is sin C\n"
        "    B, C = 0j, complex(sin(radians(a)))\n"
        "    A = sin(radians(a + b)) * exp(1j * radians(b))\n"
        "    D, E, F = (B + C) / 2, (A + C) / 2, (A + B) / 2\n"
        "    # the circle through the midpoints meets the sides again at the feet of the altitudes\n"
        "    def foot(p, q, r):\n"
        "        along = (r - q) / abs(r - q)\n"
        "        return q + along * ((p - q) * along.conjugate()).real\n"
        "    G, H, J = foot(A, B, C), foot(B, A, C), foot(C, A, B)\n"
        "    x, y = E - D, F - D\n"
        "    centre = D + (abs(x) ** 2 * y - abs(y) ** 2 * x) / (x.conjugate() * y - x * y.conjugate())\n"
        "    def arc(p, q):\n"
        "        return abs(degrees(phase((p - centre) / (q - centre))))\n"
        "    answer = times_de * arc(D, E) + times_hj * arc(H, J) + times_fg * arc(F, G)\n"
        "    return round(answer) if abs(answer - round(answer)) < 1e-6 else answer\n",
    ),
    "aime25-20": (
        {"small": 6, "large": 15},
        "from fractions import Fraction\n"
        "from math import isqrt\n\n\n"
        "def solve(small, large):\n"
        "    # half sides p and q of the rectangle: p*p + q*q == small**2, and the triangles say p == ratio * q\n"
        "    square = Fraction(2 * large - small, small)\n"
        "    ratio = Fraction(isqrt(square.numerator), isqrt(square.denominator))\n"
        "    assert ratio ** 2 == square\n"
        "    area = (2 * small) ** 2 * ratio / (1 + square)\n"
        "    return area.numerator + area.denominator\n",
    ),
    "aime25-21": (
        {"number": 2025},
        "from fractions import Fraction\n"
        "from itertools import product\n\n\n"
        "def solve(number):\n"
        "    # inclusion and exclusion over the primes whose full power no member of the subset has\n"
        "    exponents, left, prime = [], number, 2\n"
        "    while left > 1:\n"
        "        times = 0\n"
        "        while left % prime == 0:\n"
        "            left, times = left // prime, times + 1\n"
        "        exponents += [times] if times else []\n"
        "        prime += 1\n"
        "    good = every = 0\n"
        "    for lacking in product((0, 1), repeat=len(exponents)):\n"
        "        divisors = 1\n"
        "        for times, lacks in zip(exponents, lacking):\n"
        "            divisors *= times + 1 - lacks\n"
        "        good += (-1) ** sum(lacking) * 2 ** divisors\n"
        "        every = max(every, 2 ** divisors)\n"
        "    chance = Fraction(good, every)\n"
        "    return chance.numerator + chance.denominator\n",
    ),
    "aime25-22": (
        {"limit": 1000, "coins": [1, 10, 25]},
        "def solve(limit, coins):\n"
        "    fewest = [0]\n"
        "    for total in range(1, limit + 1):\n"
        "        fewest.append(1 + min(fewest[total - coin] for coin in coins if coin <= total))\n"
        "    def greedy(total):\n"
        "        taken = 0\n"
        "        for coin in sorted(coins, reverse=True):\n"
        "            taken, total = taken + total // coin, total % coin\n"
        "        return taken\n"
        "    return sum(greedy(total) == fewest[total] for total in range(1, limit + 1))\n",
    ),
    "aime25-23": (
        {"outer": 7, "inner": 5},
        "def solve(outer, inner):\n"
        "    # outer * sin(inner * x) is a whole number k, and 0 < x < 2 pi holds inner whole turns\n"
        "    turns_at_zero = 2 * inner - 1\n"
        "    crossing = 2 * (outer - 1) * 2 * inner\n"
        "    touching = 2 * inner\n"
        "    return turns_at_zero + crossing + touching + touching\n",
    ),
    "aime25-24": (
        {"chairs": 16, "people": 8, "modulus": 1000},
        "from itertools import combinations\n\n\n"
        "def solve(chairs, people, modulus):\n"
        "    # nobody sits between two others: no three chairs in a row\n"
        "    count = 0\n"
        "    for chosen in combinations(range(chairs), people):\n"
        "        count += all(b - a > 2 for a, b in zip(chosen, chosen[2:]))\n"
        "    return count % modulus\n",
    ),
    "aime25-25": (
        {"vertices": 24},
        "from math import gcd\n\n\n"
        "def solve(vertices):\n"
        "    # segments of one length form cycles; an even cycle can be paired off in two ways, a diameter in one\n"
        "    total = 1\n"
        "    for step in range(1, vertices // 2):\n"
        "        cycles = gcd(step, vertices)\n"
        "        total += 2 ** cycles if vertices // cycles % 2 == 0 else 0\n"
        "    return total\n",
    ),
    "aime25-26": (
        {"corners": 11, "area": 1, "adjacent": 12, "hypotenuse": 13, "perimeter": 20},
        "from fractions import Fraction\n"
        "from math import gcd, isqrt\n\n\n"
        "def solve(corners, area, adjacent, hypotenuse, perimeter):\n"
        "    # lengths from the first corner alternate between x and y; x*y is known, s = x + y is sought\n"
        "    opposite = isqrt(hypotenuse ** 2 - adjacent ** 2)\n"
        "    product = Fraction(2 * area * hypotenuse, opposite)\n"
        "    sides = corners - 2\n"
        "    # sides * root(s*s - known) == perimeter - s\n"
        "    known = 2 * product * (1 + Fraction(adjacent, hypotenuse))\n"
        "    a, b, c = sides ** 2 - 1, 2 * perimeter, -(sides ** 2 * known + perimeter ** 2)\n"
        "    under = b ** 2 - a * c * 2 ** 2\n"
        "    assert under.denominator == 1\n"
        "    n = int(under)\n"
        "    m = max(k for k in range(1, isqrt(n) + 1) if n % (k * k) == 0)\n"
        "    n //= m * m\n"
        "    p, q = b, 2 * a\n"
        "    shared = gcd(m, gcd(p, q))\n"
        "    return m // shared + n + p // shared + q // shared\n",
    ),
    "aime25-27": (
        {"numerator": 25, "denominator": 11, "index": 2025, "modulus": 1000},
        "def solve(numerator, denominator, index, modulus):\n"
        "    # with x = m/n the next one is (m*m - m*n + n*n)/(3*m*n); let s be m + n in lowest terms\n"
        "    s = numerator + denominator\n"
        "    if s % (1 + 2):\n"
        "        # nothing cancels, and the next s is the square\n"
        "        return pow(s, 2 ** (index - 1), modulus)\n"
        "    # a 3 cancels, once, and the next s is s*s/3: with s = 3*t the next t is t*t\n"
        "    return (1 + 2) * pow(s // (1 + 2), 2 ** (index - 1), modulus) % modulus\n",
    ),
    "aime25-28": (
        {"hypotenuse": 38, "side": 14},
        "from math import cos, pi, sin, sqrt\n\n\n"
        "def solve(hypotenuse, side):\n"
        "    # A at the origin, B and C on the axes; K in direction t and L 60 degrees further\n"
        "    def figure(t):\n"
        "        b, c = 2 * side * cos(t), 2 * side * sin(t + pi / 3)\n"
        "        K, L = (side * cos(t), side * sin(t)), (side * cos(t + pi / 3), side * sin(t + pi / 3))\n"
        "        return b, c, [(b, 0), K, L, (0, c)]\n"
        "    low, high = 0.0, pi / 12\n"
        "    for _ in range(100):\n"
        "        middle = (low + high) / 2\n"
        "        b, c, _points = figure(middle)\n"
        "        low, high = (middle, high) if sqrt(b * b + c * c) < hypotenuse else (low, middle)\n"
        "    points = figure(low)[2]\n"
        "    around = zip(points, points[1:] + points[:1])\n"
        "    area = abs(sum(x1 * y2 - x2 * y1 for (x1, y1), (x2, y2) in around)) / 2\n"
        "    n = area / sqrt(3)\n"
        "    assert abs(n - round(n)) < 1e-6\n"
        "    return round(n)\n",
    ),
    "aime25-29": (
        {"roots": [18, 72, 98]},
        "from math import isqrt\n\n\n"
        "def solve(roots):\n"
        "    # f + c is (x*x - s*x + t)**2 / x for positive x; compare the coefficients, with k = v*v\n"
        "    a, b, c = roots\n"
        "    total, pairs, product = a + b + c, a * b + b * c + c * a, a * b * c\n"
        "    found = []\n"
        "    for k in range(1, 100 * max(roots)):\n"
        "        # (k - total)**2 / 4 + 2 * root(product * k) == pairs\n"
        "        t = isqrt(product * k)\n"
        "        if t * t == product * k and (k - total) ** 2 + 8 * t == 4 * pairs:\n"
        "            found.append(k)\n"
        "    assert len(found) == 3\n"
        "    return sum(found)\n",
    ),
}
