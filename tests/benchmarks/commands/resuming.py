"""Going on with a benchmark's run that was broken off. Knows ledgers and settings, no benchmark."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from agentkv.evidence import Ledger
    from agentkv.evidence.ledger import RecordedRun


def unfinished(
    ledger: Ledger | None, kind: str, settings: dict[str, Any], *, any_code: bool = False
) -> RecordedRun | None:
    """The latest run of that kind and these settings, if it has no end; made by this very code unless ``any_code``.

    A run that is gone on with keeps the record of the code that it began with.
    """
    from agentkv.evidence.environment import source_code
    from agentkv.evidence.files import FILE

    if ledger is None or not (ledger.folder / FILE).exists():
        return None
    code = source_code().tree_sha256
    for run in reversed(ledger.runs()):
        if run.kind == kind and run.body.settings == settings and (any_code or run.body.code.tree_sha256 == code):
            return run if run.status == "unfinished" else None
    return None
