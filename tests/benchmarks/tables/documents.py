"""Documents past the window."""

from __future__ import annotations

from collections.abc import Sequence

from agentkv.bench.base import markdown
from agentkv.bench.results import Result
from tests.benchmarks.tables.base import duration, share


def questions(results: Sequence[Result]) -> str:
    """A row a result and half: what was found, quoted, answered, beside plain search and prompt."""
    rows = []
    for one in results:
        found_by = "words and meaning" if one.data["settings"].get("embedder") else "words"
        for half in ("tuned", "kept out", "all"):
            found = one.data["halves"][half]
            names = ("window_first", "window_in_5", "quote", "answer")
            rows.append([f"{one.model}, by {found_by}", half, *(share(found[name]) for name in names)])
            rows[-1] += ["", share(found["not_stated_rightly"])]
            plainly = ("plain_window_first", "plain_window_in_5")
            rows.append([f"{one.model}, plain search and prompt", half, *(share(found[name]) for name in plainly), ""])
            rows[-1] += [share(found["plain_answer"]), "", share(found["plain_not_stated_rightly"])]
        ms = one.data["ms"]
        for row, time in zip(rows[-2:], (ms["question"], ms["plain_question"]), strict=True):
            row[-2] = f"{duration(time['median'])} (at most {duration(time['max'])})"
    headings = ("", "questions", "right window first", "among five", "quote right", "answer right", "time a question")
    return markdown((*headings, "“not stated” where nothing is"), rows)
