"""The rooms below the lessons: the doctor, two texts that differ, and drafting by oneself."""

import re
from itertools import cycle

import pytest
import torch

from naive_speculate import ModelPair, SpeculativeDecoder
from naive_speculate.serving import LocalEngine
from naive_speculate.tools.doctor import read
from tests import engine_samples as samples
from ui.experiments import compare_texts, doctor
from ui.experiments.doctor import EXAMPLES, example
from ui.experiments.draft_yourself import TEMPERATURE, WORDS, judge, spaced
from ui.host.catalog import Catalog, ServedPair

ALL = {name: text for name, text in vars(samples).items() if name.isupper()}


def test_the_examples_are_the_samples_of_the_tests_and_markup_in_a_log_is_only_text():
    assert [example(engine) for engine in EXAMPLES] == [
        samples.VLLM_LOG,
        samples.LLAMACPP_STATISTICS,
        samples.SGLANG_META_INFO,
    ]
    assert example("../pair/costs.json") == example(None) == ""
    assert (
        "<script"
        not in doctor.findings({"log": samples.LLAMACPP_EXAMPLE + "<script>window.hit=1</script>"})[
            "words"
        ]
    )
    with pytest.raises(ValueError, match="none of the supported formats"):
        doctor.findings({"log": "<script>"})


@pytest.mark.parametrize(("name", "cost"), zip(ALL, cycle(["", "0.1", "0.6B / 8B"]), strict=False))
def test_every_format_is_reported_and_drawn(name, cost):
    found = doctor.findings(
        {"log": ALL[name], "draft_cost": cost, "verify_cost": "1, 1.02, 1.05" if cost else ""}
    )
    assert read(ALL[name]).engine in found["words"]
    options = set(re.findall(r"--[a-z-]+", found["words"])) - {
        "--draft-p-min"
    }  # that one is llama.cpp's
    assert not options, "the page has fields instead of options"
    assert "target pass" in found["report"] or "the window is missing" in found["report"]
    for figure in found["charts"].values():
        assert figure["layout"]["meta"]
        for trace in figure["data"]:
            assert len(trace["x"]) == len(trace["y"]) > 0
            assert None not in trace["y"]


DIFFERING = {
    "prompt": "Once upon a time",
    "a": " there was a <b>fox</b>.",
    "b": " there was a hen.",
    "greedy": "on",
}
TEXT = "Once upon a time there was a"
ASKED = {"text": TEXT, "tokens": [], "word": "king", "sure": 60, "seed": 5, "number": 0}


def test_the_answer_names_verdict_tokens_and_margins_and_escapes_the_texts(catalog):
    sampled = DIFFERING | {"a": " there was a king", "b": " there was a fox", "greedy": ""}
    unlike = DIFFERING | {"chat": "on"}  # this pair has no template, which is no error
    for asked, verdict in (
        (sampled, "Sampling"),
        (DIFFERING | {"a": DIFFERING["b"]}, "Same"),
        (unlike, "Unexplained"),
    ):
        found = compare_texts.findings(catalog, asked, "")["words"]
        assert f"<h3>{verdict}</h3>" in found
    assert found.count('<th scope="row">float32') == found.count('<th scope="row">bfloat16') == 2
    assert "<b>fox" not in found


def distributions(decoder, token_ids):
    """What target and draft say of the next token, with the models alone."""
    found = []
    for model in (decoder.pair.target, decoder.pair.draft):
        logits = model.forward(torch.tensor([token_ids]), model.new_cache(1))[
            0, -1, : decoder.pair.vocab_size
        ].double()
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
        first, *_ = small_decoder.admission.vocabulary.encode(
            spaced(asked["text"], word), begins=False
        )
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
    first = judge(catalog, ASKED)
    assert judge(catalog, ASKED) == first
    draws = [
        judge(catalog, ASKED | change)["drafts"][0]["u"]
        for change in ({"number": 1}, {"number": 2}, {"word": "zzz"})
    ]
    assert len({first["drafts"][0]["u"], *draws}) == 3
    assert draws[2] == first["drafts"][0]["u"], "it is the same whatever is written"


def test_a_word_that_is_drafted_for_certain_is_all_there_with_the_space_that_it_needs(catalog):
    assert (
        judge(catalog, ASKED | {"word": "hippopotamus", "sure": 100})["drafted"] == " hippopotamus"
    )
    needed = {
        ("there was a", "king"): " king",
        ("he said, “", "No"): "No",
        ("the end", "."): ".",
        ("the end.\n", "Then"): "Then",
    }
    assert {asked: spaced(*asked) for asked in needed} == needed


def test_where_no_draft_has_room_any_more_it_says_so(catalog, small_decoder):
    tokens, most = small_decoder.admission.encode(TEXT), small_decoder.pair.target.max_positions
    for room in range(2):
        with pytest.raises(ValueError, match=r"reached the model's limit|positions"):
            judge(catalog, ASKED | {"tokens": (tokens * most)[: most - room]})


def test_the_first_pair_that_has_a_draft_model_judges_and_a_word_is_no_abandoned_run(
    catalog, small_decoder
):
    outcomes = []
    alone = LocalEngine(
        SpeculativeDecoder(
            ModelPair(small_decoder.pair.target, tokenizer=small_decoder.pair.tokenizer)
        )
    )
    pairs = {"alone": ServedPair(alone), "small": catalog.of("")}
    watched = Catalog(pairs, observers=[lambda visit: outcomes.append(visit.outcome)])
    assert judge(watched, ASKED) == judge(catalog, ASKED)
    alone.close()
    assert len(outcomes) == 2
    assert "abandoned" not in outcomes


LOG = {"log": samples.VLLM_LOG}
ROOMS = {
    "doctor": lambda _, fields: doctor.findings(fields),
    "differ": lambda catalog, fields: compare_texts.findings(catalog, fields, ""),
    "yourself": judge,
}
REFUSED = {
    "doctor": [
        ({"log": ""}, "the text is empty"),
        ({}, "the text is empty"),
        ({"log": "x" * 100_001}, "100,000 characters, got 100,001"),
        (LOG | {"draft_cost": "1" * 61}, "“Draft cost” may have at most 60 characters, got 61"),
        (LOG | {"verify_cost": "1," * 101}, "tokens” may have at most 200 characters, got 202"),
        (LOG | {"num_draft_tokens": "1" * 7}, "step” may have at most 6 characters, got 7"),
        (LOG | {"verify_cost": "1"}, "“Cost of verifying 1, 2, 3 … tokens” needs “Draft cost”"),
        (LOG | {"draft_cost": "0.1, 0.2"}, "“Draft cost” must be one number"),
        (LOG | {"draft_cost": "big / 8B"}, "size must be like"),
        (LOG | {"num_draft_tokens": "0"}, "“Draft tokens per step” must be 1"),
        (LOG | {"num_draft_tokens": "many"}, "whole number"),
        (
            {"log": f"n_drafted = {'9' * 400}\nn_accept = 5\nn_predict = 10\n"},
            "impossible|larger than any",
        ),
        (
            {
                "log": (
                    f"SpecDecoding metrics: Accepted: {'9' * 400} tokens, Drafted: {'9' * 400}"
                    " tokens"
                )
            },
            "impossible|larger",
        ),
    ],
    "differ": [
        ({}, "the prompt is empty"),
        (DIFFERING | {"a": " "}, "text A is empty"),
        (DIFFERING | {"b": ["list"]}, "text B is empty"),
        (DIFFERING | {"b": "x" * 1601}, "text B may have at most 1,600 characters, got 1,601"),
        (
            DIFFERING | {"a": "🦊" * 600},
            "the prompt and text A may have at most 320 tokens together, got",
        ),
    ],
    "yourself": [
        ({}, "text is empty"),
        (ASKED | {"word": ""}, "the word is empty"),
        (ASKED | {"word": None}, "the word is empty"),
        (ASKED | {"word": "x" * 41}, "the word may have at most 40 characters, got 41"),
        (ASKED | {"word": "two words"}, "please write one word"),
        (ASKED | {"sure": 101}, "sure must be a number from 0 to 100"),
        (ASKED | {"sure": "all"}, "sure must be a number"),
        (ASKED | {"sure": float("nan")}, "sure must be a number"),
        (ASKED | {"seed": -1}, "seed must be"),
        (ASKED | {"number": WORDS}, "number must be"),
        (ASKED | {"text": ""}, "text is empty"),
        (ASKED | {"text": "x" * 601}, "600 characters, got 601"),
        (ASKED | {"tokens": [1] * 2001}, "2000 token ids"),
        (ASKED | {"tokens": ["1"]}, "2000 token ids"),
        (ASKED | {"tokens": [10**9]}, "expected token ids"),
    ],
}


@pytest.mark.parametrize(
    ("room", "fields", "words"),
    [(room, *case) for room, cases in REFUSED.items() for case in cases],
)
def test_what_cannot_be_is_refused_in_one_line(catalog, room, fields, words):
    with pytest.raises(ValueError, match=words) as refused:
        ROOMS[room](catalog, fields)
    assert len(str(refused.value)) < 600
    assert "\n" not in str(refused.value)
