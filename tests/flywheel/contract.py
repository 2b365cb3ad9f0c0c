"""What every :class:`~agentkv.flywheel.verify.Verifier` must do; a subclass gives one, a task, and answers."""

from __future__ import annotations

from typing import Any

from agentkv.flywheel.task import Task
from agentkv.flywheel.verify import Verifier


class VerifierContract:
    """``right`` and ``wrong`` give an answer to each question's parameters."""

    def verifier(self) -> Verifier:
        raise NotImplementedError

    def task(self) -> Task:
        raise NotImplementedError

    def right(self, parameters: dict[str, Any]) -> Any:
        raise NotImplementedError

    def wrong(self, parameters: dict[str, Any]) -> Any:
        raise NotImplementedError

    def test_it_is_one(self) -> None:
        assert isinstance(self.verifier(), Verifier)

    def test_there_is_something_to_ask(self) -> None:
        assert len(self.verifier().questions(self.task())) > 0

    def test_right_answers_pass_and_wrong_ones_do_not(self) -> None:
        for question in self.verifier().questions(self.task()):
            assert question.judge(self.right(question.parameters)) is True
            assert question.judge(self.wrong(question.parameters)) is False

    def test_no_other_kind_of_value_passes(self) -> None:
        for question in self.verifier().questions(self.task()):
            others: list[Any] = [None, True, [], {}, [self.right(question.parameters)]]
            assert not any(question.judge(other) for other in others)

    def test_questions_are_the_same_each_time(self) -> None:
        first, second = (self.verifier().questions(self.task()) for _ in range(2))
        assert [q.parameters for q in first] == [q.parameters for q in second]

    def test_a_question_shows_no_expected_answer(self) -> None:
        for question in self.verifier().questions(self.task()):
            assert self.right(question.parameters) not in question.parameters.values()
