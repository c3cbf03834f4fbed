"""The verdict of a race: who won, by how much, and whether the texts are the same, and had to be."""

from naive_speculate.events.metrics import Metrics
from naive_speculate.events.trace import Trace
from naive_speculate.text import num_shared
from ui.explain.case import setting, warning
from ui.labels import count, percent

DRAFTER_WORDS = {
    "model": ("Draft model", "the draft model"),
    "head": ("Draft head", "the draft head"),
    "suffix": ("Suffix decoding", "suffix decoding"),
    "suffix+head": ("Suffix and head", "suffix decoding with the head"),
    "prompt_lookup": ("Prompt lookup", "prompt lookup"),
}
"""A drafter's name as a title and in a sentence."""
DRAW = 0.02


def lane_title(trace: Trace) -> tuple[str, str]:
    """A run's title and a note: the drafter and the window."""
    k = setting(trace.settings, "num_draft_tokens")
    if k == 0:
        return "Plain", "one token per pass"
    title = DRAFTER_WORDS.get(str(setting(trace.settings, "drafter")), ("Speculative", ""))[0]
    return title, f"up to {count(k, 'draft token')} per step" if isinstance(k, int) else "k chosen automatically"


def verdict(left: Trace, right: Trace) -> list[str]:
    """The verdict in plain text: the winner, the numbers, then the texts."""
    a, b = left.metrics, right.metrics
    if not a.tokens_per_second or not b.tokens_per_second:
        return ["One run ended before its first token, so there is no verdict."]
    if _plain(left) or _plain(right):
        sentences = _against_plain(left, right) if _plain(left) else _against_plain(right, left)
    else:
        sentences = _two(left, right)
    drafting = left if _plain(right) else right
    warned = warning(drafting.settings)
    return [*sentences, _same_text(left, right), *([warned] if warned else [])]


def _plain(trace: Trace) -> bool:
    return lane_title(trace)[0] == "Plain"


def _rate(m: Metrics) -> float:
    return m.tokens_per_second or 0.0


def _against_plain(plain: Trace, drafting: Trace) -> list[str]:
    a, b = plain.metrics, drafting.metrics
    times = _rate(b) / _rate(a)
    saved = a.num_spec_steps - b.num_spec_steps if a.num_generated_tokens == b.num_generated_tokens else 0
    passes = f"{_passes(saved)} saved" if saved > 0 else ""
    if times >= 1 + DRAW:
        first = f"{times:.2f} times as fast with drafts" + (f": {passes}." if passes else ".")
    elif times <= 1 - DRAW:
        first = f"Here drafting did not pay off: {times:.2f} times the speed of plain decoding" + (
            f", with {passes}." if passes else "."
        )
    else:
        first = "A draw" + (f", with {passes}." if passes else ".")
    numbers = (
        f"{_rate(b):.0f} tokens per second with drafts, {_rate(a):.0f} without. "
        f"Plain decoding took {_passes(a.num_spec_steps)} for {count(a.num_generated_tokens, 'token')}, "
        f"speculative decoding {_passes(b.num_spec_steps)} for {count(b.num_generated_tokens, 'token')}{_accepted(b)}."
    )
    longer = (b.total_seconds / b.num_spec_steps) / (a.total_seconds / a.num_spec_steps) if a.total_seconds else 0.0
    if longer < 1 + DRAW:
        return [first, numbers]
    pace = b.num_generated_tokens / b.num_spec_steps
    why = (
        f"A step with drafts gave {pace:.2f} tokens but took {longer:.2f} times as long as a plain step: "
        "drafting takes time, and verifying several tokens takes longer than decoding one."
    )
    return [first, numbers, why]


def _two(left: Trace, right: Trace) -> list[str]:
    names = [_named(trace) for trace in (left, right)]
    rates = [_rate(left.metrics), _rate(right.metrics)]
    ahead = 0 if rates[0] >= rates[1] else 1
    times = rates[ahead] / rates[1 - ahead]
    first = "A draw" if times < 1 + DRAW else f"{times:.2f} times as fast: {names[ahead]} beats {names[1 - ahead]}"
    numbers = "; ".join(
        f"{name}: {_rate(m):.0f} tokens per second, {_passes(m.num_spec_steps)} for "
        f"{count(m.num_generated_tokens, 'token')}{_accepted(m)}"
        for name, m in zip(names, (left.metrics, right.metrics), strict=True)
    )
    return [f"{first}.", f"{numbers[0].upper()}{numbers[1:]}."]


def _named(trace: Trace) -> str:
    return DRAFTER_WORDS.get(str(setting(trace.settings, "drafter")), ("", "speculative decoding"))[1]


def _accepted(m: Metrics) -> str:
    return "" if m.draft_acceptance_rate is None else f" with {percent(m.draft_acceptance_rate)} of its draft tokens accepted"


def _passes(amount: int) -> str:
    return "1 target pass" if amount == 1 else f"{amount:,} target passes"


def _same_text(left: Trace, right: Trace) -> str:
    every = [left.settings, right.settings]
    greedy = all(s.get("temperature") == 0 or s.get("verify_strategy") == "greedy_match" for s in every)
    if not greedy:
        if any(settings.get("lossy") for settings in every):
            return "The texts may differ: this verification is not lossless and changes the distribution."
        return (
            "The texts differ because each is a random sample of the same distribution. "
            "Set the temperature to 0 to see identical texts."
        )
    # A stop string may end the runs at different positions of a window, so the common length is compared.
    lengths = [len(left.token_ids), len(right.token_ids)]
    shared = num_shared(left.token_ids, right.token_ids)
    if shared < min(lengths):
        return (
            f"The texts differ from token {shared + 1} on. With exact arithmetic they would not: "
            "two tokens had almost equal probabilities there, and rounding decided."
        )
    if lengths[0] != lengths[1]:
        return f"The texts agree in the {count(shared, 'token')} that both have."
    return f"The texts are the same: all {shared} tokens agree. At temperature 0, this is what lossless means."
