"""An agent with tools and skills: each user turn is answered with the one manual that it needs.

python examples/03_agent_with_skills.py                       # the fake engine: no model, scripted words
python examples/03_agent_with_skills.py qwen2.5-coder-1.5b    # a real model
"""
# ruff: noqa: T201 - an example prints

from __future__ import annotations

import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from langchain.agents import create_agent
from langchain_agentkv import AgentKVStore, ChatAgentKV, SkillMemoryMiddleware

from agentkv import AgentMemory, FakeEngine

SKILLS = [Path(__file__).parent.parent / "skills" / name for name in ("refund-policy", "on-call-handover")]
QUESTION = "The shop was billed twice for order 1182. Look up its charges, then tell me the refund's reason code."
CALL = '<tool_call>\n{"name": "charges", "arguments": {"order": 1182}}\n</tool_call>'


def charges(order: int) -> list[str]:
    """The charges of an order, as the bank has them."""
    return ["GBP 40.00", "GBP 40.00"]


def fake_answer(prompt: str) -> str:
    """What a model that reads its manual and its tools' results would say."""
    if "GBP 40.00" not in prompt:
        return CALL
    return "RF-DUP" if "RF-DUP" in prompt else "I do not know."


def main() -> None:
    fake = FakeEngine(window=16384, replies=fake_answer, keeps_grammar=True)
    with TemporaryDirectory() as store, AgentMemory(store, sys.argv[1] if len(sys.argv) > 1 else fake) as memory:
        skills = SkillMemoryMiddleware(memory=memory, skills=SKILLS)
        print(len(skills.sync().added), "skills read")
        chat = ChatAgentKV(memory=memory, max_new=96)
        agent = create_agent(chat, [charges], middleware=[skills], store=AgentKVStore(memory.store))
        state = agent.invoke({"messages": [{"role": "user", "content": QUESTION}]})
        for message in state["messages"]:
            print(f"\n{message.type}: {message.text or message.tool_calls}")
            if message.type == "ai":
                tokens = message.response_metadata["agentkv"]["tokens"]
                print(f"  {tokens['restored']} tokens restored, {tokens['prefilled']} prefilled")
        print("\nskill:", state["agentkv_decision"]["pick"], "by", state["agentkv_decision"]["how"])


if __name__ == "__main__":
    main()
