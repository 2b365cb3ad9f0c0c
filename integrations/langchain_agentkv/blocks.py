"""Content blocks as text: what a text model can read of them, and what has to be left out by name.

A block that holds text, or data that JSON can say, is read as that. Anything else (an image, audio, a file) is left
out: a short text in square brackets stands in its place, so that the model knows of it too, and whoever asks is told.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

_OF_CALLS = {"tool_use", "tool_call", "function_call", "invalid_tool_call", "input_json_delta", "reasoning", "thinking"}
"""Blocks of an assistant that say what ``tool_calls`` says too, or what is not said to a model again."""
_NAMES = ("filename", "name", "title", "url", "uri", "file_id", "id", "mime_type", "mimeType", "media_type")
_LONGEST_NAME = 200


def text_of(content: str | Sequence[str | dict[str, Any]], *, by_model: bool = False) -> tuple[str, list[str]]:
    """The text of a message's content, and what was left out of it. ``by_model``: an assistant's own message."""
    if isinstance(content, str):
        return content, []
    texts, missing = [], []
    for block in content:
        text = _read(block, by_model)
        if text is None:
            assert isinstance(block, Mapping)
            missing.append(_named(block))
            text = f"[{missing[-1]}, left out: this model reads text only]"
        texts.append(text)
    return "".join(texts), missing


def unreadable(content: str | Sequence[str | dict[str, Any]]) -> Iterable[str]:
    """The types of the blocks that would be left out."""
    blocks = [] if isinstance(content, str) else content
    return [str(block.get("type")) for block in blocks if _read(block, False) is None and isinstance(block, Mapping)]


def _read(block: str | Mapping[str, Any], by_model: bool) -> str | None:
    """The text of a block; None if it has none."""
    if isinstance(block, str):
        return block
    kind = block.get("type")
    if by_model and kind in _OF_CALLS:
        return ""
    resource = block.get("resource")
    for holder in (block, resource if isinstance(resource, Mapping) else {}):
        if isinstance(holder.get("text"), str):
            return str(holder["text"])
    if kind == "json" or (kind is None and "json" in block):
        data = next((block[key] for key in ("json", "data", "value", "content") if key in block), None)
        return None if data is None else _as_json(data)
    inner = block.get("content")
    if isinstance(inner, list) and all(isinstance(one, str | Mapping) for one in inner):
        text, missing = text_of(inner)
        return None if missing else text
    return None


def _as_json(data: Any) -> str | None:
    try:
        return data if isinstance(data, str) else json.dumps(data, ensure_ascii=False)
    except (TypeError, ValueError, RecursionError):
        return None


def _named(block: Mapping[str, Any]) -> str:
    """What a block is called, without its bytes: ``image https://example.org/a.png``."""
    kind = str(block.get("type") or "unknown block").removesuffix("_url")
    inner = block.get(str(block.get("type")))
    for holder in (block, inner if isinstance(inner, Mapping) else {}, block.get("source") or {}):
        for key in _NAMES if isinstance(holder, Mapping) else ():
            name = holder.get(key)
            if isinstance(name, str) and name and not name.startswith("data:") and len(name) <= _LONGEST_NAME:
                return f"{kind} {name}"
    return kind
