"""Skills, documents and threads."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from agentkv.errors.base import AgentKVError

if TYPE_CHECKING:
    from agentkv.records import Turn


class SkillError(AgentKVError):
    """Something about a SKILL.md folder."""


class InvalidManual(SkillError):
    """A manual that cannot be loaded: which file, which line, why; ``keeper``: the folder whose skill has its name."""

    exit_code = 50

    def __init__(self, path: Path, reason: str, line: int | None = None, keeper: Path | None = None) -> None:
        at = f"{path}:{line}" if line is not None else f"{path}"
        super().__init__(f"{at}: {reason}")
        self.path, self.reason, self.line, self.keeper = path, reason, line, keeper


class UnknownSkill(SkillError):
    """No skill of that name in the library."""

    exit_code = 51

    def __init__(self, name: str, near: list[str]) -> None:
        hint = f" Did you mean {', '.join(near)}?" if near else " Run `agentkv list`."
        super().__init__(f"no skill {name!r}.{hint}")
        self.name, self.near = name, near


class InvalidPick(SkillError):
    """The router's classifier answered something that is not a live label, and no fallback was allowed."""

    exit_code = 52

    def __init__(self, raw_pick: str, labels: list[str]) -> None:
        super().__init__(
            f"the router picked {raw_pick!r}, which is not one of the {len(labels):,} live labels. "
            "Ask again with --skill NAME, or with another fallback than 'error'."
        )
        self.raw_pick, self.labels = raw_pick, labels


class SkillsLeftOut(SkillError):
    """A question would be routed without skills that the store holds for another engine; nothing was decoded."""

    exit_code = 55

    def __init__(self, notice: str, names: list[str]) -> None:
        super().__init__(f"{notice} Nothing was asked, because strict makes this an error.")
        self.names = names


class DocumentError(AgentKVError):
    """Something about a corpus of documents."""


class InvalidDocument(DocumentError):
    """A file that cannot be split into chunks: it is not text, too large, or cannot be read."""

    exit_code = 80

    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(f"{path}: {reason}")
        self.path, self.reason = path, reason


class UnknownCorpus(DocumentError):
    """No corpus of that name, or none for this model and these settings."""

    exit_code = 81

    def __init__(self, name: str, known: Sequence[str], why: str = "") -> None:
        listed = f"There are: {', '.join(known)}." if known else "There is none yet."
        hint = why or f"{listed} Make it with `agentkv docs add PATH`."
        super().__init__(f"no corpus {name!r} here for this model and these settings. {hint}")
        self.name, self.known = name, list(known)


class StaleDocument(DocumentError):
    """The kept source of a file is gone or corrupt, or this version splits it into other chunks."""

    exit_code = 82

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"{path}: {reason}. Run `agentkv docs add` on it again.")
        self.path, self.reason = path, reason


class ReadingNotConfirmed(DocumentError):
    """Prefilling all chunks would take more than a minute or a gigabyte and was not confirmed; nothing was added."""

    exit_code = 84

    def __init__(self, forecast: str) -> None:
        super().__init__(
            f"prefilling every chunk now would take {forecast}; nothing was added. Pass --yes to prefill them all, or "
            "--lazy to index them now and prefill each when a question first needs it."
        )
        self.forecast = forecast


class ThreadError(AgentKVError):
    """Something about a conversation that is kept in the store."""


class UnknownThread(ThreadError):
    """No thread of that name."""

    exit_code = 90

    def __init__(self, thread_id: str, near: list[str]) -> None:
        hint = f" Did you mean {', '.join(near)}?" if near else " Run `agentkv threads list`."
        super().__init__(f"no thread {thread_id!r} in this store.{hint}")
        self.thread_id, self.near = thread_id, near


class ThreadChanged(ThreadError):
    """Another object or process has added to the thread since it was opened here; ``turn``: an answer in hand."""

    exit_code = 91

    def __init__(self, thread_id: str, turn: Turn | None = None) -> None:
        done = "Nothing was asked" if turn is None else "This answer is in the error's `turn` and not in the thread"
        super().__init__(
            f"thread {thread_id!r} has gone on elsewhere since it was opened. {done}; open it again, or fork it."
        )
        self.thread_id, self.turn = thread_id, turn


class CorruptThread(ThreadError):
    """What is kept of a thread is not what was written, or a part of it is gone."""

    exit_code = 92

    def __init__(self, thread_id: str, path: Path, reason: str) -> None:
        super().__init__(
            f"thread {thread_id!r} is corrupt ({path}): {reason}. Nothing was changed; open it at an earlier entry "
            "(memory.thread(…, entry=N)), or remove it with `agentkv threads rm`."
        )
        self.thread_id, self.path, self.reason = thread_id, path, reason
