"""What a function does that is being recorded: its kernels' calls, and where its tensors will lie. Knows no kernel."""

import torch

from kernels.cpu.arena import Lifetime, place
from kernels.cpu.call import Call

_ALIGNMENT = 64


class Recording:
    """The calls of one function, and the tensors without memory that it made."""

    def __init__(self, argument: torch.Tensor) -> None:
        self.calls: list[Call] = []
        self.buffers = [argument]
        self.result = argument

    def empty(self, num_rows: int, columns: int, dtype: torch.dtype) -> torch.Tensor:
        buffer = torch.empty(num_rows, columns, dtype=dtype, device="meta")
        self.buffers.append(buffer)
        return buffer

    def lay_out(self) -> tuple[torch.Tensor, dict[int, int]]:
        """The arena, and where in it each buffer begins, by the buffer's id."""
        lifetimes = {id(buffer): Lifetime(buffer.nbytes) for buffer in self.buffers}
        for now, call in enumerate(self.calls):
            for tensor in call.tensors:
                if tensor.device.type == "meta":
                    assert id(tensor) in lifetimes, "a model may change activations by operations only"
                    lifetimes[id(tensor)].extend(now)
        assert id(self.result) in lifetimes, "the result is not an operation's"
        lifetimes[id(self.buffers[0])].extend(0)
        lifetimes[id(self.result)].extend(len(self.calls))
        size, offsets = place(list(lifetimes.values()), _ALIGNMENT)
        with torch.inference_mode(False):  # whoever calls first decides nothing about who may call later
            return torch.empty(size, dtype=torch.uint8), dict(zip(lifetimes, offsets, strict=True))
