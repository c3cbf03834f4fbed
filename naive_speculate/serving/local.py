"""Many requests at once in this process: one thread steps all of them as one batch, and they join and leave between steps."""

import threading
import time
from collections import Counter, deque
from collections.abc import Generator, Iterator, Mapping
from queue import SimpleQueue
from typing import Any

import torch

from naive_speculate.events.event import Event, FinishReason
from naive_speculate.events.record import StepRecord
from naive_speculate.infer.memory import free_memory
from naive_speculate.sampling.params import SamplingParams
from naive_speculate.serving.intake import MAX_ROWS, OUT_OF_MEMORY, about, explain, prepare
from naive_speculate.serving.protocol import ANYBODY, STOPPING, Deliver, Load, Reader, Request, Unavailable, entered
from naive_speculate.serving.sharing import by_turns, one_too_many
from naive_speculate.speculate.batch import Batch, PartialStepError, Records
from naive_speculate.speculate.decoder import SpeculativeDecoder
from naive_speculate.speculate.run import Run
from naive_speculate.speculate.sequence import CancelFlag, SequenceState

MAX_WAITING = 1024
TIDY_SECONDS = 10.0
"""An engine without work hands freed memory back, so often at most."""
_BREATH = 0.01
"""Seconds that a reader lets pass between two looks: to wake at every step would take the interpreter from the decoder."""
_SPARE = 0.5
"""A reader with less than its share of the places need not wait for one: so many more of them may be held, and as many again by
other addresses than the one that holds most. Their rows take turns, and keep their memory meanwhile."""
_LOOK_SECONDS = 0.05
"""Where all readers are behind, they are looked after so often."""
STUCK_SECONDS = 60.0
"""A decoder whose step takes longer reports that it makes no progress."""
CLOSE_SECONDS = 3.0
"""`close` waits so long for the step that is being computed."""
_DROPPED = "Too many of your runs are waiting, and others wish to decode as well. Try again in a moment."
_BROKEN = "The decoder does not work any more. The server needs to be started again."


class _Job:
    """A run on its way, and where its events go.

    Attributes:
        reader: Who gets them.
        left: Whether it is to end: the reader has gone or reads too slowly, or the engine stops.
        run: Its sequences.
        number: Later ones have larger ones.
        turn: The step in which it was last stepped.
        begun: When it got its place.
    """

    def __init__(self, cancel: CancelFlag | None, deliver: Deliver, reader: Reader) -> None:
        self._asked = cancel
        self._deliver = deliver
        self.reader = reader
        self.left = False
        self.run: Run
        self.number = self.turn = 0
        self.begun = 0.0

    @property
    def num_rows(self) -> int:
        """How many places it takes."""
        return len(self.run.going_on)

    def deliver(self, said: list[Event] | Exception | None) -> None:
        """Hand it to the reader; one that fails ends its own run and no other."""
        try:
            self._deliver(said)
        except Exception:
            self.left = True

    def is_set(self) -> bool:
        """Whether it is to end early: its rows' cancel flag."""
        return self.left or (self._asked is not None and self._asked.is_set())


class LocalEngine:
    """Decodes with one pair in one thread of this process; an `Engine`.

    A sequence's draws and distributions are its own, so that each request gets the text that it would get alone. Where a
    step fails, its sequences are stepped again in halves, so that only those that fail alone end with an error.

    Args:
        decoder: Whose pair decodes. Others may use it at the same time.
        max_rows: Most sequences stepped together; further ones wait for a place, first come, first served.
        max_waiting: Most sequences that may wait.
        max_prompt_tokens: Longest prompt; None for what the model takes.
    """

    def __init__(
        self,
        decoder: SpeculativeDecoder,
        *,
        max_rows: int = MAX_ROWS,
        max_waiting: int = MAX_WAITING,
        max_prompt_tokens: int | None = None,
    ) -> None:
        if max_rows < 1:
            raise ValueError(f"max_rows must be at least 1, got {max_rows}")
        self.decoder = decoder
        self.about = about(decoder, max_rows)
        self._max_rows = max_rows
        self._max_prompt_tokens = max_prompt_tokens
        self._max_waiting = max_waiting
        self._changed = threading.Condition()
        self._waiting: deque[_Job] = deque()
        self._running: list[_Job] = []
        self._closed = False
        self._broken = False
        self._number = self._turn = 0
        self._moved = time.monotonic()  # when the last step began
        self._run_seconds: float | None = None
        self._thread = threading.Thread(target=self._work, name="decoding", daemon=True)
        self._thread.start()

    def submit(self, request: Request, cancel: CancelFlag | None = None, reader: Reader = ANYBODY) -> Iterator[list[Event]]:
        """Decode a request (see `Engine`); checked here, by the caller's own thread."""
        unread: SimpleQueue[list[Event] | Exception | None] = SimpleQueue()
        return entered(_read(self._start(request, cancel, unread.put, reader), unread))

    def start(self, request: Request, cancel: CancelFlag, deliver: Deliver, reader: Reader = ANYBODY) -> None:
        """Decode a request and deliver its events (see `Engine`); checked here, by the caller's own thread."""
        self._start(request, cancel, deliver, reader)

    def _start(self, request: Request, cancel: CancelFlag | None, deliver: Deliver, reader: Reader = ANYBODY) -> _Job:
        job, dropped = _Job(cancel, deliver, reader), None
        job.run = prepare(self.decoder, request, job, self._max_rows, self._max_prompt_tokens)
        with self._changed:
            if self._closed:
                raise Unavailable(STOPPING)
            if self._broken:
                raise Unavailable(_BROKEN)
            waiting = sum(job.num_rows for job in self._waiting)
            if waiting + job.num_rows > self._max_waiting:
                dropped = one_too_many(self._waiting, job)
                if dropped is None:
                    raise Unavailable(f"{waiting} others are waiting, which is as many as may. Try again in a moment.")
                self._waiting.remove(dropped)
            self._number += 1
            job.number = self._number
            self._waiting.append(job)
            self._changed.notify()
        if dropped is not None:
            dropped.deliver(Unavailable(_DROPPED))
        return job

    def waiting_before(self, reader: Reader) -> int | None:
        with self._changed:
            if sum(job.num_rows for job in self._running) < self._max_rows:
                return None
            new = _Job(None, lambda _: None, reader)
            new.run, new.number = Run((), ()), self._number + 1
            order = by_turns([*self._running, *self._waiting, new], lambda job: job.number)
            before = order[: order.index(new)]
            if self._may_join(self._held(), reader, 1, 1 + sum(job.num_rows for job in before)):
                return None
            return sum(job.num_rows for job in before if job not in self._running)

    def load(self) -> Load:
        with self._changed:
            running, waiting = (sum(len(job.run.rows) for job in jobs) for jobs in (self._running, self._waiting))
            still = time.monotonic() - self._moved if self._running else 0.0
            reason = STOPPING if self._closed else _BROKEN if self._broken else ""
            if stuck := not reason and still > STUCK_SECONDS:
                reason = f"The decoder has made no progress for {still:.0f} seconds."
            return Load(not reason, running, waiting, self._max_rows, reason=reason, stuck=stuck, run_seconds=self._run_seconds)

    def close(self) -> None:
        with self._changed:
            self._closed = True
            for job in (*self._waiting, *self._running):
                job.left = True
            self._changed.notify()
        self._thread.join(CLOSE_SECONDS)

    def _work(self) -> None:
        try:
            with torch.no_grad():  # once for all steps
                self._decode()
        finally:
            with self._changed:
                self._broken = self._broken or not self._closed
                left = [*self._waiting, *self._running]
            for job in left:
                job.deliver(Unavailable(_BROKEN))

    def _decode(self) -> None:
        batch = self.decoder.new_batch()
        tidied, untidy = time.monotonic(), False
        while True:
            with self._changed:
                while not (self._waiting or self._running or self._closed):
                    if untidy and time.monotonic() - tidied > TIDY_SECONDS:
                        free_memory()
                        tidied, untidy = time.monotonic(), False
                    self._changed.wait(TIDY_SECONDS if untidy else None)
                self._moved = time.monotonic()
                if self._closed and not (self._waiting or self._running):
                    return
                joining = self._admit()
                stepped = self._chosen()
                if not (joining or stepped):  # nobody reads
                    self._changed.wait(_LOOK_SECONDS)
                    continue
            untidy = True
            for job in joining:
                self._begin(job, batch)
            records = self._step(batch, [row for job in stepped for row in job.run.going_on])
            events = [_told(job.run, records) for job in stepped]
            batch.release(row for job in stepped for row in job.run.rows if row.ended)
            with self._changed:  # before anybody is told: who reads a run's end finds its place free
                over = [job for job in stepped if job.run.over]
                self._running = [job for job in self._running if job not in over]
                for job in over:
                    held = time.monotonic() - job.begun
                    self._run_seconds = held if self._run_seconds is None else 0.8 * self._run_seconds + 0.2 * held
                refused = list(self._waiting) if self._broken else []
                self._waiting = deque() if self._broken else self._waiting
            for job, told in zip(stepped, events, strict=True):
                if told:
                    job.deliver(told)
                if job.run.over:
                    job.deliver(None)
            for job in refused:
                job.deliver(Unavailable(_BROKEN))

    def _admit(self) -> list[_Job]:
        """Let waiting jobs join as far as there are places; cancelled ones join at once, to be ended by the next step.

        Places are given by turns. Where all are taken, a job joins by its reader's share, if there is a spare place; where
        there is none either, a job whose reader has fallen behind is ended.
        """
        if not self._waiting:
            return []
        behind = [job for job in self._running if job.reader.behind()]
        joining: list[_Job] = []
        place, full = 0, False
        rows = sum(job.num_rows for job in self._running)
        held = self._held()
        running = set(self._running)
        for job in by_turns([*(job for job in self._running if job not in behind), *self._waiting], lambda job: job.number):
            size = job.num_rows
            place += size
            if job in running:
                continue
            if not job.is_set():
                room = not full and rows + size <= self._max_rows
                if not (room or self._may_join(held, job.reader, size, place)):
                    full = True
                    if behind:
                        behind.pop(0).left = True
                    continue
            rows += size
            _take(held, job)
            self._waiting.remove(job)
            joining.append(job)
            job.begun = time.monotonic()
        self._running = [*self._running, *joining]
        return joining

    def _may_join(self, held: Counter[Any], reader: Reader, size: int, place: int) -> bool:
        """Whether a reader may have a spare place, although all are taken: its share has room, or it has no place yet."""
        spare = max(1, int(_SPARE * self._max_rows))
        if place > self._max_rows and held[reader.address, reader.session]:
            return False
        all_held = sum(number for group, number in held.items() if isinstance(group, str))
        most = self._max_rows + spare
        return held[reader.address] + size <= most and all_held + size <= most + spare

    def _held(self) -> Counter[Any]:
        """How many places each address has, and each of its sessions."""
        held = Counter[Any]()
        for job in self._running:
            _take(held, job)
        return held

    def _chosen(self) -> list[_Job]:
        """The jobs of the next step, by turns: no more rows than there are places, and none whose reader is behind."""
        self._turn += 1
        chosen, rows = [], 0
        for job in by_turns(self._running, lambda job: job.turn):
            ends = job.is_set()
            if ends or (rows + job.num_rows <= self._max_rows and not job.reader.behind()):
                rows += 0 if ends else job.num_rows
                job.turn = self._turn
                chosen.append(job)
        return sorted(chosen, key=lambda job: job.number)

    def _begin(self, job: _Job, batch: Batch) -> None:
        """Give a job's rows their places."""
        try:
            batch.admit(job.run.rows)
        except Exception as error:
            job.deliver(job.run.started() + job.run.end(FinishReason.ERROR, explain(error)))
        else:
            job.deliver(job.run.started())

    def _step(self, batch: Batch, rows: list[SequenceState]) -> Records:
        """Step the rows; where that fails, those whose step was not finished in halves, and end who fails alone."""
        saved = {row: row.save() for row in rows}
        records: dict[SequenceState, StepRecord] = {}
        try:
            return batch.step(rows)
        except PartialStepError as error:
            records, failure = dict(error.records), error.cause
        except Exception as error:
            failure = error
        batch.rewind(rows)
        again = [row for row in rows if row not in records and row.restore(saved[row])]
        if len(rows) == 1:
            for row in again:
                row.end(FinishReason.ERROR, explain(failure))
            self._broken = self._broken or (bool(again) and not self._works())
            return records
        half = (len(again) + 1) // 2
        for part in (again[:half], again[half:]):
            if part:
                records |= self._step(batch, part)
        return records

    def _works(self) -> bool:
        """Whether anything at all can be decoded, or the device is lost; a lack of memory passes."""
        try:
            self.decoder.generate([0], SamplingParams(max_tokens=1, temperature=0), num_draft_tokens=0, detail="none")
        except Exception as error:
            return explain(error) == OUT_OF_MEMORY
        return True


def _take(held: Counter[Any], job: _Job) -> None:
    held[job.reader.address] += job.num_rows
    held[job.reader.address, job.reader.session] += job.num_rows


def _told(run: Run, records: Mapping[SequenceState, StepRecord]) -> list[Event]:
    """A step's events of one run; where they cannot be made, that run ends and no other."""
    try:
        return run.tell(records)
    except Exception as error:
        return run.end(FinishReason.ERROR, explain(error))


def _read(job: _Job, unread: "SimpleQueue[list[Event] | Exception | None]") -> Generator[list[Event], None, None]:
    """What was delivered, for a reader with a thread of its own."""
    try:
        yield []
        while True:
            said = [unread.get()]
            while not unread.empty():
                said.append(unread.get())
            if found := [event for events in said if isinstance(events, list) for event in events]:
                yield found
            end = said[-1]
            if isinstance(end, Exception):
                raise end
            if end is None:
                return
            time.sleep(_BREATH)
    finally:
        job.left = True
