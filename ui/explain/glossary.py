"""The glossary: every term that the page uses, in a sentence or two, and the links that lead there.

`linked` finds the terms in a sentence, so that whoever writes one need not think of it. What stands in quotation marks was
written by a model and is never taken for a term.
"""

import html
import re
from dataclasses import dataclass
from typing import NamedTuple

LEVIATHAN = "https://arxiv.org/abs/2211.17192"
CHEN = "https://arxiv.org/abs/2302.01318"
BLOCK = "https://arxiv.org/abs/2403.10444"
SUFFIX = "https://arxiv.org/abs/2411.04975"
EAGLE = "https://arxiv.org/abs/2503.01840"
MEDUSA = "https://arxiv.org/abs/2401.10774"
VLLM = "https://docs.vllm.ai/en/latest/features/spec_decode/"
NUCLEUS = "https://arxiv.org/abs/1904.09751"
GUIDED = "https://arxiv.org/abs/2307.09702"


@dataclass(frozen=True, slots=True)
class Term:
    """One entry.

    Attributes:
        key: Its address is `#term-` and this.
        name: What it is called.
        meaning: What that is, in words that need no other course.
        forms: Regular expressions for how sentences speak of it; empty where only markup links to it.
        source: Address of the paper or page that it comes from; empty for words that are everybody's.
    """

    key: str
    name: str
    meaning: str
    forms: tuple[str, ...] = ()
    source: str = ""


class Piece(NamedTuple):
    """A piece of a sentence, and the key of the term that it is."""

    text: str
    term: str | None = None


TERMS = (
    Term(
        "token",
        "Token",
        "What a language model reads and writes: a word, a piece of a word, or a sign such as a comma. A space before a word "
        "belongs to the word's token.",
        ("tokens?",),
    ),
    Term(
        "target",
        "Target model",
        "The large, slow model whose text is wanted. Everything on this page is arranged so that what comes out is what it "
        "would have written.",
        ("target model", "target"),
    ),
    Term(
        "draft",
        "Draft, draft model",
        "A small, fast model that guesses what the target will write next. A draft is also one such guess. It may be wrong; "
        "the target checks it.",
        ("draft models?", "drafts?", "drafted", "guess(?:es)?", "guessed"),
        LEVIATHAN,
    ),
    Term(
        "pass",
        "Pass",
        "One run of a model from end to end. The target checks all guesses of a round in a single pass, for about the time "
        "that one token would take.",
        ("target pass(?:es)?", "pass(?:es)?"),
    ),
    Term(
        "plain",
        "Plain decoding",
        "Writing without drafts: the target makes one pass for every token. It is what the speedup is measured against.",
        ("plain decoding",),
    ),
    Term(
        "round",
        "Round",
        "Guess, check, keep: what the draft writes ahead, and the one pass of the target that judges it.",
        ("round",),
    ),
    Term(
        "window",
        "Window, place",
        "The tokens that the draft writes ahead in one round. A guess's place says whether it is the first of them, the "
        "second, and so on.",
        ("window",),
    ),
    Term(
        "k",
        "k, draft tokens",
        "How many tokens are drafted a round. The best k depends on the models, the text and the machine.",
    ),
    Term(
        "p",
        "p, target probability",
        "The probability that the target model gives to a token at this place. All its probabilities sum to 1.",
        ("target probability p",),
    ),
    Term(
        "q",
        "q, draft probability",
        "The probability that the draft model gave to its guess when it drew it.",
        ("draft probability q",),
    ),
    Term(
        "acceptance",
        "p/q, acceptance probability",
        "A guess is kept with probability p ÷ q, and always where p is at least q. So a guess that the draft made too often is "
        "refused just often enough to come out as often as the target wants it.",
        ("acceptance probability", "min\\(1, p/q\\)", "p/q"),
        LEVIATHAN,
    ),
    Term(
        "u",
        "u, the draw",
        "A random number between 0 and 1: the die. A guess is kept if it is below p ÷ q. The seed decides all draws of a run.",
        ("draw u", "The draw", "the draw"),
    ),
    Term(
        "residual",
        "Residual",
        "What the target gives to tokens beyond what the draft gave them: max(0, p − q), scaled to sum to 1. The replacement "
        "of a refused guess is drawn from it, which makes up exactly for what was refused.",
        ("residual",),
        LEVIATHAN,
    ),
    Term("resampled", "Resampled", "The token that is drawn from the residual in the place of a refused guess."),
    Term(
        "replacement",
        "Replacement",
        "The token that takes the place of a refused guess. At temperature 0 nothing is drawn: it is the target's likeliest.",
        ("replacements?",),
    ),
    Term(
        "bonus",
        "Bonus token",
        "If all guesses of a round were kept, the pass that checked them also tells the token after them, at no extra cost.",
    ),
    Term("kept", "Accepted, kept", "A guess that the target agreed to. It is part of the text."),
    Term(
        "refused",
        "Rejected, refused",
        "A guess that the target did not agree to. It is not part of the text; a replacement stands in its place.",
        ("rejected", "refused"),
    ),
    Term(
        "discarded",
        "Discarded, never reached",
        "A guess behind a refused one. It continues a text that no longer exists, so the target's opinion of it means nothing "
        "and it counts neither as kept nor as refused. Tokens behind the end of the text are discarded too.",
    ),
    Term(
        "acceptance-rate",
        "Acceptance rate",
        "Of all guesses, the share that was kept: kept ÷ drafted. Guesses that were never reached count against it.",
        source=VLLM,
    ),
    Term(
        "alpha",
        "α (alpha)",
        "Of the guesses that the target did judge, the share that it kept: kept ÷ (kept + refused). It says how well the two "
        "models agree, so it is the larger of the two: with 75% kept, 6% refused and 19% never reached, α = 75 ÷ 81 = 93%.",
        ("α",),
        LEVIATHAN,
    ),
    Term(
        "exact-alpha",
        "Exact α, luck and skill",
        "Before a guess is drawn, it is to be kept with probability Σ min(p, q) over all tokens: the draft's skill at this "
        "place. Over the judged guesses of a run its mean is the exact α. What was seen differs from it by luck alone; after ± "
        "stands one standard deviation of that luck, which two thirds of all runs stay within.",
        ("exact α",),
        LEVIATHAN,
    ),
    Term(
        "by-place",
        "Acceptance by place",
        "Conditional: of the rounds that reached this place, the share that kept it. Unconditional: of all windows, the share "
        "that kept it, which is what vLLM shows and which can only fall from place to place.",
        source=VLLM,
    ),
    Term(
        "tokens-a-pass",
        "Tokens per target pass",
        "How many tokens a round gives on average: the kept guesses and the one that the target adds. Plain decoding gives 1.",
        source=VLLM,
    ),
    Term(
        "speedup",
        "Speedup",
        "Tokens a second with drafts, divided by tokens a second without. It is smaller than tokens per pass, for drafting and "
        "checking take time of their own. Here it is measured after the run: the same prompt is decoded plain, with drafts and "
        "plain again, and reading the prompt does not count. In brackets stands where it lies in 9 of 10 cases when rounds are "
        "picked again at random.",
    ),
    Term(
        "theorem",
        "Theorem 3.8",
        "Leviathan, Kalman and Matias 2023: with k guesses a round, each kept with probability α and costing c target passes, "
        "decoding is (1 − αᵏ⁺¹) ÷ ((1 − α)(c·k + 1)) times as fast. Checking k guesses counts no more than one token.",
        ("Theorem 3\\.8",),
        LEVIATHAN,
    ),
    Term(
        "cost",
        "c, cost of a draft",
        "What one guess costs, in passes of the target: 0.05 if the draft is twenty times as fast.",
    ),
    Term(
        "temperature",
        "Temperature",
        "How much chance there is in the choice of a token. At 0 the likeliest token is taken; at 1 each as often as the model "
        "holds it likely; above that, unlikely ones more often.",
        ("temperature",),
    ),
    Term(
        "greedy",
        "Greedy decoding",
        "Always taking the likeliest token, as at temperature 0. A guess is kept if it is that token; there is no die.",
        ("greedy",),
    ),
    Term(
        "entropy",
        "Entropy, in nats",
        "How unsure a model is. 0: it is certain. The entropy of a fair choice among n tokens is ln n nats: 0.69 for two.",
        ("entropy", "nats"),
    ),
    Term(
        "sampling",
        "Speculative sampling",
        "The rule with p, q and the draw u: the output is distributed exactly as the target's.",
        ("[Ss]peculative sampling",),
        CHEN,
    ),
    Term(
        "block",
        "Block verification",
        "Judges the window as a whole, which keeps a little more and is just as exact.",
        ("[Bb]lock verification",),
        BLOCK,
    ),
    Term(
        "greedy-match",
        "Greedy match",
        "Keeps a guess only if it is the target's likeliest token, whatever the temperature says.",
        ("[Gg]reedy match",),
    ),
    Term(
        "typical",
        "Typical acceptance",
        "Keeps a guess that the target holds likely enough: above a threshold that falls as the target is less sure. Faster, "
        "but not lossless.",
        ("[Tt]ypical acceptance", "threshold"),
        MEDUSA,
    ),
    Term(
        "lossless",
        "Lossless",
        "Every text comes out exactly as often as from the target alone. Lossy: not so.",
        ("lossless", "lossy"),
        LEVIATHAN,
    ),
    Term(
        "lookup",
        "Prompt lookup",
        "Drafts without a model: where the last words stood before in the text, it guesses that they go on in the same way.",
        ("[Pp]rompt lookup",),
    ),
    Term(
        "suffix",
        "Suffix decoding",
        "Drafts without a model: it looks for the longest piece of earlier text that ends like this one, and copies what came "
        "after it most often.",
        ("[Ss]uffix decoding",),
        SUFFIX,
    ),
    Term(
        "head",
        "Draft head",
        "Drafts with one layer that reads the target's own hidden states: what the target was about to say. It is trained for "
        "one target.",
        ("[Dd]raft heads?",),
        EAGLE,
    ),
    Term("top-p", "Top-p, top-k, min-p", "Three ways to forbid unlikely tokens before one is drawn.", source=NUCLEUS),
    Term(
        "guided",
        "Guided decoding",
        "Tokens that would leave a regular expression, a JSON schema or a list of texts are forbidden before one is drawn: to "
        "the draft and to the target alike. What is left is the target's distribution among what is allowed.",
        ("[Gg]uided decoding",),
        GUIDED,
    ),
    Term("stop", "Stop string", "The text ends before it. Tokens that were written beyond are discarded.", ("stop string",)),
    Term("seed", "Seed", "The number that decides all draws: the same seed and settings give the same text."),
)
"""By the order in which a newcomer meets them."""

_FORMS = {f"t{number}": term for number, term in enumerate(TERMS) if term.forms}
_PATTERN = re.compile("|".join(f"(?P<{name}>(?<!\\w)(?:{'|'.join(term.forms)})(?!\\w))" for name, term in _FORMS.items()))
_QUOTED = re.compile("(“.*?”)", re.DOTALL)


def linked(sentence: str) -> list[Piece]:
    """The sentence in pieces, with the first mention of each term outside quotation marks."""
    pieces: list[Piece] = []
    seen: set[str] = set()
    for part in _QUOTED.split(sentence):
        at = 0
        for found in () if part.startswith("“") else _PATTERN.finditer(part):
            term = _FORMS[str(found.lastgroup)]
            if term.key in seen:
                continue
            seen.add(term.key)
            pieces += [Piece(part[at : found.start()]), Piece(found[0], term.key)]
            at = found.end()
        pieces.append(Piece(part[at:]))
    return [piece for piece in pieces if piece.text]


def to_markup(sentence: str) -> str:
    """The sentence as HTML, escaped, its terms linked."""
    return "".join(link(text, term) if term else html.escape(text) for text, term in linked(sentence))


def link(text: str, key: str) -> str:
    """A link from plain text to the term of this key."""
    return f'<a class="ns-term" href="#term-{key}">{html.escape(text)}</a>'


def glossary() -> str:
    """The dialog with all terms, as HTML."""
    entries = "".join(
        f'<div id="term-{term.key}" tabindex="-1"><dt>{html.escape(term.name)}</dt>'
        f"<dd>{html.escape(term.meaning)}{_from(term)}</dd></div>"
        for term in TERMS
    )
    return (
        '<dialog class="ns-glossary" aria-labelledby="glossary-title"><header><h2 id="glossary-title">Glossary</h2>'
        f'<button type="button" data-close>Close</button></header><dl>{entries}</dl></dialog>'
    )


def _from(term: Term) -> str:
    return f' <a href="{term.source}" target="_blank" rel="noopener">source</a>' if term.source else ""
