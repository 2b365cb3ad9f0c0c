"""Families about texts, lists and small graphs."""

from __future__ import annotations

import heapq
import itertools
import re
from random import Random

from tests.benchmarks.flywheel.families.base import Family, listed

_WORDS = (
    *("balloon", "banana", "committee", "parallel", "address", "mississippi", "bookkeeper", "successful", "necessary"),
    *("referrer", "cinnamon", "assassin", "tomorrow", "calendar", "engineer", "possession", "raspberry", "terrific"),
    *("occurrence", "messenger"),
)
_TITLES = (
    ("Quarterly", "Annual", "Monthly", "Final", "Internal", "Regional"),
    ("Sales", "Travel", "Safety", "Budget", "Energy", "Project"),
    ("Report", "Plan", "Review", "Summary", "Audit", "Forecast"),
)


def _letters(word: str, letter: str) -> int:
    return len(re.findall(re.escape(letter), word))


def _draw_letters(draw: Random) -> dict[str, object]:
    word = draw.choice(_WORDS)
    return {"letter": draw.choice(sorted(set(word) - {"a", "i"})), "word": word}


def _slug(title: str) -> str:
    return re.sub(r"\s+", "-", title).casefold()


def _next(number: str) -> str:
    head, _, tail = number.rpartition("-")
    return f"{head}-{str(10 ** len(tail) + int(tail) + 1)[1:]}"


def _masked(number: str, keep: int) -> str:
    return re.sub(r".", "*", number[: len(number) - keep]) + number[len(number) - keep :]


def _over(amounts: list[int], limit: int) -> int:
    total = 0
    for amount in sorted(amounts, reverse=True):
        if amount <= limit:
            break
        total += amount
    return total


def _roads(draw: Random) -> dict[str, object]:
    towns = draw.sample("BCDEFGHJKLMNPQRSTUVWXYZ", 5)
    pairs = [(towns[i], towns[i + 1]) for i in range(4)] + [(towns[0], towns[2]), (towns[1], towns[3])]
    draw.shuffle(pairs)
    roads = [f"{a}-{b}:{draw.randint(2, 40)}" for a, b in pairs]
    return {"roads": roads, "start": towns[0], "goal": towns[4]}


def _shortest(roads: list[str], start: str, goal: str) -> int:
    """Dijkstra; the program relaxes every road as often as there are roads."""
    near: dict[str, list[tuple[str, int]]] = {}
    for road in roads:
        ends, length = road.split(":")
        a, b = ends.split("-")
        near.setdefault(a, []).append((b, int(length)))
        near.setdefault(b, []).append((a, int(length)))
    queue, done = [(0, start)], set[str]()
    while queue:
        far, town = heapq.heappop(queue)
        if town == goal:
            return far
        if town not in done:
            done.add(town)
            for other, away in near[town]:
                heapq.heappush(queue, (far + away, other))
    raise ValueError("no way")


def _links(draw: Random) -> dict[str, object]:
    hosts = [f"n{number}" for number in draw.sample(range(10, 99), 8)]
    cut = draw.randint(2, 5)
    links = [f"{a}-{b}" for a, b in itertools.pairwise(hosts[:cut])] + [
        f"{a}-{b}" for a, b in itertools.pairwise(hosts[cut:])
    ]
    draw.shuffle(links)
    return {"links": links, "host": draw.choice(hosts)}


def _reach(links: list[str], host: str) -> int:
    """Groups that grow together; the program walks from the host."""
    group = {name: {name} for link in links for name in link.split("-")}
    for a, b in (link.split("-") for link in links):
        if group[a] is not group[b]:
            joined = group[a] | group[b]
            for name in joined:
                group[name] = joined
    return len(group[host]) - 1


FAMILIES = (
    Family(
        name="letters-in-word",
        program=(
            "def solve(letter, word):\n    # the letter to be counted, the word it is counted in\n    return "
            "word.count(letter)\n"
        ),
        draw=_draw_letters,
        truth=_letters,
        wordings=(
            'How often does the letter "{letter}" occur in the word "{word}"?',
            'Count the letter "{letter}" in "{word}".',
            'In the word "{word}", how many times is the letter "{letter}" written?',
            'Spelling check: number of letters "{letter}" in "{word}"?',
        ),
    ),
    Family(
        name="title-to-slug",
        program=(
            "def solve(title):\n"
            "    # a title; gives it as part of an address\n"
            "    return '-'.join(title.lower().split())\n"
        ),
        draw=lambda d: {"title": " ".join(d.choice(words) for words in _TITLES)},
        truth=_slug,
        wordings=(
            'Which slug belongs to the page title "{title}"? A slug is small letters with hyphens for spaces.',
            'Turn the heading "{title}" into a slug for the address of the page.',
            'We publish "{title}" on the site. What is its slug (lower case, hyphens instead of spaces)?',
            'Make a lower-case, hyphenated slug from the title "{title}".',
        ),
    ),
    Family(
        name="next-invoice-number",
        program=(
            "def solve(number):\n"
            "    # an invoice number, letters-year-serial\n"
            "    letters, year, serial = number.split('-')\n"
            "    return f'{letters}-{year}-{int(serial) + 1:0{len(serial)}d}'\n"
        ),
        draw=lambda d: {
            "number": f"{d.choice(('INV', 'RE', 'ORD', 'BILL'))}-{d.randint(2020, 2027)}-{d.randint(3, 9997):04d}"
        },
        truth=_next,
        wordings=(
            "The last invoice has the number {number}. Which number does the next one get?",
            "After invoice {number}, what is the following invoice number?",
            "We just issued {number}. Give me the number for the invoice that comes next.",
            "Invoices are numbered in sequence and the latest is {number}. What will the coming one be called?",
        ),
    ),
    Family(
        name="masked-account",
        program=(
            "def solve(number, keep):\n"
            "    # an account number as text, how many of its last characters stay\n"
            "    return '*' * (len(number) - keep) + number[-keep:]\n"
        ),
        draw=lambda d: {
            "number": f"{d.choice(('DE', 'FR', 'IT', 'NL', 'ES'))}{d.randint(10**9, 10**10 - 1)}",
            "keep": d.randint(2, 5),
        },
        truth=_masked,
        wordings=(
            "Mask the account number {number} with stars, so that only the last {keep} characters can be read.",
            "Show only the last {keep} characters of account {number} and put stars for the rest.",
            "For the receipt, replace all but the final {keep} characters of {number} by stars. What is printed?",
            "Account {number} must be anonymised: stars everywhere except for the last {keep} characters.",
        ),
    ),
    Family(
        name="sum-over-limit",
        program=(
            "def solve(amounts, limit):\n"
            "    # a list of amounts; those above the limit are added up\n"
            "    return sum(amount for amount in amounts if amount > limit)\n"
        ),
        draw=lambda d: {"amounts": d.sample(range(12, 990), 6), "limit": d.randrange(200, 600, 50)},
        truth=_over,
        wordings=(
            "The expenses are {amounts}. What is the sum of all expenses above {limit}?",
            "Only expenses over {limit} need approval. Of {amounts}, what do those add up to?",
            "Here are this week's claims: {amounts}. Add up the claims that are higher than {limit}.",
            "Ignoring everything that does not exceed {limit}, what is the total of the payments {amounts}?",
        ),
        show={"amounts": listed},
    ),
    Family(
        name="shortest-route",
        program=(
            "def solve(roads, start, goal):\n"
            "    # roads as from-to:length, in both directions; first and last town\n"
            "    far = {start: 0}\n"
            "    for _ in roads:\n"
            "        for road in roads:\n"
            "            ends, length = road.split(':')\n"
            "            a, b = ends.split('-')\n"
            "            for x, y in ((a, b), (b, a)):\n"
            "                if x in far and far[x] + int(length) < far.get(y, 10 ** 9):\n"
            "                    far[y] = far[x] + int(length)\n"
            "    return far.get(goal, -1)\n"
        ),
        draw=_roads,
        truth=_shortest,
        wordings=(
            "These roads join towns, with their lengths in km: {roads}. How many km is the shortest way from {start} "
            "to {goal}?",
            "What is the length of the shortest route from {start} to {goal}, given the roads {roads}?",
            "A courier leaves town {start} for town {goal}. The road map with distances: {roads}. Shortest distance?",
            "Road lengths are {roads}. Which total distance has the best connection that begins in {start} and ends "
            "in {goal}?",
        ),
        show={"roads": listed},
    ),
    Family(
        name="reachable-hosts",
        program=(
            "def solve(links, host):\n"
            "    # links as host-host, in both directions; the host that is counted from\n"
            "    seen, todo = {host}, [host]\n"
            "    while todo:\n"
            "        here = todo.pop()\n"
            "        for link in links:\n"
            "            a, b = link.split('-')\n"
            "            for x, y in ((a, b), (b, a)):\n"
            "                if x == here and y not in seen:\n"
            "                    seen.add(y)\n"
            "                    todo.append(y)\n"
            "    return len(seen) - 1\n"
        ),
        draw=_links,
        truth=_reach,
        wordings=(
            "Hosts are linked like this: {links}. How many other hosts can be reached from {host}?",
            "How many hosts are reachable from {host} over the links {links}?",
            "Network cables: {links}. If {host} sends a broadcast, how many other machines get it?",
            "Machine {host} is infected. With the connections {links}, how many others can the worm get to?",
        ),
        show={"links": listed},
    ),
)
