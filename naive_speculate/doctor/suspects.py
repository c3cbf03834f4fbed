"""What may be wrong where speculative decoding gains little, told from the rates: suspicions, not proofs."""

from collections.abc import Sequence
from dataclasses import dataclass

LOW_FIRST, CLIFF, SMALL, GAIN = 0.5, 0.75, 0.15, 1.03
MANY_TOKENS = 256
"""Of a forward over more tokens than about this many, computing takes longer than reading the weights on today's GPUs."""


@dataclass(frozen=True, slots=True)
class Suspect:
    """Something that may be wrong, and in words what speaks for it, and what to look at."""

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
    """All that the numbers give cause for.

    Args:
        alpha: Probability that a draft is kept.
        conditional, unconditional: Rates by place.
        whole: Whether every window had a draft at each of these places.
        width: Drafts a step.
        best_k: The best window; None without costs.
        gain: How much faster it would be than the present one.
        speedup: Expected of the present window; None without costs.
        requests: Requests that were decoded together.
    """
    found: list[Suspect] = []
    first = conditional[0] if conditional else None
    if first is not None and first < LOW_FIRST:
        found.append(_mismatch(f"The first draft is kept in {first:.0%} of the steps"))
    elif first is None and alpha is not None and alpha < LOW_FIRST:
        found.append(_mismatch(f"Of the drafts that are judged {alpha:.0%} are kept"))
    second = conditional[1] if len(conditional) > 1 else None
    if whole and first is not None and second is not None and first >= LOW_FIRST and second < CLIFF * first:
        words = (
            f"A cliff after place 1: the first draft is kept in {first:.0%}, the second in {second:.0%} of the cases that "
            "reach it. A head that was trained to draft one token and drafts more from its own output does so; so does a draft "
            "whose cache or positions are wrong behind the first token."
        )
        found.append(Suspect("cliff", words))
    found += _window(unconditional, whole, width, best_k, gain)
    if requests is not None and width is not None and requests * (width + 1) > MANY_TOKENS:
        words = (
            f"The batch may be too large for drafting to pay: {requests:.0f} requests × {width + 1:.3g} tokens make "
            f"{requests * (width + 1):.0f} a forward, so verifying drafts is hardly free any more. Measure what a forward over "
            "so many tokens costs beside a plain one (--verify-cost), draft less, or not at all under load."
        )
        found.append(Suspect("batch", words))
    if speedup is not None and speedup < 1:
        words = f"Drafting does not pay with these costs: {speedup:.2f} times the speed of plain decoding is expected."
        found.append(Suspect("does_not_pay", words))
    return tuple(found)


def is_set(width: float) -> bool:
    """Whether windows are of one length, so that k ends them and not the drafter."""
    return abs(width - round(width)) < 0.05


def _mismatch(seen: str) -> Suspect:
    words = (
        f"{seen}: draft and target hardly agree from the first token on. Look at what they are given: the same chat template "
        "and system prompt, the same tokenizer, temperature and top-p for both (a draft that is always greedy loses where the "
        "target samples), a head made for this very target, and weights that are not quantised to pieces."
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
        words = f"k is too large: with these costs {best_k} is best, and {gain:.2f} times as fast as the present {width:.3g}."
        found.append(Suspect("k_too_large", words))
    elif best_k is None and last is not None and last < SMALL:
        words = (
            f"k may be too large: the draft at place {len(unconditional)} is kept in {last:.0%} of the steps. Costs would tell."
        )
        found.append(Suspect("k_too_large", words))
    if best_k is not None and gain is not None and gain > GAIN and best_k > width:
        words = (
            f"k is too small: with these costs {best_k} would be best, and {gain:.2f} times as fast as the present "
            f"{width:.3g}, if drafts behind its end are kept as often as the last one."
        )
        found.append(Suspect("k_too_small", words))
    if len(unconditional) > 1 and width < 0.8 * len(unconditional):
        words = (
            f"Windows are short: {width:.2f} drafts a step of {len(unconditional)} places. The drafter often has fewer to "
            "propose (n-grams that are not found, a draft that is unsure), so that rates behind the first place are those of "
            "all steps, whether they had a draft there or not."
        )
        found.append(Suspect("short_windows", words))
    return found
