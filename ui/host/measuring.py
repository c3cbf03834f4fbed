"""Measurements while no visitor decodes: a prompt decoded plainly, with drafts, and plainly again.

A measurement ends as soon as a visitor starts a run. Measurements are not counted as runs in the
log, in `/health` or in the queue.
"""

import asyncio
import platform
import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from naive_speculate.events import Event, MeasuredSpeedup
from naive_speculate.models.threads import available_cores
from naive_speculate.serving import Engine, Load, Request, Unavailable
from naive_speculate.serving.protocol import Reader
from naive_speculate.serving.visit import Visit
from naive_speculate.speculate.sequence import Detail
from naive_speculate.tools.show.speedup import compare, plain_rates
from ui.host.visitors import MEASURING
from ui.labels import count

MOST_TOKENS = 64
MOST_SECONDS = (
    6.0  # longest decoding within a measurement; what a slow model wrote by then is compared
)
LANE_SECONDS = 20.0  # longest plain decoding of a whole run, which the visitor watches
MOST_REPEATS = 3
# if plain decoding before and after differs by more, it is measured again: the machine was not
# quiet
AGREE = 0.1
PATIENCE_SECONDS = 10.0

BUSY = "Others are decoding. A shared speed says nothing about drafts."
COMPANY = "Others are decoding. The comparison runs only while nobody else does."
CAME = "Somebody started a run, so the measurement was stopped."
SHORT = "The text is too short to be timed."


class NotMeasured(Exception):
    """There is no measurement. The message says why; `again` says whether another try may help."""

    def __init__(self, why: str, *, again: bool = True) -> None:
        super().__init__(why)
        self.again = again


class Measuring:
    """Measures one thing at a time, while `quiet` returns true: nobody decodes or waits."""

    def __init__(self, quiet: Callable[[], bool]) -> None:
        self._quiet = quiet
        self._turn = threading.Lock()
        self._cancel: threading.Event | None = None
        self._engine: Engine | None = None
        self._rows = 1  # sequences of the current measurement

    def interrupt(self) -> None:
        """End the current measurement, because a visitor wants to decode."""
        if cancel := self._cancel:
            cancel.set()

    def without(self, engine: Engine, load: Load) -> Load:
        """An engine's load without the current measurement."""
        if engine is not self._engine:
            return load
        running = min(self._rows, load.running)
        waiting = max(0, load.waiting - (self._rows - running))
        return replace(load, running=load.running - running, waiting=waiting)

    def speedup(
        self, engine: Engine, request: Request, lane: list[Event] | None = None
    ) -> MeasuredSpeedup:
        """The speedup for this prompt and these settings, which no observer
        hears of.

        `lane` receives the events of the whole run without drafts while it is decoded, which is
        the first measurement. Without it, only as many tokens as the others are decoded. Raises
        NotMeasured if others decode or the text is too short.
        """
        with self._alone(engine) as cancel:
            machine = machine_name(engine.about.device)
            tokens = min(MOST_TOKENS, request.params.max_tokens or MOST_TOKENS)
            drafted = replace(
                request, params=replace(request.params, max_tokens=tokens), detail="none"
            )
            # Only the time per token matters, not where plain decoding would end.
            plainly = replace(drafted.params, ignore_eos=True, stop=[], stop_token_ids=[])
            plain = replace(drafted, params=plainly, num_draft_tokens=0)
            whole = plain if lane is None else replace(request, num_draft_tokens=0, detail="none")
            slow, fast = [self._decode(engine, whole, cancel, lane)], list[list[Event]]()
            while len(fast) < MOST_REPEATS:
                fast.append(self._decode(engine, drafted, cancel))
                slow.append(self._decode(engine, plain, cancel))
                rates = plain_rates(slow[-2:])
                if rates and max(rates) < (1 + AGREE) * min(rates):
                    break
            speedup = compare(slow, fast, machine)
        if speedup is None:
            raise NotMeasured(SHORT, again=False)
        return speedup

    def events(self, engine: Engine, request: Request, detail: Detail = "none") -> list[Event]:
        """A run's events, by default without probabilities, cut off after a while. Raises
        NotMeasured if others decode."""
        with self._alone(engine, COMPANY, request.params.n) as cancel:
            return self._decode(engine, replace(request, detail=detail), cancel)

    def _decode(
        self,
        engine: Engine,
        request: Request,
        cancel: threading.Event,
        lane: list[Event] | None = None,
    ) -> list[Event]:
        events = [] if lane is None else lane
        until = _Until(MOST_SECONDS if lane is None else LANE_SECONDS, cancel)
        for some in Visit(request).submit(engine, until):
            events += some
            if not cancel.is_set() and not self._quiet():  # a visitor who did not call `interrupt`
                cancel.set()
        if cancel.is_set():
            raise NotMeasured(CAME)
        return events

    @contextmanager
    def _alone(self, engine: Engine, busy: str = BUSY, rows: int = 1) -> Iterator[threading.Event]:
        with self._turn:
            try:
                self._cancel = cancel = (
                    threading.Event()
                )  # before the check, so that a later visitor finds something to cancel
                if not self._quiet():
                    raise NotMeasured(busy)
                self._engine, self._rows = engine, rows
                yield cancel
            finally:
                self._cancel = self._engine = None


async def in_turn(work: Callable[[], dict[str, Any]], session: str = "") -> dict[str, Any]:
    """Run measuring work of a session in a thread, one piece at a time, and return its result.
    Sessions take turns. Work that does not begin within `PATIENCE_SECONDS`, or is one too many,
    is dropped; the result is then a `reason` and whether to ask `again`."""
    piece = MEASURING.submit(work, Reader(session=session))
    result = asyncio.wrap_future(piece)
    try:
        await asyncio.wait([result], timeout=PATIENCE_SECONDS)
    finally:
        dropped = piece.cancel()  # unless it has begun
    with suppress(Unavailable):
        if not dropped:
            return await result
    return {"reason": BUSY, "again": True}


class _Until:
    """A cancel flag that is set after so many seconds, or once another one is."""

    def __init__(self, seconds: float, cancel: threading.Event) -> None:
        self._until, self._cancel = time.monotonic() + seconds, cancel

    def is_set(self) -> bool:
        return self._cancel.is_set() or time.monotonic() > self._until


def machine_name(device: str) -> str:
    """The machine's name: the GPU, or the processor and the number of cores in use."""
    if device.startswith("cuda"):
        return torch.cuda.get_device_name(device)[:120]
    listed = Path("/proc/cpuinfo")
    match = re.search(
        r"model name\s*:(.+)", listed.read_text(encoding="utf-8") if listed.exists() else ""
    )
    name = (
        (match[1].strip() if match else "")
        or platform.processor()
        or platform.machine()
        or "unknown processor"
    )
    return f"{name[:100]}, {count(available_cores(), 'core')}"
