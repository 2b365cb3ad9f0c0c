"""The embedding index made or brought up to date, with a bar and with Ctrl-C. What ``add`` and ``reindex`` share."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agentkv.cli.interrupt import cancelled_by_ctrl_c
from agentkv.cli.progress import steps
from agentkv.errors import Interrupted

if TYPE_CHECKING:
    from agentkv.documents import Shelf
    from agentkv.engine.embed import Embedder


def embedded(shelf: Shelf, embedder: Embedder) -> int:
    """Give every window its vectors; how many had none. Raises Interrupted, and what :func:`embed` raises."""
    from agentkv.documents.corpus import embed

    done, total = 0, 0
    try:
        with steps("embedding window") as show, cancelled_by_ctrl_c() as cancellation:

            def on_window(at: int, of: int, path: str) -> None:
                nonlocal done, total
                done, total = at, of
                show(at, of, path)

            return embed(shelf, embedder, on_window=on_window, cancellation=cancellation)
    except KeyboardInterrupt:
        raise Interrupted(
            f"interrupted: {done:,} of {total:,} windows are embedded and stay; the same command does the rest",
            done=done,
            total=total,
        ) from None
