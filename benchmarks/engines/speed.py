"""What drafts gain in an engine: SmolLM2 and one draft, greedy, with one thread. Each text is
decoded with and without drafts, by the engine and by this decoder, one after the other."""

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from benchmarks.engines.running import Running, running
from benchmarks.engines.serve import Answer, Ask
from benchmarks.engines.trial import Say
from naive_speculate import SamplingParams, SpeculativeDecoder, load_pair
from naive_speculate.tools.ratio import logs_of, ratio_of

K, TOKENS = 3, 48
Decode = Callable[[list[int]], tuple[float, float | None, list[int]]]
"""Seconds of a text, its tokens per pass of the target, and its tokens."""


def speed(script: Path, models: Path, work: Path, say: Say) -> dict[str, Any] | None:
    """The figures of an engine; None if it is not measured."""
    with running(script, models, work) as engine:
        if engine.about["not_timed"] or "draft model" not in engine.about["ways"]:
            return None
        torch.set_num_threads(1)
        pair = load_pair(str(models / "target"), str(models / "draft"), device="cpu")
        decoder = SpeculativeDecoder(pair)
        prompts = json.loads((models / "prompts.json").read_text(encoding="utf-8"))
        say(f"{script.stem}: speed")
        ways = {
            "plain": theirs(engine, "plain"),
            "drafts": theirs(engine, "draft model"),
            "our plain": ours(decoder, 0),
            "our drafts": ours(decoder, K),
        }
        return measured(ways, prompts) | {"versions": engine.about["versions"]}


def theirs(engine: Running, way: str) -> Decode:
    """The engine's way. Tokens that were not drafted and accepted are one per pass."""

    def decode(prompt: list[int]) -> tuple[float, float | None, list[int]]:
        began = time.perf_counter()
        answer = engine.ask(Ask(prompt, way, TOKENS))
        seconds = time.perf_counter() - began
        return seconds, per_pass(answer), answer.token_ids

    return decode


def per_pass(answer: Answer) -> float | None:
    """Tokens per pass of the target, which the engine counts, or whose accepted drafts it does."""
    count = len(answer.token_ids)
    if answer.passes:
        return count / answer.passes
    return count / max(1, count - answer.accepted) if answer.accepted is not None else None


def ours(decoder: SpeculativeDecoder, k: int) -> Decode:
    """This decoder with k draft tokens per step."""
    params = SamplingParams(temperature=0.0, max_tokens=TOKENS, ignore_eos=True)

    def decode(prompt: list[int]) -> tuple[float, float | None, list[int]]:
        began = time.perf_counter()
        result = decoder.generate(prompt, params, num_draft_tokens=k, detail="none")
        seconds = time.perf_counter() - began
        return (
            seconds,
            len(result.token_ids) / result.metrics.num_spec_steps,
            list(result.token_ids),
        )

    return decode


def measured(ways: dict[str, Decode], prompts: list[list[int]]) -> dict[str, Any]:
    """Decode all prompts every way, in alternating order, after one warm-up."""
    runs: dict[str, list[tuple[float, float | None, list[int]]]] = {name: [] for name in ways}
    for turn, prompt in enumerate([prompts[0], *prompts]):
        for name in ways if turn % 2 else reversed(ways):
            runs[name].append(ways[name](prompt))
    runs = {name: figures[1:] for name, figures in runs.items()}

    def gain(fast: str, slow: str) -> list[float | None]:
        times = ([one[0] for one in runs[name]] for name in (slow, fast))
        return [None if one is None else round(one, 2) for one in ratio_of(logs_of(*times))]

    def mean_per_pass(name: str) -> float | None:
        known = [one[1] for one in runs[name] if one[1] is not None]
        return round(sum(known) / len(known), 2) if known else None

    return {
        "texts": len(prompts),
        "equal": sum(a[2] == b[2] for a, b in zip(runs["plain"], runs["drafts"], strict=True)),
        "ratio": gain("drafts", "plain"),
        "our_ratio": gain("our drafts", "our plain"),
        "per_pass": mean_per_pass("drafts"),
        "our_per_pass": mean_per_pass("our drafts"),
        "plain_to_ours": gain("plain", "our plain"),
    }
