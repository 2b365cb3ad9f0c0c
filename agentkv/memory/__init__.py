"""`AgentMemory`: turns, threads, and what fits into the model's context window."""
