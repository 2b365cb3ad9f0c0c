"""Deposit and graft: where an engine and a store meet."""
