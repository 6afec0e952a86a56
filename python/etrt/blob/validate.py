"""What a Blob has to be, wherever it comes from."""

from __future__ import annotations

import re
from collections.abc import Sequence

from etrt.blob.container import check_engine_digest
from etrt.blob.fields import check_bits, check_word
from etrt.blob.types import (
    DTYPES,
    KINDS,
    MAX_RANK,
    OWNERSHIPS,
    UPDATES,
    Alias,
    Binding,
    Blob,
    BlobError,
    State,
    has_session,
    shape_known,
)

_DIGEST = re.compile(r"xxh3:[0-9a-f]{16}")


def validate(blob: Blob) -> None:
    """Checks all that ``read`` checks, but for the container itself.

    Raises:
        BlobError: names the field, what was wrong, and both values where there are two.
    """
    _Validator(blob).run()


class _Validator:
    """Checks one Blob; see ``validate``."""

    def __init__(self, blob: Blob) -> None:
        self._blob = blob
        self._bindings: dict[str, Binding] = {}
        self._states: dict[str, int] = {}
        for i, state in enumerate(blob.states):
            self._states.setdefault(state.id, i)

    def run(self) -> None:
        self._check_bindings()
        self._check_aliases()
        self._check_scalars()
        self._check_states()
        self._check_position()

    def _check_bindings(self) -> None:
        first: dict[str, int] = {}
        for i, binding in enumerate(self._blob.bindings):
            path = f"io_bindings[{i}]"
            _check_name(f"{path}.name", binding.name)
            if binding.name in first:
                raise BlobError(
                    f'{path}.name: "{binding.name}" is the name of io_bindings[{first[binding.name]}] already'
                )
            first[binding.name] = i
            self._bindings[binding.name] = binding
            check_word(f"{path}.dtype", binding.dtype, ["", *DTYPES])
            _check_extents(f"{path}.shape", binding.shape)

    def _check_aliases(self) -> None:
        outputs: dict[str, int] = {}
        inputs: dict[str, int] = {}
        for i, alias in enumerate(self._blob.aliases):
            path = f"aliased_io[{i}]"
            output = self._find(f"{path}.output", alias.output, is_input=False)
            source = self._find(f"{path}.input", alias.input, is_input=True)
            for key, name, seen in (("output", alias.output, outputs), ("input", alias.input, inputs)):
                if name in seen:
                    raise BlobError(f'{path}.{key}: "{name}" is in aliased_io[{seen[name]}] already')
                seen[name] = i
            _check_same_tensor(path, output, source)
            check_word(f"{path}.kind", alias.kind, KINDS)
            check_word(f"{path}.ownership", alias.ownership, OWNERSHIPS)
            self._check_alias_state(f"{path}.state", alias)

    def _check_alias_state(self, path: str, alias: Alias) -> None:
        if alias.ownership == "caller":
            if alias.state:
                raise BlobError(f'{path}: "{alias.state}" is given, but the caller owns the memory')
            return
        _check_name(path, alias.state)
        if alias.state not in self._states:
            raise BlobError(f'{path}: "{alias.state}" is none of the states')
        index = self._states[alias.state]
        state = self._blob.states[index]
        if (state.input, state.output) != (alias.input, alias.output):
            raise BlobError(
                f'{path}: joins output "{alias.output}" and input "{alias.input}", but states[{index}] has '
                f'output "{state.output}" and input "{state.input}"'
            )

    def _check_scalars(self) -> None:
        blob = self._blob
        check_bits("device_id", blob.device_id, 32)
        _check_text("serialized_metadata", blob.serialized_metadata)
        _check_text("target_platform", blob.target_platform)
        _check_name("engine", blob.engine_kind)
        _check_text("engine_entry", blob.engine_entry)
        if blob.engine_digest and not _DIGEST.fullmatch(blob.engine_digest):
            raise BlobError(f'engine_digest: "{blob.engine_digest}" is not xxh3: and 16 lowercase hex digits')
        _check_text("engine_key", blob.engine_key)
        if blob.engine_key and len(blob.engine):
            raise BlobError(
                f'engine_size: {len(blob.engine)}, but engine_key "{blob.engine_key}" says that the bytes '
                "are elsewhere"
            )
        if not blob.engine_key and not len(blob.engine):
            raise BlobError("engine_size: 0, and no engine_key says where the engine is")
        if len(blob.engine):
            check_engine_digest(blob.engine, blob.engine_digest)
        _check_text("model_id", blob.model_id)
        if has_session(blob):
            _check_name("model_id", blob.model_id)

    def _check_states(self) -> None:
        used: dict[str, int] = {}
        for i, state in enumerate(self._blob.states):
            path = f"states[{i}]"
            _check_name(f"{path}.id", state.id)
            if self._states[state.id] != i:
                raise BlobError(
                    f'{path}.id: "{state.id}" is the id of states[{self._states[state.id]}] already'
                )
            ends = [("input", state.input)] + ([("output", state.output)] if state.output else [])
            for key, name in ends:
                self._find(f"{path}.{key}", name, is_input=key == "input")
                if name in used:
                    raise BlobError(f'{path}.{key}: "{name}" belongs to states[{used[name]}] already')
                used[name] = i
            check_word(f"{path}.update", state.update, UPDATES)
            check_word(f"{path}.ownership", state.ownership, OWNERSHIPS)
            self._check_alias_of(path, state)
            self._check_tensor(path, state, [name for _, name in ends])
            _check_text(f"{path}.initial_key", state.initial_key)
            if state.initial_length < 0:
                raise BlobError(f"{path}.initial_length: {state.initial_length} is negative")
            check_bits(f"{path}.initial_length", state.initial_length, 64)
            if state.sequence_dim is not None and state.initial_length > state.shape[state.sequence_dim]:
                raise BlobError(
                    f"{path}.initial_length: {state.initial_length} passes the capacity of "
                    f"{state.shape[state.sequence_dim]} positions"
                )

    def _check_alias_of(self, path: str, state: State) -> None:
        found = [
            (i, alias)
            for i, alias in enumerate(self._blob.aliases)
            if alias.input == state.input or (state.output and alias.output == state.output)
        ]
        if state.update == "swap" or not state.output:
            for i, alias in found:
                how = '"swap"' if state.update == "swap" else "the method only reads it"
                raise BlobError(
                    f'{path}.update: {how}, but aliased_io[{i}] joins output "{alias.output}" and input '
                    f'"{alias.input}"'
                )
            return
        for i, alias in found:
            if (alias.input, alias.output) != (state.input, state.output):
                continue
            if alias.ownership != state.ownership:
                raise BlobError(
                    f'{path}.ownership: "{state.ownership}" differs from "{alias.ownership}" of aliased_io[{i}]'
                )
            if alias.ownership == "session" and alias.state != state.id:
                raise BlobError(f'{path}.id: "{state.id}" differs from "{alias.state}" of aliased_io[{i}]')
            return
        raise BlobError(
            f'{path}.update: "in_place", but no alias joins output "{state.output}" and input "{state.input}"'
        )

    def _check_tensor(self, path: str, state: State, names: list[str]) -> None:
        check_word(f"{path}.dtype", state.dtype, list(DTYPES))
        _check_extents(f"{path}.shape", state.shape)
        if any(extent < 1 for extent in state.shape):
            raise BlobError(f"{path}.shape: {_text(state.shape)} has to be static and not empty")
        if _product(state.shape) * DTYPES[state.dtype] >= 2**63:
            raise BlobError(f"{path}.shape: {_text(state.shape)} of {state.dtype} is too large")
        for binding in (self._bindings[name] for name in names):
            if binding.dtype and binding.dtype != state.dtype:
                raise BlobError(
                    f'{path}.dtype: {state.dtype} differs from {binding.dtype} of binding "{binding.name}"'
                )
            if shape_known(binding) and list(binding.shape) != list(state.shape):
                raise BlobError(
                    f"{path}.shape: {_text(state.shape)} differs from {_text(binding.shape)} of binding "
                    f'"{binding.name}"'
                )
        if state.sequence_dim is not None and not 0 <= state.sequence_dim < len(state.shape):
            raise BlobError(f"{path}.sequence_dim: {state.sequence_dim} is no dim of {_text(state.shape)}")

    def _check_position(self) -> None:
        position = self._blob.position
        if position is None:
            for i, state in enumerate(self._blob.states):
                if state.sequence_dim is not None and state.output:
                    raise BlobError(f"position: is missing, but states[{i}] has a sequence_dim")
            return
        binding = self._find_argument("position.input", position.input)
        if binding.dtype not in ("int32", "int64"):
            found = binding.dtype or "of unknown type"
            raise BlobError(f'position.input: "{binding.name}" is {found}, expected int32 or int64')
        if len(binding.shape) > 1:
            raise BlobError(
                f'position.input: "{binding.name}" is {_text(binding.shape)}, expected a scalar, one position '
                "for each batch row, or consecutive indices"
            )
        count = position.count
        if not count.input:
            check_bits("position.count.value", count.value, 64)
            if count.value < 1:
                raise BlobError(f"position.count.value: {count.value} is less than 1")
            return
        binding = self._find_argument("position.count.input", count.input)
        check_bits("position.count.dim", count.dim, 32)
        if count.dim < 0 or (shape_known(binding) and count.dim >= len(binding.shape)):
            raise BlobError(
                f'position.count.dim: {count.dim} is no dim of {_text(binding.shape)} of "{binding.name}"'
            )

    def _find(self, path: str, name: str, *, is_input: bool) -> Binding:
        _check_name(path, name)
        if name not in self._bindings:
            raise BlobError(f'{path}: "{name}" is none of io_bindings')
        if self._bindings[name].is_input != is_input:
            wrong, right = ("an output", "an input") if is_input else ("an input", "an output")
            raise BlobError(f'{path}: "{name}" is {wrong}, expected {right}')
        return self._bindings[name]

    def _find_argument(self, path: str, name: str) -> Binding:
        """An input that isn't a session's state: the host has to see it."""
        binding = self._find(path, name, is_input=True)
        for i, state in enumerate(self._blob.states):
            if state.input == name:
                raise BlobError(f'{path}: "{name}" is states[{i}], expected an input of the method')
        return binding


def _check_text(path: str, text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise BlobError(f"{path}: is no valid UTF-8") from None


def _check_name(path: str, name: str) -> None:
    _check_text(path, name)
    if not name.strip(" \t\n\r\f\v"):
        raise BlobError(f"{path}: is blank")
    if "\0" in name:
        raise BlobError(f"{path}: has a NUL in it")


def _check_same_tensor(path: str, output: Binding, source: Binding) -> None:
    """Whether one memory can be both, as far as both are known."""
    if output.dtype and source.dtype and output.dtype != source.dtype:
        raise BlobError(
            f'{path}: output "{output.name}" is {output.dtype}, but input "{source.name}" is {source.dtype}'
        )
    if shape_known(output) and shape_known(source) and list(output.shape) != list(source.shape):
        raise BlobError(
            f'{path}: output "{output.name}" is {_text(output.shape)}, but input "{source.name}" is '
            f"{_text(source.shape)}"
        )


def _check_extents(path: str, shape: Sequence[int]) -> None:
    if len(shape) > MAX_RANK:
        raise BlobError(f"{path}: has rank {len(shape)}, at most {MAX_RANK} is possible")
    for i, extent in enumerate(shape):
        check_bits(f"{path}[{i}]", extent, 64)
        if extent < -1:
            raise BlobError(f"{path}[{i}]: {extent} is negative; -1 says that it isn't known")
    if -1 not in shape and _product(shape) >= 2**63:
        raise BlobError(f"{path}: {_text(shape)} is too large")


def _product(shape: Sequence[int]) -> int:
    result = 1
    for extent in shape:
        result *= extent
    return result


def _text(shape: Sequence[int]) -> str:
    return "[" + ", ".join("?" if extent == -1 else str(extent) for extent in shape) + "]"
