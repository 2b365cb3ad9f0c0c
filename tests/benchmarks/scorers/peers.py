"""The figures of ``peers``: rows by arm, length and home, what each fault came to, ratios and aims.

``reference/FAMILY/N/VARIANT/TURN`` is an uninterrupted run, ``… /one pass`` one that read block and turn at once;
``speed/ARM/N`` a store and what processes got from it; ``fault/ARM/FAULT/CASE`` one case and its outcome.

What an outcome is: *exact*, the evidence of every step is that of the uninterrupted run (of the model and the settings
that the asking process has); *exact, read again*, likewise, but it evaluated the whole block; *refused*, it raised an
error, and after that the same process reads and answers exactly. These pass. *Something else*, *spoiled* (refused, but
the process answers otherwise or not at all after that) and *crash* do not. Where the state has to be there still, in a
second read and behind 20 turns, *read again* or an error means *lost*, and a state that is no longer the same is
*changed*; neither passes.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from typing import Any

from agentkv.bench.base import Timing
from agentkv.bench.measured import Raw, measured

FLIPPED, CUT, OTHER, SETTINGS = "one flipped byte", "a truncated file", "another model", "changed settings"
SECOND, KILLED, TWENTY = "a second read", "a kill during the save", "20 turns from one block"
FAULTS = (FLIPPED, CUT, OTHER, SETTINGS, SECOND, KILLED, TWENTY)
OURS, RIVAL = "agentkv", "save-state"
AIMS = {"restore, of save_state with pickle": 10.0, "bytes on disk, of save_state with pickle": 5.0}
PASSES = ("exact", "exact, read again", "refused")
BETTER_BY_LESS = ("restore_ms", "total_ms", "save_ms", "bytes", "peak_bytes")
_HOMES = {"RAM": "agentkv-ram", "warm": OURS, "cold": OURS}


@measured("peers")
def figures(raw: Raw) -> dict[str, Any]:
    """``environments``, ``cold_prefill``, ``rows``, ``faults``, ``slower``, ``aims``, ``failed``, ``left_out``."""
    rows, failed = _rows(raw)
    faults = _faults(raw)
    return {
        "environments": {_tail(key): record for key, record in raw.items() if key.startswith("environment/")},
        "cold_prefill": _cold(raw),
        "rows": _against(rows),
        "faults": faults,
        "slower": _slower(rows),
        "aims": _aims(rows, faults),
        "failed": failed,
        "left_out": {_tail(key): reason for key, reason in raw.items() if key.startswith("left out/")},
    }


# --- speed --------------------------------------------------------------------------------------------


def _cold(raw: Raw) -> list[dict[str, Any]]:
    found = []
    for key, record in raw.items():
        parts = key.split("/")
        if parts[0] == "reference" and parts[3:] == ["own", "0"] and "read_ms" in (record["result"] or {}):
            done = record["result"]
            found.append(
                {
                    "family": parts[1],
                    "n": int(parts[2]),
                    "read_ms": done["read_ms"],
                    "first_ms": done["first_ms"],
                    "peak_bytes": done["memory"].get("peak"),
                }
            )
    return found


def _rows(raw: Raw) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    rows, failed = [], []
    for key, record in raw.items():
        if not key.startswith("speed/"):
            continue
        _, arm, n = key.split("/")
        label, evidence = (raw[f"environment/{arm}"][name] for name in ("label", "evidence"))
        known = {"arm": arm, "label": label, "evidence": evidence, "n": int(n)}
        for home in dict.fromkeys(ask["home"] for ask in record["asks"]):
            asks = [ask for ask in record["asks"] if ask["home"] == home]
            reasons = [reason for ask in asks if (reason := _trouble(ask["outcome"]))]
            if not all(_reference(raw, ask, record, int(n)) for ask in asks):
                reasons.append("the uninterrupted run failed, so there is nothing to compare with")
            if stored := _trouble(record["store"]):
                reasons.append(stored)
            if reasons:
                failed.append({**known, "home": home, "reason": reasons[0]})
            else:
                rows.append({**known, "home": home, **_row(raw, record, asks, int(n))})
        if not record["asks"]:
            failed.append({**known, "home": None, "reason": _trouble(record["store"]) or "it was not asked"})
    return rows, failed


def _trouble(outcome: dict[str, Any]) -> str | None:
    """Why an outcome is none, or None."""
    done = outcome["result"]
    if done is None:
        return _crash(outcome)
    if "died" in done:
        return str(done["died"])
    return f"refused: {done['refused']}" if done.get("refused") else None


def _row(raw: Raw, record: dict[str, Any], asks: list[dict[str, Any]], n: int) -> dict[str, Any]:
    done = [ask["outcome"]["result"] for ask in asks]
    steps = [{**answer["ms"], **answer["note"].get("steps", {})} for answer in done]
    # Arms that restore within a request have the steps of it in their first token's time already.
    totals = [sum(answer["ms"].values()) + answer["first_ms"] for answer in done]
    reference = _reference(raw, asks[0], record, n)
    cold = reference[0]
    equal = [
        _equal(answer["evidence"], _reference(raw, ask, record, n)) for answer, ask in zip(done, asks, strict=True)
    ]
    per_token = cold["read_ms"] / n
    stored = record["store"]["result"]
    peaks = [answer["memory"].get("peak") for answer in done]
    return {
        "steps_ms": {name: statistics.median(one.get(name, 0.0) for one in steps) for name in _names(steps)},
        "restore_ms": Timing.of([sum(one.values()) for one in steps]).model_dump(),
        "first_ms": Timing.of(
            [total - sum(one.values()) for total, one in zip(totals, steps, strict=True)]
        ).model_dump(),
        "total_ms": Timing.of(totals).model_dump(),
        "cold_ms": cold["read_ms"] + cold["first_ms"],
        "speed_up": (cold["read_ms"] + cold["first_ms"]) / statistics.median(totals),
        "save_ms": _save_ms(stored["ms"], cold["read_ms"]),
        "keep_ms": statistics.median(answer["note"].get("keep_ms", 0.0) for answer in done),
        "bytes": record["bytes"],
        "bytes_after": [ask.get("bytes") for ask in asks],
        "peak_bytes": max(peak or 0 for peak in peaks) or None,
        "rise_bytes": max((answer["memory"].get("peak", 0) - answer["memory"].get("before", 0)) for answer in done),
        "evaluated": max(answer["evaluated"] for answer in done),
        "evaluated_each": [answer["evaluated"] for answer in done],
        "turn_tokens": cold["evaluated"],
        "steps_equal": min(equal),
        "steps": len(cold["evidence"]),
        "break_even": math.ceil(max(0.0, statistics.median(totals) - cold["first_ms"]) / per_token),
        "pages_left": max((answer.get("left") or 0.0 for answer in done), default=0.0),
    }


def _names(steps: Sequence[dict[str, float]]) -> list[str]:
    return list(dict.fromkeys(name for one in steps for name in one))


def _save_ms(ms: dict[str, float], read_ms: float) -> float:
    """A store without the reading; where an arm gives reading and probe as one, less the family's cold reading."""
    rest = sum(value for name, value in ms.items() if not name.startswith("read"))
    together = sum(value for name, value in ms.items() if name.startswith("read and"))
    return rest + max(0.0, together - read_ms if together else 0.0)


def _reference(raw: Raw, ask: dict[str, Any], record: dict[str, Any], n: int) -> list[dict[str, Any]]:
    """The uninterrupted run that an ask is held against, and the one pass if there is one."""
    return _references(raw, record["family"], n, "own", ask["turn"])


def _references(raw: Raw, family: str, n: int, variant: str, turn: int) -> list[dict[str, Any]]:
    key = f"reference/{family}/{n}/{variant}/{turn}"
    records = [raw[name] for name in (key, f"{key}/one pass") if name in raw]
    return [record["result"] for record in records if record["result"] and "evidence" in record["result"]]


def _equal(evidence: Sequence[str], references: Sequence[dict[str, Any]]) -> int:
    """Steps with the same evidence, of the reference that it agrees with most."""
    return max((sum(a == b for a, b in zip(evidence, one["evidence"], strict=False)) for one in references), default=0)


def _value(row: dict[str, Any], measure: str) -> float | None:
    value: Any = row[measure]
    found: float | None = value["median"] if isinstance(value, dict) else value
    return found


# --- comparisons --------------------------------------------------------------------------------------


def _own(rows: Sequence[dict[str, Any]], row: dict[str, Any]) -> dict[str, Any] | None:
    """Agentkv's row of the same length and home."""
    same = (one for one in rows if one["n"] == row["n"] and one["home"] == row["home"])
    return next((one for one in same if one["arm"] == _HOMES[row["home"]]), None)


def _against(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    out = []
    for row in rows:
        ours = _own(rows, row)
        ratios = {}
        for measure in BETTER_BY_LESS:
            theirs, mine = _value(row, measure), ours and _value(ours, measure)
            ratios[measure] = theirs / mine if theirs and mine else None
        out.append({**row, "of_agentkv": ratios})
    return out


def _slower(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Every measure in which an arm is better than agentkv in the same home at the same length."""
    found = []
    for row in rows:
        ours = _own(rows, row)
        if ours is None or row["arm"].startswith("agentkv"):
            continue
        for measure in BETTER_BY_LESS:
            theirs, mine = _value(row, measure), _value(ours, measure)
            if theirs is not None and mine is not None and theirs < mine:
                known = {key: row[key] for key in ("arm", "label", "n", "home")}
                found.append({**known, "measure": measure, "theirs": theirs, "agentkv": mine})
    return found


def _aims(rows: Sequence[dict[str, Any]], faults: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for row in rows:
        ours = _own(rows, row)
        if row["arm"] != RIVAL or ours is None:
            continue
        values = [row["restore_ms"]["median"] / ours["restore_ms"]["median"], row["bytes"] / ours["bytes"]]
        for (aim, least), value in zip(AIMS.items(), values, strict=True):
            if row["home"] == "warm" or not aim.startswith("bytes"):
                known = {"aim": aim, "n": row["n"], "home": row["home"], "least": least, "value": value}
                found.append({**known, "met": value >= least})
    own = [row for row in faults if row["arm"].startswith("agentkv")]
    if own:
        passed = sum(row["passed"] for row in own)
        known = {"aim": "fault arms that agentkv passes", "n": own[0]["n"], "home": None, "least": len(own)}
        found.append({**known, "value": passed, "met": passed == len(own)})
    return found


# --- faults -------------------------------------------------------------------------------------------


def _faults(raw: Raw) -> list[dict[str, Any]]:
    """One row an arm and fault; it passes if each of its cases does."""
    rows: dict[tuple[str, str], dict[str, Any]] = {}
    for key, record in raw.items():
        if not key.startswith("fault/"):
            continue
        arm, fault = key.split("/")[1:3]
        references = _references(raw, record["family"], record["n"], record["variant"], 0)
        kind, detail = verdict(record, references, record["n"])
        known = {"arm": arm, "label": raw[f"environment/{arm}"]["label"], "n": record["n"], "fault": fault}
        row = rows.setdefault((arm, fault), {**known, "cases": []})
        case = {"case": record["case"], "outcome": kind, "detail": detail, "passed": kind in PASSES}
        row["cases"].append({**case, **record["told"]})
    for row in rows.values():
        row["passed"] = all(case["passed"] for case in row["cases"])
        row["outcome"] = "; ".join(dict.fromkeys(case["outcome"] for case in row["cases"]))
    return list(rows.values())


def verdict(case: dict[str, Any], references: Sequence[dict[str, Any]], n: int) -> tuple[str, str]:
    """The kind of outcome of one case, and its detail. ``references``: runs with which its evidence may agree."""
    outcome, must_restore = case["outcome"], case["must_restore"]
    done = outcome["result"]
    if not references:
        return "nothing to compare with", "the uninterrupted run failed"
    if done is None:
        return "crash", _crash(outcome)
    if "died" in done:
        return "crash", str(done["died"])
    exact = any(done["evidence"] == one["evidence"] for one in references)
    if done["refused"]:
        if not exact:
            after = done.get("after") or f"then {_first_difference(done['evidence'], references)}"
            return "spoiled", f"{done['refused']}; {after}"
        return ("lost" if must_restore else "refused"), str(done["refused"])
    if not exact:
        return "something else", _first_difference(done["evidence"], references)
    if done["evaluated"] >= n:
        return ("lost" if must_restore else "exact, read again"), f"{done['evaluated']} tokens were evaluated"
    if case["same"] is False:
        return "changed", "every answer exact, but the stored block is not the same as before, or gone"
    return "exact", f"{done['evaluated']} tokens were evaluated"


def _first_difference(evidence: Sequence[str], references: Sequence[dict[str, Any]]) -> str:
    best = max(_agreement(evidence, one["evidence"]) for one in references)
    return f"other than the uninterrupted run from step {best + 1} on, with no error"


def _agreement(first: Sequence[str], second: Sequence[str]) -> int:
    """Steps until the first difference."""
    pairs = zip(first, second, strict=False)
    return next((at for at, (a, b) in enumerate(pairs) if a != b), min(len(first), len(second)))


def _crash(outcome: dict[str, Any]) -> str:
    code = outcome["code"]
    how = f"signal {-code}" if code < 0 else f"code {code}"
    said = outcome["stderr"].strip().splitlines()
    return f"the process ended with {how}" + (f": {said[-1][:200]}" if said else "")


def _tail(key: str) -> str:
    return key.split("/", 1)[1]
