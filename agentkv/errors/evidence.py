"""Ledgers and replay plans."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from agentkv.errors.base import AgentKVError


class EvidenceError(AgentKVError):
    """Something about a ledger, a plan or a replay; nothing was changed."""


def _first(things: Sequence[str]) -> str:
    more = f", and {len(things) - 1:,} more" if len(things) > 1 else ""
    return f"{things[0]}{more}"


class LedgerDamaged(EvidenceError):
    """The ledger is not what was written; ``findings`` lists each fault with its place."""

    exit_code = 100

    def __init__(self, path: Path, findings: Sequence[str]) -> None:
        super().__init__(
            f"{path}: {_first(findings)}. Nothing was changed and nothing is appended to it; take another copy of "
            "the ledger, or start a new one in another folder."
        )
        self.path, self.findings = path, list(findings)


class UnknownRun(EvidenceError):
    """No run, or more than one, whose id begins so."""

    exit_code = 101

    def __init__(self, run: str, found: Sequence[str]) -> None:
        what = f"{len(found):,} runs begin with {run!r}: {', '.join(found[:4])}" if found else f"no run {run!r}"
        super().__init__(f"{what}. Run `agentkv evidence list`.")
        self.run, self.found = run, list(found)


class NotScorable(EvidenceError):
    """The run's scores cannot be computed again from what is here."""

    exit_code = 102

    def __init__(self, run: str, reason: str) -> None:
        super().__init__(f"run {run} cannot be scored: {reason}")
        self.run, self.reason = run, reason


class ScoreMismatch(EvidenceError):
    """The reported scores do not follow from the raw generations."""

    exit_code = 103

    def __init__(self, run: str, differences: Sequence[str]) -> None:
        super().__init__(f"run {run}: the scores computed again are not those reported: {_first(differences)}")
        self.run, self.differences = run, list(differences)


class InvalidPlan(EvidenceError):
    """The file or name is not a plan, or its bytes are not those that were sealed."""

    exit_code = 104

    def __init__(self, where: str, reason: str) -> None:
        super().__init__(f"{where} is not a plan that can be used: {reason}")
        self.where, self.reason = where, reason


class PlanRefused(EvidenceError):
    """The plan proves nothing about this tree or run; ``differences`` names the files or values."""

    exit_code = 105

    def __init__(self, plan: str, reason: str, differences: Sequence[str] = ()) -> None:
        what = f": {_first(differences)}" if differences else ""
        super().__init__(f"plan {plan[:12]} is refused: {reason}{what}")
        self.plan, self.reason, self.differences = plan, reason, list(differences)


class ReplayFailed(EvidenceError):
    """The plan's prediction did not hold: these criteria were not met."""

    exit_code = 106

    def __init__(self, plan: str, failures: Sequence[str]) -> None:
        super().__init__(f"plan {plan[:12]} fails: {_first(failures)}")
        self.plan, self.failures = plan, list(failures)


class MachineUnsuitable(EvidenceError):
    """The plan needs hardware, or a build, that is not here."""

    exit_code = 107

    def __init__(self, needs: str, reason: str) -> None:
        super().__init__(f"the plan needs {needs}, which is not here: {reason}. Nothing was run or recorded.")
        self.needs, self.reason = needs, reason


class StepFailed(EvidenceError):
    """A step's command ended without a result; the run can be gone on with."""

    exit_code = 108

    def __init__(self, step: str, code: int) -> None:
        super().__init__(
            f"step {step!r} ended with code {code} and without a result; the attempt is on record. When the reason is "
            "gone, run the same `agentkv replay run` again: it goes on from here."
        )
        self.step, self.code = step, code
