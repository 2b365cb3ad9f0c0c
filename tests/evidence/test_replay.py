"""Plans are sealed, come before their runs, hold for one tree, and can fail."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from agentkv.errors import InvalidPlan, MachineUnsuitable, PlanRefused, StepFailed, UsageError
from agentkv.evidence import Ledger, anchors, environment, plan, replay, score, verify
from agentkv.evidence import ledger as ledger_module
from agentkv.evidence.plan import Criterion, Draft, ReplayPlan, Step
from agentkv.evidence.records import Item

from .making import forge_head, parsed, put, remade

DRAFT = Draft(
    name="demo",
    title="Demo",
    prediction="Both steps give 48.",
    steps=tuple(
        Step(
            name=name,
            arguments=("bench", name),
            criteria=(Criterion(at="result.rows.*.equal", must="==", value=48),),
        )
        for name in ("one", "two")
    ),
)


def outcome(*equal: int, exit_code: int = 0) -> replay.Outcome:
    return {"exit_code": exit_code, "result": {"rows": [{"equal": value} for value in equal]}}


class Runner:
    """Gives outcomes in order, and keeps what it was asked for."""

    def __init__(self, *outcomes: Any) -> None:
        self.outcomes, self.asked = list(outcomes), list[str]()

    def __call__(self, step: Step) -> replay.Outcome:
        self.asked.append(step.name)
        given = self.outcomes.pop(0)
        if isinstance(given, BaseException):
            raise given
        made: replay.Outcome = given
        return made


@pytest.fixture(autouse=True)
def still(monkeypatch: pytest.MonkeyPatch) -> None:
    """The source tree as it is now, whoever edits it during the test."""
    code = environment.source_code()
    for module in (plan, replay, ledger_module):
        monkeypatch.setattr(module, "source_code", lambda: code)


@pytest.fixture
def made() -> ReplayPlan:
    return plan.make(DRAFT, {})


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger(tmp_path / "ledger")


@pytest.mark.parametrize(
    ("at", "must", "value", "passed"),
    [
        ("exit_code", "==", 0, True),
        ("result.rows.*.equal", "==", 48, True),
        ("result.rows.*.equal", "<", 48, False),
        ("result.rows.#", "==", 2, True),
        ("result.rows.1.equal", ">=", 48, True),
        ("result.rows.2.equal", ">=", 48, False),
        ("result.nothing", "!=", 1, False),
        ("result.rows.*.missing", "!=", 1, False),
        ("result.yes", "==", True, True),
        ("result.yes", "==", 1, False),
        ("result.name", "<", 1, False),
        ("result.none", "==", None, True),
        ("result.empty.*", "==", 1, False),
    ],
)
def test_criteria(at: str, must: Any, value: Any, passed: bool) -> None:
    given = {"rows": [{"equal": 48}, {"equal": 48}], "yes": True, "name": "x", "none": None, "empty": []}
    seen = Criterion(at=at, must=must, value=value).judge({"exit_code": 0, "result": given})
    assert seen[0] is passed


def test_one_member_without_the_value_is_a_failure() -> None:
    criterion = Criterion(at="result.*.equal", must="==", value=48)
    assert not criterion.judge({"result": [{"equal": 48}, {"other": 48}]})[0]


def test_pass(made: ReplayPlan, ledger: Ledger) -> None:
    verdict = replay.run(made, ledger, runner=Runner(outcome(48, 48), outcome(48)))
    assert verdict.passed
    verdicts, anchored = replay.judge(made, ledger)
    assert [(found.passed, len(found.judged)) for found in verdicts] == [(True, 2)]
    assert not anchored
    found = ledger.find("last")
    assert (found.kind, found.status, found.body.plan) == ("replay", "finished", made.digest)
    assert score(ledger, found).computed == {"criteria": 2, "met": 2}


def test_fail_also_after_a_later_pass(made: ReplayPlan, ledger: Ledger) -> None:
    first = replay.run(made, ledger, runner=Runner(outcome(48, 47, exit_code=60), outcome(48)))
    assert not first.passed
    assert first.failures == [f"run {first.run}, one: result.rows.*.equal == 48, seen [48,47]"]
    second = replay.run(made, ledger, runner=Runner(outcome(48), outcome(48)))
    assert second.passed
    assert [found.passed for found in replay.judge(made, ledger)[0]] == [False, True]
    assert [found.passed for found in replay.judge(made, ledger, run_id=second.run)[0]] == [True]
    assert score(ledger, ledger.find(first.run)).computed == {"criteria": 2, "met": 1}


def test_a_run_that_was_broken_off_goes_on(made: ReplayPlan, ledger: Ledger) -> None:
    with pytest.raises(KeyboardInterrupt):
        replay.run(made, ledger, runner=Runner(outcome(48), KeyboardInterrupt()))
    assert ledger.find("last").status == "unfinished"
    assert [found.passed for found in replay.judge(made, ledger)[0]] == [False]
    going = Runner(outcome(48))
    verdict = replay.run(made, ledger, runner=going)
    assert going.asked == ["two"]
    assert verdict.passed
    assert len(ledger.runs()) == 1


def test_an_attempt_without_a_result_stays_on_record(made: ReplayPlan, ledger: Ledger) -> None:
    with pytest.raises(StepFailed, match="'one' ended with code -11"):
        replay.run(made, ledger, runner=Runner({"exit_code": -11, "result": None}))
    verdict = replay.run(made, ledger, runner=Runner(outcome(48), outcome(48)))
    assert (verdict.passed, verdict.attempts) == (True, {"one": 1})
    second = replay.run(made, ledger, runner=Runner(outcome(48), outcome(48)), again=True)
    assert (second.attempts, len(ledger.runs())) == ({}, 2)


def test_a_plan_made_after_the_run_is_refused(made: ReplayPlan, ledger: Ledger) -> None:
    """The run names the plan, and the ledger has the plan's digest only after it."""
    new_run = ledger.begin("replay", plan=made.digest)
    for step in DRAFT.steps:
        new_run.record(step.name, outcome(48))
    new_run.end()
    with pytest.raises(PlanRefused, match="never entered"):
        replay.judge(made, ledger)
    ledger.register_plan(made.digest, "demo")
    with pytest.raises(PlanRefused, match=rf"entered \(record 5\) after run {new_run.id} \(record 1\)"):
        replay.judge(made, ledger)


def test_moving_the_plan_before_the_run_breaks_the_chain_or_the_anchor(made: ReplayPlan, ledger: Ledger) -> None:
    with ledger.run("demo"):
        pass
    published = ledger.head()
    assert published is not None
    new_run = ledger.begin("replay", plan=made.digest)
    for step in DRAFT.steps:
        new_run.record(step.name, outcome(48))
    new_run.end()
    ledger.register_plan(made.digest, "demo")
    old = parsed(ledger.folder)
    old.insert(1, old.pop())
    put(ledger.folder, *remade(ledger.folder, old))
    forge_head(ledger.folder)
    verdicts, anchored = replay.judge(made, ledger)
    assert (verdicts[0].passed, anchored) == (True, False)  # within one ledger it cannot show
    given = anchors.parse(published.text)
    assert verify(ledger.folder, [given]).findings != []


def test_an_anchor_from_between_plan_and_run(made: ReplayPlan, ledger: Ledger) -> None:
    ledger.register_plan(made.digest, "demo")
    between = ledger.head()
    replay.run(made, ledger, runner=Runner(outcome(48), outcome(48)))
    after = ledger.head()
    assert between is not None
    assert after is not None
    assert replay.judge(made, ledger, anchors=[anchors.parse(between.text)])[1] is True
    assert replay.judge(made, ledger, anchors=[anchors.parse(after.text)])[1] is False


def test_a_changed_plan_is_refused(made: ReplayPlan, ledger: Ledger, tmp_path: Path) -> None:
    file = tmp_path / "demo.plan"
    plan.save(made, file)
    assert plan.load(file) == made
    replay.run(made, ledger, runner=Runner(outcome(40), outcome(48)))
    file.write_bytes(file.read_bytes().replace(b'"value":48', b'"value":40'))
    with pytest.raises(InvalidPlan, match="changed after it was sealed"):
        plan.load(file)
    easier = [
        step.model_copy(update={"criteria": (Criterion(at="exit_code", must=">=", value=0),)}) for step in DRAFT.steps
    ]
    resealed = plan.make(DRAFT.model_copy(update={"steps": tuple(easier)}), {})
    with pytest.raises(PlanRefused, match="no run of it"):
        replay.judge(resealed, ledger)
    with pytest.raises(PlanRefused, match="one of another plan"):
        replay.judge(resealed, ledger, run_id="last")


def test_another_tree_is_refused_and_the_files_named(made: ReplayPlan, ledger: Ledger) -> None:
    files = dict(made.code.files)
    files["tracing.py"] = "0" * 64
    files["gone.py"] = "1" * 64
    del files["records.py"]
    other = made.model_copy(update={"code": made.code.model_copy(update={"files": files})})
    runner = Runner()
    with pytest.raises(PlanRefused) as refused:
        replay.run(other, ledger, runner=runner)
    assert refused.value.differences == ["gone.py is missing", "records.py is new", "tracing.py differs"]
    assert (runner.asked, ledger.folder.exists()) == ([], False)
    ledger.register_plan(other.digest, "demo")
    new_run = ledger.begin("replay", plan=other.digest)
    new_run.end()
    with pytest.raises(PlanRefused, match=r"another source tree: gone\.py is missing, and 2 more"):
        replay.judge(other, ledger)


def test_another_model_fails(ledger: Ledger) -> None:
    sealed = plan.make(DRAFT.model_copy(update={"models": ("m",)}), {"m": "a" * 64})
    right, wrong = outcome(48), outcome(48)
    right["result"] |= {"model": "m", "model_sha256": "a" * 64}
    wrong["result"] |= {"model": "m", "model_sha256": "b" * 64}
    verdict = replay.run(sealed, ledger, runner=Runner(right, wrong))
    assert [(row.step, row.passed) for row in verdict.judged if "SHA-256" in row.criterion] == [
        ("one", True),
        ("two", False),
    ]
    assert not verdict.passed


def test_two_results_of_one_step_are_refused(made: ReplayPlan, ledger: Ledger) -> None:
    ledger.register_plan(made.digest, "demo")
    new_run = ledger.begin("replay", plan=made.digest)
    new_run.record_all([Item("one", outcome(47)), Item("one", outcome(48))])
    new_run.end()
    with pytest.raises(PlanRefused, match="two results for step 'one'"):
        replay.judge(made, ledger)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"arguments": ("pack", "create")}, "runs `bench` and `benchmarks` only"),
        ({"arguments": ("bench", "size", "--out=/tmp/x")}, "which the replay gives"),
    ],
)
def test_a_plan_that_runs_something_else_is_refused(tmp_path: Path, change: dict[str, Any], reason: str) -> None:
    step = DRAFT.steps[0].model_copy(update=change)
    file = tmp_path / "other.json"
    file.write_text(DRAFT.model_copy(update={"steps": (step,)}).model_dump_json())
    with pytest.raises(InvalidPlan, match=reason):
        plan.load_draft(str(file))
    plan.save(plan.make(plan.Draft.model_validate_json(file.read_bytes()), {}), tmp_path / "sealed")
    with pytest.raises(InvalidPlan, match=reason):
        plan.load(tmp_path / "sealed")


def test_the_plan_that_comes_along_is_one_of_exactness_on_a_gpu() -> None:
    assert plan.shipped() == ["exactness-cuda"]
    draft = plan.load_draft("exactness-cuda")
    assert draft.needs == ("cuda",)
    for step, model in zip(draft.steps, draft.models, strict=True):
        assert step.arguments == ("bench", "exactness", "--model", model, "--gpu-layers", "99")
        lengths = [{"equal_steps": 48, "recaptured_equal": True, "control_equal_steps": 3}] * 13
        whole = {
            "model": model,
            "settings": {"gpu_layers": 99, "steps": 48},
            "fingerprint": {"numerics": {"gpu_layers": 99}},
            "sliding_window": 512,
            "lengths": lengths,
            "samples": {"0": {"n": 50, "equal": 50, "kl_max": 0.0}},
        }
        good: Any = {"exit_code": 0, "result": whole}
        assert all(criterion.judge(good)[0] for criterion in step.criteria)
        worse = [*lengths[:-1], lengths[0] | {"equal_steps": 47}]
        bad = {"exit_code": 0, "result": whole | {"lengths": worse}}
        assert sum(not criterion.judge(bad)[0] for criterion in step.criteria) == 1


@pytest.mark.parametrize(
    ("seen", "reason"),
    [
        ({"gpu": False, "system": "CPU : AVX2 = 1"}, "without CUDA"),
        ({"gpu": False, "system": "CUDA : ARCHS = 900"}, "finds no GPU"),
    ],
)
def test_a_machine_without_cuda(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch, seen: dict[str, object], reason: str
) -> None:
    monkeypatch.setattr(environment, "accelerator", lambda: seen)
    sealed = plan.make(DRAFT.model_copy(update={"needs": ("cuda",)}), {})
    with pytest.raises(MachineUnsuitable, match=reason):
        replay.run(sealed, ledger, runner=Runner())
    assert not ledger.folder.exists()
    monkeypatch.setattr(environment, "accelerator", lambda: {"gpu": True, "system": "CUDA : ARCHS = 900"})
    assert replay.run(sealed, ledger, runner=Runner(outcome(48), outcome(48))).passed
    assert ledger.find("last").body.settings["accelerator"] == {"gpu": True, "system": "CUDA : ARCHS = 900"}


def test_one_process_at_a_time(made: ReplayPlan, ledger: Ledger) -> None:
    def runner(step: Step) -> replay.Outcome:
        with pytest.raises(UsageError, match="by another process"):
            replay.run(made, ledger, runner=Runner())
        return outcome(48)

    assert replay.run(made, ledger, runner=runner).passed


def test_a_tree_that_changes_during_the_run_ends_it(
    made: ReplayPlan, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = made.code.model_copy(update={"files": made.code.files | {"tracing.py": "0" * 64}})

    def runner(step: Step) -> replay.Outcome:
        monkeypatch.setattr(replay, "source_code", lambda: other)
        return outcome(48)

    with pytest.raises(PlanRefused, match=r"tracing\.py differs"):
        replay.run(made, ledger, runner=runner)
    assert ledger.find("last").status == "unfinished"
