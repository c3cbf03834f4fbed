"""A draft window in one call is the window that the same forwards, one by one, would have given."""

import numpy as np
import pytest
import torch
from transformers import LlamaForCausalLM

from naive_speculate import ModelPair, SamplingParams, SpeculativeDecoder
from naive_speculate.infer.llama import onnx, onnx_window
from naive_speculate.infer.llama.model import LlamaLanguageModel
from naive_speculate.sampling.random_source import SeededRandom, num_noises
from naive_speculate.speculate.draft import DRAFTERS, ModelDrafter
from tests.tiny import tiny_llama


class OneByOne(LlamaLanguageModel):
    """The same model without windows in one call."""

    drafts_windows = False


def small_llama(seed: int) -> LlamaForCausalLM:
    """As `tiny_llama`, with heads wide enough for the fast form of attention, which alone is unrolled."""
    config = tiny_llama(1, seed=0).config
    config.num_attention_heads, config.num_key_value_heads, config.head_dim = 2, 1, 16
    torch.manual_seed(seed)
    return LlamaForCausalLM(config).eval()


def executed(seed: int, kind=LlamaLanguageModel) -> LlamaLanguageModel:
    return kind.from_transformers(small_llama(seed), "onnx")


@pytest.fixture(scope="module")
def pairs() -> tuple[ModelPair, ModelPair]:
    """A pair whose draft makes windows in one call, and the same pair without."""
    target = executed(0)
    return ModelPair(target, executed(1)), ModelPair(target, executed(1, OneByOne))


def outputs(pair: ModelPair, prompts, params, **options) -> list:
    results = SpeculativeDecoder(pair).generate(prompts, params, **options)
    return [(result.token_ids, [event.to_dict(without=("time",)) for event in result.trace]) for result in results]


def without_times(runs: list) -> list:
    times = ("time", "draft_seconds", "verify_seconds", "total_seconds", "metrics", "models", "run_id")
    return [(ids, [{k: v for k, v in event.items() if k not in times} for event in events]) for ids, events in runs]


def check_alike(fast: list, slow: list, tolerance: float = 1e-5) -> None:
    """Both ways wrote the same, in the same steps, with the same numbers."""
    for (tokens, events), (other_tokens, other_events) in zip(without_times(fast), without_times(slow), strict=True):
        assert tokens == other_tokens
        for event, other in zip(events, other_events, strict=True):
            assert event.keys() == other.keys()
            for name, value in event.items():
                expected = pytest.approx(other[name], abs=tolerance) if isinstance(value, float) else other[name]
                assert value == expected, name


WINDOWS = [{"num_draft_tokens": 4}, {"num_draft_tokens": "auto"}, {"num_draft_tokens": 7, "draft_confidence": 0.4}]


@pytest.mark.parametrize(
    ("temperature", "window", "detail"),  # every two of them together
    [
        (temperature, window, ("none", "probs")[(one + other) % 2])
        for one, temperature in enumerate((0.0, 0.6, 1.0))
        for other, window in enumerate(WINDOWS)
    ],
)
def test_the_same_seed_gives_the_same_run_either_way(pairs, temperature, detail, window):
    params = [SamplingParams(temperature=temperature, max_tokens=n, seed=n) for n in (14, 7, 10)]
    prompts = [[1, 2, 3], [7, 8, 9, 10, 11, 3], [5]]
    check_alike(*(outputs(pair, prompts, params, detail=detail, drafter="model", **window) for pair in pairs))


def test_a_window_is_made_in_one_call_where_nothing_must_be_looked_at(pairs, monkeypatch):
    made: list[int] = []
    original = LlamaLanguageModel.draft_window

    def watched(*given):
        found = original(*given)
        made.extend([] if found is None else [found[0].shape[1]])
        return found

    monkeypatch.setattr(LlamaLanguageModel, "draft_window", watched)
    decoder = SpeculativeDecoder(pairs[0])
    for params in (SamplingParams(temperature=0), SamplingParams(temperature=0.7, seed=1)):
        decoder.generate([1, 2, 3], params, num_draft_tokens=4, drafter="model")
    assert set(made) == {4}  # one length, and so one graph, even where the run has room for fewer
    made.clear()
    for options in ({"num_draft_tokens": "auto"}, {"num_draft_tokens": 9, "draft_confidence": 0.3}):
        decoder.generate([1, 2, 3], SamplingParams(temperature=0.7, seed=1), drafter="model", **options)
    assert set(made) == {4}
    made.clear()
    for params in (SamplingParams(top_p=0.9), SamplingParams(presence_penalty=1.0), SamplingParams(temperature=0.001)):
        decoder.generate([1, 2, 3], params, num_draft_tokens=4, drafter="model")
    decoder.generate([1, 2] * 95, SamplingParams(max_tokens=8), num_draft_tokens=60, drafter="model")  # positions end before
    assert not made


@pytest.mark.parametrize("stop", [0, 26, 52])
def test_draws_after_a_stop_token_are_not_taken(pairs, stop):
    """A row's later draws must not depend on how far others' windows went."""
    params = SamplingParams(temperature=1.0, max_tokens=15, seed=stop, stop_token_ids=[stop], min_tokens=0)
    fast, slow = (outputs(pair, [[1, 2, 3], [4, 5]], params, num_draft_tokens=5, drafter="model") for pair in pairs)
    assert [tokens for tokens, _ in fast] == [tokens for tokens, _ in slow]


def test_a_model_keeps_few_windows_and_a_larger_model_none(monkeypatch):
    monkeypatch.setattr(onnx_window, "MAX_WINDOWS", 2)
    model = executed(1)
    cache, tokens = model.new_cache(1), torch.tensor([[1, 2, 3]])
    model.forward(tokens, cache)
    found = [model.draft_window(tokens[:, :1], cache.all_rows(), k, 97) for k in (5, 3, 5, 2, 5, 3)]
    assert [drafts.shape[1] for drafts, _ in found] == [5, 3, 5, 2, 5, 3]
    kept = model._forward._windows._sessions
    assert [k for _, k, *_ in kept] == [5, 3]
    monkeypatch.setattr(onnx, "MAX_WINDOWED", 1000)
    assert not executed(1).drafts_windows


def test_noise_in_bulk_is_the_noise_of_the_draws():
    probs = torch.softmax(torch.randn(5, 50, generator=torch.Generator().manual_seed(0)), dim=-1)
    drawing, racing = SeededRandom(3), SeededRandom(3)
    drawn = [int(drawing.categorical(row)) for row in probs]
    size = 7
    won = []
    for row, noise in zip(probs.numpy(), racing.noise(5, 50), strict=True):
        assert len(noise) == num_noises(50)
        block = int((np.add.reduceat(row, range(0, 50, size)) / noise[:8]).argmax())
        members = row[block * size :][:size]
        won.append(block * size + int((members / noise[8:][: len(members)]).argmax()))
    assert won == drawn


def test_logits_that_are_no_numbers_are_left_to_the_host():
    """A place without a distribution gets one that a draft can be drawn from, as ever."""
    broken = small_llama(2)
    with torch.no_grad():
        broken.lm_head.weight.fill_(torch.nan)
    pair = ModelPair(executed(0), LlamaLanguageModel.from_transformers(broken, "onnx"))
    decoder = SpeculativeDecoder(pair)
    params = SamplingParams(temperature=1.0, max_tokens=12, seed=1)
    result = decoder.generate([1, 2, 3], params, num_draft_tokens=3, drafter="model")
    assert result.finish_reason in ("length", "stop")
    assert result.metrics.num_draft_tokens > 0


def test_a_draft_with_padded_logits_never_drafts_the_padding():
    """Tokens after the target's vocabulary have no meaning, whatever the draft thinks of them."""
    target, wide = executed(0), small_llama(3)
    wide.resize_token_embeddings(wide.config.vocab_size + 24, mean_resizing=False)
    with torch.no_grad():
        wide.lm_head.weight[-24:] *= 50
    pair = ModelPair(target, LlamaLanguageModel.from_transformers(wide, "onnx"))
    drafter = ModelDrafter(pair, pair.vocab_size, torch.device("cpu"))
    assert drafter.pool.model.vocab_size > pair.vocab_size
    for temperature in (0.0, 1.0):
        params = SamplingParams(temperature=temperature, max_tokens=12, seed=1)
        trace = SpeculativeDecoder(pair).generate([1, 2, 3], params, num_draft_tokens=4, drafter="model").trace
        drafts = [event.token_id for event in trace if event.kind == "proposed"]
        assert drafts
        assert max(drafts) < pair.vocab_size


def test_what_a_drafter_puts_in_the_place_of_such_a_window_is_what_the_target_reads(pairs, monkeypatch):
    decoder, params = SpeculativeDecoder(pairs[0]), SamplingParams(temperature=0, max_tokens=12)
    known = decoder.generate([1, 2, 3], params, num_draft_tokens=0).token_ids

    class Foreseeing(ModelDrafter):
        """Drafts what the target will write."""

        def propose(self, rows, limits):
            made = super().propose(rows, limits)
            done = len(rows[0].output_token_ids)
            token_ids = torch.tensor([(known + [0] * 20)[done : done + made.token_ids.shape[1]]])
            return made._replace(token_ids=token_ids)

    monkeypatch.setitem(DRAFTERS, "foreseeing", Foreseeing)
    result = decoder.generate([1, 2, 3], params, num_draft_tokens=4, drafter="foreseeing", detail="none")
    assert result.token_ids == known
    assert result.metrics.draft_acceptance_rate == 1
