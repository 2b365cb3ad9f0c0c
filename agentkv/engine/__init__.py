"""Token ids, contexts and their states, chat templates, grammars, embeddings; what any engine has to offer."""
