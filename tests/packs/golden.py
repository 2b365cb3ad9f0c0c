"""How ``tests/data/pack-v1.akvpack`` was made, once. Not run by tests: a golden file is never made again."""

from __future__ import annotations

import tempfile
from pathlib import Path

from agentkv import AgentMemory, FakeEngine
from agentkv.packs import create_pack

from .packing import key

TARGET = Path(__file__).parent.parent / "data" / "pack-v1.akvpack"

if __name__ == "__main__":
    with AgentMemory(tempfile.mkdtemp(), FakeEngine(), prefix="Be brief.") as memory:
        memory.deposit_text("straße", "Returns are accepted for 7 days.", "How to return a reader.")
        create_pack(memory.store, TARGET, codec="raw", licenses=["MIT\n"], signer=key())
