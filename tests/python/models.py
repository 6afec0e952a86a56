"""Small models, alike on every machine: weights come from a formula, not from a random generator."""

from __future__ import annotations

import torch
from etrt.kv_cache import KVCache
from torch import nn
from torch.nn import functional as F


def fill(module: nn.Module, seed: int = 1) -> nn.Module:
    """Gives parameters values in [-0.5, 0.5) that depend on ``seed`` and their order alone."""
    with torch.no_grad():
        for parameter in module.parameters():
            # Knuth's multiplicative hash of the index: the same bits with every version of PyTorch.
            index = torch.arange(parameter.numel(), dtype=torch.int64) + seed * 7919
            parameter.copy_((((index * 2654435761) % 65536).float() / 65536 - 0.5).view(parameter.shape))
            seed += 1
    return module.eval()


def rotary(x: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
    """RoPE. x: [B, H, T, D]; positions: [B or 1, T]."""
    half = x.shape[-1] // 2
    frequencies = 10000.0 ** (-torch.arange(half, dtype=torch.float32) / half)
    angles = positions.float().unsqueeze(1).unsqueeze(-1) * frequencies
    cos, sin = angles.cos(), angles.sin()
    a, b = x[..., :half], x[..., half:]
    return torch.cat((a * cos - b * sin, a * sin + b * cos), dim=-1)


class Attention(nn.Module):
    """Grouped-query attention over a KVCache."""

    def __init__(self, width: int, heads: int, kv_heads: int, cache: KVCache) -> None:
        super().__init__()
        self.heads, self.kv_heads, self.head_dim = heads, kv_heads, width // heads
        self.q = nn.Linear(width, width, bias=False)
        self.k = nn.Linear(width, kv_heads * self.head_dim, bias=False)
        self.v = nn.Linear(width, kv_heads * self.head_dim, bias=False)
        self.o = nn.Linear(width, width, bias=False)
        self.cache = cache

    def forward(self, x: torch.Tensor, start: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        batch, tokens, width = x.shape
        q = self.q(x).view(batch, tokens, self.heads, self.head_dim).transpose(1, 2)
        k = self.k(x).view(batch, tokens, self.kv_heads, self.head_dim).transpose(1, 2)
        v = self.v(x).view(batch, tokens, self.kv_heads, self.head_dim).transpose(1, 2)
        q, k = rotary(q, positions), rotary(k, positions)
        keys, values = self.cache.update(k, v, start)
        group = self.heads // self.kv_heads
        # One matmul for all query heads of a group: the cache isn't repeated.
        q = q.reshape(batch, self.kv_heads, group * tokens, self.head_dim)
        scores = (q @ keys.transpose(-1, -2)) * self.head_dim**-0.5
        visible = torch.arange(self.cache.capacity).view(1, 1, -1) <= positions.unsqueeze(-1)
        bias = torch.where(visible, 0.0, -1e9).repeat(1, group, 1).unsqueeze(1)
        out = (scores + bias).softmax(-1) @ values
        out = out.view(batch, self.heads, tokens, self.head_dim).transpose(1, 2).reshape(batch, tokens, width)
        return self.o(out)


class Decoder(nn.Module):
    """A Llama-style decoder. tokens: int64 [B, T]; position: int64 [1] or [B]; logits: [B, T, vocabulary]."""

    def __init__(
        self,
        batch: int = 1,
        capacity: int = 32,
        layers: int = 2,
        width: int = 32,
        heads: int = 4,
        kv_heads: int = 2,
        vocabulary: int = 64,
    ) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width)
        self.layers = nn.ModuleList()
        for _ in range(layers):
            cache = KVCache(batch, kv_heads, capacity, width // heads)
            self.layers.append(
                nn.ModuleDict(
                    {
                        "attention_norm": nn.RMSNorm(width, eps=1e-5),
                        "attention": Attention(width, heads, kv_heads, cache),
                        "mlp_norm": nn.RMSNorm(width, eps=1e-5),
                        "gate": nn.Linear(width, 2 * width, bias=False),
                        "up": nn.Linear(width, 2 * width, bias=False),
                        "down": nn.Linear(2 * width, width, bias=False),
                    }
                )
            )
        self.norm = nn.RMSNorm(width, eps=1e-5)
        self.head = nn.Linear(width, vocabulary, bias=False)

    def forward(self, tokens: torch.Tensor, position: torch.Tensor) -> torch.Tensor:
        positions = position.unsqueeze(-1) + torch.arange(tokens.shape[1])
        x = self.embedding(tokens)
        for layer in self.layers:
            x = x + layer["attention"](layer["attention_norm"](x), position, positions)
            h = layer["mlp_norm"](x)
            x = x + layer["down"](F.silu(layer["gate"](h)) * layer["up"](h))
        return self.head(self.norm(x))
