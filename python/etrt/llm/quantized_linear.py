"""A linear layer whose weight is stored in 8 bits, one scale for each output."""

from __future__ import annotations

import torch
import torch.ao.quantization.fx._decomposed  # Defines torch.ops.quantized_decomposed.
from torch import nn
from torch.nn import functional as F


class QuantizedLinear(nn.Module):
    """x W^T without bias; W is int8, x is quantized to int8 as it comes, each row with its own range.

    The operators are those that XNNPACK takes as one int8 product ("dynamic per-channel quantization"). A row's range
    depends on no other row: a prompt read in pieces gives what it gives at once.
    """

    def __init__(self, weight: torch.Tensor) -> None:
        """``weight``: float32 [outputs, inputs]; what is lost is at most half of a row's greatest value / 127."""
        super().__init__()
        scales = weight.abs().amax(dim=1).clamp(min=1e-12) / 127
        codes = (weight / scales.unsqueeze(1)).round().clamp(-127, 127).to(torch.int8)
        self.register_buffer("weight", codes)
        self.register_buffer("scales", scales)
        self.register_buffer("zeros", torch.zeros_like(scales, dtype=torch.int64))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """float32 [T, inputs] -> float32 [T, outputs]."""
        ops = torch.ops.quantized_decomposed
        scale, zero = ops.choose_qparams_per_token_asymmetric(x, torch.int8)
        codes = ops.quantize_per_token(x, scale, zero, -128, 127, torch.int8)
        x = ops.dequantize_per_token(codes, scale, zero, -128, 127, torch.int8, torch.float32)
        weight = ops.dequantize_per_channel(self.weight, self.scales, self.zeros, 0, -127, 127, torch.int8)
        return F.linear(x, weight)


def quantize_linear_layers(model: nn.Module) -> None:
    """Replaces every nn.Linear in ``model``, in place; their float32 weights are let go one by one."""
    for module in list(model.modules()):
        for name, child in list(module.named_children()):
            if isinstance(child, nn.Linear):
                setattr(module, name, QuantizedLinear(child.weight.detach()))
