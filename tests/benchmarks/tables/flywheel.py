"""The flywheel: hard problems, transfer to others, small tasks of many families."""

from __future__ import annotations

from collections.abc import Sequence

from agentkv.bench.base import markdown
from agentkv.bench.results import Result
from tests.benchmarks.flywheel.grading import WAYS, marks
from tests.benchmarks.tables.base import duration, share


def aime(results: Sequence[Result]) -> str:
    """A row a model: base, recurrence, and the whole, a system number."""
    rows = []
    for one in results:
        found = one.data["summary"]
        equal = "equal" if found["repeats_equal"] else "NOT equal"
        rows.append(
            [
                one.model,
                share(found["base"]),
                f"{found['base_tokens']:,} tokens, {found['base_seconds'] / 60:.0f} min",
                share(found["base_any_sample"]),
                f"{found['recurrence']['k']} of {found['recurrence']['n']}",
                f"{found['recurrence_tokens']:,} tokens, {duration(1e3 * found['recurrence_seconds'])}",
                f"{found['repeats']}, {equal}",
                share(found["system"]),
            ]
        )
    headings = ("model", "base: commonest answer", "what it took", "any sample right", "recurrence of the library")
    return markdown((*headings, "what it took", "repeats", "system: recurrence, else base"), rows)


def variants(results: Sequence[Result]) -> str:
    """A row a model and way."""
    labels = {"fill": "parameters filled", "rewrite": "program rewritten", "substitute": "substituted, no model"}
    rows = [
        [
            one.model,
            labels[way],
            share(one.data["summary"]["routed"]),
            share(one.data["summary"]["answered"][way]),
            share(one.data["summary"]["answered_given"][way]),
        ]
        for one in results
        for way in WAYS
    ]
    return markdown(("model", "way", "routed rightly", "answered rightly", "… given the right block"), rows)


def families(results: Sequence[Result]) -> str:
    """A row a model."""
    rows = []
    for one in results:
        found = one.data["summary"]
        names = ("routed", "answered", "answered_given", "substituted")
        rows.append([one.model, *(share(found[name]) for name in names), f"{found['tokens']['a_task']:.0f}"])
        direct = found["direct"]
        rows[-1] += [share(direct) if direct["n"] else "not asked", f"{found['direct_tokens']['a_task']:.0f}"]
    headings = ("model", "routed rightly", "answered rightly", "… given the right block", "substituted, no model")
    return markdown((*headings, "tokens a task", "the model directly", "tokens a task"), rows)


def interference(results: Sequence[Result]) -> str:
    """A row a model and kind of tasks."""
    rows = []
    for one in results:
        found = one.data["summary"]
        tokens = found["prompt_tokens"]
        eight = "hard problems" if one.data["settings"].get("problems") else "small tasks"
        rows.append([one.model, eight, share(found["one_block"]), f"{tokens['one']:,.0f}"])
        rows[-1] += [share(found["all_blocks"]), f"{tokens['all']:,.0f}"]
    return markdown(("model", "the eight", "after the routed block", "tokens", "after all eight", "tokens"), rows)


def negatives(results: Sequence[Result]) -> str:
    """A row a case: what was tried, and what became of it."""
    rows = []
    for one in results:
        rows += [[one.model, f"a task it solves: {row['id']}", row["state"], row["reason"]] for row in one.data["easy"]]
        tried = one.data["procedure"]
        rows.append([one.model, "a harmful procedure", "kept" if tried["kept"] else "not kept", tried["reason"]])
        for row in one.data["baked"]:
            state = f"{row['verdict']}, {'can' if row['transferable'] else 'cannot'} transfer"
            rows.append([one.model, f"a solution: {row['id']}", state, ", ".join(marks(row)) or "nothing hard-coded"])
    return markdown(("model", "what was tried", "what became of it", "why"), rows)
