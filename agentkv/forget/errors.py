"""What forgetting raises."""

from __future__ import annotations

from collections.abc import Sequence

from agentkv.errors import AgentKVError


class StillReadable(AgentKVError):
    """After forgetting, words can still be read in some file; ``places`` tells where."""

    exit_code = 94

    def __init__(self, places: Sequence[str]) -> None:
        more = f", and {len(places) - 3:,} more" if len(places) > 3 else ""
        super().__init__(
            f"not everything could be removed. Still readable in: {'; '.join(places[:3])}{more}. "
            "Remove these by hand, or close what uses the store and run the command again."
        )
        self.places = list(places)
