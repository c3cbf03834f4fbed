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

EMPTY_TEXT, EMPTY_LIST = (
    "regex must be text that is not empty, got",
    "choice must be a list of texts that are not empty",
)
ONE = "exactly one of json, regex, choice, grammar, json_object, got"
TIMES, HOLD = (
    "may repeat something up to 1000 times, got",
    "may hold 300 repetitions (* + ? {}), got",
)


def pattern(text: str) -> dict:
    """A schema of texts that match a regular expression."""
    return {"json": {"type": "string", "pattern": text}}


NESTED = (
    "root ::= a0\n" + "".join(f'a{n} ::= a{n + 1} "a"\n' for n in range(600)) + 'a600 ::= "b"{2}'
)
PATTERNS = {"json": {"anyOf": [pattern(f"a{{1,{count}}}b")["json"] for count in range(300, 304)]}}
COUNTED = {
    "json": {
        "anyOf": [
            {"maxProperties": 9, "properties": {f"f{n}": {} for n in range(51)}} for _ in range(2)
        ]
    }
}


def test_what_makes_no_sense_or_would_take_long_is_refused_with_the_place():
    for given, said in (
        ({}, f"{ONE} none"),
        ({"json": {}, "regex": "[0-9]+"}, f"{ONE} json, regex"),
        ({"choice": ["a"], "grammar": 'root ::= "a"'}, f"{ONE} choice, grammar"),
        ({"regex": "a", "json_object": True}, f"{ONE} json_object, regex"),
        ({"json_object": False}, f"{ONE} none"),
        ({"disable_any_whitespace": True}, f"{ONE} none"),
        (
            {"rhyme": "x"},
            "guided_decoding has no 'rhyme'; it takes json, regex, choice, grammar, json_object",
        ),
        ({"regex": ""}, f"{EMPTY_TEXT} ''"),
        ({"regex": 3}, f"{EMPTY_TEXT} 3"),
        ({"choice": []}, f"{EMPTY_LIST}, got []"),
        ({"choice": "north"}, f"{EMPTY_LIST}, got 'north'"),
        ({"choice": ["", "a"]}, f"{EMPTY_LIST}, got ''"),
        ({"json": [1]}, "json must be a JSON schema, as text or a mapping, got [1]"),
        ({"json_object": 3}, "json_object must be True or False, got 3"),
        (
            {"json": {}, "disable_any_whitespace": "no"},
            "disable_any_whitespace must be True or False, got 'no'",
        ),
        (
            {"regex": "a", "disable_any_whitespace": True},
            "must be True or False and go with json, got regex and True",
        ),
        ({"regex": "("}, "regex does not parse, got '('"),
        ({"json": "{"}, "json does not parse"),
        (
            {"json": '{"type": }'},
            """json does not parse, got '{"type": }': Expecting value: line 1 column 10 (char 9)""",
        ),
        ({"grammar": "nonsense"}, "grammar does not parse"),
        ({"grammar": NESTED}, "grammar has rules that are nested too deep"),
        ({"regex": "a" * 20_001}, "regex may be 20000 characters long, got 20001"),
        ({"regex": ".*" * 1000}, f"regex {HOLD} 1000"),
        ({"grammar": "root ::= " + "[^a]* " * 1500}, f"grammar {HOLD} 1500"),
        ({"json": {"pattern": "(a*)+" * 200}}, f"json {HOLD} 400"),
        ({"json": {"patternProperties": {"a*" * 301: {}}}}, f"json {HOLD} 301"),
        ({"json": '{"items":' * 70 + "{}" + "}" * 70}, "json may be 64 levels deep"),
        ({"json": '{"a":' * 3000 + "{}" + "}" * 3000}, "json may be 64 levels deep"),
        ({"regex": "a{1,100000}"}, f"regex {TIMES} 100000"),
        ({"regex": "a{0000000100000}"}, f"regex {TIMES} 100000"),
        ({"regex": "(a{1000}){1000}"}, f"regex {TIMES} 1000000"),
        ({"grammar": 'root ::= x{600}\nx ::= "a" | ("b" x{2})'}, f"grammar {TIMES} 1200"),
        (pattern("((a{1,11}){1,11}){10,}"), f"json {TIMES} 1210"),
        (pattern("a{5000,}"), f"json {TIMES} 5000"),
        (pattern("[a-z]{1,600}[0-9]{1,600}"), f"json {TIMES} 1200"),
        (PATTERNS, f"json {TIMES} 1206"),
        (COUNTED, "json may count 100 properties by minProperties and maxProperties, got 102"),
    ):
        with pytest.raises(
            ValueError,
            match=f"^guided_decoding (?s:.)*{re.escape(said.removeprefix('guided_decoding '))}",
        ):
            pytest.fail(f"{SamplingParams(guided_decoding=given)} is taken")


def test_what_only_looks_like_it_is_taken():
    for given in (
        {"json": {}},  # the schema that everything matches
        {"regex": "[0-9]{4}-[0-9]{1,2} [a-z]{1,1000}(, [a-z]{1,30}){0,30}"},
        {"regex": r"a\{5000\}[{9000}]"},
        {"grammar": 'root ::= "x{5000}" root{0,5} | [y]{3}'},
        {"regex": "a+", "json_object": False, "disable_any_whitespace": False},
        {"choice": ["a"], "disable_any_whitespace": False},
        {"json_object": True, "disable_any_whitespace": False},
    ):
        assert (
            SamplingParams(guided_decoding=given | {"regex": given.get("regex")}).to_dict()[
                "guided_decoding"
            ]
            == given
        )


def compiler_of(decoder) -> GrammarCompiler:
    tokenizer = decoder.pair.tokenizer
    return GrammarCompiler(tokenizer, decoder.pair.vocab_size, [tokenizer.eos_token_id])


def test_compiled_grammars_are_kept_up_to_a_limit(small_decoder, monkeypatch):
    monkeypatch.setattr(guided, "CACHE_BYTES", 2**20)
    compiler = compiler_of(small_decoder)
    seen = []
    for number in range(100):
        schema = {
            "type": "object",
            "properties": {f"field{number}": {"type": "string", "pattern": f"[a-z]{{3}}{number}"}},
        }
        compiler.compile(GuidedDecodingParams(json=schema))
        seen.append(compiler._compiler.get_cache_size_bytes())
    assert max(seen) <= 1.2 * guided.CACHE_BYTES
    assert max(seen) > 0.5 * guided.CACHE_BYTES  # so that it was the limit that kept them few


def test_json_without_loose_white_space_is_written_to_its_end(small_decoder):
    properties = {
        "animal": {"enum": ["fox", "bear"]},
        "age": {"type": "integer", "minimum": 1, "maximum": 99},
    }
    schema = {"type": "object", "properties": properties, "required": ["animal", "age"]}
    for seed in range(2):
        params = SamplingParams(
            max_tokens=60,
            seed=seed,
            guided_decoding={"json": schema, "disable_any_whitespace": True},
        )
        text = small_decoder.generate("Once upon a time", params).text
        assert text == json.dumps(json.loads(text)), (
            "one space after a comma or a colon, and no other"
        )
        assert params.to_dict()["guided_decoding"] == {
            "json": schema,
            "disable_any_whitespace": True,
        }


def test_a_hexadecimal_digit_is_no_part_of_the_character_before_it(small_decoder):
    for given, text in (
        ({"choice": ["Größe"]}, "Größe"),
        ({"choice": ["a\x00b\x1fa\x7fb"]}, "a\x00b\x1fa\x7fb"),
        ({"choice": [r"\xe9a"]}, r"\xe9a"),
        ({"json": {"const": "née"}}, '"née"'),
        ({"regex": r"\xe9a\\xe9a"}, r"éa\xe9a"),
        ({"grammar": r'root ::= "\xe9a" [\x41]'}, "éaA"),
    ):
        params = SamplingParams(max_tokens=40, temperature=0, guided_decoding=given)
        assert [
            small_decoder.generate("Say:", params, num_draft_tokens=k).text for k in (0, 4)
        ] == [text] * 2


def test_a_class_of_characters_holds_those_that_it_names(small_decoder):
    regex = r"[\xe9a]{3}[\x1fb]{2}[\u00e9c]{2}[\x5dd][^\x01-\xffe]"
    for seed in range(2):
        params = SamplingParams(
            max_tokens=60, temperature=2, seed=seed, guided_decoding={"regex": regex}
        )
        assert re.fullmatch(regex, small_decoder.generate("Say:", params, num_draft_tokens=4).text)


def test_scores_of_every_type_are_masked(small_decoder):
    tokenizer = small_decoder.pair.tokenizer
    mask = compiler_of(small_decoder).compile(GuidedDecodingParams(choice=["yes", "no"]))
    for dtype in (torch.float64, torch.float32, torch.bfloat16, torch.float16):
        scores = torch.full((small_decoder.pair.vocab_size,), 1.5, dtype=dtype)
        mask.apply(scores, [])
        allowed = scores > -torch.inf
        assert {tokenizer.decode([token])[0] for token in allowed.nonzero().flatten().tolist()} == {
            "y",
            "n",
        }
        assert (scores[allowed] == 1.5).all()


def test_no_grammar_is_kept_of_a_guide_that_was_checked():
    """One of 20,000 characters may take 30 MB."""
    name = "keptnowhere"
    made = GuidedDecodingParams(grammar=f'root ::= {name}\n{name} ::= "a"{{3}}')
    gc.collect()
    assert not [
        each
        for each in gc.get_objects()
        if isinstance(each, xgrammar.Grammar) and name in str(each)
    ]
    assert made.grammar
