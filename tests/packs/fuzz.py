"""``python -m tests.packs.fuzz --inputs 200000 --seed 1 [--coverage]``: unsound packs in great number.

Fails if anything but a typed error or a valid pack comes of an input, if one input takes longer than the cap, or if
the process grows. With ``--coverage`` the atheris library, if it is there, chooses the inputs by what code they
reach; without it they follow from the seed alone.
"""

from __future__ import annotations

import argparse
import resource
import signal
import sys
import time
from collections import Counter
from random import Random
from types import FrameType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.packs.mutations import Fuzzer

SECONDS_PER_INPUT = 5.0
RSS_GROWTH_MB = 64
_WARM = 300


class TooSlow(Exception):
    """One input took longer than the cap."""


class Watched:
    """Runs inputs, one alarm each, and knows the slowest and the process's peak size."""

    def __init__(self, fuzzer: Fuzzer) -> None:
        self.fuzzer, self.done, self.slowest = fuzzer, 0, 0.0
        self._start, self._rss = time.perf_counter(), 0.0
        signal.signal(signal.SIGALRM, self._alarm)

    @staticmethod
    def _alarm(_number: int, _frame: FrameType | None) -> None:
        raise TooSlow

    def one(self, random: Random | None = None) -> None:
        signal.setitimer(signal.ITIMER_REAL, SECONDS_PER_INPUT)
        before = time.process_time()
        try:
            self.fuzzer.one(random)
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
        self.slowest = max(self.slowest, time.process_time() - before)
        self.done += 1
        if self.done == _WARM:
            self._rss = peak_mb()

    @property
    def growth_mb(self) -> float:
        """How much the peak size grew since the first inputs."""
        return peak_mb() - self._rss if self._rss else 0.0

    def report(self, *, details: bool) -> None:
        """Counts by outcome, and what it took."""
        seconds = time.perf_counter() - self._start
        by_result, by_target = Counter[str](), Counter[tuple[str, str]]()
        for (target, _, result), count in self.fuzzer.outcomes.items():
            by_result[result] += count
            by_target[target, result] += count
        rows = [f"{count:>9,}  {result}" for result, count in by_result.most_common()]
        if details:
            rows += [f"{count:>9,}  {target}: {result}" for (target, result), count in sorted(by_target.items())]
        head = (
            f"{self.done:,} inputs in {seconds:,.0f} s ({self.done / seconds:,.0f}/s), slowest {self.slowest:.3f} s CPU"
        )
        sys.stdout.write("\n".join([f"{head}, peak memory +{self.growth_mb:.1f} MB", *rows, ""]))
        sys.stdout.flush()


class Steered(Random):
    """Draws from given bytes, so that a small change of them is a small change of the input; then from a seed."""

    def __new__(cls, data: bytes) -> Steered:
        return super().__new__(cls)

    def __init__(self, data: bytes) -> None:
        super().__init__(0)
        self._data, self._at = data, 0

    def getrandbits(self, k: int, /) -> int:
        n = (k + 7) // 8
        if self._at + n > len(self._data):
            return super().getrandbits(k)
        self._at += n
        return int.from_bytes(self._data[self._at - n : self._at], "little") >> (8 * n - k)

    def random(self) -> float:
        return self.getrandbits(16) / 2**16


def peak_mb() -> float:
    """The process's largest resident size so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def run(inputs: int, seed: int) -> Watched:
    """``inputs`` of them from ``seed``. Raises what an input brings out that it should not."""
    from tests.packs.mutations import Fuzzer

    watched = Watched(Fuzzer(seed))
    try:
        for number in range(inputs):
            try:
                watched.one(Random(f"{seed}/{number}"))
            except BaseException:
                sys.stderr.write(f"input {number} of seed {seed}\n")
                raise
    finally:
        watched.fuzzer.close()
    assert watched.growth_mb < RSS_GROWTH_MB, watched.growth_mb
    return watched


def run_with_coverage(inputs: int, seed: int) -> None:
    """The same targets, steered by atheris: the bytes that it mutates are the choices of one input."""
    import atheris  # type: ignore[import-untyped, unused-ignore]

    with atheris.instrument_imports(include=["agentkv.packs", "agentkv.store"]):
        from tests.packs.mutations import Fuzzer

    watched = Watched(Fuzzer(seed))

    def one(data: bytes) -> None:
        watched.one(Steered(data))
        if watched.done == inputs:  # atheris ends the process itself
            assert watched.growth_mb < 4 * RSS_GROWTH_MB, watched.growth_mb  # its corpus grows too
            watched.report(details=True)
            watched.fuzzer.close()

    atheris.Setup([sys.argv[0], f"-runs={inputs}", f"-seed={seed}", "-max_len=256", "-verbosity=0"], one)
    atheris.Fuzz()


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--inputs", type=int, default=200_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--coverage", action="store_true")
    given: Any = parser.parse_args()
    if given.coverage:
        run_with_coverage(given.inputs, given.seed)
    else:
        run(given.inputs, given.seed).report(details=True)


if __name__ == "__main__":
    main()
