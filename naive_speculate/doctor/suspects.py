"""Possible causes of a low speedup, from the rates: suspicions, not proofs."""

from collections.abc import Sequence
from dataclasses import dataclass

LOW_FIRST, CLIFF, SMALL, GAIN = 0.5, 0.75, 0.15, 1.03
MANY_TOKENS = 256
"""Above about this many tokens per forward, computing takes longer than reading the weights on current GPUs."""


@dataclass(frozen=True, slots=True)
class Suspect:
    """A possible fault, with its evidence and what to check."""

    name: str
    words: str


def suspects(
    *,
    alpha: float | None,
    conditional: Sequence[float | None],
    unconditional: Sequence[float],
    whole: bool,
    width: float | None,
    best_k: int | None,
    gain: float | None,
    speedup: float | None,
    requests: float | None,
) -> tuple[Suspect, ...]:
    """All possible faults.

    Args:
        alpha: Probability that a draft token is accepted.
        conditional, unconditional: Rates per index.
        whole: Whether every window had a draft token at each of these indices.
        width: Draft tokens per step.
        best_k: The best window; None without costs.
        gain: Speed of the best window relative to the current one.
        speedup: Expected speedup of the current window; None without costs.
        requests: Requests decoded together.
    """
    found: list[Suspect] = []
    first = conditional[0] if conditional else None
    if first is not None and first < LOW_FIRST:
        found.append(_mismatch(f"The first draft token is accepted in {first:.0%} of the steps"))
    elif first is None and alpha is not None and alpha < LOW_FIRST:
        found.append(_mismatch(f"{alpha:.0%} of the judged draft tokens are accepted"))
    second = conditional[1] if len(conditional) > 1 else None
    if whole and first is not None and second is not None and first >= LOW_FIRST and second < CLIFF * first:
        words = (
            f"A sharp drop after the first draft token: it is accepted in {first:.0%} of the steps, the second in {second:.0%} "
            "of those that reach it. Possible causes: a head trained to draft one token that drafts more from its own output, "
            "or a draft with wrong cache or positions after the first token."
        )
        found.append(Suspect("cliff", words))
    found += _window(unconditional, whole, width, best_k, gain)
    if requests is not None and width is not None and requests * (width + 1) > MANY_TOKENS:
        words = (
            f"The batch may be too large for drafting: {requests:.0f} requests × {width + 1:.3g} tokens are "
            f"{requests * (width + 1):.0f} per forward, so verification is no longer nearly free. Measure the cost of such a "
            "forward relative to a plain one (--verify-cost), and draft less, or not at all under load."
        )
        found.append(Suspect("batch", words))
    if speedup is not None and speedup < 1:
        words = f"Drafting does not pay with these costs: the expected speedup is {speedup:.2f}."
        found.append(Suspect("does_not_pay", words))
    return tuple(found)


def is_set(width: float) -> bool:
    """Whether all windows have one length, that is, k ends them and not the drafter."""
    return abs(width - round(width)) < 0.05


def _mismatch(evidence: str) -> Suspect:
    words = (
        f"{evidence}: draft and target rarely agree, from the first token on. Check that both get the same chat template, "
        "system prompt, tokenizer, temperature and top-p (a greedy draft loses if the target samples), that the head was "
        "trained for this target, and that the weights are not quantised too strongly."
    )
    return Suspect("mismatch", words)


def _window(
    unconditional: Sequence[float], whole: bool, width: float | None, best_k: int | None, gain: float | None
) -> list[Suspect]:
    found: list[Suspect] = []
    if width is None:
        return found
    last = unconditional[-1] if whole and width > 1 else None
    best_k = best_k if is_set(width) else None
    if best_k is not None and gain is not None and gain > GAIN and best_k < width:
        words = f"k is too large: with these costs {best_k} is best, {gain:.2f} times as fast as the current {width:.3g}."
        found.append(Suspect("k_too_large", words))
    elif best_k is None and last is not None and last < SMALL:
        words = f"k may be too large: the last draft token is accepted in {last:.0%} of the steps. Give costs to decide."
        found.append(Suspect("k_too_large", words))
    if best_k is not None and gain is not None and gain > GAIN and best_k > width:
        words = (
            f"k is too small: with these costs {best_k} would be best, {gain:.2f} times as fast as the current {width:.3g}, if "
            "further draft tokens are accepted as often as the last one."
        )
        found.append(Suspect("k_too_small", words))
    if len(unconditional) > 1 and width < 0.8 * len(unconditional):
        words = (
            f"Windows are short: {width:.2f} draft tokens per step of at most {len(unconditional)}. The drafter often proposes "
            "fewer (no n-gram found, or an unsure draft), so rates after the first index include steps without a draft token "
            "there."
        )
        found.append(Suspect("short_windows", words))
    return found
