"""Copying where the text repeats itself and a draft head elsewhere: by row and step, lossless, and both keep up."""

import pytest
import torch

from naive_speculate import EventKind, ModelPair, SamplingParams, SpeculativeDecoder, Trace, VerifyStrategy
from naive_speculate.infer import TransformersLanguageModel
from naive_speculate.infer.head.checkpoint import load_head
from naive_speculate.speculate.draft.head import HeadDrafter
from naive_speculate.speculate.draft.suffix import SuffixDrafter
from naive_speculate.speculate.draft.suffix_head import MIN_MATCH
from naive_speculate.testing import prove_lossless
from naive_speculate.testing.toy_head import pair_with_head
from tests.heads import save_head
from tests.speculate.rows import admitted
from tests.speculate.test_head_drafter import CONFIG, DEPTH, LAYERS, TENSORS, check
from tests.tiny import tiny_llama

BOTH = "suffix+head"
NEW, REPEATING = [5, 17, 80, 3], [50] + [60, 61, 62] * 6
PROMPTS = [NEW, REPEATING, [61], [9] * 11 + [4, 33]]
PARAMS = {
    "plain": SamplingParams(max_tokens=3, ignore_eos=True),
    "warped": SamplingParams(max_tokens=4, temperature=1.6, top_k=2, top_p=0.95, presence_penalty=0.7, ignore_eos=True),
}
LOSSLESS = [("plain", VerifyStrategy.BLOCK_VERIFICATION), ("warped", VerifyStrategy.SPECULATIVE_SAMPLING)]


@pytest.fixture(scope="module")
def decoder(tmp_path_factory) -> SpeculativeDecoder:
    """Much of what its target writes it has written before."""
    folder = save_head(
        tmp_path_factory.mktemp("head"), "speculators", CONFIG, TENSORS, eagle_aux_hidden_state_layer_ids=list(LAYERS)
    )
    target = TransformersLanguageModel(tiny_llama(DEPTH, seed=0))
    return SpeculativeDecoder(ModelPair(target, head=load_head(folder, target, target.device, torch.float32, "torch")))


def params(**more) -> SamplingParams:
    return SamplingParams(**{"max_tokens": 30, "seed": 3, "ignore_eos": True} | more)


def copied(trace: Trace) -> list[int | None]:
    """Where each draft was copied from; None for the head's."""
    return [event.copied_from for event in trace if event.kind == EventKind.PROPOSED]


def num_shared_end(text: list[int]) -> int:
    """The most tokens at the end of a text that occur before."""
    ends = range(1, len(text))
    return max((n for n in ends if any(text[at : at + n] == text[-n:] for at in range(len(text) - n))), default=0)


@pytest.mark.parametrize(("name", "strategy"), LOSSLESS)
def test_the_output_distribution_is_the_target_s_with_windows_of_either_kind(name, strategy, monkeypatch):
    calls = []
    for drafter, method in ((SuffixDrafter, "proposal"), (HeadDrafter, "propose")):
        before = getattr(drafter, method)
        monkeypatch.setattr(
            drafter, method, lambda self, *args, before=before, kind=drafter: (calls.append(kind), before(self, *args))[1]
        )
    options = {"pair": pair_with_head(3, 3), "prompt": [1, 2, 1, 2, 1], "num_draft_tokens": 2}
    proof = prove_lossless(drafter=BOTH, verifier=strategy, params=PARAMS[name], **options)
    assert proof.lossless, str(proof)
    assert proof.max_difference < 1e-12
    assert set(calls) == {SuffixDrafter, HeadDrafter}


def test_it_can_be_proven_without_models_of_one_s_own():
    proof = prove_lossless(drafter=BOTH, verifier="speculative_sampling", params=SamplingParams(max_tokens=2))
    assert proof.lossless, str(proof)


def test_greedy_output_is_plain_decoding_s_on_the_bundled_pair(bundled_decoder):
    """The pair that has a head."""
    prompts = ["apples, pears, plums, apples, pears, plums, apples,", "Once upon a time"]
    greedy = SamplingParams(temperature=0, max_tokens=20)
    plain = bundled_decoder.generate(prompts, greedy, num_draft_tokens=0, detail="none")
    found = bundled_decoder.generate(prompts, greedy, num_draft_tokens=8, drafter=BOTH, detail="none")
    assert [result.token_ids for result in found] == [result.token_ids for result in plain]
    first, second = (copied(result.trace) for result in found)
    assert first[0] is not None
    assert second[0] is None
    assert found[0].trace.started.head_layers == list(bundled_decoder.pair.head.layers)


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_row_copies_after_a_long_match_and_the_head_drafts_by_its_definition_elsewhere(decoder, temperature):
    result = decoder.generate(REPEATING, params(temperature=temperature, max_tokens=40), drafter=BOTH, detail="probs")
    text, kinds = list(REPEATING), set()
    for event in result.trace:
        if event.kind == EventKind.PROPOSED and event.index == 0:
            assert (event.copied_from is not None) == (num_shared_end(text) >= MIN_MATCH)
            kinds.add(event.copied_from is None)
        if event.kind in (EventKind.ACCEPTED, EventKind.RESAMPLED, EventKind.BONUS):
            text.append(event.token_id)
    assert kinds == {True, False}
    check([event for event in result.trace if event.copied_from is None], REPEATING, count=1)


def test_rows_of_a_batch_are_what_they_are_alone(decoder):
    settings = [params(max_tokens=16, seed=number, temperature=(0.0, 0.6)[number % 2]) for number in range(len(PROMPTS))]
    options = {"num_draft_tokens": "auto", "drafter": BOTH}
    together = decoder.generate(PROMPTS, settings, **options)
    for prompt, one, found in zip(PROMPTS, settings, together, strict=True):
        alone = decoder.generate(prompt, one, **options)
        assert found.token_ids == alone.token_ids
        assert copied(found.trace) == copied(alone.trace)
    kinds = {place is None for found in together for place in copied(found.trace)}
    assert kinds == {True, False}


def test_the_head_is_asked_again_after_more_copies_than_a_window_of_its_own_begins_with(decoder, monkeypatch):
    """A row that copies for long is prefilled in between; then the head's first window is what its definition says."""
    monkeypatch.setattr("naive_speculate.speculate.draft.head._MAX_QUERY", 6)
    batch = decoder.new_batch()
    settings = params(temperature=0, max_tokens=40)
    row = admitted(decoder, batch, REPEATING, settings, drafter=BOTH, num_draft_tokens=4)
    drafter = batch.drafters[BOTH]
    while not row.ended:
        batch.step([row])
        if not row.ended:
            history = drafter.head.histories[row]
            assert history.end == len(row.token_ids) - 1
            assert len(history.states) <= 6 + 4 + 1
            assert drafter.suffix.indexes[row].num_tokens == len(row.token_ids)
    assert row.output_token_ids == list(decoder.generate(REPEATING, settings, num_draft_tokens=0).token_ids)
    batch.release([row])
    assert not drafter.head.histories
    assert not drafter.suffix.indexes


def test_after_a_step_that_failed_both_go_on_from_what_is_committed(decoder, monkeypatch):
    greedy = params(temperature=0)
    undisturbed = decoder.generate(REPEATING, greedy, drafter=BOTH)
    batch = decoder.new_batch()
    row = admitted(decoder, batch, REPEATING, greedy, drafter=BOTH)
    before = batch.score
    while not row.ended:

        def fail(*args):
            monkeypatch.setattr(batch, "score", before)
            raise RuntimeError("no memory")

        monkeypatch.setattr(batch, "score", fail)
        with pytest.raises(RuntimeError, match="no memory"):
            batch.step([row])
        batch.rewind([row])
        batch.step([row])
    assert row.output_token_ids == list(undisturbed.token_ids)
    assert row.num_steps == undisturbed.metrics.num_spec_steps


def test_sequences_of_one_prompt_each_follow_their_own_text(decoder):
    found = decoder.generate(REPEATING, params(n=2), drafter=BOTH, detail="probs")
    for output in found.outputs:
        assert output.trace.finished.finish_reason == "length"
        check([event for event in output.trace if event.copied_from is None], REPEATING, count=0)


def test_a_pair_without_a_head_is_refused_in_words(decoder):
    with pytest.raises(ValueError, match=r"^drafter is 'suffix\+head', but this pair has no draft head$"):
        SpeculativeDecoder(ModelPair(decoder.pair.target)).generate([1, 2], drafter=BOTH)


def test_it_costs_what_the_head_costs_and_may_be_the_pair_s_fastest(decoder):
    pair = decoder.pair
    assert pair.costs(BOTH) == pair.costs("head") != pair.costs("suffix")
    assert ModelPair(pair.target, head=pair.head, fastest_drafter=BOTH).default_drafter == BOTH
