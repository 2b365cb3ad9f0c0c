"""What a candidate finds when it starts: its numbered descriptors, and the mark in its environment."""

PAYLOAD, ANSWER = 3, 4
MARK = "AGENTKV_SANDBOX"
