"""Whether adding one file takes time in proportion to its length.

    python -m tests.benchmarks.adding [--sizes 1,2,4,8,16,32,64] [--kinds text,markdown,html]

For each kind one generated file of so many MB is added to a new corpus of the fake engine, indexed and not read
(``lazy``), in a process of its own. Printed are the seconds of CPU time, those for a MB, and their ratio to those for
a MB at the smallest size: 1 where adding is linear, 64 for 64 times the length where it is quadratic. Exit code 1 if a
ratio is above ``--most``.
"""

from __future__ import annotations

import argparse
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

ENDINGS = {"text": ".txt", "markdown": ".md", "html": ".html", "csv": ".csv", "code": ".py", "gbk": ".txt"}
MB = 1 << 20
CHINESE = (
    "合同自双方签字盖章之日起生效，有效期三年。",
    "任何一方违约，应当承担违约责任，并赔偿对方因此遭受的损失。",
    "逾期违约金为合同总额的百分之十。",
    "本合同一式两份，双方各执一份，具有同等法律效力。",
    "因不可抗力不能履行合同的，应当及时通知对方。",
)


def say(line: str) -> None:
    """A line on stdout, at once."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def words(chance: random.Random, count: int) -> str:
    """So many made-up words."""
    return " ".join("".join(chance.choices("abcdefghijklmnoprstuvw", k=chance.randint(2, 9))) for _ in range(count))


def section(kind: str, number: int, chance: random.Random) -> str:
    """One section of a file of that kind, of 1 to 2 KB."""
    title, parts = words(chance, 3), [words(chance, 40) + "." for _ in range(4)]
    match kind:
        case "markdown":
            rows = "\n".join(f"| {words(chance, 1)} | {row} |" for row in range(6))
            return f"## {title} {number}\n\n" + "\n\n".join(parts) + f"\n\n| name | number |\n|---|---|\n{rows}\n\n"
        case "html":
            rows = "".join(f"<tr><td>{words(chance, 1)}</td><td>{row}</td></tr>\n" for row in range(6))
            table = f"<table><tr><th>name</th><th>number</th></tr>\n{rows}</table>\n"
            return f"<h2>{title} {number}</h2>\n" + "".join(f"<p>{part}&nbsp;</p>\n" for part in parts) + table
        case "csv":
            return "".join(f"{words(chance, 2)},{number},{row}\n" for row in range(20))
        case "code":
            return f"def f{number}(a):\n" + "".join(f"    # {part}\n" for part in parts) + "    return a\n\n\n"
        case "gbk":
            return "".join(chance.choices(CHINESE, k=12)) + "\n\n"
        case _:
            return f"{title} {number}\n======\n\n" + "\n\n".join(parts) + "\n\n"


def content(kind: str, n_bytes: int) -> Iterator[bytes]:
    """A file of that kind, at least so long. What is generated is repeated, with its number, from 1 MB on."""
    chance, written = random.Random(1), 0
    encoding = "gbk" if kind == "gbk" else "utf-8"
    yield {"csv": b"name,section,row\n", "html": b"<html><body>\n"}.get(kind, b"")
    sections = [section(kind, number, chance).encode(encoding, "ignore") for number in range(700)]
    number = 0
    while written < n_bytes:
        piece = sections[number % len(sections)]
        yield piece
        written += len(piece)
        number += 1


def seconds(kind: str, megabytes: float) -> float:
    """What it takes to add one file of that kind and size."""
    from agentkv import AgentMemory, FakeEngine
    from agentkv.documents import Corpus

    with tempfile.TemporaryDirectory(prefix="agentkv-") as folder:
        file = Path(folder) / f"file{ENDINGS[kind]}"
        with file.open("wb") as opened:
            opened.writelines(content(kind, int(megabytes * MB) - 8192))
        with AgentMemory(Path(folder) / "store", FakeEngine(window=8192)) as memory:
            corpus = Corpus(memory, keep="lazy")
            start = time.process_time()
            report = corpus.add([file])
            spent = time.process_time() - start
            assert not report.plan.failed, report.plan.failed
            assert report.plan.n_chunks > 100 * megabytes
    return spent


def ratios(times: dict[float, float]) -> dict[float, float]:
    """Seconds for a MB at each size, over those at the smallest."""
    smallest = min(times)
    return {size: (spent / size) / (times[smallest] / smallest) for size, spent in times.items()}


def measured(kind: str, sizes: list[float], one: Callable[[str, float], float]) -> dict[float, float]:
    """Seconds by size; each printed as it comes."""
    times: dict[float, float] = {}
    for size in sizes:
        times[size] = one(kind, size)
        ratio = ratios(times)[size]
        rate = times[size] / size
        say(f"{kind:9} {size:5g} MB {times[size]:8.2f} s {rate:7.3f} s/MB  ratio {ratio:.2f}")
    return times


def _in_its_own_process(kind: str, size: float) -> float:
    command = [sys.executable, "-m", "tests.benchmarks.adding", "--one", kind, "--sizes", str(size)]
    warnings_apart = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    return float(warnings_apart.stdout)


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", default="1,2,4,8,16,32,64", help="MB")
    parser.add_argument("--kinds", default="text,markdown,html", help=", ".join(ENDINGS))
    parser.add_argument("--most", type=float, default=1.5, help="largest ratio that counts as linear")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    options = parser.parse_args()
    sizes = [float(size) for size in options.sizes.split(",")]
    if options.one:
        say(str(seconds(options.one, sizes[0])))
        return 0
    worst = max(max(ratios(measured(kind, sizes, _in_its_own_process)).values()) for kind in options.kinds.split(","))
    say(f"largest ratio {worst:.2f}: {'linear' if worst <= options.most else 'NOT linear'}")
    return int(worst > options.most)


if __name__ == "__main__":
    sys.exit(main())
