"""A saved trace, read and checked, as a run that the page can show."""

from pathlib import PurePath

from naive_speculate.events.trace import Trace
from ui.host.limits import MAX_TRACE_BYTES
from ui.run.runs import Run

MAX_TRACE_EVENTS = 100_000
MAX_LINE_CHARACTERS = 4 * 1024 * 1024


def opened(name: object, text: object) -> Run:
    """The run that a trace file holds; its text is None where the browser found it too large to send.

    Raises:
        ValueError: Says what is wrong with the file.
    """
    if not isinstance(text, str) or len(text) > MAX_TRACE_BYTES:
        raise ValueError(f"the trace file is larger than {MAX_TRACE_BYTES // 1024 // 1024} MB")
    trace = Trace.from_jsonl(text, max_line=MAX_LINE_CHARACTERS)
    if len(trace) > MAX_TRACE_EVENTS:
        raise ValueError(f"the trace has {len(trace):,} events; this page replays at most {MAX_TRACE_EVENTS:,}")
    engine = (trace[0].settings or {}).get("engine")  # of a run that another engine made (`naive_speculate.watch`)
    made = f", a run of {engine:.60}" if isinstance(engine, str) else ""
    return Run(trace.row(trace[0].row), title=f"from {PurePath(str(name)).name[:80]}{made}")
