"""The same agent on deepagents: its skills folder, without the manuals' tokens in the prompt.

python examples/04_deep_agent.py                       # the fake engine: no model, scripted words
python examples/04_deep_agent.py qwen2.5-coder-1.5b    # a real model (slow: deepagents' own tools are 5,000 tokens)
"""
# ruff: noqa: T201 - an example prints

from __future__ import annotations

import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from deepagents import create_deep_agent
from langchain_agentkv import ChatAgentKV, SkillMemoryMiddleware

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
    fake = FakeEngine(window=1 << 17, replies=fake_answer, keeps_grammar=True)
    with TemporaryDirectory() as store, AgentMemory(store, sys.argv[1] if len(sys.argv) > 1 else fake) as memory:
        skills = SkillMemoryMiddleware(memory=memory, skills=[(path, "Shop") for path in SKILLS])
        agent = create_deep_agent(ChatAgentKV(memory=memory, max_new=96), [charges], middleware=[skills])
        state = agent.invoke({"messages": [{"role": "user", "content": QUESTION}]})
        for message in state["messages"]:
            print(f"\n{message.type}: {message.text or message.tool_calls}")
            if message.type == "ai":
                tokens = message.response_metadata["agentkv"]["tokens"]
                print(f"  {tokens['restored']} tokens restored, {tokens['prefilled']} prefilled")
        decision = state["agentkv_decision"]
        print(f"\nskill: {decision['pick']} of {decision['source']}, by {decision['how']}")


if __name__ == "__main__":
    main()
