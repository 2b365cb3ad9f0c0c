"""What ``agentkv demo`` shows: an answer's two turns side by side, the tables, the sums, the proof, and a picture."""

from __future__ import annotations

import html
import importlib.util
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from agentkv.cli.output import console, duration, one_line, printable, say, size, table
from agentkv.errors import UsageError

if TYPE_CHECKING:
    from agentkv.cli.inventory import Usage
    from agentkv.records import Turn

COLUMNS = ("#", "asked", "answered", "", "1st token\ngraft", "1st token\ncold", "tokens\nsaved", "logits, SHA-256")
_HASH_DIGITS = 12
_PICKS_WIDTH, _FIGURES_WIDTH, _LEAST = 45, 70, 24
"""Columns of the two tables without their texts, and the least width of a text."""


@dataclass(frozen=True)
class Answer:
    """One question, answered from a graft and, if it is one of those compared, by a cold prefill too."""

    question: str
    skill: str | None
    accepted: list[str]
    grafted: Turn
    cold: Turn | None
    grafted_right: bool
    cold_right: bool | None

    @classmethod
    def of(cls, line: dict[str, Any]) -> Answer:
        """From the second process's line; graded here."""
        from agentkv.records import Turn
        from agentkv.skills.questions import contains_answer

        grafted = Turn.model_validate(line["grafted"], strict=False)
        cold = None if line["reread"] is None else Turn.model_validate(line["reread"], strict=False)
        accepted = line["accepted"]
        cold_right = None if cold is None else contains_answer(cold.text, accepted)
        right = contains_answer(grafted.text, accepted)
        return cls(line["question"], line["skill"], accepted, grafted, cold, right, cold_right)

    @property
    def routed_right(self) -> bool:
        """Whether the labelled skill was picked."""
        return self.grafted.decision.pick == self.skill

    @property
    def identical(self) -> bool | None:
        """Whether all of the manual was restored, and every logit and the text are the same both ways; None if it was
        not compared.
        """
        if self.cold is None:
            return None
        same = self.grafted.logits_sha256 == self.cold.logits_sha256 and self.grafted.text == self.cold.text
        return same and self.grafted.not_restored is None

    @property
    def speed_up(self) -> float | None:
        """Time to the first token, cold over grafted, without routing, which is the same for both."""
        return None if self.cold is None else first_token(self.cold) / max(first_token(self.grafted), 1e-6)

    def record(self) -> dict[str, Any]:
        """The whole of it, for JSON."""
        return {
            "question": self.question,
            "skill": self.skill,
            "accepted": self.accepted,
            "raw_pick": self.grafted.decision.raw_pick,
            "pick": self.grafted.decision.pick,
            "fallback": self.grafted.decision.fallback,
            "cut": self.grafted.finish == "length",
            "routed_right": self.routed_right,
            "answered_right": self.grafted_right,
            "reread_right": self.cold_right,
            "identical": self.identical,
            "first_token_ms": {"grafted": first_token(self.grafted), "reread": self.cold and first_token(self.cold)},
            "answer_ms": {"grafted": whole(self.grafted), "reread": self.cold and whole(self.cold)},
            "grafted": self.grafted.model_dump(mode="json"),
            "reread": self.cold and self.cold.model_dump(mode="json"),
        }


def first_token(turn: Turn) -> float:
    """Milliseconds from the pick to the logits of the first new token."""
    return turn.ms.restore + turn.ms.prefill


def whole(turn: Turn) -> float:
    """Milliseconds from the pick to the end of the answer."""
    return first_token(turn) + turn.ms.generate


def times(ratio: float) -> str:
    """A ratio for people: one digit after the point below ten."""
    return f"{ratio:,.1f}" if ratio < 10 else f"{ratio:,.0f}"


def totals(answers: Sequence[Answer], usage: Usage) -> dict[str, Any]:
    """The sums below the tables. ``raw_bytes``: as whole states, ``stored_bytes``: on disk."""

    def median(value: Callable[[Answer], float | None]) -> float:
        return statistics.median(known for answer in answers if (known := value(answer)) is not None)

    return {
        "questions": len(answers),
        "compared": sum(answer.cold is not None for answer in answers),
        "routed_right": sum(answer.routed_right for answer in answers),
        "answered_right": sum(answer.grafted_right for answer in answers),
        "reread_right": sum(bool(answer.cold_right) for answer in answers),
        "identical": sum(bool(answer.identical) for answer in answers),
        "median_route_ms": median(lambda answer: answer.grafted.ms.route),
        "median_first_token_ms": {
            "grafted": median(lambda answer: first_token(answer.grafted)),
            "reread": median(lambda answer: first_token(answer.cold) if answer.cold else None),
        },
        "median_speed_up": median(lambda answer: answer.speed_up),
        "tokens_saved": sum(answer.grafted.tokens.restored for answer in answers),
        "raw_bytes": usage.states,
        "stored_bytes": usage.stored,
    }


# --- the screen -----------------------------------------------------------------------------------


def opening(model: str) -> str:
    """What is about to happen."""
    return (
        f"agentkv demo, with {model}. An agent's manuals are prefilled once and their KV states stored. Later "
        "questions are answered from those states, without a new prefill of the manuals: the same bits, sooner."
    )


COMPARED = 5
"""Questions at most that are answered both ways: each cold prefill takes as long as the first reading of its manual."""


def compared(n_questions: int) -> set[int]:
    """Which of the questions, from 0, are answered both ways: all of a few, else some that are spread evenly."""
    n = min(n_questions, COMPARED)
    return {i * n_questions // n for i in range(n)}


def fresh_process(n_questions: int) -> str:
    """What the second process does."""
    n = len(compared(n_questions))
    twice = "twice" if n == n_questions else f"from a graft, {n} of them twice"
    return (
        f"\n2. {n_questions} questions, in a new process. For each, the router picks a manual and the "
        f"model answers {twice}: a graft restores the manual's stored state, a cold prefill computes it from its text."
    )


def show(answers: Sequence[Answer], sums: dict[str, Any], paste: Sequence[tuple[str, str]]) -> None:
    """What the router did, then the last screen: what a person would show to a colleague."""
    say("\nWhat the router picked")
    _show_picks(answers)
    say("\n3. Asked, answered, proven")
    width = max(_LEAST, (console().width - _FIGURES_WIDTH) // 2)
    table(COLUMNS, cells(answers, width), right=("#", *COLUMNS[4:7]), wraps=("asked", "answered"))
    say()
    table(("", " "), summed(sums), wraps=(" ",), header=False)
    say("\nNow with your own:")
    for what, command in paste:
        typer.echo(printable(f"  {what:<10} {command}"))  # not folded: it is to be copied


def cells(answers: Sequence[Answer], width: int) -> list[tuple[str, ...]]:
    """The rows under :data:`COLUMNS`; texts are cut to ``width`` characters, and an answer that was cut says so."""
    return [
        (
            f"{number}",
            one_line(answer.question, width),
            one_line(answer.grafted.text, width - 6) + (" […cut]" if answer.grafted.finish == "length" else ""),
            _verdict(answer.grafted_right),
            duration(first_token(answer.grafted)),
            duration(first_token(answer.cold)) if answer.cold else "",
            f"{answer.grafted.tokens.restored:,}",
            "DIFFERENT"
            if answer.identical is False
            else answer.grafted.logits_sha256[:_HASH_DIGITS] + (" = both" if answer.identical else ""),
        )
        for number, answer in enumerate(answers, 1)
    ]


def summed(sums: dict[str, Any]) -> list[tuple[str, str]]:
    """What is summed, and the sum as text."""
    total, n, first = sums["questions"], sums["compared"], sums["median_first_token_ms"]
    return [
        ("answered right", f"{sums['answered_right']} of {total} from a graft; {sums['reread_right']} of {n} cold"),
        (
            "first token",
            f"{duration(first['grafted'])} from a graft, {duration(first['reread'])} by a cold prefill: "
            f"{times(sums['median_speed_up'])} times sooner (medians)",
        ),
        ("tokens saved", f"{sums['tokens_saved']:,} restored instead of prefilled"),
        ("on disk", f"{size(sums['raw_bytes'])} of KV state stored in {size(sums['stored_bytes'])}"),
        (
            "the proof",
            f"{sums['identical']} of {n} that were answered both ways: every logit, to the last bit (SHA-256); and "
            "each stored state was restored and compared when it was made",
        ),
    ]


def _show_picks(answers: Sequence[Answer]) -> None:
    room = max(24, console().width - _PICKS_WIDTH)
    rows, notes = [], []
    for number, answer in enumerate(answers, 1):
        decision = answer.grafted.decision
        pick = decision.pick or "no block"
        shown = "same" if pick == decision.raw_pick else pick
        rows.append(
            (f"{number}", one_line(answer.question, room), decision.raw_pick, shown, _verdict(answer.routed_right))
        )
        if decision.fallback:
            notes.append(f"    {number}: fallback, {decision.fallback}")
    table(("#", "question", "raw pick", "pick", "routed"), rows, right=("#",), wraps=("question",))
    if not any(answer.grafted.decision.fallback for answer in answers):
        notes.append("    no fallback was needed: each raw pick is a label, or none of them")
    missed = [f"{n} {a.skill or 'no manual'}" for n, a in enumerate(answers, 1) if not a.routed_right]
    if missed:
        notes.append(f"    routed wrong; the answer is in: {', '.join(missed)}")
    for note in notes:
        say(note, dim=True)


def _verdict(right: bool) -> str:
    return "right" if right else "wrong"


# --- the picture ----------------------------------------------------------------------------------


def check_picture(path: Path) -> None:
    """Raise UsageError for a picture that could not be written at the end."""
    if path.suffix.lower() not in (".html", ".htm", ".png"):
        raise UsageError(f"--picture {path}: name a file that ends in .html or .png")
    if not path.absolute().parent.is_dir():
        raise UsageError(f"--picture {path}: {path.absolute().parent} is not a directory")
    if path.suffix.lower() == ".png" and importlib.util.find_spec("matplotlib") is None:
        raise UsageError("a PNG needs matplotlib: pip install 'agentkv-sdk[plots]', or name a file that ends in .html")


def write_picture(
    path: Path, title: str, answers: Sequence[Answer], sums: dict[str, Any], paste: Sequence[tuple[str, str]]
) -> None:
    """The last screen as HTML or PNG. Raises UsageError if it cannot be written."""
    try:
        if path.suffix.lower() == ".png":
            _draw(path, title, answers, sums)
        else:
            path.write_text(_page(title, answers, sums, paste), encoding="utf-8")
    except OSError as error:
        raise UsageError(f"--picture {path} cannot be written: {error.strerror or error}") from error


_STYLE = (
    "body{font:15px system-ui;margin:2em;max-width:75em}table{border-collapse:collapse}"
    "td,th{padding:.3em .8em;text-align:left;border-bottom:1px solid #ddd}.right{color:#161}.wrong{color:#a11}"
)


def _page(title: str, answers: Sequence[Answer], sums: dict[str, Any], paste: Sequence[tuple[str, str]]) -> str:
    def row(texts: Sequence[str], cell: str = "td") -> str:
        made = (
            f"<{cell}{f' class={text}' if text in ('right', 'wrong') else ''}>{html.escape(printable(text))}</{cell}>"
            for text in texts
        )
        return f"<tr>{''.join(made)}</tr>"

    body = [row(COLUMNS, "th"), *(row(cell) for cell in cells(answers, 400))]
    commands = "\n".join(f"{what:<10} {command}" for what, command in paste)
    return (
        f'<!doctype html><meta charset="utf-8"><title>{html.escape(title)}</title><style>{_STYLE}</style>'
        f"<h1>{html.escape(title)}</h1><table>{''.join(body)}</table><h2>In sum</h2>"
        f"<table>{''.join(row(pair) for pair in summed(sums))}</table><pre>{html.escape(printable(commands))}</pre>\n"
    )


def _draw(path: Path, title: str, answers: Sequence[Answer], sums: dict[str, Any]) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(15, 2.4 + 0.32 * len(answers)))
    axes = figure.add_subplot()
    axes.set_axis_off()
    axes.set_title(title, loc="left")
    drawn = axes.table([list(row) for row in cells(answers, 56)], colLabels=list(COLUMNS), loc="upper left")
    drawn.auto_set_font_size(False)
    drawn.set_fontsize(8)
    drawn.auto_set_column_width(list(range(len(COLUMNS))))
    text = "\n".join(f"{name}: {value}" for name, value in summed(sums))
    axes.text(0, 0, printable(text), fontsize=9, va="bottom", parse_math=False)
    figure.savefig(path, dpi=130, bbox_inches="tight")
