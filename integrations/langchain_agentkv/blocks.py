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
_NO_NAMES = ("data:", "lc_")
"""Bytes, and what LangChain made up: another one each time, so that no prompt would begin like an earlier one."""


Content = str | list[str | dict[str, Any]]


def text_of(content: str | Sequence[str | dict[str, Any]], *, by_model: bool = False) -> tuple[str, list[str]]:
    """The text of a message's content, and what was left out of it. ``by_model``: an assistant's own message."""
    if isinstance(content, str):
        return content, []
    texts, missing = [], list[str]()
    for block in content:
        text, inside = _read(block, by_model)
        if text is None:
            assert isinstance(block, Mapping)
            inside = [_named(block)]
            text = f"[{inside[0]}, left out: this model reads text only]"
        texts.append(text)
        missing += inside
    return "".join(texts), missing


def unreadable(content: str | Sequence[str | dict[str, Any]]) -> Iterable[str]:
    """The types of the blocks of which something would be left out."""
    read = [] if isinstance(content, str) else [(block, *_read(block, False)) for block in content]
    return [
        str(block.get("type"))
        for block, text, inside in read
        if isinstance(block, Mapping) and (text is None or inside)
    ]


def traceable(content: Content) -> Content:
    """The content as LangChain's tracing takes it, which raises for an image without a type, and a file of text."""
    if isinstance(content, str):
        return content
    return [_traceable(block) if isinstance(block, dict) else block for block in content]


def _traceable(block: dict[str, Any]) -> dict[str, Any]:
    if block.get("source_type") == "text" and isinstance(block.get("text"), str):
        return {"type": "text", "text": block["text"]}
    by_bytes = "base64" in block or block.get("source_type") == "base64"
    return (
        {**block, "mime_type": "image/*"}
        if block.get("type") == "image" and by_bytes and not block.get("mime_type")
        else block
    )


def _read(block: str | Mapping[str, Any], by_model: bool) -> tuple[str | None, list[str]]:
    """The text of a block, None if it has none, and what of its inside was left out."""
    if isinstance(block, str):
        return block, []
    kind = block.get("type")
    if by_model and kind in _OF_CALLS:
        return "", []
    if kind == "text" and block.get("text", "") is None:
        return "", []
    source = block.get("source")
    for holder in (block, *(inner for key in ("resource", "source") if isinstance(inner := block.get(key), Mapping))):
        if isinstance(holder.get("text"), str):
            return str(holder["text"]), []
    if isinstance(source, Mapping) and source.get("type") == "text" and isinstance(source.get("data"), str):
        return str(source["data"]), []
    if kind == "json" or (kind is None and "json" in block):
        data = next((block[key] for key in ("json", "data", "value", "content") if key in block), None)
        return None if data is None else _as_json(data), []
    for inner in (block.get("content"), source.get("content") if isinstance(source, Mapping) else None):
        if isinstance(inner, str) or (isinstance(inner, list) and all(isinstance(one, str | Mapping) for one in inner)):
            return text_of(inner)
    return None, []


def _as_json(data: Any) -> str | None:
    try:
        return data if isinstance(data, str) else json.dumps(data, ensure_ascii=False)
    except (TypeError, ValueError, RecursionError):
        return None


def _named(block: Mapping[str, Any]) -> str:
    """What a block is called, without its bytes: ``image https://example.org/a.png``."""
    kind = str(block.get("type") or "unknown block").removesuffix("_url")
    inner = block.get("image_url" if block.get("type") == "input_image" else str(block.get("type")))
    inner = {"url": inner} if isinstance(inner, str) else inner
    for holder in (block, inner if isinstance(inner, Mapping) else {}, block.get("source") or {}):
        for key in _NAMES if isinstance(holder, Mapping) else ():
            name = holder.get(key)
            if isinstance(name, str) and name and not name.startswith(_NO_NAMES) and len(name) <= _LONGEST_NAME:
                return f"{kind} {name}"
    return kind
