"""A Llama-style decoder whose KV caches are appended at a position."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional as F

from etrt.kv_cache import KVCache
from etrt.llm.gguf_file import Embedding, GgufFile, LlamaConfig


class BlockEmbedding(nn.Module):
    """Looks rows up in a table of 8-bit codes.

    The rows are exactly the float32 values that the output layer has, at a quarter of the bytes: so the
    program holds that weight once.
    """

    def __init__(self, table: Embedding) -> None:
        super().__init__()
        self.register_buffer("codes", table.codes)
        self.register_buffer("scales", table.scales)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """int64 [T] -> float32 [T, width]."""
        blocks = self.scales.shape[1]
        codes = F.embedding(tokens, self.codes).view(-1, blocks, self.codes.shape[1] // blocks)
        rows = codes.to(torch.float32) * F.embedding(tokens, self.scales).unsqueeze(-1)
        return rows.view(-1, self.codes.shape[1])


class RMSNorm(nn.Module):
    """x / sqrt(mean(x^2) + epsilon) * weight.

    The mean is a linear layer with epsilon as its bias: XNNPACK has no mean of this shape, and would have to hand
    every layer back twice.
    """

    def __init__(self, config: LlamaConfig) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(config.width, device="meta"))
        self.register_buffer("average", torch.full((1, config.width), 1 / config.width), persistent=False)
        self.register_buffer("epsilon", torch.tensor([config.norm_epsilon]), persistent=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[T, width] -> [T, width]."""
        return x * torch.rsqrt(F.linear(x * x, self.average, self.epsilon)) * self.weight


class RotaryLinear(nn.Module):
    """A projection to heads that are rotated by their token's position.

    The halves that are rotated with one another come from a layer each: XNNPACK can't slice tensors whose extents
    change from run to run.
    """

    def __init__(self, width: int, heads: int, head_dim: int) -> None:
        super().__init__()
        self.heads, self.half = heads, head_dim // 2
        self.first = _linear(width, heads * self.half)
        self.second = _linear(width, heads * self.half)

    def forward(self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        """x [T, width], cos and sin [T, 1, head_dim / 2] -> [T, heads, head_dim]."""
        a = self.first(x).view(-1, self.heads, self.half)
        b = self.second(x).view(-1, self.heads, self.half)
        return torch.cat((a * cos - b * sin, b * cos + a * sin), dim=-1)


@dataclass(frozen=True)
class Place:
    """What all layers need to know of where the new tokens are."""

    position: torch.Tensor
    """int64 [1]"""
    cos: torch.Tensor
    sin: torch.Tensor
    """[T, 1, head_dim / 2]"""
    mask: torch.Tensor
    """[group * T, capacity]: 0 where a token sees a position, else very negative"""


class Attention(nn.Module):
    """Grouped-query attention of one sequence over its cache.

    Shapes are written so that the extent that changes, T, is the one left out (-1) wherever there is a choice:
    XNNPACK takes such views alone.
    """

    def __init__(self, config: LlamaConfig, capacity: int) -> None:
        super().__init__()
        self.kv_heads, self.head_dim = config.kv_heads, config.head_dim
        self.group = config.heads // config.kv_heads
        self.q = RotaryLinear(config.width, config.heads, self.head_dim)
        self.k = RotaryLinear(config.width, config.kv_heads, self.head_dim)
        self.v = _linear(config.width, config.kv_heads * self.head_dim)
        self.o = _linear(config.heads * self.head_dim, config.width)
        self.cache = KVCache(1, config.kv_heads, capacity, self.head_dim)

    def forward(self, x: torch.Tensor, place: Place) -> torch.Tensor:
        """[T, width] -> [T, width]."""
        q = self.q(x, place.cos, place.sin)
        k = self.k(x, place.cos, place.sin).view(1, -1, self.kv_heads, self.head_dim)
        v = self.v(x).view(1, -1, self.kv_heads, self.head_dim)
        keys, values = self.cache.update(k.permute(0, 2, 1, 3), v.permute(0, 2, 1, 3), place.position)
        # One product for all query heads of a group, so that the cache isn't repeated.
        q = q.view(-1, self.kv_heads, self.group, self.head_dim).permute(1, 2, 0, 3).contiguous()
        q = q.view(self.kv_heads, -1, self.head_dim)
        # Keys on the left: what a kernel transposes and packs is then the small queries, not the whole cache.
        scores = torch.bmm(keys.view(self.kv_heads, -1, self.head_dim), q.permute(0, 2, 1)).permute(0, 2, 1)
        weights = (scores + place.mask).softmax(-1)
        heads = torch.bmm(weights, values.view(self.kv_heads, -1, self.head_dim))
        heads = heads.view(self.kv_heads, self.group, -1, self.head_dim).permute(2, 0, 1, 3).contiguous()
        return self.o(heads.view(-1, self.kv_heads * self.group * self.head_dim))


class FeedForward(nn.Module):
    """SwiGLU."""

    def __init__(self, config: LlamaConfig) -> None:
        super().__init__()
        self.gate = _linear(config.width, config.feed_forward)
        self.up = _linear(config.width, config.feed_forward)
        self.down = _linear(config.feed_forward, config.width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[T, width] -> [T, width]."""
        return self.down(F.silu(self.gate(x)) * self.up(x))


class Layer(nn.Module):
    """One decoder layer."""

    def __init__(self, config: LlamaConfig, capacity: int) -> None:
        super().__init__()
        self.attention_norm = RMSNorm(config)
        self.attention = Attention(config, capacity)
        self.feed_forward_norm = RMSNorm(config)
        self.feed_forward = FeedForward(config)

    def forward(self, x: torch.Tensor, place: Place) -> torch.Tensor:
        """[T, width] -> [T, width]."""
        x = x + self.attention(self.attention_norm(x), place)
        return x + self.feed_forward(self.feed_forward_norm(x))


class Llama(nn.Module):
    """tokens int64 [1, T], position int64 [1] -> logits float32 [1, vocabulary] of the last token.

    Tokens are appended to the caches at ``position`` .. ``position + T - 1``; what is there after them is
    never read.
    """

    def __init__(self, config: LlamaConfig, capacity: int, table: Embedding) -> None:
        super().__init__()
        self.config, self.capacity = config, capacity
        self.embedding = BlockEmbedding(table)
        self.layers = nn.ModuleList(Layer(config, capacity) for _ in range(config.layers))
        self.norm = RMSNorm(config)
        self.head = _linear(config.width, config.vocabulary)
        for name, table in rotary_tables(config, capacity).items():
            self.register_buffer(name, table, persistent=False)

    def forward(self, tokens: torch.Tensor, position: torch.Tensor) -> torch.Tensor:
        """See the class."""
        tokens = tokens.view(-1)
        positions = position + torch.arange(tokens.shape[0])
        visible = torch.arange(self.capacity).unsqueeze(0) <= positions.unsqueeze(1)
        group = self.config.heads // self.config.kv_heads
        place = Place(
            position,
            F.embedding(positions, self.cos).unsqueeze(1),
            F.embedding(positions, self.sin).unsqueeze(1),
            torch.where(visible, 0.0, -1e9).repeat(group, 1),
        )
        x = self.embedding(tokens)
        for layer in self.layers:
            x = layer(x, place)
        return self.head(self.norm(x[-1:]))


def rotary_tables(config: LlamaConfig, capacity: int) -> dict[str, torch.Tensor]:
    """Cosine and sine of each position's angles: float32 [capacity, head_dim / 2] each."""
    half = config.head_dim // 2
    frequencies = config.rope_base ** (-torch.arange(half, dtype=torch.float64) / half)
    angles = torch.arange(capacity, dtype=torch.float64).unsqueeze(1) * frequencies
    return {"cos": angles.cos().float(), "sin": angles.sin().float()}


def load_llama(file: GgufFile, capacity: int) -> Llama:
    """The model of a GGUF file, in float32.

    Raises:
        ExportError: a weight is missing.
    """
    config = file.config()
    model = Llama(config, capacity, file.embedding("token_embd.weight"))
    weights = {
        "head.weight": file.weight("token_embd.weight"),
        "norm.weight": file.weight("output_norm.weight"),
    }
    for index in range(config.layers):

        def stored(name: str, block: str = f"blk.{index}") -> torch.Tensor:
            return file.weight(f"{block}.{name}.weight")

        layer = {
            "attention_norm": stored("attn_norm"),
            "attention.v": stored("attn_v"),
            "attention.o": stored("attn_output"),
            "feed_forward_norm": stored("ffn_norm"),
            "feed_forward.gate": stored("ffn_gate"),
            "feed_forward.up": stored("ffn_up"),
            "feed_forward.down": stored("ffn_down"),
        }
        # Scores are divided by sqrt(head_dim): here once, not in each run.
        q = stored("attn_q") * config.head_dim**-0.5
        layer["attention.q.first"], layer["attention.q.second"] = _halves(q, config.head_dim)
        layer["attention.k.first"], layer["attention.k.second"] = _halves(stored("attn_k"), config.head_dim)
        weights |= {f"layers.{index}.{name}.weight": weight for name, weight in layer.items()}
    model.load_state_dict(weights, strict=False, assign=True)
    return model.eval().requires_grad_(False)


def _halves(weight: torch.Tensor, head_dim: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Rows of a rotated projection: llama.cpp stores those that are rotated together side by side."""
    pairs = weight.view(-1, head_dim // 2, 2, weight.shape[1])
    first, second = pairs.unbind(2)
    return first.reshape(-1, weight.shape[1]), second.reshape(-1, weight.shape[1])


def _linear(width: int, outputs: int) -> nn.Linear:
    """Without memory: the weight is assigned."""
    return nn.Linear(width, outputs, bias=False, device="meta")
