"""Possible causes of a low speedup, from the figures: suspicions, not proofs, each with what to measure next."""

import math
import re
from collections.abc import Iterator

from naive_speculate.doctor.fading import Fade, drop, fade
from naive_speculate.doctor.reading import Diagnosis, Reading, Suspect, all_whole

NONE, LOW_FIRST, CLIFF, SMALL, GAIN = 0.1, 0.5, 0.75, 0.15, 1.03
MANY_TOKENS = 256  # above about this many tokens per forward, computing takes longer than reading the weights on current GPUs
HIGH, FASTER = 1.5, 1.15  # tokens per step from which drafting should pay, and the measured speedup that counts as one
COSTLY = 0.35  # the drafter's share of a step from which it costs too much

_EXPERTS = (
    r"\b\d+(?:\.\d+)?[BT]-A\d+(?:\.\d+)?B\b",
    r"\b\d+x\d+B\b",
    r"\b(?:Mixtral|DeepSeek-(?:V[23]|R1)|Kimi-K\d|gpt-oss|GLM-4\.5|MiniMax-M\d|Qwen\d?-?MoE|OLMoE)[\w.-]*",
    r"--enable-expert-parallel\b|\benable_expert_parallel['\"]?\s*[=:]\s*True",
    r"\bn_expert\s*=\s*[1-9]\d*",
    r"\bnum_(?:local_)?experts['\"]?\s*[=:]\s*[1-9]\d*",
)


def experts(text: str) -> str:
    """What in a text shows that the target is a mixture of experts; empty if nothing does."""
    found = next((found for pattern in _EXPERTS if (found := re.search(pattern, text, re.IGNORECASE))), None)
    return found[0] if found else ""


def suspects(found: Diagnosis) -> tuple[Suspect, ...]:
    """All possible faults, those of acceptance first."""
    listed = [*_acceptance(found), *_speed(found)]
    dropped = any(suspect.name in ("drops_to_zero", "near_zero") for suspect in listed)
    return (*listed, *_window(found, dropped))


def is_set(width: float) -> bool:
    """Whether all windows have one length, that is, k ends them and not the drafter."""
    return abs(width - round(width)) < 0.05


def _acceptance(found: Diagnosis) -> Iterator[Suspect]:
    reading, conditional, tokens = found.reading, found.conditional, found.mean_acceptance_length
    fades = fade(reading.course)
    if fades is not None:
        yield _fades(fades)
    first = conditional[0] if conditional else found.alpha
    if first is None and tokens is not None and tokens - 1 < NONE:
        first = tokens - 1  # the window is unknown, but no index accepts more than this
    if first is None or (fades is not None and fades.before >= LOW_FIRST):
        return
    second = conditional[1] if len(conditional) > 1 else None
    subject = (
        "The first draft token is accepted in {} of the steps" if conditional else "{} of the judged draft tokens are accepted"
    )
    zero = drop(reading.rates, reading.num_steps)
    if zero is not None:
        yield _drops(*zero, reading)
    if first < NONE:
        yield _near_zero(subject.format(_percent(first)), second)
    elif first < LOW_FIRST:
        yield _mismatch(subject.format(_percent(first)))
    elif zero is None and second is not None and second < CLIFF * first and all_whole(reading.rates, found.num_draft_tokens):
        yield Suspect(
            "cliff",
            f"A sharp drop after the first draft token: it is accepted in {first:.0%} of the steps, the second in {second:.0%} "
            "of those that reach it. Possible causes: a head trained to draft one token that drafts more from its own output, "
            "or a draft with wrong cache or positions after the first token.",
            "the speed with k = 1.",
        )


def _fades(found: Fade) -> Suspect:
    where = "in some reports" if found.position is None else f"from about position {found.position:,.0f} of the text on"
    after = "0%" if not found.after else _percent(found.after)
    words = (
        f"Acceptance drops to zero {where}: {found.before:.0%} of the steps elsewhere accept a draft token, {after} of these "
        f"{found.steps:,.0f} steps. "
    )
    if found.position is None and found.stays:
        words += "It stays at zero until the end of the log, as if one long request had damaged the drafter's state. "
    words += (
        "Possible causes: texts longer than the drafter's context (max_position_embeddings, or its draft max_model_len; vLLM "
        "reports the drafts that it skips as rejected, vllm#34734, sglang#6783), other RoPE scaling than the target's, or a "
        "sliding window that the engine does not apply."
    )
    next = "short and long prompts apart. Compare the length at which acceptance ends with the drafter's config.json."
    return Suspect("fades", words, next)


def _drops(index: int, chance: float, reading: Reading) -> Suspect:
    before, rate = (_percent(share) for share in reading.rates[index - 1 : index + 1])
    words = f"Acceptance drops to zero at index {index}: {before} of the steps accept index {index - 1}, {rate} index {index}. "
    if reading.num_steps:
        reached = round(reading.num_steps * reading.rates[index - 1])
        words += f"{reached:,} windows reached it; by chance this would have a probability of {_chance(chance)}. "
    words += (
        "Possible causes: a drafter made for shorter windows, wrong positions or cache after that index, or a block drafter "
        "whose attention window is broken (its sliding-window layers run as full attention, or the text is past its context; "
        "vllm#40898, vllm#34734)."
    )
    next = (
        f"the speed with k = {index}, which loses nothing; then prompts of fewer than 1,000 tokens: if index {index} works "
        "there, the drafter's context is too short."
    )
    return Suspect("drops_to_zero", words, next)


def _near_zero(evidence: str, second: float | None) -> Suspect:
    words = (
        f"{evidence}: almost nothing, from the first index on. Possible causes: another chat template, tokenizer or system "
        "prompt than the drafter was trained with; a head that reads the wrong layers of the target, or was trained for "
        "another target; missing or wrongly mapped weights; texts longer than the drafter's context (vllm#34734)."
    )
    if second is not None and second >= LOW_FIRST:
        words += (
            f" But after an accepted first token the second is accepted in {second:.0%}: a drafter that copies (n-gram) looks "
            "like this on text that repeats little."
        )
    next = (
        "one short prompt in the drafter's own chat template, greedy, with k = 1. If it stays near zero, compare weights and "
        "layer numbers."
    )
    return Suspect("near_zero", words, next)


def _mismatch(evidence: str) -> Suspect:
    words = (
        f"{evidence}: draft and target rarely agree, from the first token on. Check that both get the same chat template, "
        "system prompt, tokenizer, temperature and top-p (a greedy draft loses if the target samples), that the head was "
        "trained for this target, and that the weights are not quantised too strongly."
    )
    return Suspect("mismatch", words, "the same prompts at temperature 0: if acceptance rises, sampling is the cause.")


def _speed(found: Diagnosis) -> Iterator[Suspect]:
    """Causes of a low speedup other than acceptance."""
    reading, measured, tokens, share = found.reading, found.measured_speedup, found.mean_acceptance_length, found.draft_share
    slow = measured is not None and measured < FASTER
    if measured is not None and slow and tokens is not None and tokens >= HIGH:
        yield Suspect(
            "no_speedup",
            f"High acceptance without speedup: {tokens:.2f} tokens per step, but {measured:.2f} times the speed of plain "
            f"decoding. So a step takes as long as {tokens / measured:.2f} plain tokens; it should take little more than one. "
            "Verification or drafting costs too much.",
            "the time of a target forward over 1 and over k + 1 tokens, and of one draft forward; then k = 1.",
        )
    known = reading.draft_share is not None and measured is None
    if share is not None and share >= COSTLY and (known or slow):
        yield Suspect(
            "draft_cost",
            f"The drafter is expensive: it takes {share:.0%} of the time of a step. A draft model pays if it is "
            "many times smaller than the target's active parameters, and runs on the same device with compiled graphs.",
            "one draft forward and one target forward; then a smaller drafter, a head, or n-gram drafting.",
        )
    if reading.experts and tokens is not None and tokens >= HIGH and (measured is None or slow):
        yield Suspect(
            "experts",
            f"The target is a mixture of experts ({reading.experts}). Each draft token wakes other experts, so a forward over "
            "k + 1 tokens reads more weights than one over a single token, and acceptance alone predicts no speedup "
            "(mlx-lm#1132, vllm#46295).",
            "the target's forward over 1, 2, 3 … tokens (--verify-cost), and k = 1. Larger batches wake all experts anyway.",
        )
    requests, width = reading.requests_running, found.num_draft_tokens
    if requests is not None and width is not None and requests * (width + 1) > MANY_TOKENS:
        yield Suspect(
            "batch",
            f"The batch may be too large for drafting: {requests:.0f} requests × {width + 1:.3g} tokens are "
            f"{requests * (width + 1):.0f} per forward, so verification is no longer nearly free. Measure the cost of such a "
            "forward relative to a plain one (--verify-cost), and draft less, or not at all under load.",
            "the same prompts with one request at a time.",
        )
    if found.speedup is not None and found.speedup < 1:
        words = f"Drafting does not pay with these costs: the expected speedup is {found.speedup:.2f}."
        yield Suspect("does_not_pay", words, "a smaller window, or a cheaper drafter.")
    elif slow and tokens is not None and tokens < HIGH:
        words = f"Drafting does not pay: {measured:.2f} times the speed of plain decoding, with {tokens:.2f} tokens per step."
        yield Suspect("does_not_pay", words, "acceptance by kind of prompt; it is too low here.")


def _window(found: Diagnosis, dropped: bool) -> Iterator[Suspect]:
    rates, width, gain = found.unconditional, found.num_draft_tokens, found.gain
    if width is None:
        return
    last = rates[-1] if all_whole(rates, width) and width > 1 else None
    best_k = found.best_k if is_set(width) else None
    better = best_k is not None and gain is not None and gain > GAIN
    if better and best_k is not None and best_k < width:
        words = f"k is too large: with these costs {best_k} is best, {gain:.2f} times as fast as the current {width:.3g}."
        yield Suspect("k_too_large", words, f"the speed with k = {best_k}.")
    elif best_k is None and last is not None and last < SMALL and not dropped:
        words = f"k may be too large: the last draft token is accepted in {last:.0%} of the steps. Give costs to decide."
        yield Suspect("k_too_large", words, "the cost of a draft forward (--draft-cost).")
    if better and best_k is not None and best_k > width:
        words = (
            f"k is too small: with these costs {best_k} would be best, {gain:.2f} times as fast as the current {width:.3g}, if "
            "further draft tokens are accepted as often as the last one."
        )
        yield Suspect("k_too_small", words, f"the speed with k = {best_k}.")
    if len(rates) > 1 and width < 0.8 * len(rates):
        words = (
            f"Windows are short: {width:.2f} draft tokens per step of at most {len(rates)}. The drafter often proposes "
            "fewer (no n-gram found, or an unsure draft), so rates after the first index include steps without a draft token "
            "there."
        )
        yield Suspect("short_windows", words, "acceptance by window length, if the engine reports it.")


def _percent(share: float) -> str:
    return f"{share:.0%}" if share >= 0.1 or not share else f"{share:.1%}"


def _chance(chance: float) -> str:
    return f"{chance:.1%}" if chance >= 0.001 else f"10^{math.floor(math.log10(max(chance, 1e-300)))}"
