"""A recorded run: its events, in order, saved as one JSON object per line."""

import json
import math
from collections.abc import Callable, Iterable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from naive_speculate.events.event import OUTPUT_KINDS, SCHEMA_VERSION, Event, EventKind, parse
from naive_speculate.events.metrics import Metrics, summarize
from naive_speculate.text import tokens_between

MAX_WINDOW = 1024


class Trace:
    """The events of a run, as a sequence; all properties are computed from them, live or loaded."""

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
        return str(_show("notebook").to_html(self.events))

    @property
    def text(self) -> str:
        """The generated text."""
        return "".join([event.text or "" for event in self.events if event.kind in OUTPUT_KINDS])

    @property
    def token_ids(self) -> list[int]:
        """The generated token ids."""
        return [
            e.token_id for e in self.events if e.kind in OUTPUT_KINDS and e.token_id is not None
        ]

    @property
    def started(self) -> Event | None:
        """The event with the run's settings, if there is one."""
        return next((event for event in self.events if event.kind == EventKind.STARTED), None)

    @property
    def settings(self) -> dict[str, Any]:
        """The run's settings; empty if unknown."""
        return (self.started.settings if self.started else None) or {}

    @property
    def finished(self) -> Event | None:
        """The event that ended the run; None before."""
        return next(
            (event for event in reversed(self.events) if event.kind == EventKind.FINISHED), None
        )

    @property
    def metrics(self) -> Metrics:
        """The run's figures, computed from the events."""
        return summarize(self.events)

    @property
    def expected_acceptance(self) -> Any:
        """Expected and observed acceptance, an `ExpectedAcceptance`; None if unknown."""
        return _show("expected").expected_acceptance(self.events)

    @property
    def draft_sampling_rates(self) -> Any:
        """Both acceptance rates of a model's drafts, if drawn and if the most probable ones,
        `DraftSamplingRates`; None if unknown."""
        return _show("expected").draft_sampling_rates(self.events)

    def to_svg(self, step: int, row: int = 0) -> str:
        """A step, by its number from 0, as an SVG drawing for a slide; see `step_svg`.

        Raises:
            ValueError: If there is no such step.
        """
        return str(_show("drawing").step_svg(self.events, step, row))

    def to_jsonl(self) -> str:
        """The trace as text, one JSON object per line."""
        return "".join(dumps(event) + "\n" for event in self.events)

    @classmethod
    def from_jsonl(
        cls,
        text: str,
        *,
        max_line: int | None = None,
        check: Callable[[Event], None] = lambda _: None,
    ) -> "Trace":
        """Read a trace back.

        Args:
            text: One JSON object per line, with a byte-order mark or without.
            max_line: Most characters of a line, for traces from untrusted users.
            check: Called with each event before the next line is read; may raise ValueError.

        Raises:
            ValueError: Naming the line and the fault, if the text is not a trace of a supported
                version, or holds two runs.
        """
        numbered = enumerate((line.removeprefix("\ufeff") for line in text.split("\n")), start=1)
        lines = [(number, line) for number, line in numbered if line.strip()]
        for number, line in lines:
            if max_line is not None and len(line) > max_line:
                raise ValueError(
                    f"trace line {number}: {len(line)} characters, at most {max_line} are read"
                )
        events, begun = [], set[int]()
        for number, line in lines:
            try:
                event = _parse_line(line)
            except ValueError as error:
                raise ValueError(f"trace line {number}: {error}") from None
            if event.kind == EventKind.STARTED and event.row in begun:
                raise ValueError(
                    f"trace line {number}: a second run starts here; open each run from a file of"
                    " its own"
                )
            if event.kind == EventKind.STARTED:
                begun.add(event.row)
            events.append(event)
            check(event)
        if not events:
            raise ValueError("trace: it contains no event")
        if events[0].kind != EventKind.STARTED:
            raise ValueError(
                f"trace line 1: the first event is {events[0].kind.value!r}, expected 'started'"
            )
        return cls(events)

    def save(self, path: str | Path) -> None:
        """Write the trace to a JSONL file."""
        Path(path).write_text(self.to_jsonl(), encoding="utf-8", newline="\n")

    @classmethod
    def load(cls, path: str | Path) -> "Trace":
        """Read a trace from a JSONL file.

        Raises:
            ValueError: If the file is not a trace; names the line.
            OSError: If the file cannot be read.
        """
        try:
            text = Path(path).read_text(encoding="utf-8")
        except UnicodeDecodeError as error:
            raise ValueError(
                f"trace {path}: not UTF-8 text ({error.reason} at byte {error.start})"
            ) from None
        return cls.from_jsonl(text)


def _show(room: str) -> Any:
    """A module that shows traces to people, which the decoder does not need."""
    return import_module(f"naive_speculate.tools.show.{room}")


def dumps(event: Event) -> str:
    """One event as a line of JSON."""
    return json.dumps(event.to_dict(), ensure_ascii=False, separators=(",", ":"), allow_nan=False)


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not a JSON number")


def _parse_float(digits: str) -> float:
    value = float(digits)
    if math.isinf(value):
        raise ValueError(f"{digits[:20]} is too large a number")
    return value


def _parse_line(line: str) -> Event:
    try:
        data = json.loads(line, parse_constant=_refuse_constant, parse_float=_parse_float)
    except RecursionError:
        raise ValueError("nested too deep") from None
    except ValueError as error:
        raise ValueError(f"not JSON ({error})") from None
    if not isinstance(data, dict):
        raise ValueError(f"expected an object, got {type(data).__name__}")
    version = data.get("schema_version")
    if version is not None and (type(version) is not int or version < 1):
        raise ValueError(f"schema_version must be a whole number from 1, got {version!r:.80}")
    if version is not None and version > SCHEMA_VERSION:
        raise ValueError(f"schema version {version} is newer than the supported {SCHEMA_VERSION}")
    try:
        event = parse(data)
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(str(part) for part in first["loc"]) or "event"
        raise ValueError(f"{field}: {first['msg']}, got {first['input']!r:.80}") from None
    if event.kind == EventKind.STARTED and version is None:
        raise ValueError(f"the 'started' event has no schema_version, expected {SCHEMA_VERSION}")
    if event.prompt_words is None and event.prompt:  # older traces do not have it
        whole = "".join(event.prompt_texts or ())
        if whole != event.prompt and (at := whole.find(event.prompt)) >= 0:
            end = at + len(event.prompt)
            event.prompt_words = [tokens_between(event.prompt_texts or (), at, end)]
    for index, node in enumerate(event.tree or ()):
        if node.parent >= index:
            raise ValueError(
                f"node {index} of the tree has the parent {node.parent}, which must be lower"
            )
    # Figures allocate lists of this length, so a wrong number would exhaust memory.
    drafted, accepted = event.num_draft or 0, event.num_accepted or 0
    if not 0 <= accepted <= drafted <= MAX_WINDOW:
        raise ValueError(f"num_accepted={accepted} of num_draft={drafted} is impossible")
    return event
