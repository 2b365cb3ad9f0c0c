"""``agentkv route QUESTION``: what the router makes of a question, without answering it. ``route evaluate``: labelled
questions through a classifier, with every figure that a choice needs. ``route learn``: fit the router to labelled
questions, and say what that does to questions held out. ``route log``: the decisions on record; with ``--replay`` they
are made again.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from agentkv.cli import options
from agentkv.cli.command import App, Result
from agentkv.cli.options import EngineOptions, RouterOptions, StoreOptions
from agentkv.cli.output import Column, count, duration, number, one_line, say, show_rows, table
from agentkv.cli.progress import shown, steps_bar
from agentkv.errors import UsageError

if TYPE_CHECKING:
    from agentkv.memory.memory import AgentMemory
    from agentkv.records import Decision
    from agentkv.router.base import Candidate, Classifier
    from agentkv.router.evaluate import Labelled
    from agentkv.router.log import LoggedDecision


def question(
    *,
    text: Annotated[str, typer.Argument(metavar="QUESTION", help="What you want to know, in quotes.")],
    explain: Annotated[bool, typer.Option("--explain", help="Say of each candidate what it is for.")] = False,
    strict: options.Strict = False,
    engine: EngineOptions,
    router: RouterOptions,
    store: StoreOptions,
) -> Result:
    """Show which block the router picks for a question, and every candidate's score."""
    with options.open_memory(store, *engine.chosen(store), router=router, strict=strict) as memory:
        decision = memory.route(text)
        known = {entry.name: entry.description for entry in memory.names()} if explain else {}
    return Result(decision.model_dump(mode="json"), lambda: show(decision, known))


def show(decision: Decision, known: Mapping[str, str]) -> None:
    """The candidates by score, then what became of the pick. ``known``: descriptions, where they are wanted."""
    if decision.scores:
        columns = (
            Column("candidate", lambda row: row[0]),
            number("score", lambda row: f"{row[1]:+,.2f}"),
            Column("", lambda row: "← raw pick" if row[0] == decision.raw_pick else ""),
            Column("what it is for", lambda row: known.get(row[0]), wraps=True, optional=True),
        )
        show_rows(columns, decision.scores.items())
        say()
    say(f"raw pick  {decision.raw_pick}")
    say(f"pick      {decision.pick or 'no block'}")
    say(f"fallback  {decision.fallback or 'not needed'}")
    if decision.confidence is not None:
        say(f"confidence {decision.confidence:.2f}")
    for name, reason in decision.left_out.items():
        say(f"left out  {name}: {reason}")
    say(
        f"{decision.classifier}: {count(decision.tokens, 'token')} evaluated in {duration(decision.ms)}",
        dim=True,
    )


# --- evaluate -------------------------------------------------------------------------------------


CLASSIFIERS = ("channel", "meaning", "lexical", "prompt")


def evaluate(
    *,
    file: Annotated[Path, typer.Argument(metavar="FILE", help='JSON lines {"query": …, "tool": …}; null: none fits.')],
    tools: Annotated[
        Path | None,
        typer.Option("--tools", metavar="FILE", help="JSON object name → description, instead of the store's names."),
    ] = None,
    train: Annotated[
        Path | None, typer.Option("--train", metavar="FILE", help="Labelled questions to learn from first.")
    ] = None,
    plain: Annotated[bool, typer.Option("--plain", help="Without what `agentkv route learn` has learned.")] = False,
    classifier: Annotated[str, typer.Option(metavar="|".join(CLASSIFIERS), help="How to classify.")] = "channel",
    sizes: options.Sizes = None,
    limit: Annotated[int | None, typer.Option(min=1, help="Only the first so many questions.")] = None,
    seed: Annotated[int, typer.Option("--seed", metavar="N", min=0, help=options.SEED_HELP)] = 1,
    embedder: options.Embedder = None,
    out: options.Out = None,
    ledger: options.Ledger = None,
    engine: EngineOptions,
    store: StoreOptions,
) -> Result:
    """Route labelled questions: accuracy, abstention, calibration and cost, by size of the library."""
    from agentkv.bench import measured, scores
    from agentkv.bench.results import now, origin, save
    from agentkv.io.hashing import sha256
    from agentkv.router import evaluate as evaluation

    # 1. The questions, and what they are put to.
    if classifier not in CLASSIFIERS:
        raise UsageError(f"--classifier {classifier!r} is none of {', '.join(CLASSIFIERS)}")
    if train is not None and classifier != "channel":
        raise UsageError("--train is for the channel classifier; the others do not learn")
    started, lessons = now(), evaluation.load_questions(train) if train else []
    questions = _apart(
        evaluation.load_questions(file), lessons, f"every question of {file} is among those to learn from"
    )
    given = None if tools is None else evaluation.load_tools(tools)
    model, settings = engine.chosen(store)
    with _memory(store, model, settings, given is not None, embedder) as memory:
        candidates = given if given is not None else memory.candidates()
        chosen: list[int | None] = [*(options.numbers(sizes) or (None,))]
        missing = max((size or 0) for size in chosen) - len(candidates)
        library = candidates | evaluation.filler(max(0, missing), seed)
        router = _classifier(memory, classifier, library, plain or bool(lessons))
        known = [
            evaluation.Labelled(query, name)
            for name, asked in getattr(router, "labelled", {}).items()
            for query in asked
        ]
        learned = "every question is among those that were learned from; pass --plain to leave that out"
        questions = _apart(questions[:limit], known, learned)
        if lessons:
            router = _taught(router, lessons, candidates, memory.blocks.fingerprint.id)
        # 2. Each question, in a library of each size.
        items = []
        for row, size in enumerate(chosen):
            done = _route(router, questions, library, size, seed)
            n, extra = size or len(candidates), max(0, (size or 0) - len(candidates))
            items += [scores.decision_item(row, i, n, extra, routed) for i, routed in enumerate(done)]
        digest, fingerprint = memory.engine.info.sha256, memory.engine.fingerprint()
    # 3. The result, on record where a ledger was named.
    inputs = b"".join(path.read_bytes() for path in (file, tools, train) if path)
    named = {"classifier": f"{router.name}/{router.version}", "seed": seed}
    result = origin("route evaluate", model, digest, inputs, started=started, **named)
    result = measured.result(result, [scores.without_text(item) for item in items])
    result |= {"questions": len(questions), "questions_sha256": sha256(file.read_bytes())}
    result |= {"learned_from": len(lessons), "weights": weights_of(router)}
    if ledger is not None:
        files = {"questions": file, "tools": tools, "lessons": train}
        recorded = {name: path for name, path in files.items() if path} | {"model": digest}
        result["ledger_run"] = _recorded(ledger, result, model, items, recorded, fingerprint)
    result["finished"] = now()
    save(result, out)
    return Result({key: value for key, value in result.items() if key != "raw"}, lambda: _show_evaluate(result))


def _apart(questions: list[Labelled], others: list[Labelled], why_none: str) -> list[Labelled]:
    """The questions that are not among ``others``. Raises UsageError if none is left."""
    from agentkv.router.learn import apart

    left = apart(questions, others)
    if not left:
        raise UsageError(why_none)
    return left


def _recorded(
    ledger: Path, result: dict[str, Any], model: str, items: list[Any], inputs: dict[str, Any], fingerprint: Any
) -> str:
    """Put the raw decisions and their scores on record; the run's id."""
    from agentkv.bench import scores

    opened = options.open_ledger(ledger)
    assert opened is not None
    settings = result["settings"] | {"model": model, "weights": result["weights"]}
    with opened.run(scores.EVALUATE, settings=settings, inputs=inputs, fingerprints={"engine": fingerprint}) as run:
        run.record_all(items)
        run.scores(scores.evaluate(items))
    return str(run.id)


@contextlib.contextmanager
def _memory(
    store: StoreOptions, model: str, settings: Any, temporary: bool, embedder: str | None
) -> Iterator[AgentMemory]:
    """The store's memory; for tools of a file, one in a folder that goes away again."""
    with contextlib.ExitStack() as held:
        where = Path(held.enter_context(tempfile.TemporaryDirectory(prefix="agentkv-route-"))) if temporary else store
        yield held.enter_context(options.open_memory(where, model, settings, create=temporary, embedder=embedder))


def _classifier(memory: AgentMemory, kind: str, candidates: dict[str, Candidate], plain: bool) -> Classifier:
    from agentkv.router.baselines import EmbeddingClassifier, PromptClassifier
    from agentkv.router.classifier import ChannelClassifier
    from agentkv.router.lexical import LexicalClassifier

    if kind == "lexical":
        return LexicalClassifier()
    if kind == "meaning":
        if memory.routing.vectors is None:
            raise UsageError("--classifier meaning goes by an embedder: name one with --embedder")
        return EmbeddingClassifier(memory.routing.vectors)
    if kind == "prompt":
        return PromptClassifier(memory.blocks)
    learned = memory.classifier
    channel = learned if isinstance(learned, ChannelClassifier) and not plain else memory.routing.plain_classifier()
    cards = [("", ""), *((label, known.description) for label, known in candidates.items())]
    for name, description in shown(cards, "card", lambda card: card[0] or "the empty card"):
        channel.deposit_card(name, description)
    return channel


def _taught(
    classifier: Classifier, lessons: list[Labelled], candidates: dict[str, Candidate], fingerprint_id: str
) -> Classifier:
    from agentkv.router.classifier import ChannelClassifier
    from agentkv.router.learn import learn

    def progress(items: Iterable[Labelled]) -> Iterable[Labelled]:
        return shown(list(items), "lesson", lambda lesson: lesson.query)

    if not isinstance(classifier, ChannelClassifier):
        return classifier
    with classifier.blocks.exclusive():
        learned = learn(classifier, lessons, candidates, fingerprint_id, progress)
    return classifier.with_learned(learned.weights, learned.labelled)


def weights_of(classifier: Classifier) -> dict[str, float] | None:
    """The weights of a classifier that has some."""
    weights = getattr(classifier, "weights", None)
    return None if weights is None else weights.model_dump(mode="json")


def _route(
    classifier: Classifier, questions: list[Labelled], candidates: dict[str, Candidate], size: int | None, seed: int
) -> list[Any]:
    from agentkv.router.evaluate import route_all

    routed = route_all(classifier, questions, candidates, size=size, seed=seed)
    return list(steps_bar(routed, len(questions), "question", lambda i: questions[i].query))


def show_trade_off(row: dict[str, Any]) -> None:
    """One line: the share of questions that none fits that get none, for each share of the others that is lost."""
    shares = [f"{p['abstained_on_uncovered']['share']:.0%} for {p['lost']['share']:.1%}" for p in row["trade_off"]]
    if shares:
        say(f"none, rightly, for right picks lost ({row['size']:,} candidates): {', '.join(shares)}")


_SHARES = {
    "right": "right",
    "right_in_top_5": "among the five best",
    "abstained_on_covered": "no block, though one fits",
    "abstained_on_uncovered": "no block, where none fits",
    "invalid_picks": "picks that are not a label",
    "wrong_when_confident": "wrong, of confident picks",
}
_SHARE = (
    Column("", "name"),
    number("questions", lambda part: f"{part['k']}/{part['n']}"),
    number("share", lambda part: f"{part['share']:.3f}"),
    Column("Wilson 95 %", lambda part: "{:.3f} to {:.3f}".format(*part["wilson_95"])),
)


def _show_evaluate(result: dict[str, Any]) -> None:
    for row in result["sizes"]:
        made_up = f", {row['made_up']:,} of them made up" if row["made_up"] else ""
        say(f"{count(row['size'], 'candidate')}{made_up}, {count(result['questions'], 'question')}")
        show_rows(_SHARE, [row[key] | {"name": name} for key, name in _SHARES.items() if row[key]["n"]])
        if row["expected_calibration_error"] is not None:
            say(f"expected calibration error {row['expected_calibration_error']:.3f}")
        say(f"a decision: {row['tokens']['median']:.0f} tokens, {duration(row['ms']['median'])} (medians)")
        show_trade_off(row)
        if row["confusions"]:
            pairs = "; ".join(f"{c['label']} → {c['pick']} ({c['n']})" for c in row["confusions"][:5])
            say(f"commonest confusions: {pairs}", dim=True)
        say()


# --- learn ----------------------------------------------------------------------------------------


def learn(
    *,
    files: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="[FILE]...", show_default="routes.jsonl of the skills", help="JSON lines of labelled questions."
        ),
    ] = None,
    skills: options.Skills = None,
    lose: Annotated[
        float | None,
        typer.Option(
            min=0.0,
            max=1.0,
            show_default="0.03",
            help="Share of the questions that may lose their skill so that others, which none fits, get none.",
        ),
    ] = None,
    forget: Annotated[bool, typer.Option("--forget", help="Drop what was learned for this model.")] = False,
    engine: EngineOptions,
    router: RouterOptions,
    store: StoreOptions,
) -> Result:
    """Learn to route from labelled questions; kept beside the store, for this model."""
    from agentkv.router.evaluate import load_questions
    from agentkv.router.weights import LOSE

    model, settings = engine.chosen(store)
    if forget:
        with options.open_memory(store, model, settings, router=router) as memory:
            gone = memory.routing.forget()
        text = "what was learned is dropped" if gone else "nothing was learned for this model"
        return Result({"forgotten": gone}, lambda: say(text))
    paths = files or sorted(options.skills_folder(skills).rglob("*.jsonl"))
    questions = [question for path in paths for question in load_questions(path)]
    if not questions:
        raise UsageError("there are no labelled questions. Name a file, or --skills with routes.jsonl in them.")

    def progress(items: Iterable[Labelled]) -> Iterable[Labelled]:
        return shown(list(items), "question", lambda question: question.query)

    with options.open_memory(store, model, settings, router=router) as memory:
        memory.deposit_cards()
        live = memory.candidates()
        before = memory.classifier
        learned = memory.learn(questions, progress, lose=LOSE if lose is None else lose)
        unknown = sum(question.label is not None and question.label not in live for question in questions)
    record: dict[str, Any] = {
        "questions": len(questions),
        "of_labels_not_stored": unknown,
        "fitted_on": learned.weights.fitted_on,
        "held_out": {"right_before": learned.right_before, "right_after": learned.right_after},
        "weights": learned.weights.model_dump(mode="json"),
        "before": getattr(before, "weights").model_dump(mode="json"),  # noqa: B009
    }
    return Result(record, lambda: _show_learn(record))


def _show_learn(record: dict[str, Any]) -> None:
    names = {
        "channel": "the model's channel score",
        "fits": "the model's word that it fits",
        "card": "words of name and description",
        "text": "words of the whole text",
        "asked": "words of labelled questions",
        "meaning": "embeddings of card and labelled questions",
        "none": "none of these",
    }
    rows = [(name, f"{record['before'][key]:.2f}", f"{record['weights'][key]:.2f}") for key, name in names.items()]
    table(("weight of", "before", "now"), rows, right=("before", "now"))
    right = record["held_out"]
    say(f"\nheld out in five parts: {right['right_before']} right before, {right['right_after']} after")
    if not record["fitted_on"]:
        say("the weights stay as they were: learning from these questions makes others worse")
    else:
        say(f"learned from {count(record['fitted_on'], 'question')}; `agentkv route learn --forget` drops it again")
    if record["of_labels_not_stored"]:
        say(f"{count(record['of_labels_not_stored'], 'question')} left out: nothing is stored under their label")


# --- log ------------------------------------------------------------------------------------------


def log(
    *,
    last: Annotated[int, typer.Option("--last", "-n", min=1, help="Only the last so many.")] = 20,
    replay: Annotated[
        bool, typer.Option("--replay", help="Decide again with the model, and compare picks and scores.")
    ] = False,
    embedder: options.Embedder = None,
    engine: EngineOptions,
    store: StoreOptions,
) -> Result:
    """Show the router's decisions, newest last; with --replay make them again."""
    from agentkv.router.log import DecisionLog
    from agentkv.store.files import DECISIONS

    with store.open() as opened:
        entries = list(deque(DecisionLog(opened.root / DECISIONS).read(), last))
    rows: list[dict[str, Any]] = [entry.model_dump(mode="json") for entry in entries]
    if replay:
        with options.open_memory(store, *engine.chosen(store), embedder=embedder) as memory:
            outcomes = (_again(memory, entry) for entry in entries)
            label = lambda i: entries[i].question or entries[i].question_sha256[:12]  # noqa: E731
            for row, outcome in zip(rows, steps_bar(outcomes, len(entries), "decision", label), strict=True):
                row["replay"] = outcome
    return Result({"decisions": rows}, lambda: _show_log(rows))


def _again(memory: AgentMemory, entry: LoggedDecision) -> str:
    """``same``, or what differs: the library, the question that was not kept, the pick, or only the scores."""
    from agentkv.router.decision import decide
    from agentkv.router.log import library_sha256

    if entry.question is None:
        return "question not kept"
    candidates = memory.candidates()
    if library_sha256(candidates) != entry.library_sha256:
        return "another library now"
    with memory.blocks.exclusive():
        again = decide(memory.classifier, entry.question, candidates, memory.routing.fallback)
    if again.classifier != entry.decision.classifier:
        return f"another classifier now ({again.classifier})"
    if (again.raw_pick, again.pick) != (entry.decision.raw_pick, entry.decision.pick):
        return f"picks {again.raw_pick!r} now"
    return "same" if again.scores == entry.decision.scores else "same pick, other scores"


def _show_log(rows: list[dict[str, Any]]) -> None:
    if not rows:
        say("no decision is on record yet. Run `agentkv ask` or `agentkv route`.")
        return
    show_rows(_DECISION, rows)
    reasons = sum(row["decision"]["fallback"] is not None for row in rows)
    say(f"\n{count(len(rows), 'decision')}, {reasons or 'none'} by fallback")


_DECISION = (
    Column("time (UTC)", lambda row: row["time"][:19].replace("T", " ")),
    Column(
        "question",
        lambda row: one_line(row["question"] or f"(not kept: {row['question_sha256'][:12]})", 48),
        wraps=True,
    ),
    Column("raw pick", lambda row: row["decision"]["raw_pick"]),
    Column("pick", lambda row: row["decision"]["pick"] or "no block"),
    Column("made again", lambda row: row.get("replay"), optional=True),
)


# --- the group ------------------------------------------------------------------------------------


DEFAULT = "question"


class _QuestionByDefault(TyperGroup):
    """What is not a command of the group is the question itself, or an option before it."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        known = args[0] in self.commands
        return super().resolve_command(ctx, args if known else [DEFAULT, *args])


app = App(
    cls=_QuestionByDefault,
    no_args_is_help=True,
    context_settings={"ignore_unknown_options": True},
    help="Show which block the router picks for a question: agentkv route QUESTION [OPTIONS].",
)
app.command(DEFAULT)(question)
app.command()(evaluate)
app.command()(learn)
app.command()(log)
