"""llama.cpp: models, contexts, scoring, sampling; :class:`~agentkv.engine.llama.engine.LlamaEngine`."""
