"""What the answers show: tests of token frequencies, adjusted for their number, and the greedy
texts.

Each sampled token is compared with the distribution after the tokens before it, by rank. The
rest of the vocabulary is one more cell, with the special tokens and the end of the text, which
servers report in different ways. Logprobs that a server states before temperature ("raw")
determine the sampled distribution only among the listed tokens; then others are left out.
"""

import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from naive_speculate.tools.goodness import (
    Array,
    Fit,
    holm,
    rank_test,
    smallest_bias,
    two_sample_test,
)
from naive_speculate.tools.prove.plan import POSITIONS, Record, Request, Settings, requests
from naive_speculate.tools.prove.reference import Reference
from naive_speculate.tools.prove.server import (
    Answer,
    Context,
    Entries,
    Server,
    ServerError,
    is_missing,
    is_short,
)
from naive_speculate.tools.prove.stated import context_of

ERROR_RATE = 0.001  # the probability of any false alarm on a correct server
# a difference of log-probabilities, in nats, that rounding in half precision may reverse
NEAR_TIE = 0.3
_LOOKS = 3  # times that each prompt is tried to see what a server's logprobs mean
# how many times as many texts the local copy samples where the server reports no tokens
MORE_REFERENCE = 10
_FEWEST = 5  # outcomes of a context that is tested where a server merges tokens
_UNLISTED = re.compile(r"|<[^<>\s]+>|.*\ufffd.*", re.DOTALL)


@dataclass(frozen=True)
class Finding:
    """One test."""

    name: str  # what was tested
    fit: Fit  # the test
    p_value: float  # adjusted for the number of tests
    smallest_bias: float  # the total variation that it finds with 90% power
    # of the outcomes, those that may be draft tokens: those of steps with drafts, if the server's
    # missing logprobs show them, else those after the first token
    num_drafted: int = 0

    @property
    def differs(self) -> bool:
        """Whether the server's samples differ from the stated distribution."""
        return self.p_value < ERROR_RATE


@dataclass(frozen=True)
class Greedy:
    """The greedy texts."""

    # num_texts, num_tokens: what was compared, and the tokens that no logprobs were known of
    num_texts: int
    num_tokens: int
    num_left_out: int
    # tokens that are less probable than the most probable one by more than a near tie
    num_differing: int
    largest_gap: float  # by how much at most, in nats
    num_parted: int  # prompts whose texts are not all the same


@dataclass(frozen=True)
class _Outcome:
    request: Request
    position: int
    context: tuple[str, ...]
    rank: int
    probs: Array
    drafted: bool


class Evidence:
    """Tests the recorded answers, against a local copy of the model or the server's own logprobs;
    `raw` if those are stated before temperature, `num_top` of them per token."""

    def __init__(
        self,
        settings: Settings,
        record: Record,
        reference: Reference | None,
        raw: bool,
        num_top: int,
    ) -> None:
        self.settings = settings
        self.record = record
        self.reference = reference
        self.raw = raw
        self.num_top = num_top
        self.answers = [
            (r, answer) for r in requests(settings) for answer in record.answers.get(r.number, [])
        ]
        # by prompt and temperature
        self.texts: dict[tuple[int, float], list[str]] = defaultdict(list)
        for request, answer in self.answers:
            self.texts[request.prompt, request.temperature].append(answer.text)
        self.tells_drafts = any(
            is_missing(entries, num_top) for _, answer in self.answers for entries in answer.top
        )
        self.stated, self.merged = self._stated()
        self.num_left_out = 0  # sampled tokens that could not be tested

    def _stated(self) -> tuple[dict[Context, Entries], set[Context]]:
        """What the server states after each context, and the contexts in which it merges tokens of
        one text into one entry."""
        stated, merged = dict[Context, Entries](self.record.stated), set[Context]()
        confirmed, counts = set[Context](), Counter[Context]()
        for request, answer in self.answers:
            for position, entries in enumerate(answer.top):
                context = context_of(request, answer, position, self.raw)
                if is_missing(entries, self.num_top):
                    continue
                stated.setdefault(context, entries)
                counts[context] += 1
                if is_short(entries, self.num_top):
                    merged.add(context)
                if entries[-1][0] != answer.tokens[position]:
                    confirmed.add(context)  # the sampled token was not added to the list
        if merged:
            merged |= {one for one in counts if counts[one] < _FEWEST or one not in confirmed}
        return stated, merged

    def _entries(self, request: Request, answer: Answer, position: int) -> Entries | None:
        """None if nothing is known, or not for certain."""
        context = context_of(request, answer, position, self.raw)
        if context in self.merged:
            return None
        own = answer.top[position] if position < len(answer.top) else ()
        return self.stated.get(context) if is_missing(own, self.num_top) else own

    def findings(self) -> list[Finding]:
        """The most significant first."""
        sampled = [(request, answer) for request, answer in self.answers if request.temperature]
        by_token = self.reference is None or any(answer.tokens for _, answer in sampled)
        tests = self._by_token(sampled) if by_token else self._by_text()
        adjusted = holm([fit.p_value for _, fit, _ in tests])
        rate = ERROR_RATE / max(1, len(tests))
        findings = []
        for (name, fit, num_drafted), p_value in zip(tests, adjusted, strict=True):
            least = smallest_bias(fit.num_samples, fit.degrees, rate) if fit.degrees else 1.0
            findings.append(Finding(name, fit, p_value, least, num_drafted))
        return sorted(findings, key=lambda finding: (finding.p_value, -finding.fit.bias))

    def complete(self) -> bool:
        return all(request.number in self.record.answers for request in requests(self.settings))

    def one_text(self) -> bool:
        """Whether each prompt got the same text every time, at temperatures above 0."""
        sampled = [texts for (_, temperature), texts in self.texts.items() if temperature]
        return bool(sampled) and all(len(texts) > 1 and len(set(texts)) == 1 for texts in sampled)

    def _by_token(self, sampled: Sequence[tuple[Request, Answer]]) -> list[tuple[str, Fit, int]]:
        groups: dict[str, list[_Outcome]] = defaultdict(list)
        ways: dict[str, list[_Outcome]] = defaultdict(list)
        for outcome in self._outcomes(sampled):
            request, position = outcome.request, f"position {outcome.position + 1}"
            where = f"prompt {request.prompt + 1}, temperature {request.temperature:g}"
            groups[f"{where}, {position}"].append(outcome)
            ways[f"all prompts, {request.way.name}"].append(outcome)
        tests = [
            (name, rank_test(_strata(outcomes)), sum(one.drafted for one in outcomes))
            for name, outcomes in groups.items()
        ]
        # outcomes of all positions together find no bias of drafted ones alone
        return tests + [(name, rank_test([_stacked(each)]), 0) for name, each in ways.items()]

    def _outcomes(self, sampled: Sequence[tuple[Request, Answer]]) -> Iterator[_Outcome]:
        self.num_left_out = 0
        for request, answer in sampled:
            # otherwise its tokens are not known
            ended = answer.ended and bool(answer.tokens or not answer.text)
            for position in range(min(POSITIONS, len(answer.tokens) + ended)):
                context = answer.tokens[:position]
                token = "".join(answer.tokens[position : position + 1])
                drafted = position > 0 and not self.tells_drafts
                if position < len(answer.top) and is_missing(answer.top[position], self.num_top):
                    drafted = True
                if self.reference is not None:
                    prompt = self.settings.prompts[request.prompt]
                    entries = self.reference.top(prompt, context, request.temperature, self.num_top)
                else:
                    entries = self._entries(request, answer, position)
                if entries is None:
                    self.num_left_out += position < len(answer.tokens)
                    continue
                rank, probs = self._ranked(token, entries, request.temperature)
                if rank is not None:
                    yield _Outcome(request, position, context, rank, probs, drafted)

    def _ranked(self, token: str, entries: Entries, temperature: float) -> tuple[int | None, Array]:
        """The token's rank, None if it is left out, and the probabilities of the ranks and of the
        rest."""
        sums: dict[str, float] = {}  # several tokens may have one text
        for text, value in entries[: self.num_top]:
            if not _UNLISTED.fullmatch(text):
                sums[text] = float(np.logaddexp(sums.get(text, -math.inf), value))
        listed = sorted(sums.items(), key=lambda item: -item[1])
        ranks = {text: rank for rank, (text, _) in enumerate(listed)}
        probs = np.zeros(self.num_top + 1)
        values = np.array([value for _, value in listed])
        if self.reference is None and self.raw and temperature != 1:
            if not listed:
                return None, probs
            probs[: len(listed)] = np.exp((values - values.max()) / temperature)
            return ranks.get(token), probs / probs.sum()
        probs[: len(listed)] = np.exp(values)
        if probs.sum() > 1.01:
            raise ServerError(
                "the server's logprobs are no distribution: their probabilities sum to"
                f" {probs.sum():.3f}"
            )
        probs[-1] = max(0.0, 1 - probs.sum())
        return ranks.get(token, self.num_top), probs / probs.sum()

    def _by_text(self) -> list[tuple[str, Fit, int]]:
        assert self.reference is not None
        tests = []
        for (index, temperature), texts in self.texts.items():
            if not temperature:
                continue
            prompt = self.settings.prompts[index]
            count, seed = MORE_REFERENCE * len(texts), self.settings.seed
            others = self.reference.sample(prompt, temperature, count, seed)
            for what, cut in (("first word", 1), ("text", POSITIONS)):
                a, b = (
                    Counter(" ".join(text.split()[:cut]) for text in sample)
                    for sample in (texts, others)
                )
                name = f"prompt {index + 1}, temperature {temperature:g}, {what}"
                tests.append((name, two_sample_test(a, b), len(texts)))
        return tests

    def greedy(self) -> Greedy:
        by_prompt = {prompt: texts for (prompt, t), texts in self.texts.items() if not t}
        left_out = 0
        if self.reference is None:
            gaps = []
            for request, answer in self.answers:
                for position, token in enumerate(answer.tokens if not request.temperature else ()):
                    entries = self._entries(request, answer, position)
                    if entries is None:
                        left_out += 1
                        continue
                    values = [value for text, value in entries if text == token]
                    gaps.append(entries[0][1] - max(values, default=-math.inf))
        else:
            prompts, gaps_of = self.settings.prompts, self.reference.gaps
            gaps = [
                gap
                for p, texts in by_prompt.items()
                for text in {*texts}
                for gap in gaps_of(prompts[p], text)
            ]
        differing = sum(gap > NEAR_TIE for gap in gaps)
        parted = sum(len({*texts}) > 1 for texts in by_prompt.values())
        num_texts, largest = sum(map(len, by_prompt.values())), max(gaps, default=0.0)
        return Greedy(num_texts, len(gaps), left_out, differing, largest, parted)


def states_raw(server: Server, prompts: Sequence[str]) -> bool:
    """Whether a server states logprobs before temperature: halving it leaves them as they are. An
    answer may lack them, such as one that ends at once; then others are requested."""
    for prompt in list(prompts) * _LOOKS:
        answers = [
            server.complete(prompt, max_tokens=1, temperature=temperature)[0]
            for temperature in (1.0, 0.5)
        ]
        plain, sharp = (dict(answer.top[0]) if answer.top else {} for answer in answers)
        shared = [text for text in plain if text in sharp]
        if len(shared) >= 2:
            first, last = shared[0], shared[-1]
            return sharp[first] - sharp[last] < 1.5 * (plain[first] - plain[last])
    return False


def _strata(outcomes: Sequence[_Outcome]) -> list[tuple[list[int], Array]]:
    """Each context that has a quarter of the outcomes, and all others together."""
    counts = Counter(outcome.context for outcome in outcomes)
    strata: dict[tuple[str, ...] | None, list[_Outcome]] = defaultdict(list)
    for outcome in outcomes:
        often = counts[outcome.context] >= len(outcomes) / 4
        strata[outcome.context if often else None].append(outcome)
    return [_stacked(part) for part in strata.values()]


def _stacked(outcomes: Sequence[_Outcome]) -> tuple[list[int], Array]:
    return [outcome.rank for outcome in outcomes], np.stack([outcome.probs for outcome in outcomes])
