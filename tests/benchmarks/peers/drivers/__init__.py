"""Scripts that run in an environment of a peer: the standard library and that peer, nothing of agentkv."""
