"""The programs of the C++ tests compute what their modules do in PyTorch."""

from __future__ import annotations

from pathlib import Path

import etrt
import make_models
import pytest
import torch
from models import Decoder, GatedDelta, IndexCopy, IndexPut, SliceAssign, fill
from torch.nn import functional as F

FOLDER = Path(__file__).parents[2] / "build/dev/tests/delegate/models"
"""Shared with the C++ tests: what is there and up to date isn't made again."""


def program(name: str) -> etrt.Program:
    make_models.make(FOLDER, [f"{name}.pte"])
    return etrt.Program(FOLDER / f"{name}.pte")


def tokens(batch: int, count: int, start: int) -> torch.Tensor:
    return (torch.arange(batch * count).view(batch, count) * 13 + start) % 64


def compare(name: str, module: torch.nn.Module, turns, atol: float = 1e-5) -> None:
    """Each turn, (method, arguments), gives alike results and leaves alike buffers."""
    loaded = program(name)
    methods = {method: loaded.method(method) for method in {method for method, _ in turns}}
    copied = etrt.stats()["kv_bytes_copied"]
    with etrt.Session() as session, torch.no_grad():
        for method, arguments in turns:
            result = methods[method](*arguments)[0]
            torch.testing.assert_close(result, module(*arguments), rtol=1e-4, atol=atol)
        states = [state["id"] for state in session.states()]
        assert sorted(states) == sorted(n for n, _ in module.named_buffers())
        for buffer, contents in module.named_buffers():
            torch.testing.assert_close(session.view(buffer), contents, rtol=1e-4, atol=atol)
    assert etrt.stats()["kv_bytes_copied"] == copied


@pytest.mark.parametrize(("name", "batch"), [("tiny_decoder", 1), ("tiny_batch2", 2)])
def test_decoders(name, batch):
    turns = [("prefill", (tokens(batch, 5, 7), torch.zeros(batch, dtype=torch.int64)))]
    # Rows of a batch go on from positions of their own.
    for step in range(3):
        at = torch.arange(batch) * -2 + 5 + step
        turns.append(("decode", (tokens(batch, 1, step), at)))
    turns.append(("prefill", (tokens(batch, 16, 3), torch.arange(batch) * -2 + 8)))
    compare(name, fill(Decoder(batch=batch)), turns)


@pytest.mark.parametrize(
    ("name", "module", "indices"),
    [
        ("index_copy_tokens", IndexCopy, True),
        ("index_put", IndexPut, False),
        ("slice_assign", SliceAssign, False),
    ],
)
def test_plain_buffers(name, module, indices):
    turns = []
    for start, count in ((0, 4), (4, 1), (5, 16), (2, 3)):
        position = torch.arange(start, start + count) if indices else torch.tensor([start])
        turns.append(("prefill", (tokens(1, count, start), position)))
    compare(name, fill(module()), turns)


def inputs(count: int, start: int) -> torch.Tensor:
    return torch.sin(0.7 * (torch.arange(count * 16) + 16 * start + 1).float()).view(1, count, 16)


def test_gated_delta():
    turns = [("prefill", (inputs(7, 0), torch.tensor([0])))]
    turns += [("decode", (inputs(1, i), torch.tensor([i]))) for i in (7, 8)]
    turns.append(("prefill", (inputs(16, 9), torch.tensor([9]))))
    compare("gated_delta", fill(GatedDelta()), turns)


def test_gated_delta_is_its_recurrence():
    """All tokens at once, as the module does it, against one token after the other by the definition."""
    module = fill(GatedDelta())
    x = inputs(11, 0)
    with torch.no_grad():
        k = F.normalize(module.k(x).view(11, 2, 8), dim=-1)
        q, v = module.q(x).view(11, 2, 8), module.v(x).view(11, 2, 8)
        decay = module.decay(x)[0].sigmoid()
        strength = module.strength(x)[0].sigmoid()
        memory, outputs = torch.zeros(2, 8, 8), []
        for t in range(11):
            memory = decay[t].view(2, 1, 1) * memory
            u = strength[t].unsqueeze(-1) * (v[t] - torch.einsum("hkv,hk->hv", memory, k[t]))
            memory = memory + torch.einsum("hk,hv->hkv", k[t], u)
            outputs.append(torch.einsum("hkv,hk->hv", memory, q[t]).reshape(16))
        torch.testing.assert_close(
            module._delta(x)[0], module.out(torch.stack(outputs)), rtol=1e-4, atol=1e-5
        )
        torch.testing.assert_close(module.memory[0], memory, rtol=1e-4, atol=1e-5)


def test_what_is_up_to_date_stays(tmp_path, capsys):
    make_models.make(tmp_path, ["initial.pte"])
    first = (tmp_path / "initial.pte").stat().st_mtime_ns
    make_models.make(tmp_path, ["initial.pte"])
    assert (tmp_path / "initial.pte").stat().st_mtime_ns == first
    assert capsys.readouterr().out.endswith("initial.pte: is there\n")
    assert [path.name for path in tmp_path.iterdir()] == ["initial.pte"]
