"""How a record of the flywheel lies in its file: sealed, canonical, with values of any JSON type kept exactly."""

from __future__ import annotations

from typing import TypeVar

from pydantic import ValidationError

from agentkv.flywheel import values
from agentkv.records import Record
from agentkv.store.format import Malformed, seal, unseal

R = TypeVar("R", bound=Record)


def encode(magic: str, record: Record) -> bytes:
    """The bytes of a record's file."""
    return seal(magic, values.encode(record.model_dump(mode="json")).encode())


def decode(magic: str, data: bytes, kind: type[R], what: str) -> R:
    """The record of a file's bytes. Raises Malformed, which calls it ``what``."""
    body = unseal(magic, data)
    try:
        values.decode(body)
        record = kind.model_validate_json(body)
    except (ValidationError, ValueError) as error:
        reason = error.errors(include_input=False)[0]["msg"] if isinstance(error, ValidationError) else str(error)
        raise Malformed(f"not a {what}: {reason[:300]}") from error
    if encode(magic, record) != data:
        raise Malformed("the body is not canonical JSON")
    return record
