"""Caches that the caller owns: they stay arguments of the delegate, and are updated where they are.

Such a cache is an input of the method that the method changes, or a buffer that is kept above the delegate. An
update that appends at a position is left to the engine: the program says that the cache's new value is the cache
itself, so that ExecuTorch plans no second cache and copies nothing. ExecuTorch returns inputs that a method changes
before its outputs; these it doesn't, so that a method returns what it returns in PyTorch.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

import torch
from executorch.exir.dialects._ops import ops as exir_ops
from torch.export import ExportedProgram
from torch.export.graph_signature import OutputKind, OutputSpec, TensorArgument

from etrt.errors import ExportError
from etrt.mutation import changed_placeholders
from etrt.options import OWNERSHIPS
from etrt.patterns import rewrite_updates
from etrt.position import is_kv_update, kv_arguments, op_name
from etrt.states import BufferUse

_LOG = logging.getLogger("etrt")

Ownership = str | Mapping[str, str]
"""Of all states, or of some: fully qualified name of a buffer -> "caller" or "session"; "session" where absent."""


def check_ownership(ownership: Ownership) -> None:
    """Raises ExportError for a word that isn't one."""
    for word in [ownership] if isinstance(ownership, str) else ownership.values():
        if word not in OWNERSHIPS:
            raise ExportError(f"ownership is {word!r}; expected one of {', '.join(OWNERSHIPS)}")


def is_callers(ownership: Ownership, buffer: str) -> bool:
    """Whether the caller owns that buffer."""
    return (ownership if isinstance(ownership, str) else ownership.get(buffer, "session")) == "caller"


def keep_above(program: ExportedProgram, ownership: Ownership) -> ExportedProgram:
    """A method whose caches of the caller have themselves as new values. Their updates are marked.

    Args:
        program: in ATen's dialect, before decompositions.
        ownership: who owns the buffers; inputs are the caller's.

    Raises:
        ExportError: ``ownership`` names what isn't a buffer that the method changes; an input is changed otherwise
            than by an append; the method returns nothing.
    """
    inputs = set(program.graph_signature.user_inputs)
    if ownership in ("session", {}) and not inputs & changed_placeholders(program):
        return program
    program = program.run_decompositions({})
    _remove_whole_copies(program)
    caches = _caches(program, ownership)
    uses = rewrite_updates(program, [use for _, use in caches], "the caller's caches")
    for (spec, _), use in zip(caches, uses, strict=True):
        _keep(program, spec, use)
    return program


def callers_buffers(program: ExportedProgram, ownership: Ownership) -> set[str]:
    """Placeholders of the buffers that stay above the delegate."""
    signature = program.graph_signature
    mutated = set(signature.buffers_to_mutate.values())
    return {
        placeholder
        for placeholder, name in signature.inputs_to_buffers.items()
        if name in mutated and is_callers(ownership, name)
    }


def lower_updates(program: ExportedProgram) -> dict[str, torch.fx.Node]:
    """Makes the marked updates of a partition ordinary ones; cache's placeholder -> update."""
    updates = {}
    for node in list(program.graph.nodes):
        if op_name(node) == "etrt::with_update":
            _replace(program, node, node.args[0])
        elif op_name(node) == "etrt::callers_kv_cache_update":
            node.target = exir_ops.edge.etrt.kv_cache_update.default
            updates[kv_arguments(node)[0].name] = node
    return updates


def _caches(program: ExportedProgram, ownership: Ownership) -> list[tuple[OutputSpec, BufferUse]]:
    """The caller's caches, with what says of each that it changes."""
    signature = program.graph_signature
    values = {node.name: node.meta.get("val") for node in program.graph.nodes}
    placeholders = {name: placeholder for placeholder, name in signature.inputs_to_buffers.items()}
    mutated = []
    caches = []
    for spec in signature.output_specs:
        name = str(spec.target)
        if spec.kind == OutputKind.USER_INPUT_MUTATION:
            caches.append((spec, BufferUse("", 0, name, values[name], name, spec.arg.name)))
        elif spec.kind == OutputKind.BUFFER_MUTATION:
            mutated.append(name)
            if is_callers(ownership, name):
                placeholder = placeholders[name]
                use = BufferUse("", 0, name, values[placeholder], placeholder, spec.arg.name)
                caches.append((spec, use))
    if not isinstance(ownership, str):
        for name in ownership:
            if name not in mutated:
                raise ExportError(
                    f"ownership[{name!r}]: the method changes no such buffer; it changes "
                    + (", ".join(repr(n) for n in sorted(mutated)) or "none")
                )
    return caches


def _keep(program: ExportedProgram, spec: OutputSpec, use: BufferUse) -> None:
    nodes = {node.name: node for node in program.graph.nodes}
    cache, result = nodes[use.placeholder], nodes[str(use.mutation)]
    spec.arg = TensorArgument(result.name)
    if not is_kv_update(result) or kv_arguments(result)[0] is not cache or set(cache.users) != {result}:
        text = (
            f"{use.name!r} of the caller isn't changed by an append at a position alone; append with "
            "torch.ops.etrt.kv_cache_update or index_copy_, and read the result"
        )
        if spec.kind == OutputKind.USER_INPUT_MUTATION:
            raise ExportError(f"input {text}; or return its new value instead of changing it")
        _LOG.warning("buffer %s: each run writes all of it anew and copies it", text)
        return
    result.target = torch.ops.etrt.callers_kv_cache_update.default
    output = program.graph.output_node()
    values = list(output.args[0])
    specs = program.graph_signature.output_specs
    if set(result.users) == {output}:
        _tie_to_output(program, values, result, use.name)
    index = next(i for i, other in enumerate(specs) if other is spec)
    if spec.kind == OutputKind.USER_INPUT_MUTATION:
        del values[index], specs[index]
    else:
        values[index] = cache
        spec.arg = TensorArgument(cache.name)
    output.args = (tuple(values),)
    program.graph_module.recompile()


def _tie_to_output(
    program: ExportedProgram, values: list[torch.fx.Node], update: torch.fx.Node, name: str
) -> None:
    """Nothing reads the update, so it would be dropped: an output of the method has to keep it."""
    for index, spec in enumerate(program.graph_signature.output_specs):
        if spec.kind != OutputKind.USER_OUTPUT or not isinstance(spec.arg, TensorArgument):
            continue
        value = values[index]
        with program.graph.inserting_before(program.graph.output_node()):
            tied = program.graph.call_function(torch.ops.etrt.with_update.default, (value, update))
        tied.meta["val"] = torch.empty_like(value.meta["val"])
        values[index] = tied
        spec.arg = TensorArgument(tied.name)
        return
    raise ExportError(
        f"the method updates cache {name!r} of the caller and returns nothing, and ExecuTorch leaves such a method "
        "out; return a tensor from it, such as the new length"
    )


def _remove_whole_copies(program: ExportedProgram) -> None:
    """cache.copy_(new) of an input is a copy of ``new`` over all of it, and another for each decomposition."""
    for node in list(program.graph.nodes):
        if op_name(node) != "aten::copy":
            continue
        target, source = node.args[0], node.args[1]
        if (
            target.meta["val"].shape == source.meta["val"].shape
            and target.meta["val"].dtype == source.meta["val"].dtype
        ):
            _replace(program, node, source)
    program.graph_module.recompile()


def _replace(program: ExportedProgram, node: torch.fx.Node, by: torch.fx.Node) -> None:
    node.replace_all_uses_with(by)
    program.graph.erase_node(node)
    for spec in program.graph_signature.output_specs:
        if getattr(spec.arg, "name", None) == node.name:
            spec.arg = TensorArgument(by.name)
