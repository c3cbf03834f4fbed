"""Possible causes of a low speedup, from the figures: suspicions, not proofs, each with what to
measure next.

`fade` and `drop` find where acceptance ends: from a position in the text on, or from an index of
the window on.
"""

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, groupby
from typing import Any

from naive_speculate.costs import CostTable
from naive_speculate.tools.doctor.diagnosis import Diagnosis, Suspect
from naive_speculate.tools.doctor.reading import Reading, Stretch

NONE, LOW_FIRST, CLIFF, SMALL, GAIN = 0.1, 0.5, 0.75, 0.15, 1.03
# above about this many tokens per pass, computing takes longer than reading the weights on current
# GPUs
MANY_TOKENS = 256
RARE = 0.5  # the share of steps with draft tokens below which drafts are rare
HIGH, FASTER = (
    1.5,
    1.15,
)  # tokens per step from which drafting should pay, and the measured speedup that counts as one
COSTLY = 0.35  # the drafter's share of a step from which it costs too much
ALIVE, DEAD = 0.2, 0.05
"""Shares of steps that accept a draft token: at least the first before an end of acceptance, at
most the second after it."""
FEWEST = 8  # steps on each side of such an end
EVIDENCE = 8.0  # least logarithm of how much better two rates explain the steps than one
CHANCE = (
    0.03  # most probable chance event that still counts as the end of acceptance within windows
)
UNKNOWN_STEPS = 100

_EXPERTS = re.compile(
    r"\b\d+(?:\.\d+)?[BT]-A\d+(?:\.\d+)?B\b|\b\d+x\d+B\b"
    r"|\b(?:Mixtral|DeepSeek-(?:V[2-9]|R1(?!-Distill))|Kimi-K\d|gpt-oss|GLM-(?:4\.[5-9](?!V-Flash)|[5-9])|Llama-4|MiniMax-M\d|Qwen\d?-?MoE|OLMoE)[\w.-]*"
    r"|--enable-expert-parallel\b|\benable_expert_parallel['\"]?\s*[=:]\s*True"
    r"|\bn_expert\s*=\s*[1-9]\d*|\bnum_(?:local_)?experts['\"]?\s*[=:]\s*[1-9]\d*",
    re.IGNORECASE,
)
_TEXTS = {  # by name: evidence with possible causes, and what to measure next
    "fades": (
        (
            "Acceptance drops to zero {where}: {fade.before:.0%} of the steps elsewhere accept a"
            " draft token, {after} of these {fade.steps:,.0f} steps. {stays}Possible causes: texts"
            " longer than the drafter's context (max_position_embeddings, or its draft"
            " max_model_len; vLLM reports the drafts that it skips as rejected, vllm#34734,"
            " sglang#6783), other RoPE scaling than the target's, or a sliding window that the"
            " engine does not apply."
        ),
        (
            "short and long prompts apart. Compare the length at which acceptance ends with the"
            " drafter's config.json."
        ),
    ),
    "drops_to_zero": (
        (
            "Acceptance drops to zero at index {index}: {before} of the steps accept index {last},"
            " {rate} index {index}. {reached}Possible causes: a drafter made for shorter windows,"
            " wrong positions or cache after that index, or a block drafter whose attention window"
            " is broken (its sliding-window layers run as full attention, or the text is past its"
            " context; vllm#40898, vllm#34734)."
        ),
        (
            "the speed with k = {index}, which loses nothing; then prompts of fewer than 1,000"
            " tokens: if index {index} works there, the drafter's context is too short."
        ),
    ),
    "near_zero": (
        (
            "{first}: almost nothing, from the first index on. Possible causes: another chat"
            " template, tokenizer or system prompt than the drafter was trained with; a head that"
            " reads the wrong layers of the target, or was trained for another target; missing or"
            " wrongly mapped weights; texts longer than the drafter's context (vllm#34734).{copies}"
        ),
        (
            "one short prompt in the drafter's own chat template, greedy, with k = 1. If it stays"
            " near zero, compare weights and layer numbers."
        ),
    ),
    "mismatch": (
        (
            "{first}: draft and target rarely agree, from the first token on. Check that both get"
            " the same chat template, system prompt, tokenizer, temperature and top-p (a greedy"
            " draft loses if the target samples), that the head was trained for this target, and"
            " that the weights are not quantised too strongly."
        ),
        "the same prompts at temperature 0: if acceptance rises, sampling is the cause.",
    ),
    "cliff": (
        (
            "A sharp drop after the first draft token: it is accepted in {first:.0%} of the steps,"
            " the second in {second:.0%} of those that reach it. Possible causes: a head trained to"
            " draft one token that drafts more from its own output, or a draft with wrong cache or"
            " positions after the first token."
        ),
        "the speed with k = 1.",
    ),
    "no_speedup": (
        (
            "High acceptance without speedup: {tokens:.2f} tokens per step, but {measured:.2f}"
            " times the speed of plain decoding. So a step takes as long as {step:.2f} plain"
            " tokens; it should take little more than one. Verification or drafting costs too much."
        ),
        (
            "the time of a target pass over 1 and over k + 1 tokens, and of one draft pass; then k"
            " = 1."
        ),
    ),
    "rare_drafts": (
        (
            "Drafts are rare: {share} of the steps have draft tokens, and the figures describe"
            " these alone. Over all steps the target emits {tokens:.2f} tokens per pass. The"
            " drafter finds nothing to propose: no n-gram repeats, or it is unsure."
        ),
        "text that repeats its prompt, such as edits of code; else a draft model or a head.",
    ),
    "draft_cost": (
        (
            "The drafter is expensive: it takes {share:.0%} of the time of a step. A draft model"
            " pays if it is many times smaller than the target's active parameters, and runs on the"
            " same device with compiled graphs."
        ),
        "one draft pass and one target pass; then a smaller drafter, a head, or n-gram drafting.",
    ),
    "experts": (
        (
            "The target is a mixture of experts ({experts}). Each draft token wakes other experts,"
            " so a pass over k + 1 tokens reads more weights than one over a single token, and"
            " acceptance alone predicts no speedup (mlx-lm#1132, vllm#46295)."
        ),
        (
            "the target's pass over 1, 2, 3 … tokens (--verify-cost), and k = 1. Larger batches"
            " wake all experts anyway."
        ),
    ),
    "batch": (
        (
            "The batch may be too large for drafting: {requests:.0f} requests × {width:.3g} tokens"
            " are {all:.0f} per pass, so verification is no longer nearly free. Measure the cost of"
            " such a pass relative to a plain one (--verify-cost), and draft less, or not at all"
            " under load."
        ),
        "the same prompts with one request at a time.",
    ),
}


def experts(text: str) -> str:
    """What in a text shows that the target is a mixture of experts; empty if nothing does."""
    found = _EXPERTS.search(text)
    return found[0] if found else ""


def diagnose(
    reading: Reading, costs: CostTable | None = None, *, num_draft_tokens: int | None = None
) -> Diagnosis:
    """Diagnose an engine's figures with these costs, and with this window if the figures lack
    one. Raises `ValueError` if `num_draft_tokens` is not positive, or the figures contradict
    each other."""
    found = Diagnosis(reading, costs, num_draft_tokens)
    listed = [*_acceptance(found), *_speed(found)]
    dropped = any(suspect.name in ("drops_to_zero", "near_zero") for suspect in listed)
    found.suspects = (*listed, *_window(found, dropped))
    return found


def is_set(width: float) -> bool:
    """Whether all windows have one length, that is, k ends them and not the drafter."""
    return abs(width - round(width)) < 0.05


def _suspect(name: str, **values: Any) -> Suspect:
    return Suspect(name, *(text.format(**values) for text in _TEXTS[name]))


def _acceptance(found: Diagnosis) -> Iterator[Suspect]:
    reading, conditional, tokens = found.reading, found.conditional, found.mean_acceptance_length
    fades = fade(reading.course)
    if fades is not None:
        where = (
            "in some reports"
            if fades.position is None
            else f"from about position {fades.position:,.0f} of the text on"
        )
        stays = (
            "It stays at zero until the end of the log, as if one long request had damaged the"
            " drafter's state. "
        )
        stays = stays if fades.position is None and fades.stays else ""
        yield _suspect("fades", fade=fades, where=where, after=_percent(fades.after), stays=stays)
    first = conditional[0] if conditional else found.alpha
    if first is None and tokens is not None and tokens - 1 < NONE:
        first = tokens - 1  # the window is unknown, but no index accepts more than this
    if first is None or (fades is not None and fades.before >= LOW_FIRST):
        return
    second = conditional[1] if len(conditional) > 1 else None
    subject = f"The first draft token is accepted in {_percent(first)} of the steps"
    subject = (
        subject if conditional else f"{_percent(first)} of the judged draft tokens are accepted"
    )
    # Where windows are short, an index without an accepted token may have had no draft token.
    zero = None if _short(found) and not reading.judged else drop(reading.rates, reading.num_steps)
    if zero is not None:
        index, chance = zero
        before, rate = reading.rates[index - 1 : index + 1]
        reached = (
            f"{round(reading.num_steps * before):,} windows reached it; by "
            if reading.num_steps
            else ""
        )
        reached += f"chance this would have a probability of {_chance(chance)}. " if reached else ""
        shares = {"before": _percent(before), "rate": _percent(rate)}
        yield _suspect("drops_to_zero", index=index, last=index - 1, reached=reached, **shares)
    if first < NONE:
        copies = ""
        if second is not None and second >= LOW_FIRST:
            copies = (
                f" But after an accepted first token the second is accepted in {second:.0%}: a"
                " drafter that copies (n-gram) looks like this on text that repeats little."
            )
        yield _suspect("near_zero", first=subject, copies=copies)
    elif first < LOW_FIRST:
        yield _suspect("mismatch", first=subject)
    elif zero is None and second is not None and second < CLIFF * first and found.whole_rates:
        yield _suspect("cliff", first=first, second=second)


def _speed(found: Diagnosis) -> Iterator[Suspect]:
    """Causes of a low speedup other than acceptance."""
    reading, measured, tokens, share = (
        found.reading,
        found.measured_speedup,
        found.mean_acceptance_length,
        found.draft_share,
    )
    if reading.drafted_share is not None and tokens is not None:  # a speed is of all steps
        tokens = 1 + (tokens - 1) * reading.drafted_share
        if reading.drafted_share < RARE:
            yield _suspect("rare_drafts", share=_percent(reading.drafted_share), tokens=tokens)
    slow, high = measured is not None and measured < FASTER, tokens is not None and tokens >= HIGH
    if measured is not None and slow and tokens is not None and high:
        yield _suspect("no_speedup", tokens=tokens, measured=measured, step=tokens / measured)
    if (
        share is not None
        and share >= COSTLY
        and (slow or (reading.draft_share is not None and measured is None))
    ):
        yield _suspect("draft_cost", share=share)
    if reading.experts and high and (measured is None or slow):
        yield _suspect("experts", experts=reading.experts)
    requests, width = reading.requests_running, (found.num_draft_tokens or 0) + 1
    if requests is not None and width > 1 and requests * width > MANY_TOKENS:
        yield _suspect("batch", requests=requests, width=width, all=requests * width)
    if found.speedup is not None and found.speedup < 1:
        words = (
            f"Drafting does not pay with these costs: the expected speedup is {found.speedup:.2f}."
        )
        yield Suspect("does_not_pay", words, "a smaller window, or a cheaper drafter.")
    elif slow and tokens is not None and not high:
        words = (
            f"Drafting does not pay: {measured:.2f} times the speed of plain decoding, with"
            f" {tokens:.2f} tokens per step."
        )
        yield Suspect("does_not_pay", words, "acceptance by kind of prompt; it is too low here.")


def _window(found: Diagnosis, dropped: bool) -> Iterator[Suspect]:
    rates, width, gain = found.unconditional, found.num_draft_tokens, found.gain
    if width is None:
        return
    best_k = found.best_k if is_set(width) else None
    if best_k is not None and gain is not None and gain > GAIN and best_k != width:
        words = (
            f"k is too large: with these costs {best_k} is best, {gain:.2f} times as fast as the"
            f" current {width:.3g}."
        )
        if best_k > width:
            words = (
                f"k is too small: with these costs {best_k} would be best, {gain:.2f} times as fast"
                " as the current "
            )
            words += f"{width:.3g}, if further draft tokens are accepted as often as the last one."
        yield Suspect(
            "k_too_large" if best_k < width else "k_too_small",
            words,
            f"the speed with k = {best_k}.",
        )
    elif best_k is None and found.whole_rates and width > 1 and rates[-1] < SMALL and not dropped:
        words = (
            f"k may be too large: the last draft token is accepted in {rates[-1]:.0%} of the steps."
            " Give costs to decide."
        )
        yield Suspect("k_too_large", words, "the cost of a draft pass (--draft-cost).")
    if _short(found):
        words = (
            f"Windows are short: {width:.2f} draft tokens per step of at most {len(rates)}. The"
            " drafter often proposes fewer (no n-gram found, or an unsure draft), so rates after"
            " the first index include steps without a draft token there."
        )
        yield Suspect(
            "short_windows", words, "acceptance by window length, if the engine reports it."
        )


def _short(found: Diagnosis) -> bool:
    rates, width = found.unconditional, found.num_draft_tokens
    return width is not None and len(rates) > 1 and width < 0.8 * len(rates)


def _percent(share: float) -> str:
    return f"{share:.0%}" if share >= 0.1 or not share else f"{share:.1%}"


def _chance(chance: float) -> str:
    return (
        f"{chance:.1%}" if chance >= 0.001 else f"10^{math.floor(math.log10(max(chance, 1e-300)))}"
    )


@dataclass(frozen=True, slots=True)
class Fade:
    """Acceptance that ends during a run."""

    position: float | None  # tokens before the end of acceptance; None if unknown
    # before, after: shares of steps that accept a draft token
    before: float
    after: float
    steps: float  # steps after the end
    stays: bool  # whether acceptance stays at zero until the end of the text


def fade(course: Sequence[Stretch]) -> Fade | None:
    """Where acceptance ends during a run; None if it does not."""
    course = [stretch for stretch in course if stretch.steps > 0]
    if course and all(stretch.position is not None for stretch in course):
        return _by_position(sorted(course, key=lambda stretch: stretch.position or 0.0))
    return _by_report(course)


def _by_position(course: Sequence[Stretch]) -> Fade | None:
    """The most likely change between two rates, if the second is about zero."""
    steps = list(accumulate(stretch.steps for stretch in course))
    hits = list(accumulate(stretch.hits for stretch in course))
    cuts = [
        cut
        for cut in range(len(course) - 1)
        if steps[cut] >= FEWEST and steps[-1] - steps[cut] >= FEWEST
    ]
    if not cuts:
        return None

    def evidence(cut: int) -> float:
        return _likelihood(hits[cut], steps[cut]) + _likelihood(
            hits[-1] - hits[cut], steps[-1] - steps[cut]
        )

    cut = max(cuts, key=evidence)
    before, after = hits[cut] / steps[cut], (hits[-1] - hits[cut]) / (steps[-1] - steps[cut])
    if (
        before < ALIVE
        or after > DEAD
        or evidence(cut) - _likelihood(hits[-1], steps[-1]) < EVIDENCE
    ):
        return None
    return Fade(course[cut + 1].position, before, after, steps[-1] - steps[cut], stays=True)


def _by_report(course: Sequence[Stretch]) -> Fade | None:
    """Reports that accept nothing among others that accept much."""
    long = [stretch for stretch in course if stretch.steps >= FEWEST]
    dead = [stretch for stretch in long if stretch.hits / stretch.steps <= DEAD]
    alive = [stretch for stretch in long if stretch.hits / stretch.steps >= ALIVE]
    if not dead or not alive:
        return None
    before, after = (
        sum(s.hits for s in part) / sum(s.steps for s in part) for part in (alive, dead)
    )
    steps = sum(stretch.steps for stretch in dead)
    if -steps * math.log1p(-min(before, 0.999)) < EVIDENCE:
        return None
    runs = [found for found, _ in groupby(stretch.hits / stretch.steps <= DEAD for stretch in long)]
    return Fade(None, before, after, steps, stays=runs == [False, True])


def _likelihood(hits: float, steps: float) -> float:
    """The logarithm of the likelihood of so many hits at the rate that explains them best."""
    return sum(count * math.log(count / steps) for count in (hits, steps - hits) if count > 0)


def drop(rates: Sequence[float], steps: float | None) -> tuple[int, float] | None:
    """The first index from which windows accept nothing, and the probability of this by chance,
    that is, if each index accepted as often as all earlier ones together; None if there is none.
    `rates` are shares of the steps by index."""
    steps = steps or UNKNOWN_STEPS
    for index in range(1, len(rates)):
        reached = rates[index - 1]
        earlier = sum(rates[:index]) / (1 + sum(rates[: index - 1]))
        chance = (1 - min(earlier, 1.0)) ** (steps * reached)
        if earlier >= ALIVE and rates[index] <= DEAD * reached and chance < CHANCE:
            return index, chance
    return None
