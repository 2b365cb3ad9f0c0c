"""Scores computed again from raw generations, with no model present.

A scorer is a pure function from a run's items to its scores, registered under the run's kind and version, in the
benchmark's own module. A change of what is counted is a new version, and the old one stays for the runs that it scored.
A corrupt ledger is not scored.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from agentkv.errors import NotScorable, ScoreMismatch
from agentkv.evidence.ledger import Ledger, RecordedRun
from agentkv.evidence.records import Item, plain

Scorer = Callable[[Sequence[Item]], dict[str, Any]]

_scorers: dict[tuple[str, int], Scorer] = {}


def scorer(kind: str, version: int) -> Callable[[Scorer], Scorer]:
    """Register a pure function as the scorer of ``kind`` in ``version``; a second one is an error."""

    def register(function: Scorer) -> Scorer:
        if (kind, version) in _scorers and _scorers[kind, version] is not function:
            raise ValueError(f"there is a scorer {kind}/{version} already")
        _scorers[kind, version] = function
        return function

    return register


def known_scorers() -> list[tuple[str, int]]:
    """Kind and version of every scorer that is registered, sorted."""
    return sorted(_scorers)


def compute(kind: str, version: int, items: Sequence[Item]) -> dict[str, Any]:
    """The scores of ``items`` by the scorer of ``kind`` and ``version``. Raises KeyError if there is none."""
    return _scorers[kind, version](items)


def differences(reported: Any, computed: Any) -> list[str]:
    """Where two scores are not equal, as ``path: reported, computed``."""
    return list(_differences(reported, computed, ""))


@dataclass(frozen=True)
class Score:
    """By the scorer ``kind``, number ``version``. ``computed`` from the raw generations; ``reported`` by the run, None
    if it reported nothing.

    ``differences``: where the two are not equal, as ``path: reported, computed``.
    """

    run: str
    kind: str
    version: int
    computed: dict[str, Any]
    reported: dict[str, Any] | None
    differences: list[str]

    def require_equal(self) -> None:
        """Raise ScoreMismatch if the reported scores differ."""
        if self.differences:
            raise ScoreMismatch(self.run, self.differences)


def score(ledger: Ledger, run: RecordedRun) -> Score:
    """Compute the scores of a run again. Raises NotScorable."""
    function = _scorers.get((run.kind, run.body.version))
    if function is None:
        known = ", ".join(f"{kind}/{version}" for kind, version in known_scorers()) or "none"
        raise NotScorable(run.id, f"there is no scorer {run.kind}/{run.body.version}; known: {known}")
    if run.status == "unfinished":
        raise NotScorable(run.id, "it has no end, so raw generations may be missing")
    try:
        computed = plain(function(ledger.items(run)), "the scores")
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        raise NotScorable(run.id, f"its items are not those of {run.kind}/{run.body.version} ({error!r})") from error
    found = [] if run.scores is None else differences(run.scores, computed)
    return Score(run.id, run.kind, run.body.version, computed, run.scores, found)


def _differences(reported: Any, computed: Any, path: str) -> list[str]:
    if isinstance(reported, dict) and isinstance(computed, dict):
        keys = sorted(set(reported) | set(computed))
        inner = [(reported.get(key), computed.get(key), f"{path}.{key}" if path else key) for key in keys]
    elif isinstance(reported, list) and isinstance(computed, list) and len(reported) == len(computed):
        inner = [(a, b, f"{path}[{i}]") for i, (a, b) in enumerate(zip(reported, computed, strict=True))]
    elif reported == computed and type(reported) is type(computed):
        return []
    else:
        return [f"{path}: reported {reported!r:.80}, computed {computed!r:.80}"]
    return [text for a, b, place in inner for text in _differences(a, b, place)]
