"""Drafters that copy: lossless, in batches, with cancelled, failed and repeated steps; and the
positions copied from."""

from dataclasses import replace
from itertools import product

import pytest

from naive_speculate import (
    EventKind,
    ModelPair,
    SamplingParams,
    SpeculativeDecoder,
    Trace,
    VerifyStrategy,
)
from naive_speculate.infer import TransformersLanguageModel
from tests.speculate.rows import admitted
from tests.speculate.toys import ToyModel, check_lossless
from tests.tiny import tiny_llama

COPYING = ["suffix", "prompt_lookup"]
PROMPTS = [
    [5, 6, 7, 8, 5, 6],
    [9, 9, 9],
    [3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8, 9, 7, 9, 3, 1],
    [50] + [60, 61, 62] * 6,
]
SETS = {
    "as it is": {},
    "many": {"temperature": 0.8, "top_k": 3, "frequency_penalty": 0.5, "min_tokens": 1},
}


@pytest.fixture(scope="module")
def decoder() -> SpeculativeDecoder:
    """A target alone; much of what it writes it has written before."""
    return SpeculativeDecoder(ModelPair(TransformersLanguageModel(tiny_llama(1, seed=0))))


def greedy(max_tokens: int) -> SamplingParams:
    return SamplingParams(temperature=0, max_tokens=max_tokens)


@pytest.mark.parametrize(
    ("drafter", "strategy", "name", "k"),  # every two of the first three together
    [
        ("suffix", VerifyStrategy.SPECULATIVE_SAMPLING, "as it is", 2),
        ("suffix", VerifyStrategy.BLOCK_VERIFICATION, "many", "auto"),
        ("suffix", VerifyStrategy.TYPICAL_ACCEPTANCE, "as it is", 2),
        ("prompt_lookup", VerifyStrategy.SPECULATIVE_SAMPLING, "many", "auto"),
        ("prompt_lookup", VerifyStrategy.BLOCK_VERIFICATION, "as it is", 2),
        ("prompt_lookup", VerifyStrategy.GREEDY_MATCH, "many", 2),
    ],
)
def test_every_path_through_the_decoder_gives_the_targets_distribution(drafter, strategy, name, k):
    """Of typical acceptance, a distribution."""
    pair, params = (
        ModelPair(ToyModel(3, 6, zeros=False)),
        SamplingParams(max_tokens=4, **SETS[name]),
    )
    if strategy == VerifyStrategy.GREEDY_MATCH:
        params = replace(params, temperature=0)
    within = 1.0 if strategy == VerifyStrategy.TYPICAL_ACCEPTANCE else 1e-12
    check_lossless(
        pair, params, k, [1, 2, 1, 2], drafter=drafter, verify_strategy=strategy, within=within
    )


def sources(trace: Trace) -> list[int | None]:
    return [event.copied_from for event in trace if event.kind == EventKind.PROPOSED]


def check_sources(trace: Trace, drafter: str) -> None:
    text = list(trace.started.prompt_token_ids)
    seen = 0
    for event in trace:
        if event.kind == EventKind.PROPOSED:
            place = event.copied_from
            assert 0 <= place < len(text)
            assert text[place] == event.token_id
            seen += 1
        else:
            assert event.copied_from is None
        if event.kind in (EventKind.ACCEPTED, EventKind.RESAMPLED, EventKind.BONUS):
            text.append(event.token_id)
    assert seen > 0 or drafter == "suffix"


@pytest.mark.parametrize(("drafter", "detail"), zip(COPYING, ("full", "none"), strict=True))
def test_proposed_events_say_where_the_token_was_copied_from(decoder, drafter, detail):
    """Sequences of one prompt each follow their own text."""
    for params in (greedy(20), SamplingParams(n=3, max_tokens=12, seed=5, temperature=0.6)):
        result = decoder.generate(PROMPTS[3], params, drafter=drafter, detail=detail)
        for output in result.outputs or [result]:
            check_sources(output.trace, drafter)
            assert None not in sources(output.trace)
            assert sources(Trace.from_jsonl(output.trace.to_jsonl())) == sources(output.trace)


@pytest.mark.parametrize("drafter", COPYING)
def test_after_a_step_that_failed_drafting_goes_on_from_what_is_committed(
    decoder, drafter, monkeypatch
):
    undisturbed = decoder.generate(PROMPTS[3], greedy(20), drafter=drafter)
    batch = decoder.new_batch()
    row = admitted(decoder, batch, PROMPTS[3], greedy(20), drafter=drafter)
    while not row.ended:
        with monkeypatch.context() as patched:
            patched.setattr(batch.runner, "score", lambda *args: 1 / 0)
            with pytest.raises(ZeroDivisionError):
                batch.step([row])
            batch.rewind([row])
        batch.step([row])
        index = batch.drafters[drafter].indexes[row]
        assert row.ended or index.num_tokens == len(row.token_ids)
    assert row.output_token_ids == undisturbed.token_ids
    batch.release([row])
    assert not batch.drafters[drafter].indexes


def test_earlier_outputs_are_drafted_from_where_they_are_wanted(decoder):
    keeping = SpeculativeDecoder(decoder.pair, earlier_outputs=4)
    assert decoder.earlier is None
    prompt, params = [11, 12, 13, 14], greedy(40)
    expected = decoder.generate(prompt, params, drafter="suffix")
    first, second = (keeping.generate(prompt, params, drafter="suffix") for _ in range(2))
    assert first.token_ids == second.token_ids == expected.token_ids
    assert sources(first.trace) == sources(
        expected.trace
    )  # from an empty trie a seed repeats a run
    assert second.metrics.num_spec_steps < first.metrics.num_spec_steps
    assert None in sources(second.trace)  # from an earlier output, which is not in this text
    for _, number in product(range(2), range(5)):
        keeping.generate([number + 1, 2], greedy(5), drafter="suffix")
    assert len(keeping.earlier) == 4
