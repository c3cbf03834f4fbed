"""Every number of every event, for every kind of run, against plain forwards of both models."""

from itertools import pairwise

import pytest
import torch

from naive_speculate import ModelPair, SamplingParams, SpeculativeDecoder, Trace
from naive_speculate.events import OUTPUT_KINDS
from naive_speculate.events.steps import steps
from naive_speculate.speculate.request import GivenDraft, Request
from naive_speculate.tools.proofs.toys import pair_with_head
from tests.tokenizers_of_tests import letters

PROMPT, GUIDE = [1, 2, 3, 1, 2], "(abc|cab)(ab|c)"
PIECES = ["<e>", "a", "b", "c", "ab", "bc"]
WORDS = [first + last for first in ("abc", "cab") for last in ("ab", "c")]
SAMPLED, BLOCK, MATCH = "speculative_sampling", "block_verification", "sample_match"
TYPICAL, GREEDY = "typical_acceptance", "greedy_match"
ROWS = {  # sampling parameters, and options of the request
    "plain": ({}, {"num_draft_tokens": 0}),
    SAMPLED: ({"temperature": 0.8}, {"verify_strategy": SAMPLED}),
    BLOCK: ({}, {"verify_strategy": BLOCK}),
    TYPICAL: ({}, {"verify_strategy": TYPICAL}),
    MATCH: ({"top_k": 4}, {"verify_strategy": MATCH}),
    GREEDY: ({"temperature": 0.7}, {"verify_strategy": GREEDY}),
    "temperature 0": ({"temperature": 0}, {}),
    "warped": ({"temperature": 1.4, "presence_penalty": 0.8, "top_k": 3}, {}),
    "argmax": ({}, {"draft_sampling": "argmax"}),
    "argmax block": ({}, {"draft_sampling": "argmax", "verify_strategy": BLOCK}),
    "argmax match": ({}, {"draft_sampling": "argmax", "verify_strategy": MATCH}),
    "copied": ({"temperature": 0.6}, {"drafter": "suffix"}),
    "copied block": ({}, {"drafter": "prompt_lookup", "verify_strategy": BLOCK}),
    "head": ({}, {"drafter": "head"}),
    "given": ({}, {"given_draft": GivenDraft([4, 5, 1], 0.4)}),
    "guided": ({"guided_decoding": {"regex": GUIDE}, "ignore_eos": False}, {}),
    "guided block": (  # with this seed an index is certain to pass: both models are certain
        {"guided_decoding": {"regex": GUIDE}, "ignore_eos": False, "seed": 8},
        {"verify_strategy": BLOCK},
    ),
    "tree": ({}, {"tree": "3x2"}),
    "argmax tree": ({"temperature": 1.3}, {"tree": "2x2", "draft_sampling": "argmax"}),
    "greedy tree": ({"temperature": 0}, {"tree": "3x2"}),
}


class Plain:
    """What a plain forward says about one kind of run; all distributions are of float64."""

    def __init__(self, pair: ModelPair, name: str) -> None:
        self.pair, (params, self.options) = pair, ROWS[name]
        self.params = SamplingParams(**{"seed": 4, "max_tokens": 16, "ignore_eos": True} | params)
        self.strategy = self.options.get("verify_strategy", SAMPLED)
        self.greedy = self.strategy == GREEDY or self.params.temperature == 0
        self.guided, self.known = bool(self.params.guided_decoding), {}

    def allowed(self, generated: list[int]) -> list[int]:
        """The tokens that the guide allows; all without one, and after the end."""
        if not self.guided or 0 in generated:
            return list(range(6))
        text = "".join(PIECES[token] for token in generated)
        spell = [n for n in range(1, 6) if any(w.startswith(text + PIECES[n]) for w in WORDS)]
        return spell + [0] * (text in WORDS)

    def forces(self, generated: list[int]) -> bool:
        """Whether the guide forces text after these tokens."""
        text = "".join(PIECES[token] for token in generated)
        following = {word[len(text) : len(text) + 1] for word in WORDS if word.startswith(text)}
        return self.guided and len(following) == 1 and following != {""}

    def probs(self, model, text: list[int]) -> torch.Tensor:
        """A model's distribution after a text, under the run's parameters."""
        if (model, *text) in self.known:
            return self.known[model, *text]
        scores = model.forward(torch.tensor([text]), model.new_cache(1))[0, -1].clone()
        generated, p = text[len(PROMPT) :], self.params
        scores[list(set(generated))] -= p.presence_penalty
        scores[[n for n in range(6) if n not in self.allowed(generated)]] = -torch.inf
        scores /= p.temperature or 1
        if p.top_k > 0:
            scores[scores < scores.topk(p.top_k).values[-1]] = -torch.inf
        return self.known.setdefault((model, *text), scores.softmax(dim=-1))

    def p(self, text: list[int]) -> torch.Tensor:
        return self.probs(self.pair.target, text)


def whole(top) -> torch.Tensor:
    """The distribution of a list of most probable tokens: these models have six."""
    probs = torch.zeros(6, dtype=torch.float64)
    for entry in top:
        probs[entry.token_id] = entry.prob
    assert all(one.prob >= other.prob for one, other in pairwise(top))
    assert all(entry.text == PIECES[entry.token_id] for entry in top)
    return probs


def point(token: int) -> torch.Tensor:
    return torch.eye(6, dtype=torch.float64)[token]


def rest(p: torch.Tensor, q: torch.Tensor) -> torch.Tensor:
    left = (p - q).clamp_min(0)
    return left / left.sum() if left.sum() > 0 else p


def entropy(probs: torch.Tensor) -> float:
    return float(-(probs * probs.clamp_min(1e-300).log()).sum())


def same(found, wanted) -> None:
    """Both are None, or numbers that differ by rounding."""
    assert (found is None) == (wanted is None)
    if wanted is not None:
        found, wanted = (torch.as_tensor(each, dtype=torch.float64) for each in (found, wanted))
        torch.testing.assert_close(found, wanted, atol=1e-7, rtol=0)


class Checked:
    """The events of one run, step by step."""

    def __init__(self, plain: Plain, trace: Trace) -> None:
        self.plain, self.kinds, self.num_drafts, self.draws = plain, set(), 0, []
        text = list(trace.started.prompt_token_ids)
        for step in steps(trace):
            self.text, self.step, self.by_text = text, step, plain.forces(text[len(PROMPT) :])
            self.window = [event.token_id for event in step.drafts]
            self.num_drafts += len(step.end.tree or self.window)
            self.ps = [plain.p(text + self.window[:i]) for i in range(len(self.window) + 1)]
            self.qs = [self.q(i, event) for i, event in enumerate(step.drafts)]
            self.verdicts = self.by_tree() if step.end.tree else self.by_rule()
            for event in step.events:
                self.check(event)
                if event.kind != "proposed" and (event.tree or not step.end.tree):
                    self.draws += [node.uniform for node in event.tree or [event]]
            unused = step.end.num_accepted < step.end.num_draft
            unused &= bool(plain.allowed((text + self.window)[len(PROMPT) :]))
            same(
                step.end.target_top and whole(step.end.target_top), self.ps[-1] if unused else None
            )
            text = text + [e.token_id for e in step.events if e.kind in OUTPUT_KINDS]

    def q(self, index: int, event) -> tuple[torch.Tensor, torch.Tensor | None]:
        """What a draft was drawn from, and the drafting model's distribution; None for copies."""
        options, before = self.plain.options, self.text + self.window[:index]
        stated = whole(event.draft_top)
        if options.get("drafter") in ("suffix", "prompt_lookup") or self.by_text:
            return point(event.token_id), None
        if options.get("drafter") == "head":  # which no plain forward gives: all its numbers agree
            return stated, stated
        model = self.plain.probs(self.plain.pair.draft, before)
        if "given_draft" in options:
            given = options["given_draft"]
            drawn = model * (1 - given.prob) + point(given.draft[0]) * given.prob
            drawn = point(event.token_id) if index else drawn
            return drawn, drawn
        argmax = options.get("draft_sampling") == "argmax" and not self.plain.greedy
        return point(event.token_id) if argmax else model, model

    def by_rule(self) -> list[tuple]:
        """Of each draft: accept_prob, expected_accept, threshold, the distribution after it."""
        strategy, found, running = self.plain.strategy, [], 1.0
        for i, token in enumerate(self.window):
            p, (q, _) = self.ps[i], self.qs[i]
            best, both = point(int(p.argmax())), float(torch.minimum(p, q).sum())
            limit = min(0.09, 0.3 * float(torch.exp(torch.tensor(-entropy(p)))))
            if self.plain.greedy:
                accept = float(best[token])
                found.append((accept, accept, None, None))
            elif strategy == TYPICAL:
                found.append((float(p[token] > limit), float(q[p > limit].sum()), limit, best))
            elif strategy == MATCH:
                found.append((float(p[token]), float(p @ q), None, rest(p, p * point(token))))
            elif strategy == SAMPLED:
                found.append((min(1.0, float(p[token] / q[token])), both, None, rest(p, q)))
            else:
                after = rest(running * p, q)
                running = min(1.0, running * float(p[token] / q[token]))
                accept = running
                if i + 1 < len(self.window):
                    excess = float(
                        (running * self.ps[i + 1] - self.qs[i + 1][0]).clamp_min(0).sum()
                    )
                    total = excess + 1 - running
                    accept = excess / total if total > 0 else 1.0
                    self.kinds |= {"certain"} if total <= 0 else set()
                found.append((accept, both, None, after))
        return found

    def by_tree(self) -> list[tuple]:
        """Checks the nodes of a step's tree by recursive rejection; then as `by_rule`."""
        nodes, found, parent, judged = self.step.end.tree, {}, -1, set()
        paths = {-1: []}
        for index, node in enumerate(nodes):
            paths[index] = [*paths[node.parent], node.token_id]
            before = self.text + paths[node.parent]
            draft = self.plain.probs(self.plain.pair.draft, before)
            same(node.draft_prob, float(draft[node.token_id]))
            same(node.target_prob, float(self.plain.p(before)[node.token_id]))
        while parent is not None:
            before = self.text + paths[parent]
            draft, p = self.plain.probs(self.plain.pair.draft, before), self.plain.p(before)
            argmax = self.plain.greedy or self.plain.options.get("draft_sampling") == "argmax"
            p = point(int(p.argmax())) if self.plain.greedy else p
            children = [i for i, node in enumerate(nodes) if node.parent == parent]
            parent, left = None, draft
            for child in children:
                node, token = nodes[child], nodes[child].token_id
                q = point(token) if argmax else left
                accept = min(1.0, float(p[token] / q[token]))
                same(node.accept_prob, accept)
                assert (node.uniform is None) == self.plain.greedy
                judged.add(child)
                passes = accept == 1 if self.plain.greedy else node.uniform < accept
                assert node.kind == ("accepted" if passes else "rejected")
                if passes:
                    found[child], parent = (accept, p), child
                    break
                p, left = rest(p, q), rest(left, left * point(token))
                found[child] = accept, p
            last = None if self.plain.greedy else p
        for index, node in enumerate(nodes):
            assert (node.kind == "discarded") == (node.accept_prob is None) == (index not in judged)
        path, window = -1, []
        for token in self.window:
            path = next(
                i for i, node in enumerate(nodes) if (node.parent, node.token_id) == (path, token)
            )
            accept, _ = found.get(path, (None, None))
            window.append((accept, (accept or 0.0) if self.plain.greedy else None, None, last))
        return window

    def check(self, event) -> None:
        kind, index, plain = event.kind, event.index, self.plain
        if kind not in (*OUTPUT_KINDS, "proposed", "rejected", "discarded"):
            return
        self.kinds.add(str(kind))
        p, drafted = self.ps[index], kind in ("proposed", "accepted", "rejected", "discarded")
        drafted &= index < len(self.window) and event.token_id == self.window[index]
        same(event.target_prob, float(p[event.token_id]))
        same(whole(event.target_top), p)
        same(event.target_entropy, entropy(p))
        only = (
            plain.guided
            and len(plain.allowed((self.text + self.window[:index])[len(PROMPT) :])) == 1
        )
        by_text = "text" if drafted and self.by_text else None
        by_guide = "token" if only and index <= self.step.end.num_accepted else by_text
        refused = drafted and index >= self.step.end.num_accepted
        assert event.forced == (None if kind == "discarded" else by_text if refused else by_guide)
        names = ("draft_prob", "draft_top", "draft_entropy", "accept_prob", "expected_accept")
        if not drafted:
            assert all(getattr(event, name) is None for name in (*names, "uniform", "threshold"))
            is_residual = kind == "resampled" and not plain.greedy
            assert is_residual == (event.residual_top is not None)
            if is_residual:
                same(whole(event.residual_top), self.verdicts[index][3])
            return
        (q, model), (accept, expected, threshold, after) = self.qs[index], self.verdicts[index]
        judged, tree = kind in ("accepted", "rejected"), self.step.end.tree
        same(event.draft_prob, float(q[event.token_id]))
        same(whole(event.draft_top), q)
        same(event.draft_entropy, 0.0 if model is None else entropy(model))
        if event.copied_from is not None:
            assert (self.text + self.window)[event.copied_from] == event.token_id
        stated = plain.strategy in (SAMPLED, MATCH, BLOCK) and not plain.greedy and not tree
        if kind == "discarded" and plain.strategy != BLOCK:
            expected, accept, threshold, stated = None, None, None, False
        same(event.expected_accept, expected)
        rates = (None,) * 3
        if stated and model is not None:
            best = float(p[int(model.argmax())])
            rates = float(torch.minimum(p, model).sum()), float(p @ model), best
        found = event.sampled_accept, event.matched_accept, event.argmax_accept
        for one, rate in zip(found, rates, strict=True):
            same(one, rate)
        if kind == "proposed":
            assert event.accept_prob is event.uniform is event.threshold is None
            return
        same([p[entry.token_id] for entry in event.draft_top], event.draft_top_target)
        same([q[entry.token_id] for entry in event.target_top], event.target_top_draft)
        same(event.accept_prob, accept)
        same(event.threshold, threshold)
        draws = plain.strategy in (SAMPLED, BLOCK) and not plain.greedy
        assert (event.uniform is not None) == (draws and (judged or not tree))
        if judged and draws and plain.strategy == SAMPLED and not tree:
            assert (event.uniform < accept) == (kind == "accepted")
        if kind == "rejected" and after is not None:
            same(whole(event.residual_top), after)


@pytest.fixture(scope="module")
def decoder() -> SpeculativeDecoder:
    toys = [pair_with_head(6, seed) for seed in (29, 36)]
    tokenizer = letters(*PIECES[1:])
    return SpeculativeDecoder(
        ModelPair(toys[0].target, toys[1].target, tokenizer, head=toys[0].head)
    )


@pytest.fixture(scope="module")
def together(decoder) -> dict[str, Trace]:
    """A run of every kind, all rows in one batch."""
    batch, runs, events = decoder.new_batch(), {}, {}
    for number, (name, (_, options)) in enumerate(ROWS.items()):
        request = Request(PROMPT, Plain(decoder.pair, name).params, **options)
        runs[name] = decoder.prepare(request, first_row=number)
        batch.admit(runs[name].rows)
        events[name] = runs[name].started()
    while going_on := [row for run in runs.values() for row in run.going_on]:
        records = batch.step(going_on)
        for name, run in runs.items():
            events[name] += run.events(records)
    return {name: Trace(found) for name, found in events.items()}


@pytest.mark.parametrize("name", ROWS)
def test_all_numbers_are_those_of_plain_forwards_in_a_batch_and_alone(decoder, together, name):
    plain = Plain(decoder.pair, name)
    alone = decoder.generate(PROMPT, plain.params, **plain.options).trace
    assert together[name].token_ids == alone.token_ids
    for trace in (together[name], alone):
        with torch.no_grad():
            checked = Checked(plain, trace)
        lossy = plain.strategy in (TYPICAL, GREEDY) and plain.params.temperature > 0
        assert trace.settings["lossy"] == lossy
        judged = [e for e in trace if e.kind in ("accepted", "rejected")]
        judged = [e for e in judged if e.argmax_accept is not None]
        if judged:
            rate = "matched_accept" if plain.strategy == MATCH else "sampled_accept"
            rates, mean = trace.draft_sampling_rates, sum(getattr(e, rate) for e in judged)
            same(rates.sampled, mean / len(judged))
            assert rates.used == plain.options.get("draft_sampling", "sampled")
        draws = [draw for draw in checked.draws if draw is not None]
        assert len(set(draws)) == len(draws)
        assert checked.num_drafts == trace.metrics.num_draft_tokens
        assert name != "guided block" or "certain" in checked.kinds
        assert checked.kinds >= {"bonus"} if name == "plain" else {"accepted", "proposed"}
