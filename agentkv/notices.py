"""What a user has to know although nothing failed: one class of warning, and one way to give it.

A notice says what was left out, fell back, was cut or was guessed, and what to do about it. The same sentence goes to
``warnings``, to the record of a turn (``Turn.notes``) and, by the command line, to stderr.
"""

from __future__ import annotations

import sys
import warnings
from pathlib import Path

_PACKAGE = str(Path(__file__).resolve().parent)


class AgentKVWarning(UserWarning):
    """Nothing failed, but something was left out, fell back, was cut or was guessed; the text names the remedy.

    Turn it into an error with ``warnings.simplefilter("error", AgentKVWarning)``.
    """


def warn(text: str) -> None:
    """Warn with ``text`` on behalf of the first caller outside the package, so that Python shows it once a place."""
    frame, level = sys._getframe(1), 2
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        frame, level = frame.f_back, level + 1
    warnings.warn(text, AgentKVWarning, stacklevel=level)
