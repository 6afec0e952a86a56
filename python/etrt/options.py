"""What a partitioner tells the backend: JSON in one compile spec."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from executorch.exir.backend.compile_spec_schema import CompileSpec

from etrt.errors import ExportError

SPEC_KEY = "etrt_options"
OWNERSHIPS = ("session", "caller")


@dataclass(frozen=True)
class Options:
    """Settings of one export, alike for all of its methods."""

    engine: str = "cpu"
    ownership: str | Mapping[str, str] = "session"
    """Of all buffers, or by fully qualified name; "session" where absent."""
    model_id: str | None = None
    """None: made from the states, see ``etrt.states.default_model_id``."""
    state_ids: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Method -> fully qualified name of a buffer -> state id."""
    initial_lengths: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """Method -> fully qualified name of a buffer -> positions valid at the start; 0 where absent."""
    engine_options: Mapping[str, Any] = field(default_factory=dict)
    """For the engine's builder, which says what there is."""

    def to_specs(self) -> list[CompileSpec]:
        """The compile specs that carry these options. Raises ExportError for an engine option that is no JSON."""
        for name, value in self.engine_options.items():
            try:
                json.dumps(value)
            except TypeError:
                raise ExportError(
                    f"engine option {name} is a {type(value).__name__}; expected numbers, strings or lists of them"
                ) from None
        return [CompileSpec(SPEC_KEY, json.dumps(asdict(self), sort_keys=True).encode())]

    @staticmethod
    def from_specs(specs: list[CompileSpec]) -> Options:
        """The inverse of ``to_specs``.

        Raises:
            ExportError: no such spec, or a field in it that this version doesn't know.
        """
        for spec in specs:
            if spec.key == SPEC_KEY:
                values: dict[str, Any] = json.loads(bytes(spec.value))
                try:
                    return Options(**values)
                except TypeError as error:
                    raise ExportError(f"compile spec {SPEC_KEY}: {error}") from None
        raise ExportError(f"no compile spec {SPEC_KEY}: make the compile specs with TensorRTPartitioner")
