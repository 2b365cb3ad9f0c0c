"""How ``store-v1`` was made, once, with agentkv 0.1.0: kept to be read, not to be run again.

python tests/data/make_store_v1.py NEW_DIRECTORY
"""

from __future__ import annotations

import sys
from pathlib import Path

from agentkv import AgentMemory, FakeEngine
from agentkv.io.lock import GATE, LOCK
from agentkv.records import Import
from agentkv.skills.manual import Manual
from agentkv.store.catalog import BlockStore
from agentkv.store.uses import USES

PREFIX = "You answer from the manual below. "
MANUALS = {
    "returns": ("planes", "Returns are taken back for 30 days. Straße, café, 日本.\n" * 4, "Returning goods."),
    "warranty": ("zstd", "The warranty lasts for 24 months, batteries 6.\n" * 4, "What is guaranteed."),
    "notes": ("raw", "A text without a card: 1, 2, 3.\n" * 9, ""),
}


def main(root: Path) -> None:
    """Make the store; what is not part of it for ever (locks, counts of uses) goes again."""
    if root.exists():
        raise SystemExit(f"{root} is there already")
    blocks = {}
    with FakeEngine(window=1024) as engine:
        for name, (codec, text, description) in MANUALS.items():
            with BlockStore(root, codec=codec) as store:
                memory = AgentMemory(store, engine, prefix=PREFIX)
                if description:
                    skill = Manual(name, description, text, Path("/manuals") / name, license="MIT")
                    blocks[name] = memory.deposit_skill(skill)
                else:
                    blocks[name] = memory.deposit_text(name, text, source="/notes.txt")
    with BlockStore(root) as store:
        store.pin(blocks["returns"].manifest.block_id)
        imported = blocks["warranty"].manifest.block_id
        key = "ed25519:" + "cd" * 32
        store.set_import(Import(block_id=imported, pack_sha256="ab" * 32, signed_by=key, decision="trusted"))
        store.set_budget(10**9)
        store.collect()
    for path in root.iterdir():
        if path.name in (LOCK, GATE) or path.name.startswith(USES):
            path.unlink()
    for path in sorted(root.rglob("*"), reverse=True):
        if path.is_dir() and not any(path.iterdir()):
            path.rmdir()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
