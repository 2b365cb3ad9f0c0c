"""``agentkv route evaluate``: labelled questions through a classifier, with every figure that a choice needs."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from agentkv.cli import options
from agentkv.cli.output import count, duration, finish, say, table
from agentkv.cli.progress import shown, steps_bar
from agentkv.errors import UsageError

if TYPE_CHECKING:
    from agentkv.memory.memory import AgentMemory
    from agentkv.router.base import Candidate, Classifier
    from agentkv.router.evaluate import Labelled

CLASSIFIERS = ("channel", "meaning", "lexical", "prompt")


def evaluate(
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
    sizes: Annotated[
        str | None,
        typer.Option(metavar="N,N,…", show_default="all there are", help="Library sizes; filled with made-up cards."),
    ] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="Only the first so many questions.")] = None,
    seed: Annotated[int, typer.Option(help="Which other candidates a question gets in a smaller library.")] = 1,
    model: options.Model = None,
    embedder: options.Embedder = None,
    store: options.Store = None,
    window: options.Window = None,
    threads: options.Threads = None,
    out: Annotated[Path | None, typer.Option("--out", metavar="FILE", help="Also write the result as JSON.")] = None,
    ledger: options.Ledger = None,
    as_json: options.Json = False,
) -> None:
    """Route labelled questions: accuracy, abstention, calibration and cost, by size of the library."""
    from agentkv.bench import measured, scores
    from agentkv.bench.report import now, origin, save
    from agentkv.io.hashing import sha256
    from agentkv.router import evaluate as evaluation
    from agentkv.router.evaluate import Labelled
    from agentkv.router.learn import apart

    if classifier not in CLASSIFIERS:
        raise UsageError(f"--classifier {classifier!r} is none of {', '.join(CLASSIFIERS)}")
    if train is not None and classifier != "channel":
        raise UsageError("--train is for the channel classifier; the others do not learn")
    started, lessons = now(), evaluation.load_questions(train) if train else []
    questions = apart(evaluation.load_questions(file), lessons)[:limit]
    if not questions:
        raise UsageError(f"every question of {file} is among those to learn from")
    given = None if tools is None else evaluation.load_tools(tools)
    model, settings = options.chosen(store, model, window, threads)
    with _memory(store, model, settings, given is not None, embedder) as memory:
        candidates = given if given is not None else memory.candidates()
        chosen: list[int | None] = [*(options.numbers(sizes) or (None,))]
        missing = max((size or 0) for size in chosen) - len(candidates)
        made_up = evaluation.filler(max(0, missing), seed)
        router = _classifier(memory, classifier, {**candidates, **made_up}, plain or bool(lessons))
        known = [Labelled(query, name) for name, asked in getattr(router, "labelled", {}).items() for query in asked]
        questions = apart(questions, known)
        if not questions:
            raise UsageError("every question is among those that were learned from; pass --plain to leave that out")
        if lessons:
            router = _taught(router, lessons, candidates, memory.blocks.fingerprint.id)
        items = []
        for row, size in enumerate(chosen):
            done = _route(router, questions, {**candidates, **made_up}, size, seed)
            n, extra = size or len(candidates), max(0, (size or 0) - len(candidates))
            items += [scores.decision_item(row, i, n, extra, routed) for i, routed in enumerate(done)]
        digest, fingerprint = memory.engine.info.sha256, memory.engine.fingerprint()
    inputs = b"".join(path.read_bytes() for path in (file, tools, train) if path)
    asked = {"classifier": f"{router.name}/{router.version}", "seed": seed}
    result = origin("route evaluate", model, digest, inputs, started=started, **asked)
    result = measured.result(result, [scores.without_text(item) for item in items])
    result |= {"questions": len(questions), "questions_sha256": sha256(file.read_bytes())}
    result |= {"learned_from": len(lessons), "weights": weights_of(router)}
    opened = options.open_ledger(ledger)
    if opened is not None:
        files = {"questions": file, "tools": tools, "lessons": train}
        with opened.run(
            scores.EVALUATE,
            settings=result["settings"] | {"model": model, "weights": result["weights"]},
            inputs={name: path for name, path in files.items() if path} | {"model": digest},
            fingerprints={"engine": fingerprint},
        ) as run:
            run.record_all(items)
            run.scores(scores.evaluate(items))
        result["ledger_run"] = run.id
    result["finished"] = now()
    save(result, out)
    shown = {key: value for key, value in result.items() if key != "raw"}
    finish(shown, as_json, lambda: _show(result))


@contextlib.contextmanager
def _memory(
    store: Path | None, model: str, settings: Any, temporary: bool, embedder: str | None
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
    told = [f"{p['abstained_on_uncovered']['share']:.0%} for {p['lost']['share']:.1%}" for p in row["trade_off"]]
    if told:
        say(f"none, rightly, for right picks lost ({row['size']:,} candidates): {', '.join(told)}")


def _show(result: dict[str, Any]) -> None:
    names = (
        ("right", "right"),
        ("right_in_top_5", "among the five best"),
        ("abstained_on_covered", "no block, though one fits"),
        ("abstained_on_uncovered", "no block, where none fits"),
        ("invalid_picks", "picks that are no label"),
        ("wrong_when_confident", "wrong, of confident picks"),
    )
    for row in result["sizes"]:
        made_up = f", {row['made_up']:,} of them made up" if row["made_up"] else ""
        say(f"{count(row['size'], 'candidate')}{made_up}, {count(result['questions'], 'question')}")
        cells = []
        for key, name in names:
            part = row[key]
            if part["n"]:
                low, high = part["wilson_95"]
                cells.append((name, f"{part['k']}/{part['n']}", f"{part['share']:.3f}", f"{low:.3f} to {high:.3f}"))
        table(("", "questions", "share", "Wilson 95 %"), cells, right=("questions", "share"))
        if row["expected_calibration_error"] is not None:
            say(f"expected calibration error {row['expected_calibration_error']:.3f}")
        say(f"a decision: {row['tokens']['median']:.0f} tokens, {duration(row['ms']['median'])} (medians)")
        show_trade_off(row)
        if row["confusions"]:
            pairs = "; ".join(f"{c['label']} → {c['pick']} ({c['n']})" for c in row["confusions"][:5])
            say(f"commonest confusions: {pairs}", dim=True)
        say()
