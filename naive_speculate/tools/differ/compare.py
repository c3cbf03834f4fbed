"""Why two texts of the same prompt differ: rounding, the template, sampling, or something that
needs a look.

In exact arithmetic, greedy speculative decoding emits what plain decoding emits. On a machine, a
forward over k + 1 tokens rounds differently from k + 1 forwards over one, above all in half
precision. If the two most probable tokens are closer than that, either may be emitted. `differ`
measures the margin between the two tokens at the first divergence, and how much rounding moves
such margins in this text.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from itertools import product
from pathlib import Path
from typing import Any

import torch

from naive_speculate.infer.inferencer import eos_token_ids
from naive_speculate.models import load_pair
from naive_speculate.text import Vocabulary, num_shared
from naive_speculate.tools.differ.scores import Scores, fitted_temperatures, gaps, rarest

END = "(end of text)"
MOST_PLAUSIBLE_TEMPERATURE = 1.5
LEAST_PLAUSIBLE = 0.001
HALF = ("bfloat16", "float16")
_LAST = 64  # positions at which rounding is measured
_CLOSEST, _BEFORE = 20, 16  # positions that are tried for a flip, and tokens of the text before it


class Verdict(StrEnum):
    """Why the texts differ."""

    SAME = "same"
    NEAR_TIE = "near tie"
    TEMPLATE = "template"
    LENGTH = "length"
    SAMPLING = "sampling"
    UNEXPLAINED = "unexplained"


@dataclass(frozen=True)
class Margin:
    """The two tokens' log-probabilities at the divergence, in one computation."""

    dtype: str  # of weights and computation
    num_rows: int  # tokens in the forward: 1 for plain decoding, k + 1 for verification
    # log_prob_a, log_prob_b: of the two texts' tokens, natural logarithms
    log_prob_a: float
    log_prob_b: float
    top: tuple[str, str]  # the two most probable tokens' texts
    margin: float  # how much more probable A's token is than B's, in nats; negative if B's is


@dataclass(frozen=True)
class Likelihood:
    """How one text fits the target."""

    prompt: str  # the form of the prompt under which the text fits best
    greedy: float  # the share of tokens that are the target's most probable ones, up to rounding
    temperature: float  # the temperature under which the text is most probable; 0 if it is greedy
    temperatures: tuple[float, float]  # its 95% interval, between 0.05 and 20; wide for few tokens
    # the probability that a sample at that temperature has a token as improbable as this text's
    # rarest one
    rarest: float

    @property
    def plausible(self) -> bool:
        return self.temperatures[0] <= MOST_PLAUSIBLE_TEMPERATURE and self.rarest >= LEAST_PLAUSIBLE


@dataclass(frozen=True)
class Difference:
    """What `differ` found."""

    verdict: Verdict  # why the texts differ
    explanation: str  # the same in a few sentences
    index: int | None = None  # number of tokens that the texts share; None if they are the same
    before: str = ""  # the end of the shared text
    # token_a, token_b: the first tokens that differ
    token_a: str = ""
    token_b: str = ""
    # at the divergence: float32 and half precision, one row and k + 1 rows
    margins: tuple[Margin, ...] = ()
    # the largest change of a margin between the two dtypes at the last positions before the
    # divergence, in nats
    rounding: float = 0.0
    # a, b: how each text fits the target
    a: Likelihood | None = None
    b: Likelihood | None = None

    to_dict = asdict


@dataclass(frozen=True)
class _Text:
    """A text under one form of the prompt: token ids of the prompt, of the text, and the logits
    at the text's tokens."""

    form: str
    prompt: list[int]
    answer: list[int]
    logits: torch.Tensor

    def greedy(self, rounding: float) -> float:
        """The share of tokens that no other token exceeds by more than rounding."""
        return (
            float((gaps(self.logits, self.answer) <= rounding).float().mean())
            if self.answer
            else 1.0
        )

    def likelihood(self, rounding: float) -> Likelihood:
        share, ids = self.greedy(rounding), torch.tensor(self.answer)
        if share == 1:
            return Likelihood(self.form, 1.0, 0.0, (0.0, 0.0), 1.0)
        temperature, *interval = fitted_temperatures(self.logits, ids)
        return Likelihood(
            self.form,
            round(share, 4),
            temperature,
            (interval[0], interval[1]),
            rarest(self.logits, ids, max(temperature, 0.05)),
        )


def differ(
    target: str | Path,
    prompt: str,
    a: str,
    b: str,
    *,
    num_draft_tokens: int = 5,
    dtype: str = "bfloat16",
    chat: bool = False,
    greedy: bool = False,
    device: str = "auto",
) -> Difference:
    """Explain why two continuations of a prompt by a target differ; the texts are given without
    the prompt.

    `target` and `device` are as for `load_pair`. Verification computes `num_draft_tokens` + 1
    rows. `dtype` is the half precision to compare with float32: "bfloat16" or "float16". `chat`:
    the prompt is a user turn in the chat template; other forms of the prompt are tried too.
    `greedy`: both were decoded at temperature 0, so that sampling explains nothing. Raises
    `ValueError` with the name of the argument.
    """
    if dtype not in HALF:
        raise ValueError(f"dtype must be {' or '.join(HALF)}, got {dtype!r:.40}")
    if (same := _checked(prompt, a, b, num_draft_tokens)) is not None:
        return same
    full = Scores(load_pair(target, device=device, dtype="float32"))
    half = Scores(load_pair(target, device=device, dtype=dtype), dtype)
    return compare(
        full, half, prompt, a, b, num_draft_tokens=num_draft_tokens, chat=chat, greedy=greedy
    )


def _checked(prompt: str, a: str, b: str, num_draft_tokens: int) -> Difference | None:
    if num_draft_tokens < 1:
        raise ValueError(f"num_draft_tokens must be positive, got {num_draft_tokens}")
    if not prompt:
        raise ValueError("prompt is empty")
    return Difference(Verdict.SAME, "The texts are the same.") if a == b else None


def compare(
    full: Scores,
    half: Scores,
    prompt: str,
    a: str,
    b: str,
    *,
    num_draft_tokens: int = 5,
    chat: bool = False,
    greedy: bool = False,
) -> Difference:
    """`differ` with a target that is loaded already, in float32 and in half precision."""
    if (same := _checked(prompt, a, b, num_draft_tokens)) is not None:
        return same
    if full.pair.tokenizer is None:
        raise ValueError("target has no tokenizer")
    forms = _forms(full.pair.tokenizer, prompt, chat)
    read_a, read_b = zip(*(_read(full, *form, (a, b)) for form in forms), strict=True)
    first_a, first_b = read_a[0], read_b[0]
    index = num_shared(first_a.answer, first_b.answer)
    prefix = first_a.prompt + first_a.answer[:index]
    vocabulary = Vocabulary(full.pair.tokenizer)
    ends = eos_token_ids(full.pair.target)
    ids = [
        t.answer[index] if index < len(t.answer) else next(iter(ends), None)
        for t in (first_a, first_b)
    ]
    names = [
        vocabulary.text_of(t.answer[index]) if index < len(t.answer) else END
        for t in (first_a, first_b)
    ]
    rounding = _rounding(full, half, prefix)
    # Of forms that fit equally well, the first.
    likelihoods = [
        max(forms, key=lambda text: text.greedy(rounding)).likelihood(rounding)
        for forms in (read_a, read_b)
    ]
    margins = () if None in ids else _margins_at(full, half, prefix, ids, num_draft_tokens + 1)
    verdict, explanation = _judge(margins, rounding, likelihoods, names, greedy)
    before = "".join(vocabulary.texts(prefix[-24:]))
    return Difference(
        verdict, explanation, index, before, names[0], names[1], margins, rounding, *likelihoods
    )


def _forms(tokenizer: Any, prompt: str, chat: bool) -> list[tuple[str, str, bool]]:
    """Name, text, whether special tokens are added; the stated form first."""
    forms = [
        ("as plain text", prompt, True),
        ("as plain text without special tokens", prompt, False),
    ]
    if getattr(tokenizer, "chat_template", None):
        turn = [{"role": "user", "content": prompt}]
        rendered = tokenizer.apply_chat_template(turn, tokenize=False, add_generation_prompt=True)
        unopened = tokenizer.apply_chat_template(turn, tokenize=False, add_generation_prompt=False)
        forms += [
            ("in the chat template", rendered, False),
            ("in the chat template without an answer header", unopened, False),
        ]
        if chat:
            forms = forms[2:] + forms[:2]
    elif chat:
        raise ValueError("chat is set, but the target has no chat template")
    distinct: dict[tuple[int, ...], tuple[str, str, bool]] = {}
    for form in forms:
        ids = tokenizer(form[1], add_special_tokens=form[2]).input_ids
        if ids:
            distinct.setdefault(tuple(ids), form)
    return list(distinct.values())


def _read(
    scores: Scores, form: str, prompt: str, special: bool, texts: Sequence[str]
) -> list[_Text]:
    """Prompt and text are tokenised together, as an engine's output was written."""
    encode = scores.pair.tokenizer
    before = encode(prompt, add_special_tokens=special).input_ids
    wholes = [encode(prompt + text, add_special_tokens=special).input_ids for text in texts]
    start = max(1, min(num_shared(before, whole) for whole in wholes))
    limit = getattr(scores.pair.target, "max_positions", None)
    if limit is not None and (longest := max(map(len, wholes))) > limit:
        raise ValueError(f"prompt and text have {longest} tokens, and the target takes {limit}")
    return [
        _Text(form, whole[:start], whole[start:], scores.whole(whole)[start - 1 : -1])
        for whole in wholes
    ]


def _rounding(full: Scores, half: Scores, prefix: Sequence[int]) -> float:
    """The largest change, over the last positions, of the margin between float32's top two
    tokens."""
    logits, rounded = full.whole(prefix)[-_LAST:], half.whole(prefix)[-_LAST:]
    top = logits.topk(2, dim=-1).indices
    changes = [x.gather(-1, top).diff(dim=-1)[:, 0] for x in (logits, rounded)]
    return float((changes[0] - changes[1]).abs().max())


def _margins_at(
    full: Scores, half: Scores, prefix: Sequence[int], ids: Sequence[int | None], num_rows: int
) -> tuple[Margin, ...]:
    """In float32 and in half precision, with one row and with `num_rows`."""
    text_of, margins = Vocabulary(full.pair.tokenizer).text_of, []
    for scores, n in product((full, half), (1, num_rows)):
        logits = scores.last(prefix, n)
        a, b = (float(torch.log_softmax(logits, -1)[token]) for token in ids if token is not None)
        first, second = map(text_of, logits.topk(2).indices.tolist())
        margins.append(Margin(scores.dtype, n, a, b, (first, second), a - b))
    return tuple(margins)


def _at_best(name: str, likelihood: Likelihood) -> str:
    if likelihood.temperature == 0:
        return f"Text {name} is the target's greedy text, as at temperature 0."
    low, high = likelihood.temperatures
    return (
        f"Text {name} fits temperatures from {low:g} to {high:g}:"
        f" {likelihood.greedy:.0%} of its tokens are the target's most probable ones."
    )


def _judge(
    margins: Sequence[Margin],
    rounding: float,
    likelihoods: Sequence[Likelihood],
    names: Sequence[str],
    greedy: bool,
) -> tuple[Verdict, str]:
    a, b = likelihoods
    apart = abs(margins[0].margin) if margins else float("nan")
    flips = len({m.margin > 0 for m in margins}) > 1
    on_top = {text for m in margins for text in m.top} >= set(names) - {END}
    if a.prompt != b.prompt and min(a.greedy, b.greedy) == 1:
        return (
            Verdict.TEMPLATE,
            (
                "Each text is the target's greedy output, but for different forms of the prompt:"
                f" {a.prompt} for A, {b.prompt} for B. Compare the templates and special tokens of"
                " the two engines."
            ),
        )
    if margins and (flips or apart <= rounding) and on_top and a.greedy == b.greedy == 1:
        reason = "the order of the two tokens changes with the number of rows or the precision"
        if not flips:
            reason = (
                f"the two tokens are {apart:.4f} nats apart, and rounding moves margins by up to"
                f" {rounding:.4f} here"
            )
        return (
            Verdict.NEAR_TIE,
            f"Both texts are right: {reason}. After a different token, different texts follow.",
        )
    if END in names and min(a.greedy, b.greedy) == 1:
        return (
            Verdict.LENGTH,
            (
                "One text ends where the other continues, and both are the target's greedy output"
                " up to there. Compare length limits, stop strings and end tokens."
            ),
        )
    if not greedy and min(a.greedy, b.greedy) < 1 and a.plausible and b.plausible:
        return (
            Verdict.SAMPLING,
            (
                "The texts fit different sampling parameters or seeds."
                f" {_at_best('A', a)} {_at_best('B', b)}"
            ),
        )
    return (
        Verdict.UNEXPLAINED,
        (
            f"Rounding cannot explain it: it moves margins by up to {rounding:.4f} nats here, and"
            f" the tokens are {apart:.4f} apart. {_at_best('A', a)} {_at_best('B', b)} Compare"
            " weights, quantisation and adapters."
        ),
    )


@dataclass(frozen=True)
class Flip:
    """A position where one row and several rows have different most probable tokens in half
    precision."""

    before: str  # the end of the text before it
    # one, many: the most probable token with one row, and with `num_rows`
    one: str
    many: str
    num_rows: int  # k + 1
    margins: tuple[Margin, ...]  # as in `Difference`; A is `one`, B is `many`

    to_dict = asdict


def find_flip(
    full: Scores, half: Scores, token_ids: Sequence[int], start: int, *, num_rows: int = 5
) -> Flip | None:
    """The first flip among the positions, from `start` (1 or more) on, where float32's two most
    probable tokens are closest; None if there is none. `full` and `half` are the same target in
    float32 and in half precision; `num_rows` is k + 1. Raises `ValueError` if `start` or
    `num_rows` is out of range."""
    if not 1 <= start < len(token_ids):
        raise ValueError(f"start must be from 1 to {len(token_ids) - 1}, got {start}")
    if num_rows < 2:
        raise ValueError(f"num_rows must be 2 or more, got {num_rows}")
    top = full.whole(token_ids)[start - 1 : -1].topk(2, dim=-1).values
    vocabulary = Vocabulary(full.pair.tokenizer)
    for position in (top[:, 0] - top[:, 1]).argsort()[:_CLOSEST].tolist():
        prefix = list(token_ids[: start + position])
        one, many = (int(half.last(prefix, rows).argmax()) for rows in (1, num_rows))
        if one != many:
            margins = _margins_at(full, half, prefix, (one, many), num_rows)
            before = "".join(vocabulary.texts(prefix[-_BEFORE:]))
            return Flip(
                before, vocabulary.text_of(one), vocabulary.text_of(many), num_rows, margins
            )
    return None
