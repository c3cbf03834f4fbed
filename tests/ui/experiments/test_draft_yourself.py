"""The room where a visitor drafts: one call a word, which needs nothing of those before it, and refuses what cannot be."""

import pytest
import torch

from naive_speculate import ModelPair, SpeculativeDecoder
from naive_speculate.serving import LocalEngine
from naive_speculate.serving.run_records import ObservedEngine
from ui.experiments.draft_yourself import TEMPERATURE, WORDS, judge, spaced
from ui.host.catalog import Catalog, ServedPair

TEXT = "Once upon a time there was a"
ASKED = {"text": TEXT, "tokens": [], "word": "king", "sure": 60, "seed": 5, "number": 0}


@pytest.fixture(scope="module")
def catalog(small_decoder):
    engine = LocalEngine(small_decoder)
    yield Catalog({"small": ServedPair(engine)})
    engine.close()


def distributions(decoder, token_ids):
    """What target and draft say of the next token, with the models alone."""
    found = []
    for model in (decoder.pair.target, decoder.pair.draft):
        logits = model.forward(torch.tensor([token_ids]), model.new_cache(1))[0, -1, : decoder.pair.vocab_size].double()
        logits[list(decoder.admission.eos_token_ids)] = -torch.inf  # the text is to go on
        found.append((logits / TEMPERATURE).softmax(dim=-1))
    return found


@torch.no_grad()
def test_alpha_is_the_mixtures_and_the_draft_models_at_the_same_place(catalog, small_decoder):
    asked = dict(ASKED)
    for number, (word, sure) in enumerate((("king", 60), ("who", 0), ("lived", 100))):
        found = judge(catalog, asked | {"word": word, "sure": sure, "number": number})
        history = asked["tokens"] or small_decoder.admission.encode(TEXT)
        p, q = distributions(small_decoder, history)
        (first, *_) = small_decoder.admission.vocabulary.encode(spaced(asked["text"], word), begins=False)
        mixture = q * (1 - sure / 100)
        mixture[first] += sure / 100
        assert found["alpha"] == pytest.approx(float(torch.minimum(p, mixture).sum()), abs=1e-4)
        assert found["draft_alpha"] == pytest.approx(float(torch.minimum(p, q).sum()), abs=1e-4)
        assert found["tokens"][: len(history)] == history
        text = small_decoder.admission.vocabulary.texts(found["tokens"])
        assert "".join(text) == asked["text"] + found["text"]
        for draft in found["drafts"]:
            assert draft["keep"] == pytest.approx(min(1.0, draft["p"] / draft["q"]))
            assert (draft["u"] < draft["keep"]) == (draft["kind"] == "accepted")
        asked |= {"text": asked["text"] + found["text"], "tokens": found["tokens"]}


def test_a_call_needs_no_other_and_gives_the_same_again(catalog):
    assert judge(catalog, ASKED) == judge(catalog, ASKED)
    dice = {judge(catalog, ASKED | {"number": number})["drafts"][0]["u"] for number in range(3)}
    assert len(dice) == 3
    for word in ("king", "hippopotamus", "zzz"):  # the die is the same whatever is written
        assert judge(catalog, ASKED | {"word": word})["drafts"][0]["u"] == judge(catalog, ASKED)["drafts"][0]["u"]


def test_a_word_that_is_drafted_for_certain_is_all_there_with_the_space_that_it_needs(catalog):
    assert judge(catalog, ASKED | {"word": "hippopotamus", "sure": 100})["drafted"] == " hippopotamus"
    texts = [
        ("there was a", "king", " king"),
        ("he said, “", "No", "No"),
        ("the end", ".", "."),
        ("the end.\n", "Then", "Then"),
    ]
    assert [spaced(text, word) for text, word, _ in texts] == [shown for *_, shown in texts]


def test_where_no_draft_has_room_any_more_it_says_so(catalog, small_decoder):
    tokens = small_decoder.admission.encode(TEXT)
    most = small_decoder.pair.target.max_positions
    for room in range(2):
        with pytest.raises(ValueError, match=r"reached the model's limit|positions"):
            judge(catalog, ASKED | {"tokens": (tokens * most)[: most - room]})


def test_the_first_pair_that_has_a_draft_model_judges_and_a_word_is_no_abandoned_run(catalog, small_decoder):
    outcomes = []
    watched = ObservedEngine(catalog.of("").engine, [lambda record: outcomes.append(record.outcome)])
    alone = LocalEngine(SpeculativeDecoder(ModelPair(small_decoder.pair.target, tokenizer=small_decoder.pair.tokenizer)))
    assert judge(Catalog({"alone": ServedPair(alone), "small": ServedPair(watched)}), ASKED) == judge(catalog, ASKED)
    alone.close()
    assert len(outcomes) == 2
    assert "abandoned" not in outcomes


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"word": ""}, "the word is empty"),
        ({"word": None}, "the word is empty"),
        ({"word": "x" * 41}, "40 letters, got 41"),
        ({"word": "two words"}, "please write one word"),
        ({"sure": 101}, "sure must be a number from 0 to 100"),
        ({"sure": "all"}, "sure must be a number"),
        ({"sure": float("nan")}, "sure must be a number"),
        ({"seed": -1}, "seed must be"),
        ({"number": WORDS}, "number must be"),
        ({"text": ""}, "text is empty"),
        ({"text": "x" * 601}, "600 characters, got 601"),
        ({"tokens": [1] * 2001}, "2000 token ids"),
        ({"tokens": ["1"]}, "2000 token ids"),
        ({"tokens": [10**9]}, "expected token ids"),
    ],
)
def test_what_cannot_be_judged_is_refused(catalog, changes, words):
    with pytest.raises(ValueError, match=words):
        judge(catalog, ASKED | changes)
    with pytest.raises(ValueError, match="text is empty"):
        judge(catalog, {})
