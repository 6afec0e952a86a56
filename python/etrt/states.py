"""Which buffers are states, and what they are called.

A buffer that any method changes is a state, also in methods that only read it. Two methods share a state when
their modules hold the same tensor, whatever its name. Ids:

1. what ``state_ids[method][name]`` says, else
2. the buffer's fully qualified name; the least of them, in plain string order, if methods know it under several;
3. if two different tensors have the same name by rule 2, each is called ``<method>/<name>`` instead, the least
   of those if it is in several methods.

So an id depends on names alone: not on the order of the methods, nor on the run.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind, OutputKind

from etrt.errors import ExportError
from etrt.mutation import changed_placeholders

Identity = tuple[int, int, tuple[int, ...], tuple[int, ...], torch.dtype]


@dataclass(frozen=True)
class BufferUse:
    """A buffer in one partition of a method."""

    method: str
    partition: int
    name: str
    """Fully qualified, in the method's module."""
    tensor: torch.Tensor
    placeholder: str
    """Of the partition's graph."""
    mutation: str | None
    """Node whose value the buffer gets; None where it is only read."""

    @property
    def identity(self) -> Identity:
        """Equal for two uses of one tensor."""
        t = self.tensor
        return (
            t.untyped_storage().data_ptr(),
            t.storage_offset(),
            tuple(t.shape),
            tuple(t.stride()),
            t.dtype,
        )


def find_states(programs: Mapping[str, list[ExportedProgram]]) -> list[BufferUse]:
    """The uses of every buffer that some method mutates, in the order of ``programs``.

    Raises:
        ExportError: a buffer that isn't contiguous, or two that overlap without being the same.
    """
    uses = []
    for method, partitions in programs.items():
        for index, program in enumerate(partitions):
            uses += _buffers(method, index, program)
    mutated = {use.identity for use in uses if use.mutation is not None}
    states = [use for use in uses if use.identity in mutated]
    for use in states:
        _refuse_strides(use.name, use.tensor)
    _refuse_overlaps(uses, mutated)
    return states


def _buffers(method: str, index: int, program: ExportedProgram) -> list[BufferUse]:
    signature = program.graph_signature
    mutations = {s.target: s.arg.name for s in signature.output_specs if s.kind == OutputKind.BUFFER_MUTATION}
    uses = []
    for spec in signature.input_specs:
        if spec.kind != InputKind.BUFFER or spec.target is None:
            continue
        tensor = program.state_dict.get(spec.target, program.constants.get(spec.target))
        if isinstance(tensor, torch.Tensor):
            uses.append(
                BufferUse(method, index, spec.target, tensor, spec.arg.name, mutations.get(spec.target))
            )
    return uses


def refuse_strided_buffers(program: ExportedProgram) -> None:
    """Raises ExportError for a buffer that ``program`` changes and that isn't contiguous.

    ExecuTorch copies such a buffer for each method, so that later two methods' states couldn't be told to be one.

    Args:
        program: in ATen's dialect, before decompositions.
    """
    buffers = program.graph_signature.inputs_to_buffers
    for placeholder in sorted(changed_placeholders(program) & buffers.keys()):
        name = buffers[placeholder]
        tensor = program.state_dict.get(name, program.constants.get(name))
        if isinstance(tensor, torch.Tensor):
            _refuse_strides(name, tensor)


def _refuse_strides(name: str, tensor: torch.Tensor) -> None:
    if not tensor.is_contiguous():
        raise ExportError(
            f"state {name!r} has strides {list(tensor.stride())} at shape {list(tensor.shape)}; states are "
            "contiguous: register the buffer with .contiguous()"
        )


def _refuse_overlaps(uses: list[BufferUse], mutated: set[Identity]) -> None:
    by_storage: dict[int, dict[Identity, BufferUse]] = defaultdict(dict)
    for use in uses:
        if use.tensor.numel():
            by_storage[use.identity[0]].setdefault(use.identity, use)
    for group in by_storage.values():
        if len(group) > 1 and any(identity in mutated for identity in group):
            first, second = sorted(group.values(), key=lambda use: (use.method, use.name))[:2]
            raise ExportError(
                f"state {first.name!r} of method {first.method!r} and buffer {second.name!r} of method "
                f"{second.method!r} are different views of one memory ({list(first.tensor.shape)} and "
                f"{list(second.tensor.shape)}); a state is a tensor of its own: clone() one of them"
            )


def assign_ids(
    states: Iterable[BufferUse], state_ids: Mapping[str, Mapping[str, str]]
) -> dict[tuple[str, str], str]:
    """(method, fully qualified name) -> state id, by the rules in this module's docstring.

    Raises:
        ExportError: ``state_ids`` names what isn't a state, gives one tensor two ids, or one id to tensors that differ
            in dtype or shape.
    """
    groups: dict[Identity, set[tuple[str, str]]] = defaultdict(set)
    tensors: dict[tuple[str, str], torch.Tensor] = {}
    for use in states:
        groups[use.identity].add((use.method, use.name))
        tensors[use.method, use.name] = use.tensor
    given = {(method, name): id_ for method, names in state_ids.items() for name, id_ in names.items()}
    for (method, name), id_ in given.items():
        if (method, name) not in tensors:
            known = sorted(n for m, n in tensors if m == method)
            raise ExportError(
                f"state_ids[{method!r}][{name!r}] isn't a state; method {method!r} has "
                + (", ".join(repr(n) for n in known) if known else "none")
            )
        if not id_:
            raise ExportError(
                f"state_ids[{method!r}][{name!r}] is empty; a state id has at least one character"
            )

    chosen: dict[Identity, str] = {}
    free: dict[str, list[Identity]] = defaultdict(list)
    for identity, members in groups.items():
        wanted = {given[member] for member in members if member in given}
        if len(wanted) > 1:
            names = ", ".join(f"{m}: {n}" for m, n in sorted(members))
            raise ExportError(
                f"state_ids gives the ids {', '.join(repr(w) for w in sorted(wanted))} to one tensor ({names}); give "
                "it one"
            )
        if wanted:
            chosen[identity] = wanted.pop()
        else:
            free[min(name for _, name in members)].append(identity)
    taken = set(chosen.values())
    for name, identities in free.items():
        for identity in identities:
            alone = len(identities) == 1 and name not in taken
            chosen[identity] = name if alone else min(f"{m}/{n}" for m, n in groups[identity])

    ids = {member: chosen[identity] for identity, members in groups.items() for member in members}
    _refuse_conflicts(ids, tensors)
    return ids


def _refuse_conflicts(ids: dict[tuple[str, str], str], tensors: dict[tuple[str, str], torch.Tensor]) -> None:
    seen: dict[str, tuple[str, str]] = {}
    for member in sorted(ids):
        other = seen.setdefault(ids[member], member)
        a, b = tensors[other], tensors[member]
        if a.shape != b.shape or a.dtype != b.dtype:
            raise ExportError(
                f"state {ids[member]!r} is {describe(a)} in method {other[0]!r} ({other[1]}), but {describe(b)} in "
                f"method {member[0]!r} ({member[1]}); give them different ids in state_ids"
            )


def describe(tensor: torch.Tensor) -> str:
    """ "float32 [1, 2, 32, 8]"."""
    return f"{str(tensor.dtype).removeprefix('torch.')} {list(tensor.shape)}"


def default_model_id(states: Iterable[tuple[str, torch.Tensor]]) -> str:
    """``states-`` and 16 hexadecimal digits made from the ids, dtypes and shapes of the states.

    So files exported apart from one model agree, and so do files of two models with the same states: give such
    models a model_id of their own if one session may meet both.
    """
    lines = sorted({f"{id_} {describe(tensor)}" for id_, tensor in states})
    return "states-" + hashlib.sha256("\n".join(lines).encode()).hexdigest()[:16]
