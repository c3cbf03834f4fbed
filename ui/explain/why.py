"""Why a token was accepted or rejected, in words: each rule in its own terms, with the numbers
that decided.

The sentences are plain text with the model's tokens in quotes; the page escapes them.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from naive_speculate.events import TOKEN_KINDS, Event, EventKind
from naive_speculate.events.steps import Step, step_at
from naive_speculate.events.trace import Trace
from naive_speculate.speculate.draft import DRAFTERS, BatchDrafter, ModelDrafter
from naive_speculate.speculate.draft.copying import CopyingDrafter
from naive_speculate.speculate.verify import VerifyStrategy
from ui.labels import LEAST, apart, count, number, visible

NO_NUMBERS = "This run recorded no probabilities, so the reason for the verdict is unknown."
NOT_YET = "The target has not judged it yet."
LOSSY = "This rule is lossy: it trades the target's exact distribution for more accepted tokens."


@dataclass(frozen=True, slots=True)
class Case:
    """A token and its context: its event (for a proposed token its verdict, once there is one),
    its step, how the step's draft tokens were judged, and the run's settings, empty if the trace
    has none."""

    event: Event
    step: Step
    rule: VerifyStrategy
    settings: dict[str, Any]

    @property
    def resampled(self) -> Event | None:
        """The token that replaces the step's rejected one."""
        added = self.step.added
        return added if added is not None and added.kind == EventKind.RESAMPLED else None


def case_of(trace: Trace, number: int) -> Case:
    """The case of the event of this number, from 0, in a run, whole or so far. Raises ValueError
    if there is no such event, or it is not about a token."""
    if not 0 <= number < len(trace):
        raise ValueError(f"there is no event number {number}: the trace has {len(trace)}")
    event = trace[number]
    if event.kind not in TOKEN_KINDS:
        raise ValueError(
            f"event number {number} is {event.kind.value!r}, which is not about a token"
        )
    step = step_at(trace.events, number)
    if event.kind == EventKind.PROPOSED:
        event = step.verdict(event.index) or event
    return Case(event, step, _rule(event, trace.settings), trace.settings)


def warning(settings: dict[str, Any]) -> str:
    """The warning for settings whose output does not follow the target's distribution; empty for
    all others."""
    temperature = settings.get("temperature")
    if not isinstance(temperature, int | float) or temperature <= 0:
        return ""
    name = settings.get("verify_strategy")
    if name == VerifyStrategy.TYPICAL_ACCEPTANCE:
        return "Not the target's distribution: typical acceptance accepts some tokens too often."
    if name == VerifyStrategy.GREEDY_MATCH:
        return (
            f"Not the target's distribution at temperature {temperature:g}: greedy match always"
            " takes the most probable token, as at temperature 0."
        )
    return ""


def _rule(event: Event, settings: dict[str, Any]) -> VerifyStrategy:
    if event.threshold is not None:
        return VerifyStrategy.TYPICAL_ACCEPTANCE
    name = settings.get("verify_strategy")
    # The event decides if possible: a verdict of probability 0 or 1 without a draw is greedy.
    if name == VerifyStrategy.GREEDY_MATCH or settings.get("temperature") == 0:
        return VerifyStrategy.GREEDY_MATCH
    certain = event.uniform is None and event.accept_prob in (0, 1)
    if certain and name != VerifyStrategy.SAMPLE_MATCH:
        return VerifyStrategy.GREEDY_MATCH
    return (
        VerifyStrategy(name)
        if name in list(VerifyStrategy)
        else VerifyStrategy.SPECULATIVE_SAMPLING
    )


def why(case: Case) -> list[str]:
    """The reasons, sentence by sentence, most important first."""
    if case.event.kind in OF_KINDS:
        return OF_KINDS[case.event.kind](case)
    if case.event.accept_prob is None and case.event.target_prob is None:
        return [_verdict_alone(case), NO_NUMBERS]
    return OF_RULES[case.rule](case)


def quoted(event: Event) -> str:
    """The token in quotes; its vocabulary piece if it completes no character."""
    return f"“{visible(event.text or event.token)}”"


def _proposal(case: Case) -> str:
    event, drafter = case.event, case.settings.get("drafter")
    if event.forced:
        required = (
            "allows no other token here"
            if event.forced == "token"
            else "requires the text that it begins or continues"
        )
        return f"{quoted(event)} was forced: the guide {required}."
    if _copied(case):
        return f"{quoted(event)} was copied from similar earlier text, without a model."
    model = DRAFTERS.get(str(drafter).removeprefix("suffix+"), ModelDrafter).phrase
    proposal = f"{model[0].upper()}{model[1:]} proposed {quoted(event)}"
    if event.draft_prob is None:
        return f"{proposal}."
    return f"{proposal} with probability {number(event.draft_prob)}."


def _copied(case: Case) -> bool:
    """Whether the token was copied. If a head may have drafted it, the proposed event says so."""
    return _copies(case.settings.get("drafter")) or any(
        draft.copied_from is not None
        for draft in case.step.drafts
        if draft.index == case.event.index
    )


def _copies(drafter: object) -> bool:
    return issubclass(DRAFTERS.get(str(drafter), BatchDrafter), CopyingDrafter)


def _verdict_alone(case: Case) -> str:
    verdict = "accepted" if case.event.kind == EventKind.ACCEPTED else "rejected"
    return f"{quoted(case.event)} was drafted, and the target {verdict} it."


def _greedy(case: Case) -> list[str]:
    event = case.event
    drafted = f"The draft token is {quoted(event)}."
    rule = (
        "Decoding is greedy: a draft token is accepted only if it is the target's most probable"
        " token."
    )
    if event.kind == EventKind.ACCEPTED:
        return [
            drafted,
            f"The target's most probable token here is the same{_at(event.target_prob)}: accepted.",
            rule,
        ]
    best = "another one"
    if event.target_top:
        best = f"“{visible(event.target_top[0].text)}” ({number(event.target_top[0].prob)})"
    own = (
        ""
        if event.target_prob is None
        else f", while {quoted(event)} has {number(event.target_prob)}"
    )
    return [drafted, f"The target's most probable token here is {best}{own}: rejected.", rule]


def _at(prob: float | None) -> str:
    return "" if prob is None else f" ({number(prob)})"


def _sampling(case: Case) -> list[str]:
    event = case.event
    p, q, accept, u = event.target_prob, event.draft_prob, event.accept_prob, event.uniform
    if p is None or q is None or accept is None:
        return [_verdict_alone(case), NO_NUMBERS]
    if case.settings.get("tree") and abs(accept - min(1, p / q if q else 0)) > LEAST:
        left = (
            f"{quoted(event)} was judged after other candidates were rejected, by what they left of"
            " both distributions"
        )
        judged = (
            f"{left}: it is accepted with probability {number(accept)}, and the draw was"
            f" {number(event.uniform or 0.0)}."
        )
        return [judged, *([] if event.kind == EventKind.ACCEPTED else _instead(case))]
    if accept >= 1:
        return [
            (
                f"{_gave(case, p, q)} – at least as much, so it is accepted for any draw: min(1,"
                " p/q) = 1."
            ),
            "If the draft does not overrate a token, nothing needs correcting.",
        ]
    ratio = f"it is accepted with probability p/q = {number(p)} ÷ {number(q)} = "
    if p < LEAST:  # "under 0.0001" is no number to divide
        ratio = "it is accepted with probability p/q, which is "
    if u is None:
        return [f"{_gave(case, p, q)}, so {ratio}{number(accept)}.", _verdict_alone(case)]
    draw, bar = apart(u, accept)
    first = f"{_gave(case, p, q)}, so {ratio}{bar}."
    bar = "that" if accept < LEAST else bar
    if event.kind == EventKind.ACCEPTED:
        return [first, f"The draw {draw} was below {bar}: accepted."]
    return [
        first,
        f"The draw {draw} was not below {bar}: rejected.",
        *_instead(case),
        (
            "Rejecting overrated tokens exactly this often keeps the output distribution equal to"
            " the target's."
        ),
    ]


def _gave(case: Case, p: float, q: float) -> str:
    if kind := "forced" if case.event.forced else "copied" if _copied(case) else "":
        return (
            f"{_proposal(case)} A {kind} token counts as certain (q = {number(q)}); the target"
            f" gives it {number(p)}"
        )
    mine, its = apart(q, p)
    verb = "the target only" if LEAST <= p < q else "the target"
    return f"The draft gave {quoted(case.event)} probability {mine}, {verb} {its}"


def _instead(case: Case) -> list[str]:
    new = case.resampled
    return [f"{quoted(new)} was drawn instead{_had(case, new)}."] if new else []


def _had(case: Case, event: Event) -> str:
    """p and q of a token that was not drafted; q is known if the draft's list contains the
    token."""
    if event.target_prob is None:
        return ""
    old = case.step.rejected
    known = {entry.token_id: entry.prob for entry in (old.draft_top if old else None) or []}
    prob = (
        event.draft_prob if event.token_id is None else known.get(event.token_id, event.draft_prob)
    )
    drafted = "" if prob is None else f", the draft {number(prob)}"
    return f"; the target gave it {number(event.target_prob)}{drafted}"


def _block(case: Case) -> list[str]:
    event = case.event
    h, u = event.accept_prob, event.uniform
    if h is None or u is None or event.index is None:
        return [_verdict_alone(case), NO_NUMBERS]
    draw, bar = apart(u, h)
    position = event.index + 1
    passed = [e.index + 1 for e in case.step.verdicts if e.index is not None and _passes(e)]
    rule = (
        "Block verification judges every position of the window, then accepts all up to the last"
        " one that passes."
    )
    equals = "" if h < LEAST else "= "
    own = f"Position {position} passes with probability h {equals}{bar}, and the draw was {draw}: "
    if _passes(event):
        own += "it passes."
    elif event.kind == EventKind.ACCEPTED and passed:
        own += (
            f"it does not pass by itself, but position {max(passed)} does, and everything before"
            " that is accepted."
        )
    elif event.kind == EventKind.ACCEPTED:
        own += (
            "it does not pass by itself, but a later position does, and everything before that is"
            " accepted."
        )
    else:
        own += "it does not pass"
        own += (
            f", and the last position that did is {max(passed)}."
            if passed
            else ", and no position did."
        )
    if event.kind == EventKind.ACCEPTED:
        return [own, f"So {quoted(event)} was accepted.", rule]
    if event.kind == EventKind.DISCARDED:
        return [
            own,
            f"So {quoted(event)} was discarded, as all draft tokens after the rejected one.",
            rule,
        ]
    return [own, f"So {quoted(event)} was rejected.", *_instead(case), rule]


def _passes(event: Event) -> bool:
    u, h = event.uniform, event.accept_prob
    return u is not None and h is not None and u < h


def _typical(case: Case) -> list[str]:
    event = case.event
    p, threshold = event.target_prob, event.threshold
    if p is None or threshold is None:
        return [_verdict_alone(case), NO_NUMBERS, LOSSY]
    its, bar = apart(p, threshold)
    accepted = event.kind == EventKind.ACCEPTED
    verdict = (
        f"above the threshold {bar}: accepted."
        if accepted
        else f"not above the threshold {bar}: rejected."
    )
    sentences = [f"The target gives {quoted(event)} probability {its}, {verdict}"]
    if event.target_entropy is not None:
        sentences.append(
            "The threshold is lower if the target is less certain;"
            f" {uncertainty(event.target_entropy)}"
        )
    return [*sentences, *([] if accepted else _instead(case)), LOSSY]


def _matching(case: Case) -> list[str]:
    event = case.event
    if event.target_prob is None:
        return [_verdict_alone(case), NO_NUMBERS]
    gave = f"The target gives {quoted(event)} probability {number(event.target_prob)}"
    rule = "Sample match accepts a draft token only if the target's own draw is the same token."
    if event.kind == EventKind.ACCEPTED:
        return [f"{gave}, and drew it too: accepted.", rule]
    return [f"{gave}, and drew another token: rejected.", *_instead(case), rule]


def uncertainty(entropy: float) -> str:
    """An entropy in words: the number of equally probable tokens with the same entropy."""
    choices = math.exp(min(entropy, 30.0))
    if choices < 1.05:
        return f"its entropy is {number(max(0.0, entropy))} nats: almost certain."
    among = f"{choices:.1f} tokens" if choices < 10 else f"{choices:,.0f} tokens"
    return (
        f"its entropy is {number(entropy)} nats, as if it chose among {among} of equal probability."
    )


def _resampled(case: Case) -> list[str]:
    event = case.event
    old = case.step.rejected
    replaces = f"{quoted(event)} replaces " + (
        f"the rejected {quoted(old)}." if old else "a rejected draft token."
    )
    if case.rule == VerifyStrategy.GREEDY_MATCH:
        return [replaces, f"It is the target's most probable token{_at(event.target_prob)}."]
    if case.rule == VerifyStrategy.SAMPLE_MATCH:
        return [replaces, f"It is the target's own draw there{_had(case, event)}."]
    if case.rule == VerifyStrategy.TYPICAL_ACCEPTANCE or (
        old is not None and old.threshold is not None
    ):
        return [replaces, f"It is the target's own choice there{_had(case, event)}.", LOSSY]
    how = "It was drawn from the residual max(0, p − q), "
    if case.rule == VerifyStrategy.BLOCK_VERIFICATION:
        how = "It was drawn from the residual of the block, "
    if case.settings.get("tree"):
        how = "It was drawn from what the rejected candidates left of the target's distribution, "
    residual = next(
        (entry.prob for entry in event.residual_top or [] if entry.token_id == event.token_id), None
    )
    left = "" if residual is None else f"; in the residual it had {number(residual)}"
    return [
        replaces,
        f"{how}scaled to sum to 1{_had(case, event)}{left}.",
        "Accepted and resampled tokens together follow the target's distribution exactly.",
    ]


def _bonus(case: Case) -> list[str]:
    event, drafts = case.event, len(case.step.drafts)
    chosen = f"{quoted(event)} was drawn from the target's own distribution"
    if event.target_prob is not None:
        chosen += f", where it had probability {number(event.target_prob)}"
    if case.rule == VerifyStrategy.GREEDY_MATCH:
        chosen = f"{quoted(event)} is the target's most probable token{_at(event.target_prob)}"
    if not drafts:
        return [
            "Nothing was drafted in this step: plain decoding, one target pass for one token.",
            f"{chosen}.",
        ]
    accepted = (
        "The one draft token was accepted."
        if drafts == 1
        else f"All {drafts} draft tokens were accepted."
    )
    if case.settings.get("tree"):
        accepted = (
            "A candidate was accepted."
            if drafts == 1
            else f"A path of {drafts} candidates was accepted."
        )
    free = (
        "The target pass that verified them also gave the next distribution, so this token is free."
    )
    return [f"{accepted} {free}", f"{chosen}."]


def _discarded(case: Case) -> list[str]:
    event = case.event
    if event.reason == "stop":
        what = (
            "a stop string or the model's end token"
            if case.settings.get("stop")
            else "the model's end token"
        )
        return [
            f"{quoted(event)} came after the end of the text, marked by {what}. It is not part of"
            " the output."
        ]
    if event.reason == "length":
        limit = case.settings.get("max_tokens")
        allowed = f" of {count(limit, 'token')}" if isinstance(limit, int) else ""
        return [f"{quoted(event)} came after the limit{allowed} was reached."]
    if (
        case.rule == VerifyStrategy.BLOCK_VERIFICATION
        and event.uniform is not None
        and event.accept_prob is not None
    ):
        return _block(case)
    old = case.step.rejected
    before = f"the rejected {quoted(old)}" if old else "a rejected draft token"
    return [
        f"{quoted(event)} was drafted after {before}.",
        "It continues a text that no longer exists, so it was discarded without being judged.",
    ]


Reasons = Callable[[Case], list[str]]
OF_KINDS: dict[EventKind, Reasons] = {
    EventKind.PROPOSED: lambda case: [_proposal(case), NOT_YET],
    EventKind.DISCARDED: _discarded,
    EventKind.RESAMPLED: _resampled,
    EventKind.BONUS: _bonus,
}
OF_RULES: dict[VerifyStrategy, Reasons] = {
    VerifyStrategy.GREEDY_MATCH: _greedy,
    VerifyStrategy.SPECULATIVE_SAMPLING: _sampling,
    VerifyStrategy.BLOCK_VERIFICATION: _block,
    VerifyStrategy.SAMPLE_MATCH: _matching,
    VerifyStrategy.TYPICAL_ACCEPTANCE: _typical,
}
"""How each rule explains an accepted or rejected token."""
