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


class PlainDecoder(nn.Module):
    """Embeds tokens, appends them to a buffer ``cache`` [1, heads, capacity, dim] and attends to it.

    tokens: int64 [1, T]; output: [1, heads, T, dim]. Subclasses say how they append, and at which position.
    """

    def __init__(self, heads: int = 2, capacity: int = 32, dim: int = 4, vocabulary: int = 64) -> None:
        super().__init__()
        self.heads, self.dim = heads, dim
        self.embedding = nn.Embedding(vocabulary, heads * dim)
        self.register_buffer("cache", torch.zeros(1, heads, capacity, dim))

    def append(self, rows: torch.Tensor, position: torch.Tensor) -> torch.Tensor:
        """Appends rows [1, heads, T, dim]; the index of each, [T]."""
        raise NotImplementedError

    def forward(self, tokens: torch.Tensor, position: torch.Tensor) -> torch.Tensor:
        x = self.embedding(tokens).view(1, tokens.shape[1], self.heads, self.dim).transpose(1, 2)
        index = self.append(x, position)
        visible = torch.arange(self.cache.shape[2]) <= index.unsqueeze(-1)
        scores = x @ self.cache.transpose(-1, -2) + torch.where(visible, 0.0, -1e9)
        return scores.softmax(-1) @ self.cache


class IndexCopy(PlainDecoder):
    """position: int64 [T], an index for each token."""

    def append(self, rows: torch.Tensor, position: torch.Tensor) -> torch.Tensor:
        self.cache.index_copy_(2, position, rows)
        return position


class IndexPut(PlainDecoder):
    """position: int64 [1]."""

    def append(self, rows: torch.Tensor, position: torch.Tensor) -> torch.Tensor:
        index = position + torch.arange(rows.shape[2])
        self.cache[:, :, index] = rows
        return index


class SliceAssign(PlainDecoder):
    """position: int64 [1]."""

    def append(self, rows: torch.Tensor, position: torch.Tensor) -> torch.Tensor:
        start, count = position.item(), rows.shape[2]
        torch._check(start >= 0)
        torch._check(start + count <= self.cache.shape[2])
        self.cache[:, :, start : start + count] = rows
        return position + torch.arange(count)


class GatedDelta(nn.Module):
    """A layer in the manner of Gated DeltaNet, and an attention layer: three kinds of state in one graph.

    x: float32 [1, T, width], T up to 16; position: int64 [1]; output as x. The buffers:

    * ``window`` [1, 3, width]: the inputs that the causal convolution still needs;
    * ``memory`` [1, heads, dim, dim]: S_t = a_t S_(t-1) + k_t u_t', u_t = b_t (v_t - a_t S_(t-1)' k_t);
    * ``cache``: keys and values of the attention.
    """

    def __init__(self, width: int = 16, heads: int = 2, capacity: int = 32) -> None:
        super().__init__()
        self.heads, self.dim = heads, width // heads
        self.taps = nn.Parameter(torch.zeros(4, width))
        self.q, self.k, self.v, self.out = (nn.Linear(width, width, bias=False) for _ in range(4))
        self.decay, self.strength = nn.Linear(width, heads), nn.Linear(width, heads)
        self.attention = Attention(width, heads, heads, KVCache(1, heads, capacity, self.dim))
        self.register_buffer("window", torch.zeros(1, 3, width))
        self.register_buffer("memory", torch.zeros(1, heads, self.dim, self.dim))

    def forward(self, x: torch.Tensor, position: torch.Tensor) -> torch.Tensor:
        y = x + self._delta(self._convolve(x))
        return y + self.attention(y, position, position.unsqueeze(-1) + torch.arange(x.shape[1]))

    def _convolve(self, x: torch.Tensor) -> torch.Tensor:
        tokens = x.shape[1]
        inputs = torch.cat((self.window, x), 1)
        self.window.copy_(inputs.narrow(1, tokens, 3))
        return F.silu(sum(self.taps[i] * inputs.narrow(1, i, tokens) for i in range(4)))

    def _delta(self, x: torch.Tensor) -> torch.Tensor:
        """All tokens at once: with G_t = a_1 ... a_t, the u_t solve a triangular system."""

        def split(y: torch.Tensor) -> torch.Tensor:
            return y.view(1, -1, self.heads, y.shape[-1] // self.heads).transpose(1, 2)

        q, k, v = split(self.q(x)), F.normalize(split(self.k(x)), dim=-1), split(self.v(x))
        strength = split(self.strength(x)).sigmoid()
        log_decay = F.logsigmoid(split(self.decay(x)))
        total = log_decay.sum(2, keepdim=True)
        log_decay = log_decay.cumsum(2)
        tokens = torch.arange(x.shape[1])
        past = tokens.unsqueeze(-1) >= tokens
        between = torch.where(past, log_decay - log_decay.transpose(-1, -2), -1e9).exp()  # G_t / G_s
        decay = log_decay.exp()
        # (1 + A)^-1 = (1 - A)(1 + A^2)(1 + A^4)(1 + A^8), as A^16 = 0.
        power = -strength * between * (k @ k.transpose(-1, -2)) * (tokens.unsqueeze(-1) > tokens)
        u = strength * (v - decay * (k @ self.memory))
        for step in range(4):
            u = u + power @ u
            if step < 3:
                power = power @ power
        out = decay * (q @ self.memory) + (between * (q @ k.transpose(-1, -2))) @ u
        scaled = (total - log_decay).exp() * k
        self.memory.copy_(total.exp() * self.memory + scaled.transpose(-1, -2) @ u)
        return self.out(out.transpose(1, 2).reshape(x.shape))


class CallersCache(PlainDecoder):
    """As IndexPut, with the cache as a third input that the method changes; one that the module keeps if asked to."""

    def __init__(self, both: bool = False) -> None:
        super().__init__()
        self.both = both
        if not both:
            del self.cache

    def forward(self, tokens: torch.Tensor, position: torch.Tensor, cache: torch.Tensor) -> torch.Tensor:
        x = self.embedding(tokens).view(1, tokens.shape[1], self.heads, self.dim).transpose(1, 2)
        index = position + torch.arange(tokens.shape[1])
        cache.index_copy_(2, index, x)
        visible = torch.where(torch.arange(cache.shape[2]) <= index.unsqueeze(-1), 0.0, -1e9)
        y = (x @ cache.transpose(-1, -2) + visible).softmax(-1) @ cache
        if self.both:
            self.cache[:, :, index] = 2 * x
            y = y + (x @ self.cache.transpose(-1, -2) + visible).softmax(-1) @ self.cache
        return y


class FunctionalCache(nn.Module):
    """What CallersCache computes with ``weights``, for other delegates: the cache's new value is an output."""

    def __init__(self, weights: CallersCache) -> None:
        super().__init__()
        self.weights = weights

    def forward(
        self, tokens: torch.Tensor, position: torch.Tensor, cache: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        w = self.weights
        x = w.embedding(tokens).view(1, tokens.shape[1], w.heads, w.dim).transpose(1, 2)
        index = position + torch.arange(tokens.shape[1])
        new = cache.index_copy(2, index, x)
        visible = torch.where(torch.arange(cache.shape[2]) <= index.unsqueeze(-1), 0.0, -1e9)
        return (x @ new.transpose(-1, -2) + visible).softmax(-1) @ new, new


class Twice(nn.Module):
    """float32 [1, 2, 32, 4]."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + x


class WriteOnly(nn.Module):
    """Appends tokens (int64 [1, T]) to a cache float32 [1, 1, 32, 1] and returns how many positions it then has."""

    def forward(self, tokens: torch.Tensor, position: torch.Tensor, cache: torch.Tensor) -> torch.Tensor:
        count = tokens.shape[1]
        cache.index_copy_(2, position + torch.arange(count), tokens.to(torch.float32).view(1, 1, count, 1))
        return (position + count).to(torch.float32)


class Initial(nn.Module):
    """Adds x (float32 [4]) to a buffer that starts as 0.5, 1.5, 2.5, 3.5; returns the buffer before that."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("total", torch.arange(4) + 0.5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        before = self.total.clone()
        self.total.add_(x)
        return before


class Append(nn.Module):
    """Appends x [1, heads, n, dim] at position (int32 [1]).

    y[h, t] is the sum of the cache's rows up to x's row t.
    """

    def __init__(self, heads: int = 2, capacity: int = 16, dim: int = 4) -> None:
        super().__init__()
        self.register_buffer("cache", torch.zeros(1, heads, capacity, dim))

    def forward(self, x: torch.Tensor, position: torch.Tensor) -> torch.Tensor:
        new, y = append_and_sum(self.cache, x, position)
        self.cache.copy_(new)
        return y


def append_and_sum(
    cache: torch.Tensor, x: torch.Tensor, position: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """What Append does, with the cache as an argument and a result."""
    new = torch.ops.etrt.kv_cache_update(cache, x, position, 2)
    last = position.unsqueeze(-1) + torch.arange(x.shape[2]).unsqueeze(-1)
    visible = (torch.arange(cache.shape[2]) <= last).to(cache.dtype)
    return new, visible.expand(1, cache.shape[1], -1, -1) @ new
