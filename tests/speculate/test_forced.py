"""Text that a grammar forces is drafted without a drafter, and marked: lossless, and the same in
a batch and alone."""

import random
from collections import Counter

import pytest
import torch

from naive_speculate import EventKind, ModelPair, SamplingParams, SpeculativeDecoder, Trace
from naive_speculate.events import OUTPUT_KINDS
from naive_speculate.guides.guided import GrammarCompiler, GuidedDecodingParams
from naive_speculate.speculate.draft import DRAFTERS, BatchDrafter, Proposal
from naive_speculate.text import Vocabulary
from tests.speculate.toys import ToyModel, check_lossless
from tests.tokenizers_of_tests import letters, unigram

SCHEMA = {
    "type": "object",
    "properties": {"first_name": {"enum": ["Ann", "Bob"]}, "age_in_years": {"enum": [1, 2]}},
    "required": ["first_name", "age_in_years"],
}
JSON = {"json": SCHEMA, "disable_any_whitespace": True}
# after its first letter, "bc" or "ab" must follow, as one token or as two
GUIDE = {"regex": "(abc|cab)(ab|c)"}


@pytest.fixture(scope="module")
def toys():
    """Few tokens, some of which spell the same text."""
    return ModelPair(ToyModel(6, 1), ToyModel(6, 2), letters("a", "b", "c", "ab", "bc"))


@pytest.mark.parametrize(
    ("drafter", "params"),
    [("model", {"temperature": 1.4, "top_k": 3, "presence_penalty": 0.5}), ("suffix", {})],
)
def test_the_output_distribution_is_that_of_plain_decoding(toys, drafter, params):
    params = SamplingParams(max_tokens=4, guided_decoding=GUIDE, **params)
    assert len(check_lossless(toys, params, drafter=drafter)) > 8


def test_forced_tokens_are_marked_and_need_no_drafter(toys, monkeypatch):
    asked = []

    class Nothing(BatchDrafter):
        def propose(self, rows, limits):
            asked.extend(row.output_token_ids for row in rows)
            return Proposal.certain(rows, [[] for _ in rows], self.vocab_size, self.device)

    monkeypatch.setitem(DRAFTERS, "nothing", Nothing)
    params = SamplingParams(max_tokens=9, seed=3, guided_decoding={"regex": "cb(ab|c)"})
    events = list(
        SpeculativeDecoder(toys).stream([1, 2], params, drafter="nothing", num_draft_tokens=4)
    )
    drafts = [
        (event.token, event.forced, event.draft_prob)
        for event in events
        if event.kind == EventKind.PROPOSED
    ]
    assert drafts[:2] == [
        ("c", "token", 1.0),
        ("b", "text", 1.0),
    ]  # only "c" begins with "c", "bc" too begins with "b"
    assert [] not in asked
    ends = [event for event in events if event.kind in OUTPUT_KINDS and event.token == "<e>"]
    assert [event.forced for event in ends] == ["token"]
    assert all(
        event.argmax_accept is None for event in events if event.forced
    )  # no model drafted them


def test_json_keys_take_fewer_steps_and_greedy_output_is_the_same(small_decoder, tmp_path):
    params = SamplingParams(max_tokens=60, temperature=0, guided_decoding=JSON)
    plain = small_decoder.generate("Once", params, num_draft_tokens=0)
    events = list(small_decoder.stream("Once", params, num_draft_tokens=8, drafter="suffix"))
    assert [event.token_id for event in events if event.kind in OUTPUT_KINDS] == plain.token_ids
    kinds = Counter(event.forced for event in events if event.kind == EventKind.ACCEPTED)
    assert kinds["text"] > 3
    trace = Trace(events)
    trace.save(tmp_path / "forced.jsonl")
    assert Trace.load(tmp_path / "forced.jsonl").events == events


def test_the_forced_text_of_a_history_ends_with_a_whole_character(toys, small_decoder):
    mask = GrammarCompiler(toys.tokenizer, 6, [0]).compile(GuidedDecodingParams(**GUIDE))
    expected = {
        (): "",
        (1,): "bc",
        (1, 2): "c",
        (4,): "c",
        (3,): "ab",
        (3, 4): "",
        (2,): "",
        (1, 5, 3): "",
        (1, 5, 3, 0): "",
    }
    for history, text in expected.items():
        assert mask.forced_text(list(history)) == text
    tokenizer = small_decoder.pair.tokenizer
    compiler = GrammarCompiler(tokenizer, small_decoder.pair.vocab_size, [tokenizer.eos_token_id])
    mask = compiler.compile(GuidedDecodingParams(regex="h(é|è)x"))
    assert mask.forced_text([]) == "h"
    assert mask.forced_text(tokenizer("h", add_special_tokens=False).input_ids) == ""


def test_text_that_no_tokens_spell_is_left_to_the_drafter():
    vocabulary = Vocabulary(unigram())  # which writes a space before every text
    history = vocabulary.encode("def there")
    assert vocabulary.continuing("self", history) == []
    found = vocabulary.continuing(" self", history)
    assert "".join(vocabulary.texts([*history, *found])).endswith("def there self")


def test_a_rejected_copy_is_not_forced_where_the_grammar_allows_only_another_token(toys):
    params = SamplingParams(max_tokens=6, seed=3, guided_decoding={"regex": "(a|b)c(a|b)c"})
    events = list(
        SpeculativeDecoder(toys).stream(
            [1, 2, 1, 2, 1], params, drafter="suffix", num_draft_tokens=3
        )
    )
    rejected = [event for event in events if event.kind == EventKind.REJECTED]
    assert rejected
    assert {event.forced for event in rejected} == {None}


def test_a_guide_follows_any_history_after_any_other_also_across_the_end(toys):
    """As drafts that are rejected lead it back, from beyond the end token, too."""
    compiler = GrammarCompiler(toys.tokenizer, 6, [0])
    guide, dice = GuidedDecodingParams(**GUIDE), random.Random(1)
    histories, expected = [[]], {}
    for history in histories:  # all that the guide allows, and one token more after the end
        mask, scores = compiler.compile(guide), torch.zeros(6)
        mask.apply(scores, list(history))
        expected[tuple(history)] = scores.tolist(), compiler.compile(guide).forced_text(history)
        allowed = [token for token, score in enumerate(scores.tolist()) if score == 0]
        if len(history) < 6 and history[-2:-1] != [0]:
            histories += [[*history, token] for token in allowed]
    assert sum(0 in history for history in histories) > 5
    mask = compiler.compile(guide)
    for history in dice.choices(histories, k=600):
        scores = torch.zeros(6)
        if dice.random() < 0.5:
            assert mask.forced_text(list(history)) == expected[tuple(history)][1]
        mask.apply(scores, list(history))
        assert scores.tolist() == expected[tuple(history)][0]
