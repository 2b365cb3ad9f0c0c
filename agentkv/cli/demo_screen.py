"""What ``agentkv demo`` shows: an answer's two turns side by side, the tables, the sums and the proof."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from agentkv.cli.options import DEFAULT_MODEL
from agentkv.cli.output import console, duration, one_line, say, size, table

if TYPE_CHECKING:
    from agentkv.cli.inventory import Usage
    from agentkv.records import Turn

_HASH_DIGITS = 16
_PICKS_WIDTH = 53
"""Columns of the first table without the question."""


@dataclass(frozen=True)
class Answer:
    """One question answered both ways."""

    question: str
    skill: str | None
    accepted: list[str]
    grafted: Turn
    reread: Turn
    grafted_right: bool
    reread_right: bool

    @classmethod
    def of(cls, line: dict[str, Any]) -> Answer:
        """From the second process's line; graded here."""
        from agentkv.records import Turn
        from agentkv.skills.questions import contains_answer

        grafted = Turn.model_validate(line["grafted"], strict=False)
        reread = Turn.model_validate(line["reread"], strict=False)
        accepted = line["accepted"]
        rights = contains_answer(grafted.text, accepted), contains_answer(reread.text, accepted)
        return cls(line["question"], line["skill"], accepted, grafted, reread, *rights)

    @property
    def routed_right(self) -> bool:
        """Whether the labelled skill was picked."""
        return self.grafted.decision.pick == self.skill

    @property
    def identical(self) -> bool:
        """Whether all of the manual was restored, and every logit and the text are the same both ways."""
        same = self.grafted.logits_sha256 == self.reread.logits_sha256 and self.grafted.text == self.reread.text
        return same and self.grafted.not_restored is None

    @property
    def speed_up(self) -> float:
        """Time to the first token, re-read over grafted; routing, the same for both, aside."""
        return first_token(self.reread) / max(first_token(self.grafted), 1e-6)

    def record(self) -> dict[str, Any]:
        """The whole of it, for JSON."""
        return {
            "question": self.question,
            "skill": self.skill,
            "accepted": self.accepted,
            "raw_pick": self.grafted.decision.raw_pick,
            "pick": self.grafted.decision.pick,
            "fallback": self.grafted.decision.fallback,
            "routed_right": self.routed_right,
            "answered_right": self.grafted_right,
            "reread_right": self.reread_right,
            "identical": self.identical,
            "first_token_ms": {"grafted": first_token(self.grafted), "reread": first_token(self.reread)},
            "answer_ms": {"grafted": whole(self.grafted), "reread": whole(self.reread)},
            "grafted": self.grafted.model_dump(mode="json"),
            "reread": self.reread.model_dump(mode="json"),
        }


def first_token(turn: Turn) -> float:
    """Milliseconds from the pick to the logits of the first new token."""
    return turn.ms.restore + turn.ms.prefill


def whole(turn: Turn) -> float:
    """Milliseconds from the pick to the end of the answer."""
    return first_token(turn) + turn.ms.generate


def times(ratio: float) -> str:
    """A ratio for people: one digit behind the point below ten."""
    return f"{ratio:,.1f}" if ratio < 10 else f"{ratio:,.0f}"


def totals(answers: Sequence[Answer], usage: Usage) -> dict[str, Any]:
    """The sums below the tables. ``raw_bytes``: as whole states, ``stored_bytes``: on disk."""

    def median(value: Callable[[Answer], float]) -> float:
        return statistics.median(value(answer) for answer in answers)

    return {
        "questions": len(answers),
        "routed_right": sum(answer.routed_right for answer in answers),
        "answered_right": sum(answer.grafted_right for answer in answers),
        "reread_right": sum(answer.reread_right for answer in answers),
        "identical": sum(answer.identical for answer in answers),
        "median_route_ms": median(lambda answer: answer.grafted.ms.route),
        "median_first_token_ms": {
            "grafted": median(lambda answer: first_token(answer.grafted)),
            "reread": median(lambda answer: first_token(answer.reread)),
        },
        "median_speed_up": median(lambda answer: answer.speed_up),
        "raw_bytes": usage.states,
        "stored_bytes": usage.stored,
    }


# --- the screen -----------------------------------------------------------------------------------


def opening(model: str) -> str:
    """What is about to happen."""
    return (
        f"agentkv demo, with {model}. An agent's manuals are read once and their KV states stored. Later "
        "questions are answered from those states, without reading the manuals again: the same bits, sooner."
    )


def fresh_process(n_questions: int) -> str:
    """What the second process does."""
    return (
        f"\n2. {n_questions} questions, in a fresh process. For each, the router picks a manual and the "
        "model answers twice: `graft` restores the manual's stored state, `re-read` reads its text."
    )


def show(answers: Sequence[Answer], sums: dict[str, Any], model: str) -> None:
    """Tables, then sums: what is at the bottom of the screen is what is read first."""
    say("\nWhat was picked and answered")
    _show_picks(answers)
    say("\nTokens, and time from the pick on")
    _show_times(answers)
    say("\n3. The proof: SHA-256 over every logit of every step of an answer")
    _show_proof(answers)
    say()
    _show_totals(sums, model)


def _show_picks(answers: Sequence[Answer]) -> None:
    room = max(24, console().width - _PICKS_WIDTH)
    rows, notes = [], []
    for number, answer in enumerate(answers, 1):
        decision = answer.grafted.decision
        pick = decision.pick or "no block"
        shown = "same" if pick == decision.raw_pick else pick
        verdicts = _verdict(answer.routed_right), _verdict(answer.grafted_right)
        rows.append((f"{number}", one_line(answer.question, room), decision.raw_pick, shown, *verdicts))
        if decision.fallback:
            notes.append(f"    {number}: fallback, {decision.fallback}")
    table(("#", "question", "raw pick", "pick", "routed", "answer"), rows, right=("#",), wraps=("question",))
    if not any(answer.grafted.decision.fallback for answer in answers):
        notes.append("    no fallback was needed: each raw pick is a label, or none of them")
    missed = [f"{n} {a.skill or 'no manual'}" for n, a in enumerate(answers, 1) if not a.routed_right]
    if missed:
        notes.append(f"    routed wrong; the answer is in: {', '.join(missed)}")
    for note in notes:
        say(note, dim=True)


def _verdict(right: bool) -> str:
    return "right" if right else "wrong"


def _show_times(answers: Sequence[Answer]) -> None:
    rows = []
    for number, answer in enumerate(answers, 1):
        graft, reread = answer.grafted, answer.reread
        rows.append(
            (
                f"{number}",
                f"{graft.tokens.restored:,}",
                f"{graft.tokens.prefilled:,}",
                f"{reread.tokens.prefilled:,}",
                duration(first_token(graft)),
                duration(first_token(reread)),
                times(answer.speed_up),
                duration(whole(graft)),
                duration(whole(reread)),
            )
        )
    columns = (
        "\n#",
        "graft\nrestores",
        "graft\nreads",
        "re-read\nreads",
        "1st token\ngraft",
        "1st token\nre-read",
        "times\nsooner",
        "answer\ngraft",
        "answer\nre-read",
    )
    table(columns, rows, right=columns)


def _show_proof(answers: Sequence[Answer]) -> None:
    rows = [
        (
            f"{number}",
            answer.grafted.logits_sha256[:_HASH_DIGITS],
            answer.reread.logits_sha256[:_HASH_DIGITS],
            "identical" if answer.identical else "DIFFERENT",
        )
        for number, answer in enumerate(answers, 1)
    ]
    table(("#", "graft", "re-read", ""), rows, right=("#",))


def _show_totals(sums: dict[str, Any], model: str) -> None:
    total, first, right = sums["questions"], sums["median_first_token_ms"], sums["answered_right"]
    hint = "; --model takes a larger one" if model == DEFAULT_MODEL else ""
    lines = [
        ("routed right", f"{sums['routed_right']} of {total}"),
        ("answered right", f"{right} of {total} grafted, {sums['reread_right']} of {total} re-read{hint}"),
        (
            "first token",
            f"{duration(first['grafted'])} grafted, {duration(first['reread'])} re-read: "
            f"{times(sums['median_speed_up'])} times sooner (medians)",
        ),
        ("on disk", f"{size(sums['raw_bytes'])} of KV state stored in {size(sums['stored_bytes'])}"),
        (
            "identical",
            f"{sums['identical']} of {total}: every logit of both ways, to the last bit",
        ),
    ]
    table(("", " "), lines, wraps=(" ",), header=False)
