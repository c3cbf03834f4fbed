"""Tests any engine's sampled tokens against the exact distribution of our plain decoder.

The engine is a function from a seed to token ids. The first tokens of its texts are compared with
probabilities, which come from following the real plain decoder over the same weights.
"""

import heapq
import json
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from naive_speculate.pair import ModelPair
from naive_speculate.sampling.params import SamplingParams
from naive_speculate.speculate.decoder import SpeculativeDecoder
from naive_speculate.speculate.request import Request
from naive_speculate.tools.goodness import Array, Fit, g_test, holm, samples_needed, smallest_bias

Tokens = tuple[int, ...]
Draw = Callable[[int], Sequence[int]]
MAX_CELLS = 64  # texts with a cell of their own in a test; all others share one
EQUAL = 1e-9  # probabilities that sum to 1 up to this have no rest


@dataclass(frozen=True)
class Texts:
    """Probabilities of the likeliest texts of one length; the others have the rest together."""

    length: int
    probs: dict[Tokens, float]

    @property
    def rest(self) -> float:
        return max(0.0, 1.0 - sum(self.probs.values()))

    @property
    def degrees(self) -> int:
        """Cells minus one."""
        return len(self.probs) + (self.rest > EQUAL) - 1

    def test(self, texts: Iterable[Tokens]) -> Fit:
        """The G-test of the beginnings of these texts."""
        counts = Counter(text[: self.length] for text in texts)
        own = [counts[text] for text in self.probs]
        expected, rest = list(self.probs.values()), sum(counts.values()) - sum(own)
        if self.rest > EQUAL or rest:
            own, expected = [*own, rest], [*expected, self.rest if self.rest > EQUAL else 0.0]
        return g_test(own, expected)


@dataclass(frozen=True)
class SamplerProof:
    """What the samples of an engine say.

    Attributes:
        fits: A test per length: of the first token, of the first two, and so on.
        p_values: The same, adjusted for their number (Holm).
        texts: The exact probabilities that were tested.
        num_samples: Texts drawn.
        smallest_bias: The total variation that the weakest of the tests finds with 90% power.
        error_rate: The rate of false alarms over all tests.
        examples: Texts that come too often or too rarely: tokens, expected and observed share.
    """

    fits: tuple[Fit, ...]
    p_values: tuple[float, ...]
    texts: tuple[Texts, ...]
    num_samples: int
    smallest_bias: float
    error_rate: float
    examples: tuple[tuple[Tokens, float, float], ...]

    @property
    def biased(self) -> bool:
        return min(self.p_values) < self.error_rate

    @property
    def fit(self) -> Fit:
        """The test with the smallest p-value."""
        return self.fits[int(np.argmin(self.p_values))]

    def __str__(self) -> str:
        if not self.biased:
            return (
                f"no bias found in {self.num_samples} samples: a total variation of"
                f" {self.smallest_bias:.3f} or more is found with 90% power at"
                f" {self.error_rate:.2%} false alarms; {self.fit}"
            )
        tokens, expected, actual = self.examples[0]
        return (
            f"not the target's distribution: {self.fit}; the text begins with {list(tokens)} in"
            f" {actual:.1%} of the samples instead of {expected:.1%}"
        )


class _Follows:
    """A random source that gives stated tokens, and records what they were drawn from."""

    def __init__(self, tokens: Tokens) -> None:
        self.tokens = tokens
        self.probs: list[torch.Tensor] = []

    def uniform(self) -> float:
        """Plain decoding judges nothing."""
        return 0.0

    def categorical(self, probs: torch.Tensor) -> torch.Tensor:
        index = len(self.probs)
        self.probs.append(probs)
        if index < len(self.tokens):
            return torch.tensor(self.tokens[index], device=probs.device)
        return probs.argmax()


def exact_texts(
    target: Any,
    prompt_token_ids: Sequence[int],
    params: SamplingParams,
    num_tokens: int,
    max_cells: int = MAX_CELLS,
) -> list[Texts]:
    """The likeliest beginnings with 1 … `num_tokens` tokens, at most `max_cells` of each length. A
    text that ends earlier keeps its length."""
    pair = target if isinstance(target, ModelPair) else ModelPair(target=target)
    decoder, prompt = SpeculativeDecoder(pair), list(prompt_token_ids)
    levels: list[Texts] = []
    beginnings: dict[Tokens, float] = {(): 1.0}
    for length in range(1, num_tokens + 1):
        longer: dict[Tokens, float] = {}
        for tokens, probability in beginnings.items():
            following = _following(decoder, prompt, params, tokens)
            if following is None:
                longer[tokens] = probability
                continue
            values, ids = following.topk(min(max_cells, len(following)))
            for value, token in zip(values.tolist(), ids.tolist(), strict=True):
                if value > 0:
                    longer[(*tokens, token)] = probability * value
        best = heapq.nlargest(max_cells, longer.items(), key=lambda item: item[1])
        beginnings = dict(best)
        levels.append(Texts(length, beginnings))
    return levels


def _following(
    decoder: SpeculativeDecoder, prompt: list[int], params: SamplingParams, tokens: Tokens
) -> torch.Tensor | None:
    """Float64 `[vocab_size]`; None if the tokens end."""
    source = _Follows(tokens)
    once = replace(params, max_tokens=len(tokens) + 1, n=1, seed=None)
    run = decoder.prepare(
        Request(prompt, once, num_draft_tokens=0, detail="none"), random=lambda *_: source
    )
    batch = decoder.new_batch()
    batch.admit(run.rows)
    try:
        while not run.over:
            run.events(batch.step(run.rows))
    finally:
        batch.release(run.rows)
    if len(source.probs) <= len(tokens):
        return None
    probs = source.probs[len(tokens)].double()
    return probs / probs.sum()


def prove_sampler(
    draw: Draw,
    target: Any,
    prompt_token_ids: Sequence[int],
    params: SamplingParams | None = None,
    *,
    num_tokens: int = 3,
    smallest: float = 0.05,
    error_rate: float = 0.001,
    max_cells: int = MAX_CELLS,
    seed: int = 0,
    work: Path | str | None = None,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> SamplerProof:
    """Compare an engine's samples with the exact distribution of plain decoding.

    A G-test per length (the first token, the first two, …), Holm's correction over them. The
    number of samples is the least that finds the smallest bias with 90% power in every test.

    Args:
        draw: The engine: seed → the token ids of one text, the prompt left out. Calls with
            different seeds must be independent.
        target: The same weights here: a `LanguageModel` or `ModelPair`.
        prompt_token_ids: The prompt that the engine continues.
        params: The sampling parameters that the engine was given; default: temperature 1.
        num_tokens: Tokens per text that are tested; `draw` may return more.
        smallest: The smallest bias worth finding, as total variation.
        error_rate: The rate of false alarms over all tests.
        max_cells: Texts that have a cell of their own in a test; the others are one cell.
        seed: The first seed; the others follow it.
        work: A file of JSON lines that records the samples; the same call continues it.
        progress: Called with the samples drawn so far and their number.

    Raises:
        ValueError: Naming the argument; also if the file is of another run, and if `draw`
            returns no token ids.
    """
    params = SamplingParams() if params is None else params
    _check(draw, params, num_tokens, smallest, error_rate, max_cells)
    levels = exact_texts(target, prompt_token_ids, params, num_tokens, max_cells)
    tested = [level for level in levels if level.degrees > 0]
    if not tested:
        raise ValueError("params leave one text only: there is no distribution to test")
    share = error_rate / len(tested)
    total = max(samples_needed(smallest, level.degrees, share) for level in tested)
    about = {
        "prompt": list(prompt_token_ids),
        "params": {name: repr(value) for name, value in params.to_dict().items()},
        "num_tokens": num_tokens,
    }
    texts = _sampled(draw, range(seed, seed + total), num_tokens, work, about, progress)
    fits = tuple(level.test(texts) for level in tested)
    p_values = tuple(holm([fit.p_value for fit in fits]))
    weakest = max(smallest_bias(total, level.degrees, share) for level in tested)
    examples = _examples(tested[int(np.argmin(p_values))], texts)
    return SamplerProof(fits, p_values, tuple(tested), total, weakest, error_rate, examples)


def _check(
    draw: object,
    params: SamplingParams,
    num_tokens: int,
    smallest: float,
    error_rate: float,
    max_cells: int,
) -> None:
    if not callable(draw):
        raise ValueError(f"draw must be a function of a seed, got {draw!r:.80}")
    if params.greedy:
        raise ValueError(
            f"params must sample, got temperature={params.temperature}: greedy texts are compared,"
            " not tested"
        )
    for name, value in (("smallest", smallest), ("error_rate", error_rate)):
        if not 0 < value < 1:
            raise ValueError(f"{name} must be between 0 and 1, got {value}")
    for name, number, least in (("num_tokens", num_tokens, 1), ("max_cells", max_cells, 2)):
        if not isinstance(number, int) or number < least:
            raise ValueError(f"{name} must be a whole number from {least}, got {number!r}")


def _sampled(
    draw: Draw,
    seeds: range,
    num_tokens: int,
    work: Path | str | None,
    about: dict[str, Any],
    progress: Callable[[int, int], None],
) -> list[Tokens]:
    """The beginnings of the texts of these seeds; those that the file has are not drawn again."""
    known: dict[int, Tokens] = {}
    file = None
    if work is not None:
        known = _recorded(Path(work), about)
        file = Path(work).open("a", encoding="utf-8", newline="\n")  # noqa: SIM115 - closed below
        if not Path(work).stat().st_size:
            file.write(json.dumps({"of": about}) + "\n")
    try:
        texts = []
        for done, seed in enumerate(seeds):
            if seed not in known:
                known[seed] = _text(draw(seed), num_tokens, seed)
                if file is not None:
                    file.write(json.dumps({"seed": seed, "token_ids": known[seed]}) + "\n")
                    file.flush()
            texts.append(known[seed])
            progress(done + 1, len(seeds))
    finally:
        if file is not None:
            file.close()
    return texts


def _text(token_ids: Sequence[int], num_tokens: int, seed: int) -> Tokens:
    try:
        return tuple(int(token) for token in token_ids)[:num_tokens]
    except (TypeError, ValueError):
        raise ValueError(f"draw({seed}) must return token ids, got {token_ids!r:.80}") from None


def _recorded(work: Path, about: dict[str, Any]) -> dict[int, Tokens]:
    """The samples of an earlier call. A last line that was cut off is drawn again."""
    if not work.exists() or not work.stat().st_size:
        return {}
    lines = work.read_text(encoding="utf-8", errors="replace").split("\n")
    if lines[-1]:  # written in part
        whole = "".join(line + "\n" for line in lines[:-1])
        work.write_text(whole, encoding="utf-8", newline="\n")
    try:
        first, *rest = [json.loads(line) for line in lines[:-1]]
        same = first["of"] == about
        texts = {line["seed"]: tuple(line["token_ids"]) for line in rest}
    except (ValueError, KeyError, TypeError):
        raise ValueError(f"work {str(work)!r} holds no samples of prove_sampler") from None
    if not same:
        raise ValueError(f"work {str(work)!r} holds samples of another prompt or parameters")
    return texts


def _examples(level: Texts, texts: Sequence[Tokens]) -> tuple[tuple[Tokens, float, float], ...]:
    counts, n = Counter(text[: level.length] for text in texts), len(texts)
    names = [*level.probs, *(text for text in counts if text not in level.probs)]
    expected: Array = np.array([level.probs.get(text, 0.0) for text in names])
    shares: Array = np.array([counts[text] / n for text in names])
    far = np.abs(shares - expected) / np.sqrt(np.maximum(expected, 1 / n) / n)
    if level.rest > EQUAL:  # those without a cell of their own have no stated probability
        far[len(level.probs) :] = 0
    order = np.argsort(-far)[:3]
    return tuple((names[i], float(expected[i]), float(shares[i])) for i in order)
