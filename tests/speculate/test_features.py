"""A drafter that names layers of the target is given their hidden states with every step."""

from dataclasses import replace

import pytest
import torch

from naive_speculate import ModelPair, SamplingParams, SpeculativeDecoder
from naive_speculate.infer import TransformersLanguageModel
from naive_speculate.speculate.draft import DRAFTERS, BatchDrafter, Proposal
from tests.models.llama.llamas import WAYS, made, own_features
from tests.speculate.rows import admitted, finish
from tests.tiny import tiny_llama

HIDDEN = 32
PROMPTS = [[5, 6, 7, 8, 9, 10, 11], [3, 4]]


class Recorder(BatchDrafter):
    """Drafts the target's own tokens, the last of a window changed, and keeps the features of
    all places that were kept."""

    made: list["Recorder"]
    future: dict[tuple[int, ...], list[int]]

    def __init__(self, pair: ModelPair, vocab_size: int, device: torch.device) -> None:
        super().__init__(pair, vocab_size, device)
        self.features: dict[tuple[int, ...], list[torch.Tensor]] = {}
        self.given: list[torch.Tensor | None] = []
        self.made.append(self)

    def propose(self, rows, limits):
        drafts = []
        for row, limit in zip(rows, limits, strict=True):
            known = self.future[tuple(row.prompt_token_ids)]
            generated = len(row.token_ids) - len(row.prompt_token_ids)
            draft = known[generated : generated + limit]
            drafts.append([*draft[:-1], (draft[-1] + 1) % self.vocab_size])
        return Proposal.certain(rows, drafts, self.vocab_size, self.device)

    def commit(self, rows, records, features):
        self.given.append(features)
        if features is None:
            return
        assert features.shape[0] == len(rows)
        assert features.shape[2] == HIDDEN * len(self.layers)
        for row, record, states in zip(rows, records, features, strict=True):
            kept = (
                record.outcome.num_accepted + 1
            )  # the token before the window and the drafts that stand
            self.features.setdefault(tuple(row.prompt_token_ids), []).append(states[:kept])


@pytest.fixture(scope="module", params=WAYS)
def pair(request):
    return ModelPair(
        made(tiny_llama(4, seed=0), request.param), TransformersLanguageModel(tiny_llama(1, seed=1))
    )


@pytest.fixture
def register(monkeypatch):
    """Registers a recorder of some layers and returns the class."""

    def registered(name, layers, future=None):
        fields = {"layers": layers, "made": [], "future": future or {}}
        drafter = type("Named", (Recorder,), fields)
        monkeypatch.setitem(DRAFTERS, name, drafter)
        return drafter

    return registered


def futures(decoder, params):
    results = [
        decoder.generate(prompt, one, num_draft_tokens=0)
        for prompt, one in zip(PROMPTS, params, strict=True)
    ]
    return {
        tuple(prompt): result.token_ids + [0] * 8
        for prompt, result in zip(PROMPTS, results, strict=True)
    }


def check(recorder, prompt, token_ids):
    """What it was given for a row is what the target thinks over its text, from the prompt's
    last token to the last but one."""
    found = torch.cat(recorder.features[tuple(prompt)])
    expected = own_features(
        tiny_llama(4, seed=0), torch.tensor([prompt + token_ids]), recorder.layers
    )[0, len(prompt) - 1 : -1]
    torch.testing.assert_close(found[: len(expected)], expected, atol=2e-4, rtol=2e-4)
    assert len(found) == len(expected)


def test_each_drafter_of_a_batch_sees_the_states_of_its_own_rows_committed_text_and_layers(
    pair, register
):
    decoder = SpeculativeDecoder(pair)
    params = SamplingParams(max_tokens=10, temperature=0)
    future = futures(decoder, [replace(params, max_tokens=15), params])
    first, second = register("first", (3, 0, 2), future), register("second", (3, 1), future)
    none = register("none", (), future)
    batch = decoder.new_batch()
    rows = [
        admitted(decoder, batch, PROMPTS[0], params, drafter="none", num_draft_tokens=3),
        admitted(
            decoder,
            batch,
            PROMPTS[0],
            replace(params, max_tokens=15),
            drafter="first",
            num_draft_tokens=4,
        ),
        admitted(decoder, batch, PROMPTS[1], params, drafter="model", num_draft_tokens=2),
        admitted(decoder, batch, PROMPTS[1], params, drafter="second", num_draft_tokens=2),
        admitted(decoder, batch, PROMPTS[1], params, num_draft_tokens=0),
        admitted(decoder, batch, PROMPTS[1], params, drafter="first", num_draft_tokens=4),
    ]
    finish(batch, rows)
    check(first.made[0], PROMPTS[0], rows[1].output_token_ids)
    check(first.made[0], PROMPTS[1], rows[5].output_token_ids)
    assert all(map(len, (first.made[0].features[tuple(prompt)] for prompt in PROMPTS)))
    check(second.made[0], PROMPTS[1], rows[3].output_token_ids)
    assert none.made[0].given
    assert all(features is None for features in none.made[0].given)


def test_a_drafter_without_layers_costs_no_hidden_states(tiny_pair, register, monkeypatch):
    asked, pair = [], tiny_pair
    forward = type(pair.target).forward

    def watched(self, query, rows, *, num_logits=None, layers=()):
        asked.append(layers)
        return forward(self, query, rows, num_logits=num_logits, layers=layers)

    monkeypatch.setattr(type(pair.target), "forward", watched)
    register("layered", (1,))
    SpeculativeDecoder(pair).generate(
        PROMPTS, SamplingParams(max_tokens=6, seed=1), num_draft_tokens=2
    )
    assert asked
    assert not any(asked)


def test_a_forward_put_before_the_targets_own_is_called(pair, monkeypatch):
    forward, calls = pair.target.forward, []
    monkeypatch.setattr(
        pair.target,
        "forward",
        lambda *args, **options: (calls.append(1), forward(*args, **options))[1],
    )
    SpeculativeDecoder(pair).generate(
        [1, 2, 3], SamplingParams(max_tokens=5, seed=1, ignore_eos=True), num_draft_tokens=0
    )
    assert len(calls) >= 5
