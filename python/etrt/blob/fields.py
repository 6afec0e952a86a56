"""Strict reading of JSON: what the C++ reader accepts, with errors that name the field."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from etrt.blob.types import MAX_RANK, BlobError

_MAX_DEPTH = 32
_TOO_DEEP = f"metadata: nests deeper than {_MAX_DEPTH} levels"
REQUIRED = object()


def parse_json(text: bytes) -> Any:
    """Strict JSON: what the C++ reader accepts, and the same Python types for it."""
    try:
        value = json.loads(
            text.decode(),
            parse_int=_integer,
            parse_float=_number,
            parse_constant=_constant,
            object_pairs_hook=_object,
        )
        json.dumps(value, ensure_ascii=False).encode()
    except json.JSONDecodeError as error:
        raise BlobError(f"metadata: no valid JSON at character {error.pos}: {error.msg}") from None
    except UnicodeDecodeError as error:
        raise BlobError(f"metadata: no valid UTF-8 at byte {error.start}") from None
    except UnicodeEncodeError:
        raise BlobError("metadata: a string has half of a surrogate pair") from None
    except RecursionError:
        raise BlobError(_TOO_DEEP) from None
    stack = [(value, 1)]
    while stack:
        item, depth = stack.pop()
        if isinstance(item, dict | list):
            if depth > _MAX_DEPTH:
                raise BlobError(_TOO_DEEP)
            children = item.values() if isinstance(item, dict) else item
            stack += [(child, depth + 1) for child in children]
    return value


def _number(digits: str) -> float:
    value = float(digits)
    if value in (float("inf"), float("-inf")):
        raise BlobError("metadata: a number in it is too large")
    return value


def _integer(digits: str) -> int | float:
    value = int(digits) if len(digits) <= 20 else None
    return value if value is not None and -(2**63) <= value < 2**64 else _number(digits)


def _constant(word: str) -> None:
    raise BlobError(f"metadata: {word} is no JSON")


def _object(items: list[tuple[str, Any]]) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for key, value in items:
        if key in result:
            raise BlobError(f'metadata: key "{key}" appears twice in one object')
        result[key] = value
    return result


def _type_name(value: Any) -> str:
    names = {dict: "an object", list: "an array", str: "a string", bool: "a boolean", int: "an integer"}
    return "null" if value is None else names.get(type(value), "a number")


def check_word(path: str, value: str, words: Sequence[str]) -> None:
    if value not in words:
        raise BlobError(f'{path}: "{value}" is none of {", ".join(filter(None, words))}')


class Fields:
    """The fields of one JSON object; errors name them with their path."""

    def __init__(self, value: Any, path: str) -> None:
        if type(value) is not dict:
            raise BlobError(f"{path or 'metadata'}: is {_type_name(value)}, expected an object")
        self._values = value
        self._path = path

    def path(self, key: str) -> str:
        return f"{self._path}.{key}" if self._path else key

    def has(self, key: str) -> bool:
        return key in self._values

    def is_null(self, key: str) -> bool:
        return self.has(key) and self._values[key] is None

    def get(self, key: str, kind: type, default: Any = REQUIRED) -> Any:
        value = self._values.get(key, default)
        if value is REQUIRED:
            raise BlobError(f"{self.path(key)}: is missing")
        if type(value) is not kind:
            raise BlobError(f"{self.path(key)}: is {_type_name(value)}, expected {_type_name(kind())}")
        return value

    def word(self, key: str, words: Sequence[str], default: Any = REQUIRED) -> str:
        value = self.get(key, str, default)
        check_word(self.path(key), value, words)
        return value

    def integer(self, key: str, bits: int, default: Any = REQUIRED) -> int:
        value = self.get(key, int, default)
        check_bits(self.path(key), value, bits)
        return value

    def shape(self, key: str, default: Any = REQUIRED) -> list[int]:
        extents = self.get(key, list, default)
        if len(extents) > MAX_RANK:
            raise BlobError(f"{self.path(key)}: has rank {len(extents)}, at most {MAX_RANK} is possible")
        for i, extent in enumerate(extents):
            path = f"{self.path(key)}[{i}]"
            if type(extent) is not int:
                raise BlobError(f"{path}: is {_type_name(extent)}, expected an integer")
            check_bits(path, extent, 64)
        return list(extents)

    def objects(self, key: str, default: Any = REQUIRED) -> list[Fields]:
        items = self.get(key, list, default)
        return [Fields(item, f"{self.path(key)}[{i}]") for i, item in enumerate(items)]


def check_bits(path: str, value: int, bits: int) -> None:
    if not -(2 ** (bits - 1)) <= value < 2 ** (bits - 1):
        raise BlobError(f"{path}: {value} is outside int{bits}")
