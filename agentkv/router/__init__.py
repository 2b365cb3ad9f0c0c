"""The router: one decision a turn, with the raw pick stored before anything touches it."""
