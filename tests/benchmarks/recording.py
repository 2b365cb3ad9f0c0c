"""How long benchmarks record: a run that is begun or gone on with, each item on record as soon as it is done.

Knows results and ledgers; refuses to know what is measured.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from agentkv.bench import measured
from agentkv.evidence import Item, Ledger, Run
from agentkv.evidence.ledger import RecordedRun
from agentkv.memory.memory import AgentMemory


@dataclass
class Recording:
    """A benchmark's items, those of before it broke off included. ``run``: in the ledger, if there is one."""

    header: dict[str, Any]
    run: Run | None
    items: list[Item]

    @classmethod
    def opened(
        cls,
        header: dict[str, Any],
        memory: AgentMemory,
        inputs: str,
        ledger: Ledger | None,
        found: RecordedRun | None,
    ) -> Recording:
        """A new run of ``header``, whose inputs are called ``inputs``, or ``found``, which is gone on with.

        A run that has read something else, or another model's bytes, is left as it is and a new one is begun.
        """
        if ledger is None:
            return cls(header, None, [])
        read = {inputs: header["inputs_sha256"], "model": header["model_sha256"]}
        if found is not None and found.body.inputs == read:
            return cls(header, ledger.resume(found), ledger.items(found))
        run = ledger.begin(
            header["benchmark"],
            settings=header["settings"] | {"model": header["model"]},
            inputs=read,
            fingerprints={"engine": memory.engine.fingerprint()},
        )
        return cls(header, run, [])

    @property
    def keys(self) -> set[str]:
        """What is done."""
        return {item.key for item in self.items}

    def add(self, item: Item) -> None:
        """On record at once."""
        self.items.append(item)
        if self.run is not None:
            self.run.record_all([item])

    def end(self) -> dict[str, Any]:
        """The whole result; its summary is what the run reports."""
        result = measured.result(self.header, self.items, under="summary")
        if self.run is not None:
            self.run.scores(result["summary"])
            self.run.end()
        return {**result, "ledger_run": None if self.run is None else self.run.id}
