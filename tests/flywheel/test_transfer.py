"""The very task again, checked again; and another task: routed to one solution, parameters filled, run, reported."""

from __future__ import annotations

from pathlib import Path

from agentkv.flywheel.book import KeptTask
from agentkv.flywheel.library import PREFIX, SolutionLibrary
from agentkv.flywheel.solution import Verdict
from agentkv.flywheel.task import ByCallable, Task, Truth
from agentkv.flywheel.transfer import Recurrence, Transfer, Way
from agentkv.flywheel.verify import Judging
from agentkv.sandbox.sandbox import Sandbox

from .scripted import BOXES, CRATES, MULTIPLY, crates, fenced, filled, memory, solution

SORT = "def solve(items):\n    return sorted(items)\n"


def read_answer(prompt: str) -> str:
    """What a model does that reads the answer from its block."""
    return prompt.partition("Answer: ")[2].split("\n")[0]


def test_the_same_task_is_answered_in_a_few_tokens_and_checked_again(tmp_path: Path, strong: Sandbox) -> None:
    with memory(tmp_path, read_answer) as held:
        library = filled(held, strong)
    with memory(tmp_path, read_answer) as held:  # as another process would
        library = SolutionLibrary(held)
        found = Recurrence(library, strong).recall(crates(id="asked again", prompt=f"  {CRATES}\n"))
        assert found is not None
        assert (found.answer, found.verdict, found.read_rightly) == (1702, Verdict.VERIFIED, True)
        assert found.turn is not None
        assert found.turn.tokens.generated <= 5
        assert found.turn.tokens.restored > found.turn.tokens.prefilled
        assert found.origin.endswith("verified")


def test_a_long_task_is_not_read_again(tmp_path: Path, strong: Sandbox) -> None:
    long = crates(prompt=f"{'It is a long road, and the rain is heavy. ' * 40}{CRATES}")
    prefilled = []
    for number, task in enumerate((crates(), long)):
        with memory(tmp_path / str(number), read_answer) as held:
            found = Recurrence(filled(held, strong, task), strong).recall(task)
            assert found is not None
            assert found.turn is not None
            assert found.read_rightly
            prefilled.append(found.turn.tokens.prefilled)
    assert prefilled[0] == prefilled[1]


def test_a_block_is_read_once_whatever_the_order_of_the_parameters(tmp_path: Path, strong: Sandbox) -> None:
    task = crates(prompt="How much do the crates weigh?", parameters={"pieces": 37, "each": 46})
    source = "def solve(pieces, each):\n    return pieces * each\n"
    with memory(tmp_path, read_answer) as held:
        filled(held, strong, task, source)
        before = sorted(held.store.block_ids())
    with memory(tmp_path, read_answer) as held:
        assert Recurrence(SolutionLibrary(held), strong).recall(task) is not None
        assert sorted(held.store.block_ids()) == before


def test_another_task_is_not_answered_however_alike(tmp_path: Path, strong: Sandbox) -> None:
    given = {"items": [3, 1, 2]}
    task = Task(id="s", prompt="Sort ascending: 3, 1, 2", parameters=given, check=Truth(answer=[1, 2, 3]))
    with memory(tmp_path, read_answer) as held:
        recurrence = Recurrence(filled(held, strong, task, SORT), strong)
        assert recurrence.recall(task) is not None
        for other in (
            task.model_copy(update={"prompt": "Sort descending: 3, 1, 2"}),
            task.model_copy(update={"prompt": "Sort ascending: 3, 1, 2."}),
            task.model_copy(update={"parameters": {"items": [3, 2, 1]}}),
        ):
            assert recurrence.recall(Task(**other.model_dump())) is None


def test_a_misreading_is_on_record_and_not_the_answer(tmp_path: Path, strong: Sandbox) -> None:
    with memory(tmp_path, lambda prompt: "17") as held:
        found = Recurrence(filled(held, strong), strong).recall(crates())
        assert found is not None
        assert (found.answer, found.read_rightly) == (1702, False)


def test_a_solution_that_fails_now_is_retired_and_silent(tmp_path: Path, strong: Sandbox) -> None:
    with memory(tmp_path, read_answer) as held:
        library = filled(held, strong)
        known = library.find(crates().task_id)
        assert known is not None
        library.tasks.keep(known.kept.model_copy(update={"task": crates(check=Truth(answer=9))}))
        assert Recurrence(library, strong).recall(crates(check=None)) is None
        assert library.find(crates().task_id) is None
        assert held.routing.find(known.name) is None
        standing = library.book.standing(crates().task_id)
        assert standing is not None
        assert [event.event for event in standing.history] == ["live", "retired"]


def test_a_check_that_cannot_be_run_leaves_the_answer_unchecked(tmp_path: Path, strong: Sandbox) -> None:
    judging: Judging = lambda answer, parameters: answer == 1702  # noqa: E731
    with memory(tmp_path, read_answer) as held:
        library = filled(held, strong)
        known = library.find(crates().task_id)
        assert known is not None
        library.tasks.keep(known.kept.model_copy(update={"task": crates(check=ByCallable(name="by hand"))}))
        without = Recurrence(library, strong).recall(crates(check=None))
        assert without is not None
        assert (without.verdict, without.verification) == (Verdict.UNVERIFIED, None)
        assert without.origin.endswith("not checked again")
        again = Recurrence(library, strong, {"by hand": judging}).recall(crates(check=None))
        assert again is not None
        assert again.verdict is Verdict.VERIFIED


def test_a_long_answer_is_not_read_by_the_model(tmp_path: Path, strong: Sandbox) -> None:
    task = Task(id="long", prompt="Give a thousand letters", check=Truth(answer="ab" * 500))
    with memory(tmp_path, read_answer) as held:
        found = Recurrence(filled(held, strong, task, "def solve():\n    return 'ab' * 500\n"), strong).recall(task)
        assert found is not None
        assert (found.answer, found.turn, found.read_rightly) == ("ab" * 500, None, None)


def test_another_model_reads_the_block_when_it_is_asked(tmp_path: Path, strong: Sandbox) -> None:
    from agentkv import AgentMemory, FakeEngine

    with memory(tmp_path, read_answer) as held:
        filled(held, strong)
    other = FakeEngine(window=16384, weights="other", replies=read_answer, keeps_grammar=True)
    with AgentMemory(tmp_path / "store", other) as held:
        assert held.names() == []
        found = Recurrence(SolutionLibrary(held), strong).recall(crates())
        assert found is not None
        assert found.read_rightly
        assert len(held.names()) == 1


def test_an_engine_without_grammars_answers_without_reading(tmp_path: Path, strong: Sandbox) -> None:
    from agentkv import AgentMemory, FakeEngine

    with memory(tmp_path, read_answer) as held:
        filled(held, strong)
    with AgentMemory(tmp_path / "store", FakeEngine(window=16384)) as held:
        found = Recurrence(SolutionLibrary(held), strong).recall(crates())
        assert found is not None
        assert (found.answer, found.verdict, found.turn) == (1702, Verdict.VERIFIED, None)


def test_a_better_solution_takes_the_place_of_the_block(tmp_path: Path, strong: Sandbox) -> None:
    with memory(tmp_path, read_answer) as held:
        library = filled(held, strong, crates(), "def solve(crates, kg):\n    return 1702\n")
        first = library.find(crates().task_id)
        assert first is not None
        assert not first.can_transfer
        done = library.keep(
            KeptTask(task=crates(), parameters=crates().parameters), solution(crates(), MULTIPLY, strong)
        )
        assert done.live
        assert [entry.name for entry in held.names()] == [library.find(crates().task_id).name]  # type: ignore[union-attr]


def test_a_solution_that_is_no_better_changes_nothing_and_a_lost_task_is_learned_again(
    tmp_path: Path, strong: Sandbox
) -> None:
    with memory(tmp_path, read_answer) as held:
        library = filled(held, strong)
        worse = solution(crates(), "def solve(crates, kg):\n    return 37 * kg\n", strong)
        before = library.find(crates().task_id)
        assert not library.keep(KeptTask(task=crates(), parameters={"other": 1}), worse).live
        assert library.find(crates().task_id) == before
        assert before is not None
        library.tasks.keep(before.kept.model_copy(update={"solution_id": "0" * 64}))  # as a crash leaves it
        assert library.find(crates().task_id) is None
        library.keep(before.kept, before.solution)
        assert library.find(crates().task_id) == before


def test_a_block_that_does_not_fit_is_left_out_and_the_task_still_answered(tmp_path: Path, strong: Sandbox) -> None:
    with memory(tmp_path, read_answer, window=512) as held:
        library = filled(held, strong)
        assert held.names() == []
        found = Recurrence(library, strong).recall(crates())
        assert found is not None
        assert (found.answer, found.turn, found.verdict) == (1702, None, Verdict.VERIFIED)


PARAMETERS = '{"crates": 12, "kg": 31}'
BAKED = "def solve(crates, kg):\n    return 37 * kg\n"


def boxes(answer: int | None = None) -> Task:
    return Task(id="van", prompt=BOXES, check=None if answer is None else Truth(answer=answer))


def only(library: SolutionLibrary):  # type: ignore[no-untyped-def]
    (known,) = library.live()
    return known


def test_parameters_are_filled_and_the_program_runs(tmp_path: Path, strong: Sandbox) -> None:
    with memory(tmp_path, lambda prompt: PARAMETERS) as held:
        library = filled(held, strong)
        (done,) = Transfer(library, strong).answer(boxes(), only(library))
        assert (done.answered, done.answer, done.verdict) == (True, 372, Verdict.UNVERIFIED)
        assert done.parameters == {"crates": 12, "kg": 31}
        assert done.origin == f"transferred from {only(library).name} by filling its parameters, unverified"
        assert done.turn is not None
        assert done.turn.decision.pick == only(library).name
        assert done.turn.tokens.restored > 0


def test_a_check_of_the_new_task_is_run(tmp_path: Path, strong: Sandbox) -> None:
    with memory(tmp_path, lambda prompt: PARAMETERS) as held:
        library = filled(held, strong)
        (right,) = Transfer(library, strong).answer(boxes(372), only(library))
        assert (right.verdict, right.origin.rpartition(", ")[2]) == (Verdict.VERIFIED, "verified")
        wrong = Transfer(library, strong, ways=(Way.FILL,)).answer(boxes(373), only(library))
        assert [done.verdict for done in wrong] == [Verdict.FAILED]


def test_rewriting_is_the_second_choice(tmp_path: Path, strong: Sandbox) -> None:
    def replies(prompt: str) -> str:
        rewriting = "Rewrite the program" in prompt
        return fenced("def solve():\n    return 12 * 31\n") if rewriting else '{"crates": 99, "kg": 31}'

    with memory(tmp_path, replies) as held:
        library = filled(held, strong)
        done = Transfer(library, strong).answer(boxes(372), only(library))
        assert [(one.way, one.verdict) for one in done] == [
            (Way.FILL, Verdict.FAILED),
            (Way.REWRITE, Verdict.VERIFIED),
        ]


def test_substitution_asks_no_model(tmp_path: Path, strong: Sandbox) -> None:
    def never(prompt: str) -> str:
        raise AssertionError("the model was asked")

    with memory(tmp_path, lambda prompt: "x") as held:
        library = filled(held, strong)
        held.engine._replies = never  # type: ignore[attr-defined]
        transfer = Transfer(library, strong)
        assert transfer.adapt(boxes(), only(library), Way.SUBSTITUTE).answer == 372
        other = Task(id="a", prompt="A van carries 12 boxes.")
        assert not transfer.adapt(other, only(library), Way.SUBSTITUTE).answered


def test_nonsense_from_the_model_is_no_answer(tmp_path: Path, strong: Sandbox) -> None:
    for number, text in enumerate(("", "no", "[1]", '{"crates": 1}', '{"crates": 1, "kg": 2, "x": 3}', '{"a": NaN}')):
        with memory(tmp_path / str(number), lambda prompt, text=text: text) as held:  # type: ignore[misc]
            library = filled(held, strong)
            done = Transfer(library, strong).answer(boxes(), only(library))
            assert not any(one.answered for one in done), text
            assert all(one.reason for one in done)


def test_routing_is_among_solutions_that_can_transfer_and_ordinary_questions_are_not_routed_to_them(
    tmp_path: Path, strong: Sandbox
) -> None:
    with memory(tmp_path, lambda prompt: PARAMETERS) as held:
        library = filled(held, strong)
        clock = Task(
            id="clock",
            prompt="A meeting begins at 10 and takes 3 hours. At which hour does it end?",
            parameters={"start": 10, "hours": 3},
            check=Truth(answer=13),
        )
        filled(held, strong, clock, "def solve(start, hours):\n    return (start + hours) % 24\n")
        held.deposit_text("returns", "Returns are accepted for 7 days.", "how to return a lorry of crates")
        decision, known = Transfer(library, strong).route(boxes())
        assert known is not None
        assert known.kept.task.id == "lorry"
        assert all(label.startswith(PREFIX) for label in decision.scores if label != "none of these")
        assert set(held.candidates()) == {"returns"}
        assert held.route(BOXES).pick in (None, "returns")


def test_a_hard_coded_solution_is_never_routed_to(tmp_path: Path, strong: Sandbox) -> None:
    with memory(tmp_path, lambda prompt: PARAMETERS) as held:
        library = filled(held, strong, crates(), BAKED)
        assert only(library).solution.parametric is not None
        assert [one.value for one in only(library).solution.parametric.hard_coded] == [37]
        decision, known = Transfer(library, strong).route(boxes())
        assert (decision.pick, known) == (None, None)


def test_scores_are_those_of_every_run_of_the_same_task_and_program(tmp_path: Path, strong: Sandbox) -> None:
    """A model reads the names of blocks when it routes, so no proof's times may be in them."""
    found = []
    for name in ("one", "two"):
        with memory(tmp_path / name, lambda prompt: PARAMETERS) as held:
            library = filled(held, strong)
            (known,) = library.live()
            decision, _ = Transfer(library, strong).route(boxes())
            found.append((known.solution.solution_id, known.name, decision.scores))
    (first, *reported), (second, *again) = found
    assert first != second
    assert reported == again


def test_an_empty_library_routes_to_nothing(tmp_path: Path, box: Sandbox) -> None:
    with memory(tmp_path, lambda prompt: "") as held:
        assert Transfer(SolutionLibrary(held), box).route(boxes())[1] is None
