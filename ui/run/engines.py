"""What the acceptance rules of other engines would make of a run's draft tokens, from p and q at
each position; the rules are those of lesson 12.

At each position, a rule accepts a draft token with probability α before the token is drawn. In
the expected number of accepted tokens of a window, the last factor is that α, and those before it
are the probabilities of the tokens that were drafted: an unbiased estimate, since these were drawn
from q. Where they were not, all factors are α of the positions at hand: an approximation.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from naive_speculate.events import Event
from naive_speculate.speculate.theory import expected_accepted
from naive_speculate.speculate.verify import VerifyStrategy

RULES = {
    "ratio": (
        "min(p, q)",
        "transformers; vLLM, llama.cpp, SGLang and TensorRT-LLM with drawn drafts",
    ),
    "block": ("block verification", "vLLM and SGLang, as an option: whole windows, no α"),
    "favourite": ("p(argmax q)", "llama.cpp, vLLM, TensorRT-LLM and SGLang by default"),
    "match": ("p · q", "mlx-lm"),
}
"""Each rule's acceptance at a position, and the engines that have it."""
OWN: dict[str, str] = {
    VerifyStrategy.SPECULATIVE_SAMPLING: "ratio",
    VerifyStrategy.BLOCK_VERIFICATION: "block",
    VerifyStrategy.SAMPLE_MATCH: "match",
}
NO_DRAFTS = "Nothing was drafted in this run, so there is nothing to accept."
GREEDY = (
    "Run with a temperature and speculative sampling: without draws, every engine accepts a draft"
    " token only if it is the target's most probable one."
)
OF_TREE = "Run without a tree: these rules judge one draft token per position."
LACKING = (
    "Press Run: this needs p and q of every position, which a run of typical acceptance or a trace"
    " without them lacks."
)


class Position(NamedTuple):
    """A draft token's α under each rule, None where it is unknown, and p and q of the token."""

    alphas: dict[str, float | None]
    p: float
    q: float


class EngineRules:
    """Adds up a run's windows, step by step."""

    def __init__(self) -> None:
        self._steps = 0
        self._judged = 0
        self._complete = True
        self._alphas = dict.fromkeys(RULES, 0.0)  # sums over the judged positions
        self._accepted = dict.fromkeys(RULES, 0.0)  # expected, over all windows
        self._known = set(RULES)

    def add(self, drafts: Sequence[Event], judged: int, *, drawn: bool) -> None:
        """Add a step: its draft tokens, how many of them were judged, and whether a model's
        draft tokens were drawn from q."""
        self._steps += 1
        window = [position(draft, drawn=drawn) for draft in drafts]
        known = [one for one in window if one is not None]
        self._complete &= len(known) == len(window)
        self._judged += judged
        for rule in RULES:
            alphas = [one.alphas[rule] for one in known]
            if None in alphas:
                self._known.discard(rule)
                continue
            rates = [alpha for alpha in alphas if alpha is not None]
            self._alphas[rule] += sum(rates[:judged])
            self._accepted[rule] += accepted(rule, rates, known if drawn else None)

    def figures(self, settings: Mapping[str, Any]) -> dict[str, Any]:
        """For the browser: the `rows` of the rules, each with `alpha` and tokens per pass, `pace`,
        None where unknown; the run's `own` rule; and a `sentence`."""
        if not self._judged:
            return {"rows": {}, "sentence": NO_DRAFTS}
        if why := self._lacks(settings):
            return {"rows": {}, "sentence": why}
        rows = {
            rule: {
                "alpha": None if rule == "block" else self._alphas[rule] / self._judged,
                "pace": 1 + self._accepted[rule] / self._steps,
            }
            for rule in RULES
            if rule in self._known
        }
        own = OWN.get(str(settings.get("verify_strategy")))
        if settings.get("draft_sampling") == "argmax" and own != "block":
            own = "favourite"
        return {"rows": rows, "own": own, "sentence": sentence(rows)}

    def _lacks(self, settings: Mapping[str, Any]) -> str:
        """What is needed for these figures; empty if nothing is."""
        if settings.get("temperature") == 0 or (
            settings.get("verify_strategy") == VerifyStrategy.GREEDY_MATCH
        ):
            return GREEDY
        if settings.get("tree"):
            return OF_TREE
        return "" if self._complete and len(self._known) > 1 else LACKING


def position(draft: Event, *, drawn: bool) -> Position | None:
    """The rates at a draft token's position; None without p and q. A token that no model drafted
    is certain, q = 1: each rule accepts it with probability p."""
    if draft.target_prob is None or draft.draft_prob is None:
        return None
    p, q = _share(draft.target_prob), _share(draft.draft_prob)
    rates = (draft.sampled_accept, draft.matched_accept, draft.argmax_accept)
    if rates == (None, None, None) and q == 1:
        rates = (p, p, p)
    ratio, match, favourite = (None if rate is None else _share(rate) for rate in rates)
    block = ratio if drawn or draft.sampled_accept is None else None  # it needs the drawn tokens
    alphas = {"ratio": ratio, "block": block, "favourite": favourite, "match": match}
    return Position(alphas, p, q)


def accepted(rule: str, alphas: Sequence[float], drawn: Sequence[Position] | None) -> float:
    """Expected accepted tokens of a window under a rule, from its α at each position, and p and q
    of the tokens there if these were drawn. Block verification gains the same relative to judging
    one by one as for the tokens that were drafted."""
    reached, total = 1.0, 0.0
    for number, alpha in enumerate(alphas):
        total += reached * alpha
        if drawn is None or rule == "favourite":  # the favourites were not drafted
            reached *= alpha
            continue
        _, p, q = drawn[number]
        reached *= p if rule == "match" else min(1.0, p / q if q else 1.0)
    if rule == "block" and drawn is not None:
        ratios = [one.p / one.q if one.q else 1.0 for one in drawn]
        total += expected_accepted(ratios, block=True) - expected_accepted(ratios)
    return total


def sentence(rows: Mapping[str, Mapping[str, Any]]) -> str:
    """What follows from the rows."""
    paces = {rule: round(row["pace"], 2) for rule, row in rows.items()}  # as shown
    least, most = min(paces, key=lambda rule: paces[rule]), max(paces, key=lambda rule: paces[rule])
    if paces[most] == paces[least]:
        return f"Every rule gets {paces[most]:.2f} tokens per target pass from these drafts."
    return (
        f"The same p and q give {paces[least]:.2f} tokens per target pass with {RULES[least][0]},"
        f" and {paces[most]:.2f} with {RULES[most][0]}."
    )


def _share(value: float) -> float:
    return min(1.0, max(0.0, value))
