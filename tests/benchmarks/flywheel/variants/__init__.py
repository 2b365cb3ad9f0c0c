"""Origins and their variants, and programs for hard problems. Data and arithmetic."""

from __future__ import annotations

from tests.benchmarks.flywheel.variants.base import BY, Origin, Variant, source
from tests.benchmarks.flywheel.variants.counting import COUNTING
from tests.benchmarks.flywheel.variants.numbers import NUMBERS
from tests.benchmarks.flywheel.variants.plane import PLANE
from tests.benchmarks.flywheel.variants.programs import PROGRAMS

__all__ = ["BY", "ORIGINS", "Origin", "Variant", "written_programs"]

ORIGINS: tuple[Origin, ...] = tuple(
    sorted((*NUMBERS, *COUNTING, *PLANE), key=lambda origin: int(origin.problem.rpartition("-")[2]))
)


def written_programs() -> dict[str, str]:
    """Every program that comes along, by the id of its problem."""
    found = {origin.problem: origin.source for origin in ORIGINS}
    return found | {problem: source(parameters, program) for problem, (parameters, program) in PROGRAMS.items()}
