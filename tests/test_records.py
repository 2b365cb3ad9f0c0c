"""What of a record goes to disk: a field that came after the format's first version only where it says something."""

from __future__ import annotations

from agentkv.records import Record, StoreSettings


class Inner(Record):
    added = frozenset({"late"})

    early: int
    late: int | None = None


class Outer(Record):
    one: Inner
    several: tuple[Inner, ...] = ()
    named: dict[str, Inner]
    none: Inner | None = None


def test_added_fields_at_their_default_are_left_out_at_any_depth() -> None:
    bare, full = Inner(early=1), Inner(early=1, late=2)
    outer = Outer(one=bare, several=(full, bare), named={"a": bare, "b": full})
    assert outer.on_disk() == {
        "one": {"early": 1},
        "several": [{"early": 1, "late": 2}, {"early": 1}],
        "named": {"a": {"early": 1}, "b": {"early": 1, "late": 2}},
        "none": None,
    }
    assert outer.model_dump(mode="json")["one"] == {"early": 1, "late": None}


def test_a_field_that_is_set_is_written() -> None:
    assert StoreSettings(budget_bytes=None).on_disk() == {"format": 1, "budget_bytes": None}
    assert Inner(early=1, late=0).on_disk() == {"early": 1, "late": 0}
