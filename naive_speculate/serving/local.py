"""Decodes many requests at once in this process: one thread steps them as one batch; runs join
and leave between steps."""

import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field

import torch

from naive_speculate.events.event import Event, FinishReason
from naive_speculate.events.record import StepRecord
from naive_speculate.models.memory import free_memory
from naive_speculate.sampling.params import SamplingParams
from naive_speculate.serving.protocol import (
    ANONYMOUS,
    FULL,
    STOPPING,
    About,
    Deliver,
    Engine,
    Item,
    Load,
    Reader,
    Request,
    Unavailable,
)
from naive_speculate.serving.requests import MAX_ROWS, OUT_OF_MEMORY, about, explain, prepare
from naive_speculate.serving.turns import GROUPS, TOO_MANY, Job, Turns, by_turns, num_rows
from naive_speculate.speculate.batch import Batch, PartialStepError, Records
from naive_speculate.speculate.decoder import SpeculativeDecoder
from naive_speculate.speculate.run import Run
from naive_speculate.speculate.sequence import CancelFlag, SequenceState

MAX_WAITING = 1024
TIDY_SECONDS = 10.0  # least interval at which an idle engine frees memory
_SPARE = 0.5
"""Share of spare rows, which take turns and keep their memory. A reader with less than its share of
the rows gets one at once; other addresses than the one with most rows get as many again."""
_LOOK_SECONDS = 0.05  # poll interval while all readers lag, or while the decoder is loaded
STUCK_SECONDS = 60.0  # a longer step counts as no progress
CLOSE_SECONDS = 3.0  # most time that `close` waits for the current step
_BROKEN = "The decoder no longer works. The server needs to be started again."


@dataclass(frozen=True, slots=True)
class Later:
    """A decoder that its engine loads after it was made."""

    load: Callable[[], SpeculativeDecoder]
    about: About  # what the engine is expected to report once loaded
    loading: str  # why it decodes nothing meanwhile, for visitors
    on_demand: bool = False  # whether the first run loads it


@dataclass(eq=False, kw_only=True)
class _Job(Job):
    """A run, and the receiver of its events; also the cancel flag of its rows."""

    request: Request
    cancel: CancelFlag
    receive: Deliver
    run: Run = field(default_factory=lambda: Run((), ()))  # no rows until it is prepared
    turn: int = 0  # its last step
    begun: float = 0.0  # when it got its rows
    left: bool = False  # the reader fails or reads too slowly, or the engine stops

    def deliver(self, item: Item) -> None:
        """A reader that raises ends its own run only."""
        try:
            self.receive(item)
        except Exception:
            self.left = True

    def is_set(self) -> bool:
        return self.left or self.cancel.is_set()


class LocalEngine(Engine):
    """Decodes with one pair in one thread of this process; others may use the decoder meanwhile.

    Draws and distributions are per sequence, so each request gets the same text as alone. At
    most `max_rows` sequences are stepped together, and `max_waiting` wait. Only sequences whose
    steps fail alone end with an error. Runs wait for a decoder that is loaded `Later`.
    """

    decoder: SpeculativeDecoder  # once loaded

    def __init__(
        self,
        decoder: SpeculativeDecoder | Later,
        *,
        max_rows: int = MAX_ROWS,
        max_waiting: int = MAX_WAITING,
        max_prompt_tokens: int | None = None,
    ) -> None:
        if max_rows < 1:
            raise ValueError(f"max_rows must be at least 1, got {max_rows}")
        self._later = decoder if isinstance(decoder, Later) else None
        self.loaded = False
        self._asked = not self.on_demand  # whether it shall be loaded
        self._max_rows, self._max_waiting = max_rows, max_waiting
        self._max_prompt_tokens = max_prompt_tokens
        self._changed = threading.Condition()
        self._jobs = Turns[_Job]()
        self._reason = ""  # why it accepts no requests
        self._turn = 0
        self._moved = time.monotonic()  # when the last step began
        self._run_seconds: float | None = None
        if isinstance(decoder, Later):
            self.about = decoder.about
        else:
            self._has(decoder)
        self._thread = threading.Thread(target=self._work, name="decoding", daemon=True)
        self._thread.start()

    def start(
        self, request: Request, cancel: CancelFlag, deliver: Deliver, reader: Reader = ANONYMOUS
    ) -> None:
        """Checked here, in the caller's thread, or once the decoder is loaded."""
        rows = request.params.num_sequences
        job = _Job(reader, num_rows=rows, request=request, cancel=cancel, receive=deliver)
        if self.loaded:
            self._prepare(job)
        with self._changed:
            if self._reason:
                raise Unavailable(self._reason)
            if self.loaded and not job.run.rows:  # it was loaded just now
                self._prepare(job)
            dropped = self._jobs.add(job, self._max_waiting)
            if dropped is job:
                raise Unavailable(FULL.format(num_rows(self._jobs.waiting)))
            asked, self._asked = self._asked, True
            self._changed.notify()
        if dropped is not None:
            dropped.deliver(Unavailable(TOO_MANY))
        if not asked:
            threading.Thread(target=self._load_on_demand, name="loading", daemon=True).start()

    @property
    def on_demand(self) -> bool:
        """Whether the first run loads the decoder, unless `load_decoder` does before."""
        return self._later is not None and self._later.on_demand

    @property
    def loading(self) -> bool:
        """Whether the decoder will be loaded without another request."""
        return self._asked and not (self.loaded or self._reason)

    def load_decoder(self) -> None:
        """Load a decoder that is loaded `Later`. The runs that wait end with the error that this
        raises."""
        self._asked = True
        try:
            if self._later is not None:
                self._has(self._later.load())
        except Exception as error:
            with self._changed:
                self._reason = str(error) or type(error).__name__
                self._changed.notify()
            raise

    def waiting_before(self, reader: Reader) -> int | None:
        with self._changed:
            if not self.loaded:
                return num_rows(self._jobs.waiting)
            if num_rows(self._jobs.running) < self._max_rows:
                return None
            new = Job(reader)
            order = self._jobs.order([*self._jobs, new])
            before = order[: order.index(new)]
            if self._may_join(reader, 1, 1 + num_rows(before)):
                return None
            return num_rows([job for job in before if job in self._jobs.waiting])

    def load(self) -> Load:
        with self._changed:
            still = time.monotonic() - self._moved if self._jobs.running else 0.0
            reason = self._reason
            if stuck := not reason and still > STUCK_SECONDS:
                reason = f"The decoder has made no progress for {still:.0f} seconds."
            if self._later is not None and self.loading:
                reason = self._later.loading
            return Load(
                not reason,
                sum(len(job.run.rows) for job in self._jobs.running),
                num_rows(self._jobs.waiting),
                self._max_rows if self.loaded or not reason else 0,
                reason=reason,
                stuck=stuck,
                run_seconds=self._run_seconds,
            )

    def close(self) -> None:
        with self._changed:
            self._reason = STOPPING
            for job in self._jobs:
                job.left = True
            self._changed.notify()
        self._thread.join(CLOSE_SECONDS)

    def _has(self, decoder: SpeculativeDecoder) -> None:
        with self._changed:
            self.decoder, self.about = decoder, about(decoder, self._max_rows)
            self.loaded = True
            self._changed.notify()

    def _load_on_demand(self) -> None:
        with suppress(Exception):  # the runs that wait end with it
            self.load_decoder()

    def _prepare(self, job: _Job) -> None:
        """Raises `ValueError` (see `prepare`)."""
        job.run = prepare(self.decoder, job.request, job, self._max_rows, self._max_prompt_tokens)
        job.num_rows = len(job.run.going_on)

    def _work(self) -> None:
        try:
            if self._is_loaded():
                with torch.no_grad():  # once for all steps
                    self._decode()
        finally:
            with self._changed:
                self._reason = self._reason or _BROKEN
                left, self._jobs = self._jobs, Turns()
            for job in left:
                job.deliver(Unavailable(self._reason))

    def _is_loaded(self) -> bool:
        """Waits, while cancelled jobs end, and prepares the jobs that wait."""
        while True:
            with self._changed:
                if self.loaded or self._reason:
                    unprepared = [job for job in self._jobs if not job.run.rows]
                    break
                cancelled = [job for job in self._jobs if job.is_set() and self._withdraw(job)]
                if not cancelled:
                    self._changed.wait(_LOOK_SECONDS if self._jobs else None)
            for job in cancelled:
                job.deliver(None)
        if not self.loaded:
            return False
        for job in unprepared:
            try:
                self._prepare(job)
            except Exception as error:
                with self._changed:
                    withdrawn = self._withdraw(job)
                if withdrawn:
                    job.deliver(error)
        return True

    def _withdraw(self, job: _Job) -> bool:
        """Whether the job was one of those that wait; else it was refused."""
        waits = job in self._jobs.waiting
        self._jobs.drop(job)
        return waits

    def _decode(self) -> None:
        batch = self.decoder.new_batch()
        tidied, untidy = time.monotonic(), False
        while True:
            with self._changed:
                while not (self._jobs or self._reason):
                    if untidy and time.monotonic() - tidied > TIDY_SECONDS:
                        free_memory()
                        tidied, untidy = time.monotonic(), False
                    self._changed.wait(TIDY_SECONDS if untidy else None)
                self._moved = time.monotonic()
                if self._reason and not self._jobs:
                    return
                joining = self._admit()
                stepped = self._chosen()
                if not (joining or stepped):  # all readers lag
                    self._changed.wait(_LOOK_SECONDS)
                    continue
            untidy = True
            for job in joining:
                self._begin(job, batch)
            records = self._step(batch, [row for job in stepped for row in job.run.going_on])
            events = [_events(job.run, records) for job in stepped]
            batch.release(row for job in stepped for row in job.run.rows if row.ended)
            with self._changed:  # before delivery: a reader of a run's end finds its rows free
                for job in stepped:
                    job.num_rows = len(job.run.going_on)
                over = [job for job in stepped if job.run.over]
                for job in over:
                    self._jobs.drop(job)
                for held in (time.monotonic() - job.begun for job in over):
                    before = held if self._run_seconds is None else self._run_seconds
                    self._run_seconds = 0.8 * before + 0.2 * held
            for job, new in zip(stepped, events, strict=True):
                if new:
                    job.deliver(new)
                if job.run.over:
                    job.deliver(None)
            if self._reason == _BROKEN:
                return

    def _admit(self) -> list[_Job]:
        """While rows are free; cancelled jobs join at once, to be ended by the next step."""
        if not self._jobs.waiting:
            return []
        running, ahead, full = list(self._jobs.running), 0, False
        lagging = [job for job in running if job.reader.lags()]
        reading = [job for job in running if job not in lagging]
        for job in self._jobs.order([*reading, *self._jobs.waiting]):
            size = job.num_rows
            ahead += size
            if job in running:
                continue
            if not job.is_set():
                fits = not full and num_rows(self._jobs.running) + size <= self._max_rows
                if not (fits or self._may_join(job.reader, size, ahead)):
                    full = True
                    if lagging:
                        lagging.pop(0).left = True
                    continue
            self._jobs.begin(job)
            job.begun = time.monotonic()
        return self._jobs.running[len(running) :]

    def _may_join(self, reader: Reader, size: int, ahead: int) -> bool:
        """A reader may get spare rows if its share allows it, or it has no row yet. `ahead` rows
        come before or with it."""
        spare = max(1, int(_SPARE * self._max_rows))
        most = self._max_rows + spare
        address, session = (
            num_rows(job for job in self._jobs.running if group(job.reader) == group(reader))
            for group in GROUPS
        )
        if session and ahead > self._max_rows:
            return False
        return address + size <= most and num_rows(self._jobs.running) + size <= most + spare

    def _chosen(self) -> list[_Job]:
        """In turn: at most `max_rows` rows, and none whose reader lags."""
        self._turn += 1
        chosen, rows = [], 0
        for job in by_turns(self._jobs.running, lambda job: job.turn):
            ends = job.is_set()
            if ends or (rows + job.num_rows <= self._max_rows and not job.reader.lags()):
                rows += 0 if ends else job.num_rows
                job.turn = self._turn
                chosen.append(job)
        return sorted(chosen, key=lambda job: job.number)

    def _begin(self, job: _Job, batch: Batch) -> None:
        try:
            batch.admit(job.run.rows)
        except Exception as error:
            job.deliver(job.run.started() + job.run.end(FinishReason.ERROR, explain(error)))
        else:
            job.deliver(job.run.started())

    def _step(self, batch: Batch, rows: list[SequenceState]) -> Records:
        """On failure the unfinished rows are stepped in halves, and a row that fails alone ends."""
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
            if again and not self._works():
                self._reason = _BROKEN
            return records
        half = (len(again) + 1) // 2
        for part in (again[:half], again[half:]):
            if part:
                records |= self._step(batch, part)
        return records

    def _works(self) -> bool:
        """Whether the device is not lost; a lack of memory does not count."""
        params = SamplingParams(max_tokens=1, temperature=0)
        try:
            self.decoder.generate([0], params, num_draft_tokens=0, detail="none")
        except Exception as error:
            return explain(error) == OUT_OF_MEMORY
        return True


def _events(run: Run, records: Mapping[SequenceState, StepRecord]) -> list[Event]:
    """If a run's events cannot be made, only that run ends."""
    try:
        return run.events(records)
    except Exception as error:
        return run.end(FinishReason.ERROR, explain(error))
