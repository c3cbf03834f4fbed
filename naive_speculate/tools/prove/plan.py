"""Which requests are sent, the file that records their answers, and the run that sends them:
several at once, within limits of number and time, until they are answered or Ctrl-C stops it."""

import json
import random
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError
from rich.progress import Progress

from naive_speculate.tools.prove.server import Answer, Context, Entries, Server, ServerError

POSITIONS = 3  # tokens of a sampled text that are tested
LENGTH = 8  # tokens of a sampled text: engines draft less where a text is about to end
_ATTEMPTS = 3
_ANSWERS = TypeAdapter(list[Answer])
_CONTEXT: TypeAdapter[Context] = TypeAdapter(Context)
_ENTRIES: TypeAdapter[Entries] = TypeAdapter(Entries)
PROMPTS = (
    "The capital of France is the city of",
    "Once upon a time there was a little",
    "def add(a, b):\n    return a +",
    "red, blue, green, red, blue, green, red, blue,",
)
"""Prompts whose continuations range from almost certain to open; the last one suits drafters
that copy."""


@dataclass(frozen=True)
class Way:
    """One way of sending requests: how many at once, how many completions each, and whether with
    a seed."""

    name: str
    concurrency: int
    n: int
    seeded: bool


@dataclass(frozen=True)
class Settings:
    """What determines the requests; a recorded file is of one of these."""

    # endpoint, model, body: as for `Server`
    endpoint: str
    model: str
    body: dict[str, Any]
    prompts: tuple[str, ...]
    temperatures: tuple[float, ...]  # above 0
    samples: int  # per prompt and temperature
    concurrency: int  # requests at once
    n: int  # completions per request that the server gives
    greedy_tokens: int  # length of the greedy texts
    seed: int  # of the requests' seeds
    length: int = POSITIONS  # of the sampled texts, in tokens

    @property
    def ways(self) -> list[Way]:
        many = f"{self.concurrency} at once"
        return [
            Way("one at a time", 1, 1, True),
            Way(f"{many}, no seeds", self.concurrency, 1, False),
            Way(f"{many}, n = {self.n}", self.concurrency, self.n, True),
        ]


@dataclass(frozen=True)
class Request:
    """One request: its number, way, prompt's index, temperature (0 for a greedy text) and seed."""

    number: int
    way: Way
    prompt: int
    temperature: float
    seed: int

    def fields(self, settings: Settings) -> dict[str, Any]:
        length = settings.length if self.temperature else settings.greedy_tokens
        seed = {"seed": self.seed} if self.way.seeded else {}
        n = {"n": self.way.n} if self.way.n > 1 and self.temperature else {}
        return {"max_tokens": length, "temperature": self.temperature, **seed, **n}


def requests(settings: Settings) -> Iterator[Request]:
    """Way by way, and in each all prompts and temperatures in turn."""
    seeds, number = random.Random(settings.seed), 0
    for way in settings.ways:
        times = -(-settings.samples // (len(settings.ways) * way.n))
        prompts = range(len(settings.prompts))
        cases = [(prompt, t) for t in settings.temperatures for prompt in prompts]
        greedy = [(prompt, 0.0) for prompt in prompts for _ in range(min(4, way.concurrency))]
        for prompt, temperature in greedy + cases * times:
            yield Request(number, way, prompt, temperature, seeds.randrange(1, 2**31))
            number += 1


class Record:
    """The answers by request number, kept in a file of JSON lines if one is given. Raises
    `ValueError` if it belongs to other settings, or is no such file."""

    def __init__(self, path: Path | None, settings: Settings) -> None:
        self.path, self.answers = path, dict[int, list[Answer]]()
        self.stated = dict[Context, Entries]()  # logprobs that were requested by prefix
        header = json.loads(json.dumps(asdict(settings)))
        text = path.read_bytes() if path is not None and path.exists() else b""
        lines = text.split(b"\n") if text else []  # only there: an answer may hold U+2028
        try:
            if lines and json.loads(lines[0]) != header:
                advice = "choose another file or delete it"
                raise ValueError(f"{path} holds answers to other settings: {advice}")
            for line in lines[1:]:
                try:
                    entry = json.loads(line)
                except ValueError:  # it was cut off when the process ended, even within a letter
                    continue
                if "stated" in entry:
                    context = _CONTEXT.validate_python(entry["stated"])
                    self.stated[context] = _ENTRIES.validate_python(entry["top"])
                    continue
                self.answers[entry["request"]] = _ANSWERS.validate_python(entry["answers"])
        except (json.JSONDecodeError, UnicodeDecodeError, KeyError, TypeError, ValidationError):
            raise ValueError(f"{path} is not a record of prove") from None
        if not lines:
            self._write(header)

    def add(self, request: Request, answers: list[Answer]) -> None:
        self.answers[request.number] = answers
        self._write({"request": request.number, "answers": [asdict(answer) for answer in answers]})

    def add_stated(self, context: Context, entries: Entries) -> None:
        self.stated[context] = entries
        self._write({"stated": context, "top": entries})

    def _write(self, entry: dict[str, Any]) -> None:
        if self.path is not None:
            with self.path.open("a", encoding="utf-8", newline="\n") as file:
                file.write("\n" * (file.tell() > 0) + json.dumps(entry, ensure_ascii=False))


@dataclass
class Cost:
    """Requests sent now, their seconds, and why it stopped early ("" if it did not)."""

    num_requests: int = 0
    seconds: float = 0.0
    stopped: str = ""


class Budget:
    """The requests and seconds that a run may take from now on, and what it took."""

    def __init__(self, max_requests: int, max_seconds: float) -> None:
        self.max_requests, self.max_seconds = max_requests, max_seconds
        self.cost, self._began, self._lock = Cost(), time.monotonic(), threading.Lock()

    @property
    def deadline(self) -> float:
        """The end of its time, on `time.monotonic`."""
        return self._began + self.max_seconds

    def begins(self) -> bool:
        """Count a request that begins; False if a limit is reached."""
        with self._lock:
            stopped = ""
            if self.cost.num_requests >= self.max_requests:
                stopped = f"it stopped after {self.max_requests} requests"
            elif time.monotonic() >= self.deadline:
                stopped = f"it stopped after {self.max_seconds:g} s"
            self.cost.stopped = self.cost.stopped or stopped
            self.cost.num_requests += not stopped
            return not stopped

    def note_time(self) -> None:
        self.cost.seconds = time.monotonic() - self._began


def send(
    server: Server, settings: Settings, record: Record, budget: Budget, progress: Progress
) -> None:
    """Send what the record does not hold yet, as far as the budget allows. Raises `ServerError` if
    a request fails three times."""
    stop = threading.Event()

    def answers_to(request: Request) -> list[Answer] | None:
        for attempt in range(_ATTEMPTS if budget.begins() else 0):
            try:
                return server.complete(settings.prompts[request.prompt], **request.fields(settings))
            except ServerError as error:
                if time.monotonic() >= budget.deadline and not budget.begins():
                    return None
                last = error.refused or error.busy or attempt == _ATTEMPTS - 1
                if last or stop.wait(2.0**attempt):
                    raise
        return None

    planned = list(requests(settings))
    left = [request for request in planned if request.number not in record.answers]
    bar = progress.add_task("requests", total=len(planned), completed=len(planned) - len(left))
    try:
        for way, group in groupby(left, key=lambda request: request.way):
            pool = ThreadPoolExecutor(way.concurrency)
            try:
                sent = {pool.submit(answers_to, request): request for request in group}
                for future in as_completed(sent):
                    if (answers := future.result()) is not None:
                        record.add(sent[future], answers)
                        progress.advance(bar)
            finally:
                pool.shutdown(wait=False, cancel_futures=True)
    except KeyboardInterrupt:
        budget.cost.stopped = "Ctrl-C stopped it"
    finally:
        stop.set()
        budget.note_time()
