"""Runs one adapter in an environment of its own, and compares what its engine does."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM

from benchmarks.engines.compare import COPIES
from benchmarks.engines.full import full_sampled, full_steps
from benchmarks.engines.models import CLOSE, END, GREEDY_TOKENS, NEAR, PERFECT, PROMPT, VOCAB
from benchmarks.engines.options import all_options
from benchmarks.engines.running import Running, running
from benchmarks.engines.serve import Ask
from naive_speculate import SamplingParams
from naive_speculate.models.load import wrap
from naive_speculate.testing import prove_sampler

HERE = Path(__file__).parent
GREEDY_TEXTS, TOKENS = 50, 4
VARIED_PROMPT = [6, 9, 7, 9, 1, 6, 14, 11]  # a penalty that sees its last token only is found
PENALTY = "T = 1, repetition penalty 1.3"
SETTINGS: dict[str, dict[str, Any]] = {
    "T = 1": {"temperature": 1.0},
    "T = 0.7, top-p 0.9": {"temperature": 0.7, "top_p": 0.9},
    PENALTY: {"temperature": 1.0, "repetition_penalty": 1.3},
}
VERDICTS = ("greedy", "sampled", "options", "figures", "near", "full")
PARTS = (*VERDICTS, "speed")
ERROR_RATE = 0.001
Say = Callable[[str], None]


def trial(
    script: Path,
    models: Path,
    work: Path,
    smallest: float | None,
    parts: Sequence[str],
    versions: dict[str, str],
    say: Say,
) -> dict[str, Any]:
    """An engine's results, as JSON values, of these parts of `VERDICTS`; of all if the results so
    far are of other `versions`. `smallest`: the smallest bias worth finding, or None for what the
    adapter says."""
    with running(script, models, work) as engine:
        about = engine.about
        if about["versions"] != versions:
            parts = VERDICTS
        names = (
            "versions",
            "rule",
            "source",
            "counts",
            "skips",
            "top_p_first",
            "not_greedy",
            "not_timed",
        )
        result = {name: about[name] for name in names}
        if "sampled" in parts:
            result["sampled"] = all_sampled(
                engine, script.stem, models, smallest or about["smallest"], say
            )
    if about["ways"] and not {"greedy", "options", "figures"}.isdisjoint(parts):
        say(f"{script.stem}: greedy texts")
        with running(script, models / CLOSE, work) as engine:
            result |= compared_with_plain(engine, parts)
    if about["ways"] and "near" in parts:
        with running(script, models / NEAR, work) as engine:
            result["near_sampled"] = {
                way: twice(engine, way, SETTINGS["T = 1"], models, smallest or about["smallest"])
                for way in about["ways"]
                if way not in COPIES
            }
    if about["ways"] and "full" in parts:
        with running(script, models / PERFECT, work) as engine:
            result["full"] = full_steps(engine)
            say(f"{script.stem}: the target as its draft")
            result["full_sampled"] = full_sampled(engine, models)
    return result


def compared_with_plain(engine: Running, parts: Sequence[str]) -> dict[str, Any]:
    """An engine's greedy texts and its own figures with a draft that is often accepted."""
    result: dict[str, Any] = {}
    ways, sampling = engine.about["ways"], engine.about["not_greedy"]
    greedily = [way for way in ways if way not in sampling]
    if "greedy" in parts:
        result["greedy"] = {way: greedy(engine, way) for way in greedily}
        with_penalty = [] if PENALTY in engine.about["skips"] else greedily
        result["greedy_penalty"] = {way: greedy(engine, way, 1.3) for way in with_penalty}
    if "options" in parts:
        result["options"] = all_options(engine)
    if "figures" in parts:
        result["figures"] = {way: figures(engine, way, float(way in sampling)) for way in ways}
    return result


def greedy(
    engine: Running, way: str, penalty: float = 1.0, texts: int = GREEDY_TEXTS
) -> dict[str, int]:
    """How many greedy texts are the same with and without drafts."""
    random, equal = torch.Generator().manual_seed(0), 0
    for _ in range(texts):
        prompt = torch.randint(1, VOCAB, (8,), generator=random).tolist()
        ask = Ask(prompt, max_tokens=GREEDY_TOKENS, repetition_penalty=penalty)
        equal += engine.ask(ask).token_ids == engine.ask(replace(ask, way=way)).token_ids
    return {"equal": equal, "texts": texts}


def all_sampled(
    engine: Running, name: str, models: Path, smallest: float, say: Say
) -> dict[str, dict[str, Any]]:
    """The verdicts by setting and way."""
    verdicts: dict[str, dict[str, Any]] = {}
    for setting, values in SETTINGS.items():
        if setting in engine.about["skips"]:
            continue
        for way in ["plain", *engine.about["ways"]] if engine.about["ways"] else []:
            say(f"{name}: {way}, {setting}")
            verdicts.setdefault(setting, {})[way] = twice(engine, way, values, models, smallest)
    return verdicts


def twice(
    engine: Running, way: str, settings: dict[str, Any], models: Path, smallest: float
) -> dict[str, Any]:
    """A verdict; a bad one has another one "again", from other seeds."""
    verdict = sampled(engine, way, settings, models, smallest, seed=0)
    if verdict["biased"]:
        verdict["again"] = sampled(engine, way, settings, models, smallest, seed=10**6)
    return verdict


def sampled(
    engine: Running, way: str, settings: dict[str, Any], models: Path, smallest: float, seed: int
) -> dict[str, Any]:
    """The verdict of `prove_sampler` about one way and one setting."""
    prompt = VARIED_PROMPT if "repetition_penalty" in settings else PROMPT

    def draw(number: int) -> list[int]:
        return engine.ask(Ask(prompt, way, TOKENS + 4, number, **settings)).token_ids

    params = params_of(settings, engine.about["top_p_first"])
    target = wrap(AutoModelForCausalLM.from_pretrained(models / "target", dtype=torch.float32))
    proof = prove_sampler(
        draw,
        target,
        prompt,
        params,
        num_tokens=TOKENS,
        smallest=smallest,
        error_rate=ERROR_RATE,
        seed=seed,
    )
    low, high = proof.fit.interval
    return {
        "biased": proof.biased,
        "p": min(proof.p_values),
        "total_variation": round(proof.fit.bias, 4),
        "interval": [round(low, 4), round(high, 4)],
        "samples": proof.num_samples,
        "smallest": round(proof.smallest_bias, 4),
        "says": str(proof),
    }


def params_of(settings: dict[str, float], top_p_first: bool) -> SamplingParams:
    """The same settings here. Some engines apply top-p before temperature, we after it."""
    exact: dict[str, Any] = {"stop_token_ids": [END], **settings}
    if top_p_first and (top_p := exact.pop("top_p", 1.0)) < 1:
        exact["logits_processors"] = [partial(nucleus, top_p)]
    return SamplingParams(**exact)


def nucleus(top_p: float, token_ids: list[int], logits: torch.Tensor) -> torch.Tensor:
    """Logits `[vocab_size]` of the least set of most probable tokens that has this probability."""
    ordered, order = logits.softmax(-1).sort(descending=True)
    return logits.index_fill(-1, order[ordered.cumsum(-1) - ordered >= top_p], -torch.inf)


def figures(engine: Running, way: str, temperature: float) -> dict[str, Any]:
    """What the engine says of one text: its own counts, and log-probabilities; of a greedy text
    also the largest difference from those without drafts."""
    ask = Ask(PROMPT, way, max_tokens=GREEDY_TOKENS, temperature=temperature)
    answer, plain = engine.ask(ask), engine.ask(replace(ask, way="plain"))
    figures: dict[str, Any] = {"drafted": answer.drafted, "accepted": answer.accepted}
    figures |= {"tokens": len(answer.token_ids), "logprobs_missing": None}
    if answer.logprobs is None:
        return figures
    figures["logprobs_missing"] = sum(one is None for one in answer.logprobs)
    if plain.logprobs is not None and temperature == 0:
        pairs = zip(answer.logprobs, plain.logprobs, strict=False)
        gaps = [abs(a - b) for a, b in pairs if a is not None and b is not None]
        figures["logprobs_differ"] = max(gaps, default=None)
    return figures
