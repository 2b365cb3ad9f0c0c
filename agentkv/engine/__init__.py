"""Layer 2: tokens, contexts, states. Knows nothing of files on disk but the model it loads."""
