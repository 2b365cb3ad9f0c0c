"""Files, locks, hashing, logs of lines: what a store, a pack and a ledger are written with."""
