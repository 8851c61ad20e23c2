"""Kernels called one by one, or recorded once and replayed in one call: the Python side of program.cpp.

An operation asks for its result's memory (`empty`) and calls a kernel (`call`). That runs at once, unless a program is
being recorded: then `empty` gives a tensor without memory (on torch's meta device), and `call` remembers. At the end
every such tensor gets its place in one arena, which tensors share that don't live at the same time. Knows no kernel.
"""

import contextlib
import ctypes
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from typing import Any

import torch

from kernels.batch import TokenBatch
from kernels.cpu.background import Background, begin
from kernels.cpu.call import Call, Operation, Rows, Step, step_of
from kernels.cpu.memory import WeightMemory
from kernels.cpu.recording import Recording

_MOST_BACKGROUND_BYTES = 512 << 20  # what weights that wait are read from and written to


class Machine:
    """Runs the kernels of one library. Used by one thread at a time, but for those that it has itself."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self._library = library
        self._run = library.run_program
        self._run.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p, ctypes.c_int]
        self._run.restype = ctypes.c_bool
        self._kernels: dict[str, int] = {}
        self._recording: Recording | None = None
        self._background: Background[Call] | None = None
        self._for_prompts: list[Call] = []  # to be carried out when the background's end is reached
        self._copying: Future[None] | None = None  # the same, under way
        self.weights = WeightMemory()
        self.copies = WeightMemory()  # apart: the first byte that is needed of a huge page costs the whole page

    def empty(self, num_rows: int, columns: int, dtype: torch.dtype) -> torch.Tensor:
        """Memory [num_rows, columns] for a result, or for what a kernel keeps during its call."""
        if self._recording is None:
            return torch.empty(num_rows, columns, dtype=dtype)
        return self._recording.empty(num_rows, columns, dtype)

    def call(self, kernel: str, arguments: type[ctypes.Structure], rows: Rows, /, **values: Any) -> None:
        """The kernel of this name over `rows`, with `values` for the fields of its `arguments`; see Call."""
        call = Call(kernel, self._address(kernel), arguments, values)
        if self._recording is not None:
            self._recording.calls.append(call)
        else:
            self._run_all([call], step_of(rows))

    def prepare(self, kernel: str, arguments: type[ctypes.Structure], /, **values: Any) -> None:
        """As `call`, of a kernel that packs weights: it knows no rows, and may be carried out `in_background`."""
        call = Call(kernel, self._address(kernel), arguments, values)
        if self._background is None:
            self._run_all([call], Step())
        else:
            self._background.add(call, sum(tensor.nbytes for tensor in call.tensors))

    def prepare_for_prompts(self, kernel: str, arguments: type[ctypes.Structure], /, **values: Any) -> None:
        """As `prepare`, of what prompts' rows alone meet: a step with some waits for it, `in_background` does not."""
        call = Call(kernel, self._address(kernel), arguments, values)
        if self._background is None:
            self._run_all([call], Step())
        else:
            self._for_prompts.append(call)

    @contextlib.contextmanager
    def in_background(self) -> Iterator[None]:
        """What is prepared inside is carried out by a thread of its own, in order, and all of it by the end.

        What is `for_prompts` begins there, one by one, so that steps of generated tokens alone come between.
        """
        num_threads = torch.get_num_threads()  # each thread has its own
        self.await_copies()

        def run(calls: Sequence[Call]) -> None:
            torch.set_num_threads(num_threads)
            self._run_all(calls, Step())

        try:
            with Background(run, _MOST_BACKGROUND_BYTES) as self._background:
                torch.set_num_threads(1)  # it would wait for a second one, which waits for a core that packs
                try:
                    yield
                finally:
                    torch.set_num_threads(num_threads)
            self._copying = begin(run, [[call] for call in self._for_prompts])
        finally:
            self._background, self._for_prompts = None, []

    def await_copies(self) -> None:
        """Until all is done that is `for_prompts`; raises what failed."""
        if self._copying is not None:
            self._copying.result()
            self._copying = None

    def _run_all(self, calls: Sequence[Call], step: Step) -> None:
        self.run((Operation * len(calls))(*(call.bind(torch.Tensor.data_ptr) for call in calls)), len(calls), step)

    def run(self, operations: ctypes.Structure | ctypes.Array[Any], count: int, step: Step) -> None:
        if step.num_generated < step.num_rows:
            self.await_copies()
        if not self._run(ctypes.addressof(operations), count, ctypes.addressof(step), torch.get_num_threads()):
            raise RuntimeError("a kernel wants more deals than MAX_DEALS (worker.h): part of its work was not done")

    def record(self, function: Callable[..., torch.Tensor], max_rows: int) -> "Program":
        return Program(self, function, max_rows)

    def trace(self, function: Callable[..., torch.Tensor], *arguments: Any) -> "Recording":
        assert self._recording is None, "a program records another"
        self._recording = recording = Recording(arguments[0])
        try:
            recording.result = function(*arguments)
        finally:
            self._recording = None
        return recording

    def _address(self, kernel: str) -> int:
        if kernel not in self._kernels:
            address = ctypes.cast(getattr(self._library, kernel), ctypes.c_void_p).value
            assert address is not None
            self._kernels[kernel] = address
        return self._kernels[kernel]


class Program:
    """A function over rows, recorded when it is first called, for up to max_rows rows.

    Called with a tensor of one row a token; then a TokenBatch or num_generated, which may differ from call to call;
    then whatever stays the same. The result is valid until the next call.
    """

    def __init__(self, machine: Machine, function: Callable[..., torch.Tensor], max_rows: int) -> None:
        self._machine = machine
        self._function = function
        self._max_rows = max_rows
        self._constants: tuple[Any, ...] | None = None

    def __call__(self, x: torch.Tensor, rows: TokenBatch | int, *constants: Any) -> torch.Tensor:
        step = self._prepare(x, rows, constants)
        self._machine.run(self._operations, len(self._operations), step)
        return self._result[: len(x)]

    def seconds_of_kernels(self, x: torch.Tensor, rows: TokenBatch | int, *constants: Any) -> dict[str, float]:
        """As a call, but each kernel by itself: how long all calls of one name took. Waking the workers counts, too."""
        step = self._prepare(x, rows, constants)
        seconds: dict[str, float] = {}
        for call, operation in zip(self._calls, self._operations, strict=True):
            start = time.perf_counter()
            self._machine.run(operation, 1, step)
            seconds[call.kernel] = seconds.get(call.kernel, 0.0) + time.perf_counter() - start
        return seconds

    def _prepare(self, x: torch.Tensor, rows: TokenBatch | int, constants: tuple[Any, ...]) -> Step:
        if self._constants is None:
            self._record(x, rows, constants)
        num_rows = len(x)
        assert num_rows <= self._max_rows
        assert all(mine is given for mine, given in zip(self._constants or (), constants, strict=True))
        self._argument[:num_rows].copy_(x)
        step = step_of((num_rows, rows) if isinstance(rows, int) else rows)
        assert step.num_rows == num_rows, "the step has other rows than the tensor"
        assert 0 <= step.num_generated <= num_rows
        return step

    def _record(self, x: torch.Tensor, rows: TokenBatch | int, constants: tuple[Any, ...]) -> None:
        argument = torch.empty(self._max_rows, *x.shape[1:], dtype=x.dtype, device="meta")
        recording = self._machine.trace(self._function, argument, rows, *constants)
        arena, offsets = recording.lay_out()

        def address_of(tensor: torch.Tensor) -> int:
            return arena.data_ptr() + offsets[id(tensor)] if id(tensor) in offsets else tensor.data_ptr()

        def view(buffer: torch.Tensor) -> torch.Tensor:
            first = offsets[id(buffer)]
            return arena[first : first + buffer.nbytes].view(buffer.dtype).view(buffer.shape)

        self._calls = recording.calls
        self._operations = (Operation * len(self._calls))(*(call.bind(address_of) for call in self._calls))
        self._argument, self._result = view(argument), view(recording.result)
        self._constants = constants
