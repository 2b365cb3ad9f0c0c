"""Documents as memory: add files, find chunks, ask one of them, and give an agent both.

python examples/06_documents.py                       # the fake engine: no model, scripted words
python examples/06_documents.py qwen2.5-coder-1.5b    # a real model
"""
# ruff: noqa: T201 - an example prints

from __future__ import annotations

import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from langchain_agentkv import AgentKVRetriever, search_documents

from agentkv import AgentMemory, FakeEngine
from agentkv.documents import Corpus

FOLDERS = [Path(__file__).parent.parent / "skills" / name for name in ("refund-policy", "access-requests")]
QUESTION = "How high is the restocking fee for an opened card reader?"
QUOTE = "- The restocking fee for an opened card reader is 12% of its price."


def fake_answer(prompt: str) -> str:
    """What a model that has the right chunk would say."""
    return f'12%\nThe passage says: "{QUOTE}"' if QUOTE in prompt else "not stated"


def main() -> None:
    model = sys.argv[1] if len(sys.argv) > 1 else FakeEngine(window=4096, replies=fake_answer)
    with TemporaryDirectory() as store, AgentMemory(store, model) as memory:
        corpus = Corpus(memory, chunk_tokens=384, overlap=32)
        report = corpus.add(FOLDERS, include=["*.md"])
        print(report.prefilled, "chunks prefilled and stored")

        hit = corpus.find(QUESTION, k=1)[0]
        print(f"found: {hit.path} > {hit.heading}, bytes {hit.start} to {hit.stop}")

        reply = corpus.ask(QUESTION)
        print(f"\n{QUESTION}\n  {reply.answer}")
        for attempt in reply.attempts:
            print(f"  {attempt.tokens.restored} tokens restored, {attempt.tokens.prefilled} prefilled")

        for document in AgentKVRetriever(corpus=corpus, k=2).invoke(QUESTION):
            about = document.metadata
            print(f"retriever: {about['path']} chunk {about['window']}, score {about['score']:.1f}")

        tool = search_documents(corpus, ask=True)  # an agent's tool: create_agent(chat, [tool])
        print(f"\n{tool.name}: {tool.invoke({'query': QUESTION})}")


if __name__ == "__main__":
    main()
