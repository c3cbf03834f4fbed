"""Guided decoding: which guides are valid, and what is stored of them."""

import gc
import json
import re

import pytest
import torch
import xgrammar

from naive_speculate import GuidedDecodingParams, SamplingParams
from naive_speculate.sampling import guided
from naive_speculate.sampling.guided import GrammarCompiler


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"json": {}, "regex": "[0-9]+"}, "exactly one of json, regex, choice, grammar, json_object, got json, regex"),
        ({"choice": ["a"], "grammar": 'root ::= "a"'}, "exactly one of .* got choice, grammar"),
        ({"regex": "a", "json_object": True}, "exactly one of .* got json_object, regex"),
        ({"json_object": False}, "exactly one of .* got none"),
        ({"regex": ""}, "guided_decoding regex must be text that is not empty, got ''"),
        ({"choice": []}, r"guided_decoding choice must be a list of texts that are not empty, got \[\]"),
        ({"choice": "north"}, "guided_decoding choice must be a list of texts that are not empty, got 'north'"),
        ({"regex": 3}, "guided_decoding regex must be text that is not empty, got 3"),
        ({"json": [1]}, r"guided_decoding json must be a JSON schema, as text or a mapping, got \[1\]"),
        ({"json_object": 3}, "guided_decoding json_object must be True or False, got 3"),
    ],
)
def test_two_kinds_or_none_or_an_empty_one_are_refused_by_name(given, said):
    with pytest.raises(ValueError, match=f"^guided_decoding .*{said.removeprefix('guided_decoding ')}$"):
        SamplingParams(guided_decoding=given)


@pytest.mark.parametrize(
    ("given", "source"),
    [
        ({"json": {}}, ("json", "{}")),  # the schema that everything matches
        ({"json": {}, "regex": None}, ("json", "{}")),
        ({"regex": "a+", "json_object": False}, ("regex", "a+")),
    ],
)
def test_a_kind_that_is_none_or_false_is_not_given(given, source):
    assert GuidedDecodingParams.from_mapping(given).source == source


def test_compiled_grammars_are_kept_up_to_a_limit(bundled_pair, monkeypatch):
    monkeypatch.setattr(guided, "CACHE_BYTES", 2**20)
    tokenizer = bundled_pair.tokenizer
    compiler = GrammarCompiler(tokenizer, bundled_pair.vocab_size, [tokenizer.eos_token_id])
    seen = []
    for number in range(100):
        schema = {"type": "object", "properties": {f"field{number}": {"type": "string", "pattern": f"[a-z]{{3}}{number}"}}}
        compiler.compile(GuidedDecodingParams(json=schema))
        seen.append(compiler._compiler.get_cache_size_bytes())
    assert max(seen) <= 1.2 * guided.CACHE_BYTES
    assert max(seen) > 0.5 * guided.CACHE_BYTES  # so that it was the limit that kept them few


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"regex": "a{1,100000}"}, "regex may repeat something up to 1000 times, got 100000"),
        ({"regex": "a{0000000100000}"}, "regex may repeat something up to 1000 times, got 100000"),
        ({"regex": "(a{1000}){1000}"}, "regex may repeat something up to 1000 times, got 1000000"),
        (
            {"json": {"type": "string", "pattern": "((a{1,11}){1,11}){10,}"}},
            "json may repeat something up to 1000 times, got 1210",
        ),
        ({"grammar": 'root ::= x{600}\nx ::= "a" | ("b" x{2})'}, "grammar may repeat something up to 1000 times, got 1200"),
        (
            {"grammar": "root ::= a0\n" + "".join(f'a{n} ::= a{n + 1} "a"\n' for n in range(600)) + 'a600 ::= "b"{2}'},
            "grammar has rules that are nested too deep",
        ),
        ({"json": {"type": "string", "pattern": "a{5000,}"}}, "json may repeat something up to 1000 times, got 5000"),
        ({"json": {"type": "string", "pattern": "[a-z]{1,600}[0-9]{1,600}"}}, "json may repeat something .* got 1200"),
        (
            {"json": {"anyOf": [{"type": "string", "pattern": f"a{{1,{count}}}b"} for count in range(300, 304)]}},
            "json may repeat something up to 1000 times, got 1206",
        ),
        (
            {"json": {"anyOf": [{"maxProperties": 9, "properties": {f"f{n}": {} for n in range(51)}} for _ in range(2)]}},
            "json may count 100 properties by minProperties and maxProperties, got 102",
        ),
        ({"json": '{"type": }'}, r"json does not parse, got '{\"type\": }': Expecting value: line 1 column 10 \(char 9\)"),
        ({"regex": "a", "disable_any_whitespace": True}, "disable_any_whitespace .* go with json, got regex and True"),
        ({"json": {}, "disable_any_whitespace": "no"}, "disable_any_whitespace must be True or False, got 'no'"),
        ({"disable_any_whitespace": True}, "exactly one of .* got none"),
    ],
)
def test_what_would_take_long_or_makes_no_sense_is_refused_with_the_place(given, said):
    with pytest.raises(ValueError, match=f"^guided_decoding .*{said}"):
        SamplingParams(guided_decoding=given)


def test_json_without_loose_white_space_is_written_to_its_end(small_decoder):
    schema = {
        "type": "object",
        "properties": {"animal": {"enum": ["fox", "bear"]}, "age": {"type": "integer", "minimum": 1, "maximum": 99}},
    }
    schema |= {"required": ["animal", "age"]}
    for seed in range(4):
        params = SamplingParams(max_tokens=60, seed=seed, guided_decoding={"json": schema, "disable_any_whitespace": True})
        text = small_decoder.generate("Once upon a time", params).text
        assert text == json.dumps(json.loads(text)), "one space after a comma or a colon, and no other"
        assert params.to_dict()["guided_decoding"] == {"json": schema, "disable_any_whitespace": True}


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"choice": ["Größe"]}, "Größe"),
        ({"choice": ["a\x00b\x1fa\x7fb"]}, "a\x00b\x1fa\x7fb"),
        ({"choice": [r"\xe9a"]}, r"\xe9a"),
        ({"json": {"const": "née"}}, '"née"'),
        ({"regex": r"\xe9a\\xe9a"}, r"éa\xe9a"),
        ({"grammar": r'root ::= "\xe9a" [\x41]'}, "éaA"),
    ],
)
def test_a_hexadecimal_digit_is_no_part_of_the_character_before_it(small_decoder, given, text):
    params = SamplingParams(max_tokens=40, temperature=0, guided_decoding=given)
    assert [small_decoder.generate("Say:", params, num_draft_tokens=k).text for k in (0, 4)] == [text] * 2


def test_a_class_of_characters_holds_those_that_it_names(small_decoder):
    regex = r"[\xe9a]{3}[\x1fb]{2}[\u00e9c]{2}[\x5dd][^\x01-\xffe]"
    for seed in range(4):
        params = SamplingParams(max_tokens=60, temperature=2, seed=seed, guided_decoding={"regex": regex})
        assert re.fullmatch(regex, small_decoder.generate("Say:", params, num_draft_tokens=4).text)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_scores_of_every_type_are_masked(bundled_pair, dtype):
    tokenizer, size = bundled_pair.tokenizer, bundled_pair.vocab_size
    compiler = GrammarCompiler(tokenizer, size, [tokenizer.eos_token_id])
    scores = torch.full((size,), 1.5, dtype=dtype)
    compiler.compile(GuidedDecodingParams(choice=["yes", "no"])).apply(scores, [])
    allowed = scores > -torch.inf
    assert {tokenizer.decode([token])[0] for token in allowed.nonzero().flatten().tolist()} == {"y", "n"}
    assert (scores[allowed] == 1.5).all()


@pytest.mark.parametrize(
    "given",
    [
        {"regex": "[0-9]{4}-[0-9]{1,2} [a-z]{1,1000}(, [a-z]{1,30}){0,30}"},
        {"regex": r"a\{5000\}[{9000}]"},
        {"grammar": 'root ::= "x{5000}" root{0,5} | [y]{3}'},
        {"regex": "a", "disable_any_whitespace": False},
        {"choice": ["a"], "disable_any_whitespace": False},
        {"json_object": True, "disable_any_whitespace": False},
    ],
)
def test_what_only_looks_like_it_is_taken(given):
    assert SamplingParams(guided_decoding=given).to_dict()["guided_decoding"] == given


def test_no_grammar_is_kept_of_a_guide_that_was_checked():
    """One of 20,000 characters may take 30 MB."""
    name = "keptnowhere"
    made = GuidedDecodingParams(grammar=f'root ::= {name}\n{name} ::= "a"{{3}}')
    gc.collect()
    assert not [each for each in gc.get_objects() if isinstance(each, xgrammar.Grammar) and name in str(each)]
    assert made.grammar
