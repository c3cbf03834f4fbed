"""Compares this decoder with transformers' generation on one pair and the same prompts, and measures what its steps cost."""

import platform
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from rich.progress import Progress

from naive_speculate.bench.measure import (
    Costs,
    Line,
    Tick,
    by_batch,
    by_context,
    compare,
    event_overhead,
    fastest_drafter,
    forward_costs,
    memory_mib,
    step_costs,
)
from naive_speculate.bench.ways import Transformers, Way, our_way
from naive_speculate.speculate.decoder import SpeculativeDecoder
from naive_speculate.speculate.draft import DRAFTERS

STRATEGIES = ("greedy_match", "block_verification", "typical_acceptance")
CONTEXTS, BATCHES = (100, 250, 500, 1000), (1, 2, 4, 8, 16)
MODES = {"greedy": 0.0, "temperature 0.8": 0.8}
_COST_CONTEXT = 100
_MIDDLE = 4


@dataclass(frozen=True)
class Comparison:
    """What is compared.

    Attributes:
        decoder: This decoder; its pair has a draft model.
        peer: transformers' generation with the same weights.
        prompts: Token ids of each prompt.
        new_tokens: Tokens to generate.
        max_window: Largest window.
        quick: Whether to decode greedily only, and to leave out contexts, batches and events.
    """

    decoder: SpeculativeDecoder
    peer: Transformers
    prompts: Sequence[list[int]]
    new_tokens: int
    max_window: int
    quick: bool

    @property
    def middle(self) -> int:
        """The window of measurements that use a single one."""
        return min(_MIDDLE, self.max_window)

    def run(self, progress: Progress) -> tuple[dict[str, Any], dict[str, list[Line]]]:
        """Measure everything; returns the report and its lines by mode."""
        pair = self.decoder.pair
        task = progress.add_task("measuring", total=None)
        tick = partial(progress.advance, task)
        costs = forward_costs(pair.target, pair.draft, _COST_CONTEXT, self.max_window + 1)  # type: ignore[arg-type]
        lines = {}
        for mode, temperature in MODES.items():
            if temperature > 0 and self.quick:
                continue
            progress.update(task, description=f"decoding, {mode}")
            ways = self._ways(temperature)
            for way in ways:
                way.decode(self.prompts[0], 0)
            lines[mode] = compare(ways, self.prompts, costs, tick)
        progress.update(task, description="contexts, batches, events")
        return self._report(lines, costs, tick), lines

    def _ways(self, temperature: float) -> list[Way]:
        """This decoder plain, with every window, drafter and strategy; then transformers."""
        ours = partial(our_way, self.decoder, temperature=temperature, new_tokens=self.new_tokens)
        windows = list(range(1, self.max_window + 1))
        drafters = [name for name, kind in DRAFTERS.items() if name != "model" and kind.obstacle(self.decoder.pair) is None]
        every: list[int | str] = [0, *windows, "auto"]
        ways = [ours(k) for k in every] + [ours(self.middle, drafter=name) for name in drafters]
        if temperature > 0:
            ways += [ours(self.middle, verify_strategy=name) for name in STRATEGIES]
        return ways + [self.peer.way(k, temperature) for k in (0, *windows)]

    def _report(self, lines: dict[str, list[Line]], costs: Costs, tick: Tick) -> dict[str, Any]:
        decoder, pair, prompts = self.decoder, self.decoder.pair, self.prompts
        costs_of = partial(step_costs, decoder, prompts, self.max_window, self.new_tokens, tick)
        report: dict[str, Any] = {
            "target": pair.names["target"],
            "draft": pair.names["draft"],
            "head": pair.names.get("head"),
            "device": str(decoder.admission.device),
            "executor": getattr(pair.target, "executor", "transformers"),
            "machine": platform.machine(),
            "threads": f"transformers in {self.peer.threads} threads",
            "new_tokens": self.new_tokens,
            "num_prompts": len(prompts),
            "decoding": {mode: [line.to_dict() for line in found] for mode, found in lines.items()},
            "forwards": {"context": costs.context, "draft_ms": costs.draft_ms, "verify_ms": costs.verify_ms},
            "costs": {"draft": costs.draft, "verify": costs.verify},
            "step_costs": costs_of("model").to_dict(),
            "by_context": {},
            "by_batch": {},
            "event_overhead": {},
        }
        if not self.quick:
            limit, both = decoder.admission.max_positions, (0, self.middle)
            contexts = [length for length in CONTEXTS if limit is None or length + 20 <= limit]
            text = [token for prompt in prompts for token in prompt]
            report["by_context"] = by_context(decoder, text, contexts, both, tick)
            report["by_batch"] = by_batch(decoder, prompts, BATCHES, both, self.new_tokens, tick)
            report["event_overhead"] = event_overhead(decoder, prompts, self.middle, self.new_tokens, tick)
        report["memory_mib"] = memory_mib(decoder.admission.device)
        if DRAFTERS["head"].obstacle(pair) is None:
            measured = {"head": costs_of("head").to_dict(), "fastest_drafter": fastest_drafter(lines, self.middle)}
            report["step_costs"] |= measured
        return report


def choose_threads(peer: Transformers, prompt: list[int]) -> None:
    """Let transformers use the best number of threads; torch itself keeps one, since this decoder's own tensors are small."""
    cores = torch.get_num_threads()
    peer.choose_threads(prompt, sorted({1, max(1, cores - 1), cores}))
    if peer.target.device.type == "cpu":
        torch.set_num_threads(1)
