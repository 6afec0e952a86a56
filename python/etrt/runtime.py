"""Run time: sessions, programs, counters."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from executorch.runtime import Runtime, Verification

from etrt import _core
from etrt.errors import EtrtError

_scopes = threading.local()
_default_session: Session | None = None

# ExecuTorch's ScalarType numbers.
_SCALAR_TYPES = {
    0: "uint8",
    1: "int8",
    2: "int16",
    3: "int32",
    4: "int64",
    5: "float16",
    6: "float32",
    7: "float64",
    11: "bool",
    15: "bfloat16",
}


class Session:
    """One conversation's states: KV caches, convolution and recurrent states.

    ``with session:`` selects it on this thread; scopes nest. States appear, initialised, when
    a method first needs them. A session is in one run at a time: a second thread gets
    ``EtrtError`` with code ``Busy``.
    """

    def __init__(self) -> None:
        self._core = _core.Session()
        self._adopted: dict[tuple[str, str], Any] = {}

    def __enter__(self) -> Session:
        stack = _scopes.__dict__.setdefault("stack", [])
        stack.append((_core.Scope(self._core), self))
        return self

    def __exit__(self, *_: object) -> None:
        _scopes.stack.pop()[0].close()

    def length(self) -> int:
        """Positions valid in every sequence state and batch row; 0 when empty."""
        return self._core.length()

    def bytes(self) -> int:
        """Bytes that the session's states hold."""
        return self._core.bytes()

    @property
    def status(self) -> str:
        """``ready``, ``busy`` or ``failed``."""
        return self._core.status

    def states(self) -> list[dict[str, Any]]:
        """One dict a state: model_id, id, dtype, shape, sequence_dim, update, device, bytes, lengths."""
        return self._core.states()

    def reset(self) -> None:
        """Every state back to its initial value and length; a failed session is ready again.

        Raises:
            EtrtError: ``Busy`` while in a run; nothing has changed then.
        """
        self._core.reset()

    def view(self, state_id: str, model_id: str = "") -> Any:
        """The state's memory as a torch tensor that shares it (no copy).

        Valid until the session is gone, for a state that swaps until the next run.

        Raises:
            EtrtError: ``NotFound`` with the ids that there are.
        """
        import torch

        return torch.from_dlpack(self._core.view(state_id, model_id, self._adopted))

    def adopt(self, state_id: str, memory: Any, length: int, model_id: str = "") -> None:
        """The state's memory is ``memory`` from now on, as it is: a cache that something else fills, like another
        delegate that has read the prompt. Nothing is copied; runs write into it.

        Args:
            state_id: id of a state, whether a run has used it yet or not.
            memory: torch tensor, or what has ``__dlpack__``; contiguous, of the state's dtype, shape and device. The
                session keeps it alive.
            length: its first positions that are valid, in each batch row.
            model_id: needed where several models have a state of that id.

        Raises:
            EtrtError: ``InvalidArgument`` for memory that doesn't fit, ``Unsupported`` for a state that swaps,
                ``Busy`` while in a run; nothing has changed then.
        """
        import torch

        tensor = memory if isinstance(memory, torch.Tensor) else torch.from_dlpack(memory)
        if tensor.device.type not in ("cpu", "cuda") or not tensor.is_contiguous():
            raise EtrtError(
                f"state {state_id!r} can't be a tensor on {tensor.device} with strides {tensor.stride()}: give a "
                "contiguous one on cpu or cuda",
                "InvalidArgument",
            )
        cuda_device = -1 if tensor.device.type == "cpu" else tensor.device.index
        dtype = str(tensor.dtype).removeprefix("torch.")
        place = tensor.data_ptr(), dtype, list(tensor.shape), cuda_device
        self._core.adopt(state_id, *place, length, model_id)
        self._adopted[model_id, state_id] = tensor

    def __repr__(self) -> str:
        return f"<etrt.Session {self.status}, length {self.length()}, {self.bytes()} bytes>"


def set_default_session(session: Session | None) -> None:
    """The session of threads that have selected none; None removes it."""
    global _default_session  # What it has adopted has to stay.
    _core.set_default_session(None if session is None else session._core)
    _default_session = session


def stats() -> dict[str, int]:
    """Process-wide counters: runs, kv_bytes_copied, rebinds, engines, contexts, session_bytes, ..."""
    return _core.stats()


def engine_kinds() -> list[str]:
    """The kinds of engines that this build runs."""
    return _core.engine_kinds()


def last_error() -> str:
    """The text of the last error that the delegate returned on this thread, or ""."""
    return _core.last_error()


class Method:
    """A loaded method of a program. One thread at a time."""

    def __init__(self, method: Any, name: str) -> None:
        self._method = method
        self.name = name

    def __call__(self, *inputs: Any) -> Sequence[Any]:
        """Runs the method.

        Returns:
            The outputs. Their memory is the method's: the next call overwrites it.

        Raises:
            EtrtError: the delegate refused or failed the run; the message says why.
        """
        try:
            return _translate(lambda: self._method.execute(list(inputs)))
        except EtrtError:
            raise
        except RuntimeError as error:
            said = self._explain(inputs) or f"method {self.name!r} can't run"
            raise EtrtError(f"{said} (ExecuTorch: {error})", "InvalidArgument") from error

    def _explain(self, inputs: Sequence[Any]) -> str:
        """Which input ExecuTorch refused, and what it expected: it tells only a number."""
        meta = self._method.metadata
        if len(inputs) != meta.num_inputs():
            return f"method {self.name!r} takes {meta.num_inputs()} inputs, got {len(inputs)}"
        smaller = ""
        for index, value in enumerate(inputs):
            expected = meta.input_tensor_meta(index)
            dtype, sizes = _SCALAR_TYPES.get(expected.dtype(), ""), list(expected.sizes())
            if not hasattr(value, "dtype"):
                return f"method {self.name!r}: input {index} is no tensor but {type(value).__name__}"
            shape = list(value.shape)
            if dtype and str(value.dtype) != f"torch.{dtype}":
                return f"method {self.name!r}: input {index} is {value.dtype}; expected torch.{dtype}"
            if len(shape) != len(sizes) or any(n > most for n, most in zip(shape, sizes, strict=True)):
                return f"method {self.name!r}: input {index} has shape {shape}; at most {sizes} is expected"
            if shape != sizes and not smaller:
                # The program doesn't say which extents may be less.
                smaller = (
                    f"method {self.name!r}: input {index} has shape {shape}; {sizes} is expected, or less "
                    "where the method was exported for it"
                )
        return smaller


class Program:
    """An ExecuTorch program, with the delegate's own errors as exceptions.

    The same file can be used with ``executorch.runtime`` itself; errors are then numbers, and
    ``etrt.last_error()`` has the text.
    """

    def __init__(self, path: str | Path) -> None:
        """Loads ``path``.

        Raises:
            FileNotFoundError: no such file.
            EtrtError: ``InvalidData`` if it is no program.
        """
        self.path = Path(path)
        if not self.path.is_file():
            raise FileNotFoundError(f"{self.path}: no such file")
        try:
            self._program = Runtime.get().load_program(
                str(self.path), verification=Verification.InternalConsistency
            )
        except RuntimeError as error:
            raise EtrtError(
                f"{self.path} is no ExecuTorch program, or is truncated or damaged ({error}): "
                "export it again",
                "InvalidData",
            ) from error

    @property
    def method_names(self) -> set[str]:
        """Names of the methods."""
        return self._program.method_names

    def method(self, name: str) -> Method:
        """Loads a method; its engine is loaded once however often it is asked for.

        Raises:
            EtrtError: ``NotFound`` with the names that there are, or why loading failed.
        """
        if name not in self.method_names:
            names = ", ".join(sorted(self.method_names))
            raise EtrtError(f"{self.path} has no method {name!r}; it has: {names}", "NotFound")
        return Method(_translate(lambda: self._program.load_method(name)), name)


def _translate(call: Any) -> Any:
    """Turns ExecuTorch's numbered error into the delegate's text."""
    _core.clear_last_error()
    try:
        return call()
    except RuntimeError as error:
        text = _core.last_error()
        if not text:
            raise
        code, _, message = text.partition(": ")
        raise EtrtError(message, code) from error
