"""Documents past the window."""

from __future__ import annotations

from collections.abc import Sequence

from agentkv.bench.base import markdown
from agentkv.bench.results import Result
from tests.benchmarks.tables.base import duration, gigabytes, milliseconds, share


def widen(results: Sequence[Result]) -> str:
    """A row a result, and the paper's."""
    rows = []
    for one in results:
        data = one.data
        ratio, corpus, paper = data["ratio"], data["corpus"], data["paper"]
        rows.append(
            [
                f"{one.model}, {corpus['documents']:,} documents",
                f"{data['blocks']:,} of {corpus['windows']:,}",
                f"{data['tokens']:,}",
                f"{ratio['trained window']:.1f} × {corpus['train_window']:,}",
                f"{ratio['serving window']:,.0f} × {corpus['context']:,}",
                gigabytes(data["bytes"]),
                f"{data['tokens_a_second']:.0f}",
                f"{data['prefill_share']:.0%}",
            ]
        )
    window = f"{paper['ratio']} × {paper['window']:,}"
    rows.append(["the paper", paper["blocks"], f"{paper['tokens']:,}", "", window, gigabytes(paper["bytes"]), "", ""])
    headings = ("", "blocks", "tokens of the documents", "trained windows", "serving windows", "on disk")
    return markdown((*headings, "tokens a second", "of that in prefill"), rows)


def needles(results: Sequence[Result]) -> str:
    """A row a model."""
    rows = []
    for one in results:
        data = one.data
        ms, prefilled = data["ms"], data["prefilled"]
        shares = ("retrieved", "quote_right", "said", "control_own", "control_other")
        rows.append(
            [
                one.model,
                f"windows {data['depth']['first']:,} to {data['depth']['last']:,} of {data['depth']['of']:,}",
                *(share(data[key]) for key in shares),
                f"{prefilled['median']:.0f} (at most {prefilled['max']:.0f})",
                " + ".join(f"{milliseconds(ms[key]['median'])}" for key in ("find", "restore", "answer")) + " ms",
            ]
        )
    headings = ("model", "depth", "window found first", "quoted sentence right", "answer is the value alone")
    controls = ("free answer after its window", "free answer after another")
    return markdown((*headings, *controls, "tokens prefilled", "find + restore + answer"), rows)


def depth(results: Sequence[Result]) -> str:
    """A row a store, and how flat all is."""
    rows = []
    for one in results:
        kinds = [kind for kind in ("cold", "warm") if f"{kind} restore" in one.data["flat"]]
        stages = [f"{kind} {stage}" for kind in kinds for stage in ("restore", "both")]
        for store in one.data["stores"]:
            first, last = store["depths"]
            times = [f"{milliseconds(store['ms'][stage])} ms" for stage in stages]
            rows.append([one.model, f"{store['windows']:,}", f"{first:,} to {last:,}", *times])
        flat = [f"{one.data['flat'][stage]['max_of_median']:.2f}" for stage in stages]
        rows.append([one.model, "largest / median of all", "", *flat])
    words = [f"{kind}: {stage}" for kind in kinds for stage in ("restore", "to the first token")]
    return markdown(("model", "windows in the store", "depth", *words), rows)


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
