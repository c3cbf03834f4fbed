"""What the operator sees: one log line per run, `/health`, and Prometheus counters at
`/metrics`."""

import json
import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, replace
from typing import Any

import gradio as gr
from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from starlette.requests import Request as HttpRequest
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from naive_speculate import VerifyStrategy
from naive_speculate.events.metrics import Metrics
from naive_speculate.serving import Load
from naive_speculate.serving.visit import Observer, Visit
from ui.host.catalog import DECODING
from ui.host.process import waiting_calls
from ui.host.visitors import GUIDING, STARTING, is_loopback

LOGGER = logging.getLogger("naive_speculate.runs")
_PREFIX = "naive_speculate"
_SECONDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
_COUNTED: tuple[tuple[str, str, Callable[[Visit, Metrics], int]], ...] = (
    ("prompt_tokens", "Prompt tokens processed.", lambda run, _: run.prompt_tokens),
    ("generation_tokens", "Tokens generated.", lambda _, m: m.num_generated_tokens),
    ("spec_decode_num_drafts", "Steps with draft tokens.", lambda run, _: run.num_drafts),
    ("spec_decode_num_draft_tokens", "Tokens drafted.", lambda _, m: m.num_draft_tokens),
    (
        "spec_decode_num_accepted_tokens",
        "Drafted tokens accepted.",
        lambda _, m: m.num_accepted_draft_tokens,
    ),
)
_TIMED: tuple[tuple[str, str, Callable[[Visit], float | None]], ...] = (
    (
        "time_to_first_token_seconds",
        "From the request to its first token.",
        lambda run: run.first_token_seconds,
    ),
    ("e2e_request_latency_seconds", "From the request to its end.", lambda run: run.seconds),
    (
        "request_queue_time_seconds",
        "From the request to the beginning of its decoding.",
        lambda run: run.wait_seconds,
    ),
)


def log_runs(*, prompts: bool = False) -> Observer:
    """An observer that logs one line of JSON per run; the prompt is private and logged only on
    request."""
    LOGGER.setLevel(logging.INFO)
    logging.basicConfig(
        format="%(message)s"
    )  # else the MCP library does so in its way, and each line comes twice

    def log(run: Visit) -> None:
        params, m = run.request.params, run.summary.metrics
        line: dict[str, Any] = {
            "outcome": run.outcome,
            "tokens": m.num_generated_tokens,
            "prompt_tokens": run.prompt_tokens,
            "seconds": round(run.seconds, 3),
            "wait_seconds": _rounded(run.wait_seconds),
            "first_token_seconds": _rounded(run.first_token_seconds),
            "steps": m.num_spec_steps,
            "acceptance": _rounded(m.draft_acceptance_rate),
            "num_draft_tokens": _known(run.request.num_draft_tokens, ("auto",)),
            "verify_strategy": _known(run.request.verify_strategy, tuple(VerifyStrategy)),
            "temperature": params.temperature,
            "seed": params.seed,
        }
        if prompts:
            line["prompt"] = run.request.prompt
        LOGGER.info(json.dumps(line, ensure_ascii=True))

    return log


class Counters:
    """Prometheus counters over all runs (see docs/metrics.md); `load` returns the current load
    of the engines."""

    def __init__(self, load: Callable[[], Load]) -> None:
        self.registry = CollectorRegistry()
        self.load = load

        def counter(name: str, text: str, *labels: str) -> Counter:
            return Counter(f"{_PREFIX}:{name}", text, labels, registry=self.registry)

        into: dict[str, Any] = {"buckets": _SECONDS, "registry": self.registry}
        self._counted = [(counter(name, text), value) for name, text, value in _COUNTED]
        self._timed = [
            (Histogram(f"{_PREFIX}:{name}", text, **into), value) for name, text, value in _TIMED
        ]
        self._ended = counter("request_success", "Runs that ended, by reason.", "finished_reason")
        by_place = "spec_decode_num_accepted_tokens_per_pos"
        self._accepted_at = counter(
            by_place, "Drafted tokens accepted, by index in the window.", "position"
        )
        self._failed = counter(
            "runs_failed", "Runs refused, abandoned or ended by an error.", "outcome"
        )
        self.registry.register(self)

    def collect(self) -> Iterator[Metric]:
        load = self.load()
        yield GaugeMetricFamily(
            f"{_PREFIX}:num_requests_running", "Sequences being decoded.", load.running
        )
        yield GaugeMetricFamily(
            f"{_PREFIX}:num_requests_waiting", "Sequences waiting to be decoded.", load.waiting
        )

    def count(self, run: Visit) -> None:
        metrics = run.summary.metrics
        for counter, amount in self._counted:
            counter.inc(amount(run, metrics))
        for histogram, duration in self._timed:
            if (seconds := duration(run)) is not None:
                histogram.observe(seconds)
        reasons = {"stop": "stop", "length": "length", "cancelled": "abort"}
        if run.outcome in reasons:
            self._ended.labels(reasons[run.outcome]).inc()
        else:
            self._failed.labels(run.outcome).inc()
        for index, count in enumerate(run.accepted_at):
            self._accepted_at.labels(str(index)).inc(count)

    def text(self) -> bytes:
        return generate_latest(self.registry)


def with_queue(load: Load, page: gr.Blocks) -> Load:
    """An engine's load including calls in Gradio's queue or being checked, which no engine has
    received yet."""
    return replace(
        load, waiting=load.waiting + waiting_calls(page, DECODING) + STARTING.size + GUIDING.size
    )


def routes(counters: Counters, readers: str = "all") -> list[Route]:
    """The operator's two routes. `/metrics` may be read by `all`, by `local` programs (not
    through a proxy), or is `off`."""

    async def health(_: HttpRequest) -> Response:
        now = counters.load()
        return JSONResponse(
            {"status": "ok" if now.ready else "unavailable"} | asdict(now),
            200 if now.ready else 503,
        )

    async def metrics(request: HttpRequest) -> Response:
        forwarded = "x-forwarded-for" in request.headers or "forwarded" in request.headers
        if readers == "local" and (
            forwarded or request.client is None or not is_loopback(request.client.host)
        ):
            return Response(status_code=403)
        return Response(counters.text(), media_type=CONTENT_TYPE_LATEST)

    return [Route("/health", health), *([] if readers == "off" else [Route("/metrics", metrics)])]


def _known(value: object, words: Sequence[str]) -> object:
    """A number, or one of these words: in a refused request it may be anything, even a prompt."""
    if isinstance(value, int):
        return value
    return str(value) if value in words else "other"


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 3)
