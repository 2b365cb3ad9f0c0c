"""What deepagents sends to a chat model when it works by its own skills: its prompt, its tools, the manual as read.

Nothing of it is written here. A deep agent is made with a model that records what it is asked: its prompt names the
skill, it reads its file with ``read_file``, and the second request holds what every later turn of that conversation
begins with.
"""

from __future__ import annotations

import importlib.metadata
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.benchmarks.agent.script import TOOLS

ROLE = "You are the support agent of a web shop. Look things up with the tools, and answer from the shop's manual."
SKILL = "shop-manual"
_DESCRIPTION = "How the web shop handles orders, charges, parcels, refunds and notes."
_LIMIT = 1000
"""Lines to be read, as deepagents' prompt asks."""


@dataclass(frozen=True)
class Opening:
    """``system``: deepagents' own. ``read``: the call of the manual, and its result. ``tools``: in OpenAI's form."""

    system: Any
    read: tuple[Any, Any]
    tools: tuple[dict[str, Any], ...]
    version: str

    def messages(self, script: list[Any]) -> list[Any]:
        """The script's messages, whose system message holds the manual, as deepagents would send them."""
        _, first, *rest = script
        return [self.system, first, *self.read, *rest] if rest else [self.system, first]


def opening(manual: str, folder: Path) -> Opening:
    """``manual`` as a skill in ``folder``, read by a deep agent."""
    from deepagents import create_deep_agent
    from deepagents.backends import FilesystemBackend

    skill = folder / "skills" / SKILL
    skill.mkdir(parents=True, exist_ok=True)
    (skill / "SKILL.md").write_text(f"---\nname: {SKILL}\ndescription: {_DESCRIPTION}\n---\n{manual}", "utf-8")
    model = _recorder(f"/skills/{SKILL}/SKILL.md")
    agent = create_deep_agent(
        model,
        list(TOOLS),
        system_prompt=ROLE,
        skills=["/skills/"],
        backend=FilesystemBackend(root_dir=folder, virtual_mode=True),
    )
    agent.invoke({"messages": [{"role": "user", "content": "Hello."}]})
    system, _, call, result = model.requests[1]
    return Opening(system, (call, result), tuple(model.tools), importlib.metadata.version("deepagents"))


def _recorder(path: str) -> Any:
    """A chat model that reads ``path`` first and then has done, and records what it is asked."""
    from langchain_core.language_models import BaseChatModel
    from langchain_core.messages import AIMessage
    from langchain_core.outputs import ChatGeneration, ChatResult
    from langchain_core.utils.function_calling import convert_to_openai_tool
    from pydantic import Field

    class Recorder(BaseChatModel):
        requests: list[list[Any]] = Field(default_factory=list)
        tools: list[dict[str, Any]] = Field(default_factory=list)

        @property
        def _llm_type(self) -> str:
            return "recorder"

        def bind_tools(self, tools: Any, **_: Any) -> Any:
            self.tools[:] = [convert_to_openai_tool(tool) for tool in tools]
            return self

        def _generate(self, messages: list[Any], stop: Any = None, run_manager: Any = None, **_: Any) -> ChatResult:
            self.requests.append(messages)
            given = {"file_path": path, "limit": _LIMIT}
            call = {"name": "read_file", "args": given, "id": "read", "type": "tool_call"}
            answer = AIMessage("", tool_calls=[call]) if len(self.requests) == 1 else AIMessage("Done.")
            return ChatResult(generations=[ChatGeneration(message=answer)])

    return Recorder()
