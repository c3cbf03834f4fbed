"""Log-probabilities of a prompt are collected chunk by chunk, as the prompt is taken in."""

from dataclasses import replace

import pytest
import torch

from naive_speculate import ModelPair, SamplingParams, SpeculativeDecoder
from naive_speculate.infer import TransformersLanguageModel
from naive_speculate.speculate import prefill as prefill_module
from tests.speculate.rows import admitted, finish
from tests.tiny import tiny_llama

PROMPT = [3 + (7 * number) % 90 for number in range(100)]
PARAMS = SamplingParams(max_tokens=4, seed=2, prompt_logprobs=2)
CHUNK = 16


class Recording:
    """A plain language model that counts the logits requested from it.

    Attributes:
        places: For how many places each forward gave logits.
    """

    eos_token_id = property(lambda self: self.inner.eos_token_id)

    def __init__(self, inner: TransformersLanguageModel) -> None:
        self.inner = inner
        self.vocab_size = inner.vocab_size
        self.places: list[int] = []

    def forward(self, query_token_ids, kv_cache, **options):
        logits = self.inner.forward(query_token_ids, kv_cache, **options)
        self.places.append(logits.shape[0] * logits.shape[1])
        return logits


class RecordingBatches(Recording):
    """The same for a model that decodes rows of different lengths in one forward."""

    max_positions, device = None, torch.device("cpu")

    def new_cache(self, batch_size):
        return self.inner.new_cache(batch_size)


@pytest.fixture(params=[Recording, RecordingBatches])
def target(request, monkeypatch):
    monkeypatch.setattr("naive_speculate.infer.slots.PREFILL_CHUNK", CHUNK)
    return request.param(TransformersLanguageModel(tiny_llama(1, seed=0)))


@pytest.fixture
def decoder(target):
    return SpeculativeDecoder(ModelPair(target))


def check(result, target):
    with torch.no_grad():
        raw = torch.log_softmax(target.inner.model(torch.tensor([PROMPT])).logits[0], -1)
    assert result.prompt_logprobs[0] is None
    assert len(result.prompt_logprobs) == len(PROMPT)
    for place, entry in enumerate(result.prompt_logprobs[1:], start=1):
        expected = {
            token: raw[place - 1, token].item()
            for token in {PROMPT[place], *raw[place - 1].topk(2).indices.tolist()}
        }
        assert {token: found.logprob for token, found in entry.items()} == pytest.approx(
            expected, abs=1e-4
        )


def test_no_forward_gives_logits_for_more_than_a_chunk(decoder, target):
    result, without = (
        decoder.generate(PROMPT, one, num_draft_tokens=0)
        for one in (PARAMS, replace(PARAMS, prompt_logprobs=None))
    )
    assert max(target.places) == CHUNK
    check(result, target)
    assert result.token_ids == without.token_ids


def test_a_chunk_that_fails_can_be_tried_again(decoder, target, monkeypatch):
    failures = [MemoryError()]
    collect = prefill_module.raw_logprobs

    def once_without_memory(*args):
        if len(target.places) == 3 and failures:
            raise failures.pop()
        return collect(*args)

    monkeypatch.setattr(prefill_module, "raw_logprobs", once_without_memory)
    batch = decoder.new_batch()
    row = admitted(decoder, batch, PROMPT, PARAMS, num_draft_tokens=0)
    batch.step([row])
    batch.step([row])
    with pytest.raises(MemoryError):
        batch.step([row])
    assert target.places == [CHUNK] * 3
    finish(batch, [row])
    check(row, target)


def test_other_sequences_go_on_and_get_what_they_would_get_alone(decoder, target):
    beside = SamplingParams(max_tokens=16, seed=3, ignore_eos=True)
    alone = decoder.generate([1, 2, 3], beside, num_draft_tokens=0).token_ids
    batch = decoder.new_batch()
    first = admitted(decoder, batch, [1, 2, 3], beside, num_draft_tokens=0)
    second = admitted(decoder, batch, PROMPT, PARAMS, num_draft_tokens=0)
    for _ in range(4):
        batch.step([first, second])
    assert len(first.output_token_ids) == 4
    assert second.output_token_ids == []
    finish(batch, [first, second])
    assert first.output_token_ids == alone
    check(second, target)
