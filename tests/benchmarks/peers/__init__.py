"""Agentkv beside what people use today: the benchmark ``peers`` and its arms, each a way to keep a block's state."""
