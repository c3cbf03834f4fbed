"""A recorded run: its events, in order, saved as one JSON object a line."""

import json
import math
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from naive_speculate.events.event import OUTPUT_KINDS, SCHEMA_VERSION, Event, EventKind
from naive_speculate.events.expected import ExpectedAcceptance, expected_acceptance
from naive_speculate.events.figure import round_svg
from naive_speculate.events.metrics import Metrics, summarize
from naive_speculate.events.notebook import to_html

MAX_WINDOW = 1024
_EVENT = TypeAdapter(Event)


class Trace:
    """The events of a run.

    A trace behaves as a sequence of `Event`; what it says of the run is computed from them, live or loaded.
    """

    def __init__(self, events: Iterable[Event] = ()) -> None:
        self.events: list[Event] = list(events)

    def __iter__(self) -> Iterator[Event]:
        return iter(self.events)

    def __len__(self) -> int:
        return len(self.events)

    def __getitem__(self, index: int) -> Event:
        return self.events[index]

    def append(self, event: Event) -> None:
        """Add the run's next event."""
        self.events.append(event)

    def row(self, row: int) -> "Trace":
        """The events of one sequence of a batch."""
        return Trace(event for event in self.events if event.row == row)

    def _repr_html_(self) -> str:
        """How a notebook shows it."""
        return to_html(self.events)

    @property
    def text(self) -> str:
        """The generated text."""
        return "".join(event.text or "" for event in self.events if event.kind in OUTPUT_KINDS)

    @property
    def token_ids(self) -> list[int]:
        """The generated token ids."""
        return [e.token_id for e in self.events if e.kind in OUTPUT_KINDS and e.token_id is not None]

    @property
    def started(self) -> Event | None:
        """The event with the run's settings, where it has one."""
        return next((event for event in self.events if event.kind == EventKind.STARTED), None)

    @property
    def settings(self) -> dict[str, Any]:
        """What the run was started with; empty where the trace does not say."""
        return (self.started.settings if self.started else None) or {}

    @property
    def finished(self) -> Event | None:
        """The event that ended the run; None while it goes on."""
        return next((event for event in reversed(self.events) if event.kind == EventKind.FINISHED), None)

    @property
    def metrics(self) -> Metrics:
        """The run's figures, computed from the events."""
        return summarize(self.events)

    @property
    def expected_acceptance(self) -> ExpectedAcceptance | None:
        """How many drafts should have been kept, beside how many were; None where the trace does not tell."""
        return expected_acceptance(self.events)

    def to_svg(self, step: int, row: int = 0) -> str:
        """A round, by its number from 0, as a drawing for a slide: drafts, both models' probabilities, verdicts, what came out.

        Raises:
            ValueError: If there is no such round.
        """
        return round_svg(self.events, step, row)

    def to_jsonl(self) -> str:
        """The trace as text, one JSON object a line."""
        return "".join(dumps(event) + "\n" for event in self.events)

    @classmethod
    def from_jsonl(cls, text: str, *, max_line: int | None = None, check: Callable[[Event], None] = lambda _: None) -> "Trace":
        """Read a trace back.

        Args:
            text: One JSON object a line.
            max_line: Longer lines, in characters, are refused: for a stranger's trace.
            check: Called with each event before the next line is read; may raise ValueError to refuse the trace.

        Raises:
            ValueError: Names the line and what is wrong with it, when the text is not a trace of a known version.
        """
        lines = [(number, line) for number, line in enumerate(text.split("\n"), start=1) if line.strip()]
        for number, line in lines:
            if max_line is not None and len(line) > max_line:
                raise ValueError(f"trace line {number}: {len(line)} characters, at most {max_line} are read")
        events = []
        for number, line in lines:
            events.append(_parse_line(number, line))
            check(events[-1])
        if not events:
            raise ValueError("trace: there is no event in it")
        if events[0].kind != EventKind.STARTED:
            raise ValueError(f"trace line 1: the first event is {events[0].kind.value!r}, expected 'started'")
        return cls(events)

    def save(self, path: str | Path) -> None:
        """Write the trace to a JSONL file."""
        Path(path).write_text(self.to_jsonl(), encoding="utf-8")

    @classmethod
    def load(cls, path: str | Path) -> "Trace":
        """Read a trace from a JSONL file.

        Raises:
            ValueError: When the file is not a trace; names the line.
            OSError: When the file cannot be read.
        """
        try:
            text = Path(path).read_text(encoding="utf-8")
        except UnicodeDecodeError as error:
            raise ValueError(f"trace {path}: not UTF-8 text ({error.reason} at byte {error.start})") from None
        return cls.from_jsonl(text)


def dumps(event: Event) -> str:
    """One event as a line of JSON."""
    return json.dumps(event.to_dict(), ensure_ascii=False, separators=(",", ":"), allow_nan=False)


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not a number that JSON knows")


def _parse_float(digits: str) -> float:
    value = float(digits)
    if math.isinf(value):
        raise ValueError(f"{digits[:20]} is too large a number")
    return value


def _parse_line(number: int, line: str) -> Event:
    try:
        data = json.loads(line, parse_constant=_refuse_constant, parse_float=_parse_float)
    except RecursionError:
        raise ValueError(f"trace line {number}: nested too deep") from None
    except ValueError as error:
        raise ValueError(f"trace line {number}: not JSON ({error})") from None
    if not isinstance(data, dict):
        raise ValueError(f"trace line {number}: expected an object, got {type(data).__name__}")
    version = data.get("schema_version")
    if version is not None and (type(version) is not int or version < 1):
        raise ValueError(f"trace line {number}: schema_version must be a whole number from 1, got {version!r:.80}")
    if version is not None and version > SCHEMA_VERSION:
        raise ValueError(f"trace line {number}: schema version {version} is newer than this program knows ({SCHEMA_VERSION})")
    try:
        event = _EVENT.validate_python(data)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"]) or "event"
        raise ValueError(f"trace line {number}: {place}: {first['msg']}, got {first['input']!r:.80}") from None
    if event.kind == EventKind.STARTED and version is None:
        raise ValueError(f"trace line {number}: the 'started' event has no schema_version, expected {SCHEMA_VERSION}")
    # The figures of a run count up to these two, so that nonsense here would take its memory elsewhere.
    drafted, accepted = event.num_draft or 0, event.num_accepted or 0
    if not 0 <= accepted <= drafted <= MAX_WINDOW:
        raise ValueError(f"trace line {number}: num_accepted={accepted} of num_draft={drafted} cannot be")
    return event
