"""A Llama-style decoder whose KV caches are appended at a position."""

from __future__ import annotations

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
        count = tokens.shape[0]
        codes = F.embedding(tokens, self.codes).view(count, self.scales.shape[1], -1)
        rows = codes.to(torch.float32) * F.embedding(tokens, self.scales).unsqueeze(-1)
        return rows.view(count, -1)


class Attention(nn.Module):
    """Grouped-query attention of one sequence over its cache."""

    def __init__(self, config: LlamaConfig, capacity: int) -> None:
        super().__init__()
        self.kv_heads, self.head_dim = config.kv_heads, config.head_dim
        self.group = config.heads // config.kv_heads
        self.q = nn.Linear(config.width, config.heads * self.head_dim, bias=False)
        self.k = nn.Linear(config.width, config.kv_heads * self.head_dim, bias=False)
        self.v = nn.Linear(config.width, config.kv_heads * self.head_dim, bias=False)
        self.o = nn.Linear(config.heads * self.head_dim, config.width, bias=False)
        self.cache = KVCache(1, config.kv_heads, capacity, self.head_dim)

    def forward(self, x: torch.Tensor, position: torch.Tensor, rope: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """x [T, width], position [1], rope [2, T, 1, head_dim], mask [group * T, capacity] -> [T, width]."""
        tokens, dim = x.shape[0], self.head_dim
        q = rotate(self.q(x).view(tokens, -1, dim), rope)
        k = rotate(self.k(x).view(tokens, -1, dim), rope)
        v = self.v(x).view(tokens, -1, dim)
        keys, values = self.cache.update(
            k.permute(1, 0, 2).unsqueeze(0), v.permute(1, 0, 2).unsqueeze(0), position
        )
        keys = keys.view(self.kv_heads, -1, dim)
        values = values.view(self.kv_heads, -1, dim)
        # [kv_heads, group * T, dim]: one product for all query heads of a group, so that the cache isn't repeated.
        q = q.view(tokens, self.kv_heads, self.group, dim).permute(1, 2, 0, 3)
        q = q.reshape(self.kv_heads, self.group * tokens, dim)
        # Keys on the left: what a kernel transposes and packs is then the small queries, not the whole cache.
        scores = torch.bmm(keys, q.permute(0, 2, 1)).permute(0, 2, 1)
        heads = torch.bmm((scores + mask).softmax(-1), values)
        heads = heads.view(self.kv_heads, self.group, tokens, dim).permute(2, 0, 1, 3)
        return self.o(heads.reshape(tokens, self.kv_heads * self.group * dim))


class FeedForward(nn.Module):
    """SwiGLU."""

    def __init__(self, config: LlamaConfig) -> None:
        super().__init__()
        self.gate = nn.Linear(config.width, config.feed_forward, bias=False)
        self.up = nn.Linear(config.width, config.feed_forward, bias=False)
        self.down = nn.Linear(config.feed_forward, config.width, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[T, width] -> [T, width]."""
        return self.down(F.silu(self.gate(x)) * self.up(x))


class Layer(nn.Module):
    """One decoder layer."""

    def __init__(self, config: LlamaConfig, capacity: int) -> None:
        super().__init__()
        self.attention_norm = nn.RMSNorm(config.width, eps=config.norm_epsilon)
        self.attention = Attention(config, capacity)
        self.feed_forward_norm = nn.RMSNorm(config.width, eps=config.norm_epsilon)
        self.feed_forward = FeedForward(config)

    def forward(self, x: torch.Tensor, position: torch.Tensor, rope: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """As Attention."""
        x = x + self.attention(self.attention_norm(x), position, rope, mask)
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
        self.norm = nn.RMSNorm(config.width, eps=config.norm_epsilon)
        self.head = nn.Linear(config.width, config.vocabulary, bias=False)
        self.register_buffer("rope", rope_table(config, capacity))

    def forward(self, tokens: torch.Tensor, position: torch.Tensor) -> torch.Tensor:
        """See the class."""
        tokens = tokens.view(-1)
        positions = position + torch.arange(tokens.shape[0])
        rope = F.embedding(positions, self.rope).view(positions.shape[0], 2, 1, -1).permute(1, 0, 2, 3)
        visible = torch.arange(self.capacity).unsqueeze(0) <= positions.unsqueeze(1)
        group = self.config.heads // self.config.kv_heads
        mask = torch.where(visible, 0.0, -1e9).repeat(group, 1)
        x = self.embedding(tokens)
        for layer in self.layers:
            x = layer(x, position, rope, mask)
        return self.head(self.norm(x[-1:]))


def rope_table(config: LlamaConfig, capacity: int) -> torch.Tensor:
    """float32 [capacity, 2 * head_dim]: each position's cosines, then sines, for ``rotate``."""
    half = config.head_dim // 2
    frequencies = config.rope_base ** (-torch.arange(half, dtype=torch.float64) / half)
    angles = torch.arange(capacity, dtype=torch.float64).unsqueeze(1) * frequencies
    cos, sin = angles.cos(), angles.sin()
    return torch.cat((cos, cos, -sin, sin), dim=1).float()


def rotate(x: torch.Tensor, rope: torch.Tensor) -> torch.Tensor:
    """Rotary embedding: x [T, heads, dim], rope [2, T, 1, dim] -> [T, heads, dim]."""
    half = x.shape[-1] // 2
    swapped = torch.cat((x[..., half:], x[..., :half]), dim=-1)
    return x * rope[0] + swapped * rope[1]


def load_llama(file: GgufFile, capacity: int) -> Llama:
    """The model of a GGUF file, in float32.

    Raises:
        ExportError: a weight is missing, or ``capacity`` is more than the model was trained for.
    """
    config = file.config()
    with torch.device("meta"):
        model = Llama(config, capacity, Embedding(torch.empty(0), torch.empty(0)))
    weights = {
        "embedding.codes": (table := file.embedding("token_embd.weight")).codes,
        "embedding.scales": table.scales,
        "head.weight": file.weight("token_embd.weight"),
        "norm.weight": file.weight("output_norm.weight"),
        "rope": rope_table(config, capacity),
    }
    parts = {
        "attention_norm": "attn_norm",
        "attention.q": "attn_q",
        "attention.k": "attn_k",
        "attention.v": "attn_v",
        "attention.o": "attn_output",
        "feed_forward_norm": "ffn_norm",
        "feed_forward.gate": "ffn_gate",
        "feed_forward.up": "ffn_up",
        "feed_forward.down": "ffn_down",
    }
    for layer in range(config.layers):
        for name, stored in parts.items():
            weight = file.weight(f"blk.{layer}.{stored}.weight")
            if stored in ("attn_q", "attn_k"):
                weight = _half_rotation(weight, config.head_dim)
            if stored == "attn_q":
                weight = weight * config.head_dim**-0.5
            weights[f"layers.{layer}.{name}.weight"] = weight
        for buffer in ("k", "v"):
            shape = model.layers[layer].attention.cache.k.shape
            weights[f"layers.{layer}.attention.cache.{buffer}"] = torch.zeros(shape)
    model.embedding.register_buffer("codes", table.codes.to("meta"))
    model.embedding.register_buffer("scales", table.scales.to("meta"))
    model.load_state_dict(weights, assign=True)
    return model.eval().requires_grad_(False)


def _half_rotation(weight: torch.Tensor, head_dim: int) -> torch.Tensor:
    """Rows of a q or k projection from llama.cpp's order (rotated pairs side by side) to halves."""
    rows, width = weight.shape
    pairs = weight.view(rows // head_dim, head_dim // 2, 2, width)
    return pairs.transpose(1, 2).reshape(rows, width).contiguous()
