"""What a race shows: who won, by how much, and whether the texts had to be, and are, the same."""

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
"""What a drafter is called, as a title and in a sentence."""
DRAW = 0.02


def lane_title(trace: Trace) -> tuple[str, str]:
    """A run's title and a note to it: what drafted, and how much."""
    k = setting(trace.settings, "num_draft_tokens")
    if k == 0:
        return "Plain", "one token a pass"
    title = DRAFTER_WORDS.get(str(setting(trace.settings, "drafter")), ("Speculative", ""))[0]
    return title, f"up to {count(k, 'draft')} a pass" if isinstance(k, int) else "drafts checked together"


def verdict(left: Trace, right: Trace) -> list[str]:
    """The verdict in plain text: one sentence on who won, then the numbers, then the texts."""
    a, b = left.metrics, right.metrics
    if not a.tokens_per_second or not b.tokens_per_second:
        return ["One of the two runs ended before its first token, so there is no verdict."]
    said = _against_plain(left, right) if _plain(left) else _against_plain(right, left) if _plain(right) else _two(left, right)
    drafting = left if _plain(right) else right
    warned = warning(drafting.settings)
    return [*said, _same_text(left, right), *([warned] if warned else [])]


def _plain(trace: Trace) -> bool:
    return lane_title(trace)[0] == "Plain"


def _rate(m: Metrics) -> float:
    return m.tokens_per_second or 0.0


def _against_plain(plain: Trace, drafting: Trace) -> list[str]:
    a, b = plain.metrics, drafting.metrics
    times = _rate(b) / _rate(a)
    saved = a.num_spec_steps - b.num_spec_steps if a.num_generated_tokens == b.num_generated_tokens else 0
    passes = f"{_passes(saved)} of the target saved" if saved > 0 else ""
    if times >= 1 + DRAW:
        first = f"{times:.2f} times as fast with drafts" + (f": {passes}." if passes else ".")
    elif times <= 1 - DRAW:
        first = f"Here drafting did not pay: {times:.2f} times the speed of plain decoding" + (
            f", with {passes}." if passes else "."
        )
    else:
        first = "A draw" + (f", with {passes}." if passes else ".")
    numbers = (
        f"{_rate(b):.0f} tokens a second with drafts, {_rate(a):.0f} without. "
        f"Plain decoding took {_passes(a.num_spec_steps)} of the target for {count(a.num_generated_tokens, 'token')}, "
        f"speculative decoding {_passes(b.num_spec_steps)} for {count(b.num_generated_tokens, 'token')}{_kept(b)}."
    )
    longer = (b.total_seconds / b.num_spec_steps) / (a.total_seconds / a.num_spec_steps) if a.total_seconds else 0.0
    if longer < 1 + DRAW:
        return [first, numbers]
    pace = b.num_generated_tokens / b.num_spec_steps
    why = (
        f"A step with drafts gave {pace:.2f} tokens but took {longer:.2f} times as long as a plain one: "
        "tokens must be drafted, and verifying several takes longer than decoding one."
    )
    return [first, numbers, why]


def _two(left: Trace, right: Trace) -> list[str]:
    names = [_named(trace) for trace in (left, right)]
    rates = [_rate(left.metrics), _rate(right.metrics)]
    ahead = 0 if rates[0] >= rates[1] else 1
    times = rates[ahead] / rates[1 - ahead]
    first = "A draw" if times < 1 + DRAW else f"{times:.2f} times as fast: {names[ahead]} beats {names[1 - ahead]}"
    numbers = "; ".join(
        f"{name}: {_rate(m):.0f} tokens a second, {_passes(m.num_spec_steps)} of the target for "
        f"{count(m.num_generated_tokens, 'token')}{_kept(m)}"
        for name, m in zip(names, (left.metrics, right.metrics), strict=True)
    )
    return [f"{first}.", f"{numbers[0].upper()}{numbers[1:]}."]


def _named(trace: Trace) -> str:
    return DRAFTER_WORDS.get(str(setting(trace.settings, "drafter")), ("", "speculative decoding"))[1]


def _kept(m: Metrics) -> str:
    return "" if m.draft_acceptance_rate is None else f", keeping {percent(m.draft_acceptance_rate)} of its drafts"


def _passes(amount: int) -> str:
    return "1 pass" if amount == 1 else f"{amount:,} passes"


def _same_text(left: Trace, right: Trace) -> str:
    every = [left.settings, right.settings]
    greedy = all(s.get("temperature") == 0 or s.get("verify_strategy") == "greedy_match" for s in every)
    if not greedy:
        if any(settings.get("lossy") for settings in every):
            return "The texts need not agree: this verification is not lossless, and changes what the target would write."
        return (
            "The texts differ, as two throws of the same dice do: each is a fair sample of the same distribution. "
            "Set the temperature to 0 to see the very same text."
        )
    # A stop string may be found at different places of a round, so what both have is compared.
    lengths = [len(left.token_ids), len(right.token_ids)]
    shared = num_shared(left.token_ids, right.token_ids)
    if shared < min(lengths):
        return (
            f"The texts part at token {shared + 1}. With exact arithmetic they would not: "
            "two tokens must have been all but equally probable there, and rounding chose."
        )
    if lengths[0] != lengths[1]:
        return f"The texts agree in all of the {count(shared, 'token')} that both have."
    return (
        f"The texts are the same, token for token: all {shared} of them. "
        "Where the likeliest token is always taken, that is what lossless means."
    )
