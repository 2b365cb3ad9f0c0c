"""The figures of ``agentkv bench architectures``: verdicts from digests, a record a model and attention setting."""

from __future__ import annotations

from typing import Any

from agentkv.bench.measured import Raw, measured


@measured("architectures")
def figures(raw: Raw) -> dict[str, Any]:
    """``rows``: each with a verdict; ``steps`` is how many were equal at the worst length."""
    return {"rows": [_row(record) for record in raw.values()]}


def _row(record: dict[str, Any]) -> dict[str, Any]:
    head = {"name": record["name"], "flash_attention": record["flash_attention"]}
    if "refused" in record:
        return {**head, "verdict": "refused", "reason": record["refused"]}
    blocks, all_steps = record["blocks"], record["steps"]
    unequal = [block for block in blocks if block["fresh_sha256"] != block["graft_sha256"]]
    broken = [block for block in unequal if block["stored_as_exact"]]
    verdict = "stored but not exact" if broken else "inexact" if unequal else "exact"
    return {
        **head,
        "verdict": verdict,
        "steps": min([all_steps, *(block["first_difference"] - 1 for block in broken or unequal)]),
        "reproved": all(block["reproved"] for block in blocks),
        "sections": record["sections"],
        "unchanged_by": {name: one == two for name, (one, two) in record["pairs"].items()},
    }
