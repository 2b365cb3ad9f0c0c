"""``--part secrets``: many threads and event loops on one model, and no answer holds another block's secret.

Twelve blocks hold a secret each. Turns in random order are asked by two threads and by two event loops at once, through
one ``ChatAgentKV``; each answer, and the SHA-256 of its logits, has to be that of the same turn asked alone.
"""

from __future__ import annotations

import asyncio
import random
import threading
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agentkv.bench.base import Row
from agentkv.bench.measured import Raw
from agentkv.bench.results import say
from agentkv.errors import GuaranteeViolated
from agentkv.memory.memory import AgentMemory
from tests.benchmarks.agent.part import Lengths, Measured, Part

if TYPE_CHECKING:
    from langchain_agentkv import ChatAgentKV

_QUESTIONS = ("What is the password?", "Tell me the word that opens the door.", "Which password does this manual give?")
_WINDOW = 512
_IN_FLIGHT = 4

Asked = tuple[int, int]
"""A block's number and a question's."""
Answer = tuple[str, str]
"""An answer and the SHA-256 of its logits."""


@dataclass(frozen=True)
class Plan(Lengths):
    """And how many blocks."""

    turns: int = 200
    answer: int = 12
    blocks: int = 12


class Questions(Row):
    """The raw record of what was asked: the turns, and each block's secret."""

    part: str
    turns: list[Asked]
    secrets: list[str]


class Seen(Row):
    """The raw records: each turn's answer alone, and beside the others by the turn's place."""

    plan: Questions
    alone: list[tuple[Asked, Answer]]
    together: list[tuple[int, Answer]]


def secret(number: int) -> str:
    """The secret of a block; none is a part of another."""
    return f"{1000 + 727 * number}-{'abcdefghijkl'[number % 12] * 3}"


class Secrets(Part[Plan]):
    """See the module's text."""

    model = "smollm2-135m"
    usual, small = Plan(), Plan(turns=24, answer=8)

    def run(self, folder: Path) -> Measured:
        """The whole part on one engine."""
        from langchain_agentkv import ChatAgentKV

        plan, rng = self.lengths, random.Random(0)
        texts = [f"The password of door {n} is {secret(n)}. Nobody else may hear it.\n" for n in range(plan.blocks)]
        turns: list[Asked] = [(rng.randrange(plan.blocks), rng.randrange(len(_QUESTIONS))) for _ in range(plan.turns)]
        with self.open(_WINDOW) as engine, AgentMemory(folder, engine) as memory:
            for number, text in enumerate(texts):
                memory.deposit_text(_name(number), text)
            chat = ChatAgentKV(memory=memory, max_new=plan.answer)
            alone = {turn: _ask(chat, turn) for turn in sorted(set(turns))}
            say(f"{len(alone)} turns asked alone")
            together = _together(chat, turns)
            digest = engine.info.sha256
        asked = {"part": "secrets", "turns": turns, "secrets": [secret(n) for n in range(plan.blocks)]}
        raw = {"plan": asked, "alone": list(alone.items()), "together": together}
        return Measured(raw, digest, [texts, turns, _QUESTIONS])

    @staticmethod
    def figures(raw: Raw) -> dict[str, Any]:
        """``leaks``, ``unequal``: places of turns with another block's secret, and unlike the same turn alone."""
        seen = Seen.model_validate(raw)
        alone, blocks, secrets = dict(seen.alone), [block for block, _ in seen.plan.turns], seen.plan.secrets
        held = [(index, {n for n, word in enumerate(secrets) if word in text}) for index, (text, _) in seen.together]
        return {
            "asked": len(seen.together),
            "once_each": Counter(index for index, _ in seen.together) == Counter(range(len(blocks))),
            "leaks": [index for index, numbers in held if numbers - {blocks[index]}],
            "unequal": [index for index, answer in seen.together if alone[seen.plan.turns[index]] != answer],
            "own_secret": sum(blocks[index] in numbers for index, numbers in held),
            "distinct_answers": len(set(alone.values())),
        }

    @staticmethod
    def check(result: dict[str, Any]) -> None:
        """No secret leaked, no answer differs, every turn was asked once."""
        if result["leaks"]:
            raise GuaranteeViolated(f"turns {result['leaks'][:5]} hold the secret of another block")
        if result["unequal"]:
            raise GuaranteeViolated(f"turns {result['unequal'][:5]} are not those of the sequential run")
        if not result["once_each"]:
            raise GuaranteeViolated(f"{result['asked']} answers, and not one for each turn")

    @staticmethod
    def notes(result: dict[str, Any]) -> Iterable[str]:
        """Every figure."""
        blocks = result["settings"]["blocks"]
        yield f"{result['asked']} turns over {blocks} blocks by two threads and two event loops on one model"
        yield f"answers with another block's secret: {len(result['leaks'])}"
        yield f"answers or logits other than of the turn asked alone: {len(result['unequal'])}"
        yield f"answers with their own block's secret: {result['own_secret']}"


def _name(number: int) -> str:
    return f"door {number}"


def _ask(chat: ChatAgentKV, turn: Asked) -> Answer:
    return _answer(chat.invoke(_QUESTIONS[turn[1]], skill=_name(turn[0])))


def _answer(message: Any) -> Answer:
    return message.text, message.response_metadata["agentkv"]["logits_sha256"]


def _together(chat: ChatAgentKV, turns: list[Asked]) -> list[tuple[int, Answer]]:
    """Every turn once, by whoever is free: two threads, and two event loops with several turns in flight each."""
    waiting = list(enumerate(turns))[::-1]
    answers: list[tuple[int, Answer]] = []
    errors: list[BaseException] = []

    def following() -> tuple[int, Asked] | None:
        try:
            return waiting.pop()
        except IndexError:
            return None

    def by_thread() -> None:
        while (job := following()) is not None:
            answers.append((job[0], _ask(chat, job[1])))

    async def one_after_another() -> None:
        while (job := following()) is not None:
            index, (block, question) = job
            answers.append((index, _answer(await chat.ainvoke(_QUESTIONS[question], skill=_name(block)))))

    async def by_loop() -> None:
        await asyncio.gather(*(one_after_another() for _ in range(_IN_FLIGHT)))

    def guarded(work: Callable[[], object]) -> None:
        try:
            work()
        except BaseException as error:
            errors.append(error)

    jobs: list[Callable[[], object]] = [by_thread, by_thread, *[lambda: asyncio.run(by_loop())] * 2]
    threads = [threading.Thread(target=guarded, args=(job,)) for job in jobs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    return answers
