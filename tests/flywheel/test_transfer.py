"""Transfer: routed to one solution, parameters filled, run, and told where the answer comes from."""

from __future__ import annotations

from pathlib import Path

from agentkv.flywheel.library import PREFIX, SolutionLibrary
from agentkv.flywheel.solution import Verdict
from agentkv.flywheel.task import Task, Truth
from agentkv.flywheel.transfer import Transfer, Way
from agentkv.sandbox.sandbox import Sandbox

from .scripted import BOXES, crates, fenced, filled, memory

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


def test_a_baked_in_solution_is_never_routed_to(tmp_path: Path, strong: Sandbox) -> None:
    with memory(tmp_path, lambda prompt: PARAMETERS) as held:
        library = filled(held, strong, crates(), BAKED)
        assert only(library).solution.parametric is not None
        assert [one.value for one in only(library).solution.parametric.baked_in] == [37]
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
    (first, *told), (second, *again) = found
    assert first != second
    assert told == again


def test_an_empty_library_routes_to_nothing(tmp_path: Path, box: Sandbox) -> None:
    with memory(tmp_path, lambda prompt: "") as held:
        assert Transfer(SolutionLibrary(held), box).route(boxes())[1] is None
