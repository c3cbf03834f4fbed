"""From logits to probabilities: each parameter against its definition, in the documented order."""

import pytest
import torch

from naive_speculate import SamplingParams
from naive_speculate.guides.guided import GrammarCompiler, GuidedDecodingParams
from naive_speculate.sampling.pipeline import LogitsPipeline

VOCAB = 12
PROMPT = [1, 2, 2]
LOGITS = torch.randn(1, VOCAB, generator=torch.Generator().manual_seed(0), dtype=torch.float64) * 2


def scores(history=(), stops=(), bad_words=(), **values):
    return LogitsPipeline(SamplingParams(**values), PROMPT, VOCAB, stops, bad_words).scores(
        LOGITS, list(history)
    )[0]


def probabilities(**values):
    pipeline = LogitsPipeline(SamplingParams(**values), PROMPT, VOCAB)
    return pipeline.probabilities(pipeline.scores(LOGITS, []))[0]


def kept(**values):
    """The tokens that stay possible."""
    return set(probabilities(**values).nonzero()[:, 0].tolist())


def test_each_warper_keeps_what_its_definition_says():
    """Temperature divides, top-k keeps k tokens, top-p the fewest that reach p; min-p is
    relative to the most probable one."""
    plain = torch.softmax(LOGITS[0], -1)
    torch.testing.assert_close(probabilities(), plain)
    torch.testing.assert_close(probabilities(temperature=0.5), torch.softmax(LOGITS[0] * 2, -1))
    ordered = plain.sort(descending=True)
    assert kept(top_k=3) == set(ordered.indices[:3].tolist())
    for p in (0.01, 0.3, 0.6, 0.95):
        assert kept(top_p=p) == set(
            ordered.indices[: int((ordered.values.cumsum(0) < p).sum()) + 1].tolist()
        )
    assert torch.equal(probabilities(min_p=0.2) > 0, plain >= 0.2 * plain.max())


def test_temperature_comes_before_min_p_and_min_p_before_top_k_and_top_p():
    hot = torch.softmax(LOGITS[0] / 3, -1)
    order = torch.where(hot >= 0.3 * hot.max(), hot, 0).sort(descending=True)
    first = order.values[:5] / order.values[:5].sum()
    size = int((first.cumsum(0) < 0.7).sum()) + 1
    assert kept(temperature=3.0, min_p=0.3, top_k=5, top_p=0.7) == set(
        order.indices[:size].tolist()
    )


def test_repetition_penalty_counts_prompt_and_output():
    found, raw = scores([5, 5], repetition_penalty=1.5), LOGITS[0]
    for token in range(VOCAB):
        penalised = raw[token] / 1.5 if raw[token] > 0 else raw[token] * 1.5
        assert found[token] == pytest.approx(
            (penalised if token in (1, 2, 5) else raw[token]).item()
        )


def test_frequency_and_presence_count_the_output_only():
    found, raw = scores([5, 5, 7], frequency_penalty=0.5, presence_penalty=0.25), LOGITS[0]
    assert found[5] == pytest.approx(raw[5].item() - 1.0 - 0.25)
    assert found[7] == pytest.approx(raw[7].item() - 0.5 - 0.25)
    assert found[2] == raw[2]


def test_min_tokens_forbids_the_end_until_then():
    assert scores([3], stops=[0, 4], min_tokens=2)[[0, 4]].tolist() == [-torch.inf] * 2
    assert torch.equal(scores([3, 3], stops=[0, 4], min_tokens=2), LOGITS[0])


def test_bad_words_forbid_the_token_that_would_complete_them():
    words = [[4], [6, 7, 8]]
    assert (scores([6], bad_words=words) == -torch.inf).nonzero()[:, 0].tolist() == [4]
    assert (scores([1, 6, 7], bad_words=words) == -torch.inf).nonzero()[:, 0].tolist() == [4, 8]
    assert (scores([6, 7, 1], bad_words=words) == -torch.inf).nonzero()[:, 0].tolist() == [4]


def test_logit_bias_is_added_and_clamped():
    found = scores(logit_bias={3: 2.5, 4: -1000.0})
    assert found[3] == pytest.approx(LOGITS[0, 3].item() + 2.5)
    assert found[4] == pytest.approx(LOGITS[0, 4].item() - 100)


def test_allowed_token_ids_forbid_all_others():
    assert (scores(allowed_token_ids=[2, 9]) > -torch.inf).nonzero()[:, 0].tolist() == [2, 9]


def test_custom_processors_see_the_output_and_if_they_want_the_prompt():
    seen = []

    def two(output_token_ids, logits):
        seen.append(("two", list(output_token_ids)))
        return logits + 1

    def three(prompt_token_ids, output_token_ids, logits):
        seen.append(("three", list(prompt_token_ids), list(output_token_ids)))
        return logits * 2

    found = scores([8], logits_processors=[two, three])
    torch.testing.assert_close(found, (LOGITS[0] + 1) * 2)
    assert seen == [("two", [8]), ("three", PROMPT, [8])]


def test_biases_come_before_processors_which_keep_the_shape_and_processors_before_penalties():
    found = scores(
        [5], logit_bias={5: 4.0}, logits_processors=[lambda o, x: x * 10], presence_penalty=1.0
    )
    assert found[5] == pytest.approx((LOGITS[0, 5].item() + 4.0) * 10 - 1.0)
    with pytest.raises(ValueError, match="logits_processors"):
        scores(logits_processors=[lambda output, logits: logits[:3]])


def test_along_a_window_each_place_has_the_drafts_before_it_as_history():
    params = SamplingParams(frequency_penalty=0.7, min_tokens=2, repetition_penalty=1.2)
    pipeline = LogitsPipeline(params, PROMPT, VOCAB, [0], [[5, 6]])
    rows = torch.randn(4, VOCAB, generator=torch.Generator().manual_seed(1))
    together = pipeline.scores(rows, [3], [5, 5, 8])
    for place in range(4):
        alone = pipeline.scores(rows[place : place + 1], [3, 5, 5, 8][: place + 1])
        torch.testing.assert_close(together[place], alone[0])


@pytest.mark.parametrize(
    ("values", "options", "message"),
    [
        (
            {"allowed_token_ids": [12]},
            {},
            "allowed_token_ids holds token 12, but the vocabulary ends at 11",
        ),
        ({"logit_bias": {99: 1.0}}, {}, "logit_bias holds token 99"),
        ({"allowed_token_ids": [3]}, {"bad_words": [[3]]}, "no token is left"),
        ({"allowed_token_ids": [0], "min_tokens": 1}, {"stop_token_ids": [0]}, "no token is left"),
    ],
)
def test_settings_that_leave_no_token_are_refused(values, options, message):
    with pytest.raises(ValueError, match=message):
        LogitsPipeline(SamplingParams(**values), PROMPT, VOCAB, **options)


def test_a_grammar_can_be_asked_about_any_history(small_decoder):
    tokenizer, vocab_size = small_decoder.pair.tokenizer, small_decoder.pair.vocab_size
    compiler = GrammarCompiler(tokenizer, vocab_size, [tokenizer.eos_token_id])
    mask = compiler.compile(GuidedDecodingParams(regex="(north|south)(east|west)?"))

    def allowed(text: str) -> set[str]:
        row = torch.zeros(vocab_size)
        mask.apply(row, tokenizer(text).input_ids)
        return {tokenizer.decode([token]) for token in (row > -torch.inf).nonzero()[:, 0].tolist()}

    assert all("north".startswith(piece) or "south".startswith(piece) for piece in allowed(""))
    assert {"e", "w", "<|endoftext|>"} <= allowed("north")
    assert "o" in allowed("s")  # rolled back
    assert allowed("northeast") == {"<|endoftext|>"}
    assert {"n", "w", "z", " the"} <= allowed(
        "west"
    )  # refused by the grammar: probability 0 already
