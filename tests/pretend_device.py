"""A CUDA device that keeps its data on the CPU: the engine's code for CUDA runs on it, without a
GPU.

As CUDA does, it refuses tensors of two devices in one operation, and another device's random
generator. Where CUDA lets the host wait it counts a wait: for a tensor's value, for a copy (to
the device from pinned memory there is none), for a stream or an event. Its tensors say that they
are on `cuda:0`; to torch, whose CUDA must not be reached, they are on `meta`.
"""

import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from naive_speculate.infer.device import on_device
from naive_speculate.models.llama.cuda_graphs import CudaCapture

CUDA, META = torch.device("cuda", 0), torch.device("meta")
aten = torch.ops.aten
COPIES = {aten._to_copy.default: 0, aten.copy_.default: 1}
"""What copies between devices, and which of its arguments."""
INDEXES = {aten.index.Tensor, aten.index_put.default, aten.index_put_.default}
READS = {
    aten._local_scalar_dense,
    aten.nonzero,
    aten.masked_select,
    aten.equal,
    aten.bincount,
    aten.repeat_interleave,
}
READS |= {aten._unique2, aten.unique_dim, aten.unique_consecutive}
"""What reads values on the device: to return them, or for the size of its result."""


class PretendTensor(torch.Tensor):
    """A tensor on the pretend device; `held` is its data, on the CPU."""

    held: torch.Tensor
    device = CUDA
    is_cuda = True
    __torch_function__ = torch._C._disabled_torch_function_impl

    @staticmethod
    def __new__(cls, held: torch.Tensor) -> "PretendTensor":
        layout: Any = {
            "strides": held.stride(),
            "storage_offset": held.storage_offset(),
            "dtype": held.dtype,
        }
        with torch._C._InferenceMode(
            False
        ):  # of a tensor made outside of it, the views are made outside, too
            made = torch.Tensor._make_wrapper_subclass(cls, held.shape, device=META, **layout)
        made.held = held
        return made

    def __repr__(self) -> str:
        return f"PretendTensor({self.held})"

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        raise RuntimeError(f"{func} outside of `pretend_device`")


class PretendGenerator(torch.Generator):
    """`torch.Generator`; of the pretend device where the argument is CUDA."""

    def __new__(cls, device: Any = "cpu") -> Any:
        return super().__new__(
            cls if torch.device(device).type == "cuda" else torch._C.Generator, "cpu"
        )


class PretendDevice(TorchDispatchMode):
    """Runs operations and counts.

    Attributes:
        waits: Where the host waited: file, line and operation.
    """

    def __init__(self) -> None:
        super().__init__()
        self.waits: list[str] = []
        self._launched = self._done = 0
        # to the host, not to be read before a wait
        self._copies: list[tuple[torch.Tensor, torch.Tensor]] = []

    def wait(self, what: object) -> None:
        """The host waits until the device has done everything."""
        frames = [
            frame
            for frame in traceback.extract_stack()
            if frame.filename != __file__ and "/torch/" not in frame.filename
        ]
        self.waits.append(
            f"{'/'.join(frames[-1].filename.split('/')[-2:])}:{frames[-1].lineno} {what}"
        )
        self._done = self._launched
        for copy, value in self._copies:
            copy.copy_(value)
        self._copies.clear()

    def event(self, **options: Any) -> Any:
        """`torch.cuda.Event`; to wait for it costs nothing where everything before it is done."""
        event = SimpleNamespace(after=0, at=0.0, device=CUDA)

        def record(stream: Any) -> None:
            event.after, event.at = self._launched, time.perf_counter()

        def elapsed_time(end: Any) -> float:
            assert max(event.after, end.after) <= self._done, "the event is not over yet"
            return 1000 * float(end.at - event.at)

        event.record, event.elapsed_time = record, elapsed_time
        event.synchronize = lambda: self.wait("event") if event.after > self._done else None
        return event

    def capture(
        self, compute: Callable[[], torch.Tensor]
    ) -> tuple[Callable[[], None], torch.Tensor]:
        """`CudaCapture`, which computes again, into the same tensor."""
        before = len(self.waits)
        result = compute()
        assert self.waits[before:] == [], "what is captured must not wait"
        return lambda: (result.copy_(compute()), None)[1], result

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        leaves: list[Any] = []
        given, named = _mapped(
            lambda x: (leaves.append(x), _held(x))[1], (args, kwargs := kwargs or {})
        )
        own = {id(leaf.held): leaf for leaf in leaves if isinstance(leaf, PretendTensor)}
        if not own and not any(map(_is_meta, leaves)):
            return func(*args, **kwargs)
        if _is_composite(func):  # in inference mode they come whole, with the waits inside
            with self:
                return func.decompose(*args, **kwargs)
        source = args[COPIES[func]] if func in COPIES else None
        to_device = (
            _is_meta(kwargs["device"])
            if kwargs.get("device")
            else isinstance(args[0], PretendTensor)
        )
        crosses = func in COPIES and isinstance(source, PretendTensor) != to_device
        if not crosses:
            _check(func, args, leaves)
        self._launched += 1
        found = func(*given, **named)
        free = kwargs.get("non_blocking", crosses and args[2:] == (True,))
        if crosses and not to_device and free:
            self._copies.append((found, found.clone()))
            found.zero_()
        blocks = crosses and not (free and (not to_device or getattr(source, "pinned", False)))
        if blocks or func.overloadpacket in READS or (func in INDEXES and _looks_up(*args)):
            self.wait(func)
        return (
            found
            if crosses and not to_device
            else _mapped(lambda x: own[id(x)] if id(x) in own else _pretend(x), found)
        )


class _Names(TorchFunctionMode):
    """Calls the pretend device `meta` for torch, pins memory without CUDA, and checks
    generators."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.device:
            return func(*args, **(kwargs or {}))
        args, kwargs = (
            [_as_meta(each) for each in args],
            {name: _as_meta(each) for name, each in (kwargs or {}).items()},
        )
        pinned = kwargs.pop("pin_memory", False)
        # meta would drop the numbers
        device = kwargs.pop("device", None) if func in (torch.tensor, torch.as_tensor) else None
        generator = kwargs.get("generator")
        if (
            generator
            and isinstance(args[0], PretendTensor)
            and not isinstance(generator, PretendGenerator)
        ):
            raise RuntimeError(f"{func.__name__}: the generator is not on the device of the tensor")
        if func is torch.Tensor.tolist:  # of a subclass, torch refuses
            args[0] = args[0].to("cpu")
        if func in (
            torch.Tensor.__getitem__,
            torch.Tensor.__setitem__,
        ):  # meta would drop the numbers of a list
            index = args[1] if isinstance(args[1], tuple) else (args[1],)
            args[1] = tuple(on_device(each) if isinstance(each, list) else each for each in index)
        found = func(*args, **kwargs)
        if pinned:
            found.pinned = True
        return found if device is None else found.to(device)


@contextmanager
def pretend_device() -> Iterator[PretendDevice]:
    """While it is entered, `cuda` is the pretend device for everything in this thread."""
    device = PretendDevice()
    stream = SimpleNamespace(synchronize=lambda: device.wait("stream"))
    with pytest.MonkeyPatch.context() as patch, _Names(), device:
        patch.setattr(torch, "Generator", PretendGenerator)
        patch.setattr(torch.cuda, "Event", device.event)
        patch.setattr(torch.cuda, "current_stream", lambda _: stream)
        patch.setattr(CudaCapture, "__call__", lambda _, compute: device.capture(compute))
        yield device


def _check(func: Any, args: Any, leaves: list[Any]) -> None:
    """Raise the error that CUDA would for tensors on the CPU. It takes single numbers in some
    operations, and indices."""
    for leaf in leaves:
        if isinstance(leaf, torch.Tensor) and not isinstance(leaf, PretendTensor):
            assert leaf.device.type == "cpu", (
                f"{func} was given numbers that torch dropped, since the device is meta"
            )
            number = leaf.dim() == 0 and (
                torch.Tag.pointwise in func.tags or func in INDEXES or func is aten.fill_.Tensor
            )
            if not number and not (func in INDEXES and any(leaf is index for index in args[1])):
                raise RuntimeError(
                    f"{func}: expected all tensors to be on the same device, but found cuda:0"
                    " and cpu"
                )


def _looks_up(table: Any, indices: Any, values: Any = None, *_: Any) -> bool:
    """Whether an indexing operation copies indices from the host, or counts those of a mask."""
    counts = values is None or values.numel() != 1  # one number is filled in under the mask itself
    return any(
        index is not None
        and (not isinstance(index, PretendTensor) or (index.dtype == torch.bool and counts))
        for index in indices
    )


@cache
def _is_composite(func: Any) -> bool:
    return torch._C._dispatch_has_kernel_for_dispatch_key(func.name(), "CompositeImplicitAutograd")


def _mapped(change: Callable[[Any], Any], x: Any) -> Any:
    if isinstance(x, (list, tuple)):
        return type(x)(_mapped(change, each) for each in x)
    return (
        {name: _mapped(change, each) for name, each in x.items()}
        if isinstance(x, dict)
        else change(x)
    )


def _pretend(x: Any) -> Any:
    return PretendTensor(x) if isinstance(x, torch.Tensor) else x


def _held(x: Any) -> Any:
    return x.held if isinstance(x, PretendTensor) else torch.device("cpu") if _is_meta(x) else x


def _is_meta(x: Any) -> bool:
    return isinstance(x, torch.device) and x.type == "meta"


def _as_meta(x: Any) -> Any:
    return (
        META
        if (isinstance(x, torch.device) and x.type == "cuda")
        or (isinstance(x, str) and x in ("cuda", "cuda:0"))
        else x
    )
