"""A LangChain chat model that answers from a stored manual, streaming; then the turn's record.

python examples/02_langchain_chat.py                 # the fake engine: no model, scripted words
python examples/02_langchain_chat.py smollm2-135m    # a real model
"""
# ruff: noqa: T201 - an example prints

from __future__ import annotations

import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from langchain_agentkv import ChatAgentKV
from langchain_core.prompts import ChatPromptTemplate

from agentkv import AgentMemory, FakeEngine

SYSTEM = "You help the customers of Corvale."
SKILL = Path(__file__).parent.parent / "skills" / "refund-policy"


def main() -> None:
    fake = FakeEngine(window=8192, replies=lambda prompt: "RF-DUP" if "RF-DUP" in prompt else "I do not know.")
    model = sys.argv[1] if len(sys.argv) > 1 else fake
    with TemporaryDirectory() as store, AgentMemory(store, model, prefix=SYSTEM) as memory:
        memory.deposit_skill(SKILL)  # on top of the system text, so the first turn restores it
        prompt = ChatPromptTemplate.from_messages([("system", SYSTEM), ("user", "{question}")])
        chain = prompt | ChatAgentKV(memory=memory, max_new=32)
        question = "Which reason code do I pick if the shop was billed twice for the same order?"
        answer = None
        for chunk in chain.stream({"question": question}):
            print(chunk.text, end="", flush=True)
            answer = chunk if answer is None else answer + chunk
        assert answer is not None
        print("\n", answer.usage_metadata)
        print("", answer.response_metadata["agentkv"]["decision"])


if __name__ == "__main__":
    main()
