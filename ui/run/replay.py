"""Reads and checks a saved trace, and makes it a run that the page can show."""

from pathlib import PurePath

from anyio import CapacityLimiter
from anyio.to_thread import run_sync
from starlette.requests import Request as HttpRequest
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from naive_speculate.events import Event
from naive_speculate.events.trace import Trace
from ui.host.limits import MAX_TRACE_BYTES, TRACES
from ui.host.weight import VISITOR_BYTES, give_back, weight
from ui.run.runs import Run, Runs

TOO_LARGE = f"the trace file is larger than {MAX_TRACE_BYTES // 2**20} MB"
MAX_TRACE_EVENTS = 100_000
MAX_LINE_CHARACTERS = 4 * 1024 * 1024


def opened(name: object, text: object) -> Run:
    """The run in a trace file. Raises ValueError if the file is invalid or too large."""
    if not isinstance(text, str) or len(text) > MAX_TRACE_BYTES:
        raise ValueError(TOO_LARGE)
    if (lines := text.strip().count("\n") + 1) > MAX_TRACE_EVENTS:  # counted before they are split: a line takes 150 bytes
        raise ValueError(f"the trace has {lines:,} events; this page replays at most {MAX_TRACE_EVENTS:,}")
    size = 0

    def check(event: Event) -> None:
        nonlocal size
        size += weight([event])
        if size > VISITOR_BYTES:
            raise ValueError(f"the trace exceeds the {VISITOR_BYTES // 2**20} MB that this page keeps per visitor")

    trace = Trace.from_jsonl(text, max_line=MAX_LINE_CHARACTERS, check=check)
    engine = (trace[0].settings or {}).get("engine")  # the run comes from another engine (`naive_speculate.watch`)
    made = f", a run of {engine:.60}" if isinstance(engine, str) else ""
    return Run(trace.row(trace[0].row), size=size, title=f"from {PurePath(str(name)).name[:80]}{made}")


def traces(runs: Runs) -> Route:
    """The route that accepts a trace file's text, and answers with the run's id or with a `problem`.

    Traces bypass Gradio, which would keep a copy in its queue, its answer and the session's state.
    """
    one_at_a_time = CapacityLimiter(1)  # parsing takes many times the memory of the text

    async def answer(request: HttpRequest) -> Response:
        text = await request.body()
        try:
            run = await run_sync(read, request.query_params.get("name", ""), text, limiter=one_at_a_time)
        except ValueError as error:
            return JSONResponse({"problem": str(error)[:600]})
        runs.add(run.id, run)  # `Runs.adopt` then assigns it to its visitor
        give_back(len(text))
        return JSONResponse({"run": run.id})

    def read(name: str, text: bytes) -> Run:
        try:
            return opened(name, text.decode("utf-8-sig"))
        except UnicodeDecodeError as error:
            raise ValueError(f"the trace is not UTF-8 text ({error.reason} at byte {error.start})") from None

    return Route(TRACES, answer, methods=["POST"])
