"""Measurements on the quiet: a prompt decoded plain, with drafts, and plain again, while no visitor wants to decode.

A measurement ends at once when a visitor comes, and is no run: neither the log nor `/health` nor a queue knows of it.
"""

import asyncio
import os
import platform
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from naive_speculate.events import Event, MeasuredSpeedup
from naive_speculate.events.speedup import compare, plain_rates
from naive_speculate.serving import Engine, Load, Request
from naive_speculate.speculate.sequence import Detail

MOST_TOKENS = 64
MOST_SECONDS = 6.0
"""No decoding of a measurement goes on for longer; what a slow model wrote by then is compared."""
MOST_TURNS = 3
AGREE = 0.1
"""Plain decoding before and after that differs by more is measured again: the machine was not quiet."""
PATIENCE_SECONDS = 10.0

BUSY = "Others are decoding. A speed that is shared says nothing of drafts."
COMPANY = "Others are decoding, and it is decoded only while nobody else does."
CAME = "Somebody else's run came first, and the measurement made way."
SHORT = "The text is too short to be timed."


_measuring = ThreadPoolExecutor(1, "measuring")


class NotMeasured(Exception):
    """There is no figure; the message says why, `again` whether trying again may help."""

    def __init__(self, why: str, *, again: bool = True) -> None:
        super().__init__(why)
        self.again = again


class Measuring:
    """Measures one thing at a time, while it is `quiet`: nobody decodes or waits."""

    def __init__(self, quiet: Callable[[], bool]) -> None:
        self._quiet = quiet
        self._turn = threading.Lock()
        self._cancel: threading.Event | None = None
        self._engine: Engine | None = None

    def make_way(self) -> None:
        """A visitor wants to decode: end what is being measured."""
        if cancel := self._cancel:
            cancel.set()

    def without(self, engine: Engine, load: Load) -> Load:
        """An engine's load without what is measured."""
        if engine is not self._engine:
            return load
        running = min(1, load.running)
        return replace(load, running=load.running - running, waiting=max(0, load.waiting - (1 - running)))

    def speedup(self, engine: Engine, request: Request) -> MeasuredSpeedup:
        """What drafting gains for this prompt and these settings, by an engine without observers.

        Raises:
            NotMeasured: If others decode or the text is too short.
        """
        with self._alone(engine) as cancel:
            machine = machine_name(engine.about.device)
            tokens = min(MOST_TOKENS, request.params.max_tokens or MOST_TOKENS)
            drafted = replace(request, params=replace(request.params, max_tokens=tokens), detail="none")
            # Where plain decoding would end its text is of no interest, only how long a token takes.
            plainly = replace(drafted.params, ignore_eos=True, stop=[], stop_token_ids=[])
            plain = replace(drafted, params=plainly, num_draft_tokens=0)
            slow, fast = [self._decode(engine, plain, cancel)], list[list[Event]]()
            while len(fast) < MOST_TURNS:
                fast.append(self._decode(engine, drafted, cancel))
                slow.append(self._decode(engine, plain, cancel))
                rates = plain_rates(slow[-2:])
                if rates and max(rates) < (1 + AGREE) * min(rates):
                    break
            found = compare(slow, fast, machine)
        if found is None:
            raise NotMeasured(SHORT, again=False)
        return found

    def events(self, engine: Engine, request: Request, detail: Detail = "none") -> list[Event]:
        """A run's events, without their numbers unless these are asked for; cut where it takes too long.

        Raises:
            NotMeasured: If others decode.
        """
        with self._alone(engine, COMPANY) as cancel:
            return self._decode(engine, replace(request, detail=detail), cancel)

    def _decode(self, engine: Engine, request: Request, cancel: threading.Event) -> list[Event]:
        events: list[Event] = []
        with ended_after(MOST_SECONDS) as ended:
            for some in engine.submit(request, _Either(cancel, ended)):
                events += some
                if not cancel.is_set() and not self._quiet():  # whoever comes past `make_way` is seen here
                    cancel.set()
        if cancel.is_set():
            raise NotMeasured(CAME)
        return events

    @contextmanager
    def _alone(self, engine: Engine, busy: str = BUSY) -> Iterator[threading.Event]:
        if not self._turn.acquire(timeout=PATIENCE_SECONDS):
            raise NotMeasured(busy)
        try:
            cancel = threading.Event()
            self._cancel = cancel  # before the look around: who comes after it finds something to cancel
            if not self._quiet():
                raise NotMeasured(busy)
            self._engine = engine
            yield cancel
        finally:
            self._cancel = self._engine = None
            self._turn.release()


async def in_turn(work: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """What the work gives, which measures: done in a thread of its own, one after another. Who waits takes no thread.

    Work that does not begin within `PATIENCE_SECONDS` is not done; then there is a `reason` and whether to ask `again`.
    """
    loop, begun = asyncio.get_running_loop(), asyncio.Event()

    def begin() -> dict[str, Any]:
        loop.call_soon_threadsafe(begun.set)
        return work()

    result = _measuring.submit(begin)
    with suppress(TimeoutError):
        async with asyncio.timeout(PATIENCE_SECONDS):
            await begun.wait()
    if result.cancel():
        return {"reason": BUSY, "again": True}
    return await asyncio.wrap_future(result)


@contextmanager
def ended_after(seconds: float) -> Iterator[threading.Event]:
    """A cancel flag that is set after so long."""
    ended = threading.Event()
    timer = threading.Timer(seconds, ended.set)
    timer.start()
    try:
        yield ended
    finally:
        timer.cancel()


class _Either:
    """A cancel flag that is set once one of several is."""

    def __init__(self, *flags: threading.Event) -> None:
        self._flags = flags

    def is_set(self) -> bool:
        return any(flag.is_set() for flag in self._flags)


def machine_name(device: str) -> str:
    """What computes there, in words: the GPU's name, or the processor's and how many cores are in use."""
    if device.startswith("cuda"):
        return torch.cuda.get_device_name(device)[:120]
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    models = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    name = next(models, "") or platform.processor() or platform.machine() or "unknown processor"
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return f"{name[:100]}, {cores} core{'s' if cores > 1 else ''}"
