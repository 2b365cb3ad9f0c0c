"""Parametric families of the tasks that agents meet. See ``base.py`` for what a family is."""

from __future__ import annotations

from tests.benchmarks.flywheel.families import money, text, time, units
from tests.benchmarks.flywheel.families.base import Family, Instance

FAMILIES: tuple[Family, ...] = (*money.FAMILIES, *time.FAMILIES, *units.FAMILIES, *text.FAMILIES)

__all__ = ["FAMILIES", "Family", "Instance"]
