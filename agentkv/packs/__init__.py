"""Portable packs: one file of blocks, with names and texts, checked wholly before anything of it is stored.

```
create.py        create_pack: select, measure, write                 <- out of a store
importing.py     import_pack: trust, check, fit, blocks, names       <- into a store; blocks that came with a key
proof.py         prove_pack: whether a model computes these states
├── check.py     the whole file, without store or model
└── reader.py    open_pack: index, sizes, signature; members
    ├── tar.py       the strict subset of USTAR
    └── format.py    records, names, order, limits; one segment file in memory
```
FORMAT.md says what each byte means.

>>> import tempfile, pathlib
>>> from agentkv import AgentMemory, FakeEngine
>>> folder = pathlib.Path(tempfile.mkdtemp())
>>> with AgentMemory(folder / "mine", FakeEngine()) as memory:
...     _ = memory.deposit_text("returns", "returns are accepted for 7 days")
...     made = create_pack(memory.store, folder / "returns.akvpack")
>>> made.names, made.blocks
(('returns',), 2)
>>> with AgentMemory(folder / "yours", FakeEngine()) as memory:
...     trust = Trust(folder / "trust.json")
...     done = import_pack(
...         made.path, memory.store, fingerprint=memory.engine.fingerprint(), trust=trust, allow_unsigned=True
...     )
...     turn = memory.ask("How long?", skill="returns", max_new=1)
>>> done.verdict.decision, len(done.created), turn.tokens.restored > 0
('unsigned', 2, True)
"""

from __future__ import annotations

from agentkv.packs.create import CreatedPack, create_pack
from agentkv.packs.importing import ImportedPack, import_pack
from agentkv.packs.proof import Proof, prove_pack
from agentkv.packs.reader import Pack, open_pack
from agentkv.signing.trust import Trust

__all__ = [
    "CreatedPack",
    "ImportedPack",
    "Pack",
    "Proof",
    "Trust",
    "create_pack",
    "import_pack",
    "open_pack",
    "prove_pack",
]
