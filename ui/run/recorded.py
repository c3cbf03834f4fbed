"""Runs from files: the recorded run that every visitor sees first, with and without drafts, and
traces that visitors open."""

from pathlib import Path, PurePath

from anyio import CapacityLimiter
from anyio.to_thread import run_sync
from starlette.requests import Request as HttpRequest
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from naive_speculate.events import Event
from naive_speculate.events.trace import Trace
from naive_speculate.models.known import KNOWN
from ui.assets import ROOT
from ui.host.limits import MAX_TRACE_BYTES, TRACES
from ui.host.visitors import VISITOR_BYTES, give_back, weight
from ui.run.controls import EXAMPLES, QUESTIONS
from ui.run.runs import Runs, ShownRun
from ui.run.settings import Settings, title

FOLDER = ROOT / "recorded"
SPECULATIVE, PLAIN = FOLDER / "speculative.jsonl", FOLDER / "plain.jsonl"
# the settings of the bundled pair's recording
START = Settings(prompt=next(iter(EXAMPLES.values())), seed=1)
SMOLLM2 = Settings(prompt=QUESTIONS[1], seed=2, num_draft_tokens=3)
OF_TARGETS = {KNOWN["smollm2"].target: (FOLDER / "smollm2", SMOLLM2)}
"""Folders and settings of other pairs' recordings, by the target's name."""
TOO_LARGE = f"the trace file is larger than {MAX_TRACE_BYTES // 2**20} MB"
MAX_TRACE_EVENTS = 100_000
MAX_LINE_CHARACTERS = 4 * 1024 * 1024


def recording_of(target: str | None) -> tuple[Path, Settings]:
    """Folder and settings of the recordings for this target; the bundled pair's if it has none."""
    return OF_TARGETS.get(target or "", (FOLDER, START))


def models_in_words(target: str | None) -> str:
    return (
        f"{str(target).rpartition('/')[2]} and its draft head"
        if target in OF_TARGETS
        else "the bundled models"
    )


def recorded_run(target: str | None = None) -> ShownRun:
    """The recorded run for this target; its last event contains the measured speedup. Its
    settings are the controls' first."""
    folder, settings = recording_of(target)
    trace = Trace.load(folder / SPECULATIVE.name)
    run = ShownRun(trace, id="recorded", title=title(trace))
    run.plain, run.settings = list(Trace.load(folder / PLAIN.name)), settings
    return run


def opened(name: object, text: object) -> ShownRun:
    """The run in a trace file. Raises ValueError if the file is invalid or too large."""
    if not isinstance(text, str) or len(text) > MAX_TRACE_BYTES:
        raise ValueError(TOO_LARGE)
    if (
        lines := text.strip().count("\n") + 1
    ) > MAX_TRACE_EVENTS:  # counted before they are split: a line takes 150 bytes
        raise ValueError(
            f"the trace has {lines:,} events; this page replays at most {MAX_TRACE_EVENTS:,}"
        )
    size = 0

    def check(event: Event) -> None:
        nonlocal size
        size += weight([event])
        if size > VISITOR_BYTES:
            raise ValueError(
                f"the trace exceeds the {VISITOR_BYTES // 2**20} MB that this page keeps per"
                " visitor"
            )

    trace = Trace.from_jsonl(text, max_line=MAX_LINE_CHARACTERS, check=check)
    # the run comes from another engine (`naive_speculate.watch`)
    engine = (trace[0].settings or {}).get("engine")
    made = f", a run of {engine:.60}" if isinstance(engine, str) else ""
    return ShownRun(
        trace.row(trace[0].row), size=size, title=f"from {PurePath(str(name)).name[:80]}{made}"
    )


def traces(runs: Runs) -> Route:
    """The route that accepts a trace file's text, and answers with the run's id or with a
    `problem`.

    Traces bypass Gradio, which would keep a copy in its queue, its answer and the session's state.
    """
    one_at_a_time = CapacityLimiter(1)  # parsing takes many times the memory of the text

    async def answer(request: HttpRequest) -> Response:
        text = await request.body()
        try:
            run = await run_sync(
                read, request.query_params.get("name", ""), text, limiter=one_at_a_time
            )
        except ValueError as error:
            return JSONResponse({"problem": str(error)[:600]})
        runs.add(run.id, run)  # `Runs.adopt` then assigns it to its visitor
        give_back(len(text))
        return JSONResponse({"run": run.id})

    def read(name: str, text: bytes) -> ShownRun:
        try:
            return opened(name, text.decode("utf-8-sig"))
        except UnicodeDecodeError as error:
            raise ValueError(
                f"the trace is not UTF-8 text ({error.reason} at byte {error.start})"
            ) from None

    return Route(TRACES, answer, methods=["POST"])
