"""Compares this decoder with transformers' generation on one pair and the same prompts, and
measures what its steps cost."""

import platform
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import cycle, islice, product
from statistics import fmean, median
from typing import Any

from rich.progress import Progress

from naive_speculate.events import EventKind
from naive_speculate.infer.costs import CostTable
from naive_speculate.sampling.params import SamplingParams
from naive_speculate.serving import LocalEngine, Request
from naive_speculate.speculate.decoder import SpeculativeDecoder
from naive_speculate.speculate.draft import DRAFTERS
from naive_speculate.tools.bench.measure import (
    Line,
    Transformers,
    Way,
    decode_all,
    forward_costs,
    lines_of,
    memory_mib,
    our_way,
)

STRATEGIES = ("greedy_match", "block_verification", "typical_acceptance")
CONTEXTS, BATCHES = (100, 250, 500, 1000), (1, 2, 4, 8, 16)
MODES = {"greedy": 0.0, "temperature 0.8": 0.8}
_COST_CONTEXT, _CONTEXT_TOKENS = 100, 20
_MIDDLE = 4
_REPEATS = 3  # of every prompt where events of more detail are compared
Grid = dict[int, dict[int, float]]  # by window, then by size


@dataclass
class Comparison:
    """What is compared."""

    decoder: SpeculativeDecoder  # this decoder; its pair has a draft model
    peer: Transformers  # transformers' generation with the same weights
    prompts: Sequence[list[int]]  # token ids of each prompt
    new_tokens: int  # tokens to generate
    max_window: int  # largest window
    quick: bool  # whether to decode greedily only, and to leave out contexts, batches and events
    tick: Callable[[int], None] = lambda _: None  # called after each measurement

    @property
    def middle(self) -> int:
        return min(_MIDDLE, self.max_window)

    def run(self, progress: Progress) -> dict[str, Any]:
        pair: Any = self.decoder.pair
        device = self.decoder.admission.device
        task = progress.add_task("measuring", total=None)
        self.tick = lambda _: progress.advance(task)
        most = self.max_window + 1
        draft_ms, verify_ms = forward_costs(pair.target, pair.draft, _COST_CONTEXT, most)
        costs = CostTable(draft_ms / verify_ms[0], tuple(ms / verify_ms[0] for ms in verify_ms))
        lines = {}
        for mode, temperature in MODES.items():
            if temperature > 0 and self.quick:
                continue
            progress.update(task, description=f"decoding, {mode}")
            ways = self._ways(temperature)
            for way in ways:
                way.decode(self.prompts[0], 0)
            lines[mode] = lines_of(ways, decode_all(ways, self.prompts, self.tick), costs)
        progress.update(task, description="contexts, batches, events")
        step_costs = self._step_costs("model").to_dict()
        if DRAFTERS["head"].obstacle(pair) is None:
            fastest = fastest_drafter(lines, self.middle)
            step_costs |= {"head": self._step_costs("head").to_dict(), "fastest_drafter": fastest}
        return {
            "target": pair.names["target"],
            "draft": pair.names["draft"],
            "head": pair.names.get("head") or pair.names.get("block"),
            "device": str(device),
            "executor": getattr(pair.target, "executor", "transformers"),
            "machine": platform.machine(),
            "threads": f"transformers in {self.peer.threads} threads",
            "new_tokens": self.new_tokens,
            "num_prompts": len(self.prompts),
            "decoding": {mode: [vars(line) for line in own] for mode, own in lines.items()},
            "step_costs": step_costs,
            "by_context": {} if self.quick else self._by_context(),
            "by_batch": {} if self.quick else self._by_batch(),
            "event_overhead": {} if self.quick else self._event_overhead(),
            "memory_mib": memory_mib(device),
            "forwards": {"context": _COST_CONTEXT, "draft_ms": draft_ms, "verify_ms": verify_ms},
            "costs": costs.to_dict(),
        }

    def _params(self, temperature: float = 0.0) -> SamplingParams:
        return SamplingParams(temperature=temperature, max_tokens=self.new_tokens, ignore_eos=True)

    def _ways(self, temperature: float) -> list[Way]:
        ours = partial(our_way, self.decoder, params=self._params(temperature))
        windows = list(range(1, self.max_window + 1))
        pair = self.decoder.pair
        drafters = [name for name, kind in DRAFTERS.items() if kind.obstacle(pair) is None]
        drafters = [name for name in drafters if name != "model"]
        every: list[int | str] = [0, *windows, "auto"]
        ways = [ours(k) for k in every] + [ours(self.middle, drafter=name) for name in drafters]
        if temperature > 0:
            ways += [ours(self.middle, verify_strategy=name) for name in STRATEGIES]
        return ways + [self.peer.way(k, temperature) for k in (0, *windows)]

    def _steps(
        self,
        prompt: list[int],
        num_tokens: int,
        window: int,
        drafter: str = "model",
        temperature: float = 0.0,
    ) -> list[Any]:
        """Without the first, which processes the prompt."""
        params = replace(self._params(temperature), max_tokens=num_tokens)
        result = self.decoder.generate(
            prompt, params, num_draft_tokens=window, drafter=drafter, detail="none"
        )
        return [event for event in result.trace if event.kind == EventKind.STEP][1:]

    def _step_costs(self, drafter: str) -> CostTable:
        """Costs of whole steps in plain steps, with all work around the forwards, as "auto" uses
        them: of sampled runs, which with a seed keep to the table, and in which a head drafts in
        float32. A draft token costs the slope of the draft phase over the windows; the rest of a
        step is verification. Steps with a shorter window are left out."""
        drafting, whole = defaultdict[int, list[float]](list), defaultdict[int, list[float]](list)
        for prompt, window in product(self.prompts, range(self.max_window + 1)):
            steps = self._steps(prompt, self.new_tokens, window, drafter, 1.0)
            steps = [step for step in steps if step.num_draft == window]
            drafting[window] += [step.draft_seconds or 0.0 for step in steps]
            whole[window] += [step.total_seconds or 0.0 for step in steps]
            self.tick(0)
        plain = median(whole[0])
        windows = [window for window in range(1, self.max_window + 1) if whole[window]]
        if not windows:
            raise ValueError(f"new_tokens={self.new_tokens} is too few to measure steps")
        first, last = median(drafting[1]), windows[-1]
        draft = (median(drafting[last]) - first) / (last - 1) if last > 1 else first
        verify = [1.0]
        for window in windows:
            verify.append(max(verify[-1], (median(whole[window]) - window * draft) / plain))
        return CostTable(draft / plain, tuple(verify))

    def _by_context(self) -> Grid:
        """Median milliseconds of a step by window, then by context length."""
        limit = self.decoder.admission.max_positions
        text = [token for prompt in self.prompts for token in prompt]

        def milliseconds(window: int, length: int) -> list[float]:
            prompt = (text * (length // len(text) + 1))[:length]
            return [
                1e3 * (step.total_seconds or 0.0)
                for step in self._steps(prompt, _CONTEXT_TOKENS, window)
            ]

        lengths = [length for length in CONTEXTS if limit is None or length + 20 <= limit]
        return self._medians(milliseconds, lengths, repeats=5)

    def _by_batch(self) -> Grid:
        """Tokens per second of all rows together. Every size decodes the same requests, three times
        the largest batch: as on a server, a new one takes the row of a finished one, so the batch
        is full until near the end."""
        count = 3 * max(BATCHES)
        params = self._params()

        def speed(window: int, size: int) -> list[float]:
            engine = LocalEngine(self.decoder, max_rows=size)
            began = time.perf_counter()
            requests = [
                Request(p, params, num_draft_tokens=window, detail="none")
                for p in islice(cycle(self.prompts), count)
            ]
            for stream in [engine.submit(request) for request in requests]:
                for _events in stream:
                    pass
            seconds = time.perf_counter() - began
            engine.close()
            return [count * self.new_tokens / seconds]

        return self._medians(speed, BATCHES, repeats=3)

    def _medians(
        self, measure: Callable[[int, int], list[float]], sizes: Sequence[int], repeats: int
    ) -> Grid:
        """Plain and with the middle window for each size, measured alternately."""
        windows = (0, self.middle)
        times = defaultdict[tuple[int, int], list[float]](list)
        for _, size, window in product(range(repeats), sizes, windows):
            times[window, size] += measure(window, size)
            self.tick(0)
        return {window: {size: median(times[window, size]) for size in sizes} for window in windows}

    def _event_overhead(self) -> dict[str, float]:
        """Extra time relative to none: medians over adjacent runs."""
        details = ("none", "probs", "full")
        way = partial(our_way, self.decoder, self.middle, self._params(0.8))
        ways = [way(detail=detail) for detail in details]
        none, *others = zip(*decode_all(ways, [*self.prompts] * _REPEATS, self.tick), strict=True)
        more = {}
        for detail, runs in zip(details[1:], others, strict=True):
            pairs = zip(runs, none, strict=True)
            more[detail] = median(run.seconds / base.seconds - 1 for run, base in pairs)
        return more


def fastest_drafter(lines: dict[str, list[Line]], window: int) -> str:
    """Of the trained drafters, on average over all modes."""
    every = [line for own in lines.values() for line in own]
    names = {"model": "", "head": "head, ", "suffix+head": "suffix+head, "}

    def speed(drafter: str) -> float:
        name = f"{names[drafter]}k = {window}"
        return fmean(line.over_plain for line in every if line.name == name)

    return max(names, key=speed)
