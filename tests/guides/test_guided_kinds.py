"""Guided decoding: which guides are valid, and what is stored of them."""

import json
import re
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from naive_speculate import GuidedDecodingParams, SamplingParams, Trace
from naive_speculate.events import FinishReason
from naive_speculate.guides.guided import GrammarCompiler, GuideTooCostly
from naive_speculate.serving import LocalEngine, Request
from tests.guides.raw_bytes import allows

EMPTY_TEXT, EMPTY_LIST = (
    "regex must be text that is not empty, got",
    "choice must be a list of texts that are not empty",
)
ONE = "exactly one of json, regex, choice, grammar, json_object, got"


CHAIN = {
    "$defs": {f"d{n}": {"items": {"$ref": f"#/$defs/d{n + 1}"}} for n in range(2000)},
    "$ref": "#/$defs/d0",
}


def pattern(text: str) -> dict:
    """A schema of texts that match a regular expression."""
    return {"json": {"type": "string", "pattern": text}}


def refused(given: dict, said: str) -> None:
    """Check that a guide is refused with a line that holds these words."""
    with pytest.raises(
        ValueError,
        match=f"^guided_decoding (?s:.)*{re.escape(said.removeprefix('guided_decoding '))}",
    ) as raised:
        pytest.fail(f"{SamplingParams(guided_decoding=given)} is taken")
    assert "\n" not in str(raised.value)


def test_what_makes_no_sense_is_refused_with_the_place():
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
        ({"regex": "("}, "regex does not parse, got '(': missing )"),
        ({"json": "{"}, "json does not parse, got '{'"),
        ({"json": '{"type": }'}, """got '{"type": }': Expecting value: line 1 column 10"""),
        ({"json": {"type": "nonsense"}}, "Invalid type: nonsense"),
        ({"json": {"required": "a"}}, "Expected array for 'required', got \"a\""),
        ({"json": {"properties": 3}}, "json properties must be an object, got 3"),
        ({"json": {"items": 3}}, "json must hold schemas, objects or booleans, got 3"),
        ({"json": {"minimum": "3"}}, "Expected number for 'minimum', got \"3\""),
        ({"json": {"anyOf": {}}}, "json anyOf must be a list of schemas, got {}"),
        ({"json": {"const": object()}}, "json must be JSON"),
        ({"grammar": "nonsense"}, "grammar does not parse, got 'nonsense': Expected ::="),
        ({"grammar": 'root ::= "a'}, "grammar does not parse"),
        ({"grammar": "root ::= a"}, "there is no rule 'a'"),
        ({"grammar": 'tree ::= "a"'}, "there is no rule 'root'"),
    ):
        refused(given, said)


def test_what_would_take_long_or_much_memory_is_refused():
    for given, said in (
        ({"json": CHAIN}, "json is nested too deep"),
        ({"json": '{"items":' * 1800 + "{}" + "}" * 1800}, "json is nested too deep"),
        ({"regex": "(" * 4000 + ")" * 4000}, "regex is nested too deep"),
        ({"grammar": "root ::= " + "(" * 4000 + ")" * 4000}, "grammar is nested too deep"),
        ({"regex": "a{1000000}"}, "regex may demand 10000 characters of a text, got"),
        ({"regex": "(a{1000}){1000}"}, "regex may demand 10000 characters of a text, got"),
        ({"grammar": 'root ::= "a"{20000}'}, "grammar may demand 10000 repetitions, got 20000"),
        (pattern("a{100000,}"), "json pattern may demand 10000 characters of a text, got"),
    ):
        refused(given, said)


def test_what_only_looks_like_it_is_taken():
    for given in (
        {"json": {}},  # the schema that everything matches
        {"regex": "[0-9]{4}-[0-9]{1,2} [a-z]{1,1000}(, [a-z]{1,30}){0,30}"},
        {"regex": r"a\{5000\}[{9000}]"},
        {"regex": "a{1,100000}"},
        {"json": {"enum": [f"word {n}" for n in range(30_000)]}},
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


def follow(compiler: GrammarCompiler, guide: dict) -> None:
    """Compute masks along a text of one letter."""
    mask = compiler.compile(GuidedDecodingParams(**guide))
    for length in range(40):
        mask.apply(torch.zeros(compiler.vocab_size), [66] * length)


def test_a_grammar_whose_masks_take_too_much_is_refused_by_name(small_decoder):
    compiler = compiler_of(small_decoder)
    for guide in ({"regex": ".*" * 1000}, {"grammar": "root ::= root? " + "[^a]* " * 1500}):
        with pytest.raises(GuideTooCostly, match="takes too much time or memory to follow, got"):
            follow(compiler, guide)


def test_a_run_whose_grammar_takes_too_much_ends_alone_in_its_batch(small_decoder):
    later = "root ::= [0-9] [0-9] many | root\nmany ::= " + "[^a]* " * 1500
    good = [
        Request("Once upon a time", SamplingParams(max_tokens=16, seed=seed, guided_decoding=guide))
        for seed, guide in enumerate([None, None, {"regex": r"( [a-z]+){5,12}\."}])
    ]
    bad = Request("Once", SamplingParams(seed=4, guided_decoding={"grammar": later}))
    engine = LocalEngine(small_decoder)
    gate = threading.Barrier(4)

    def run(request: Request) -> Trace:
        gate.wait()
        return Trace(event for events in engine.submit(request) for event in events)

    with ThreadPoolExecutor(4) as pool:
        *fine, ended = pool.map(run, [*good, bad])
    engine.close()
    assert ended.finished.finish_reason == FinishReason.ERROR
    assert ended.finished.message.startswith("guided_decoding grammar takes too much time or")
    for request, trace in zip(good, fine, strict=True):
        assert trace.token_ids == small_decoder.generate(request.prompt, request.params).token_ids


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


def test_a_grammar_allows_the_texts_that_its_rules_allow_however_it_is_cut_into_rules():
    recursive = 'root ::= item ("," item)*\nitem ::= word "b" | "(" root ")"\nword ::= [a-z]+'
    for grammar, text, holds in (
        ('root ::= word "b"\nword ::= [a-z]+', "ab", True),
        ('root ::= ("a" | "ab") "bc"', "abc", True),
        ('root ::= x "bc"\nx ::= "a" | "ab"', "abbc", True),
        (recursive, "ab,(bb,(zb))", True),
        (recursive, "ab,(bb,(z))", False),
        ('root ::= "a"\n  | "b"  # or\n', "b", True),
        ("root ::= . [^a]", "\n\n", True),
        ("root ::= [^a]", "a", False),
        (r'root ::= "\u00e9a" [\u0041-\u0043\]] "\U0001F600"', "éaB😀", True),
        (r'root ::= "\u00e9a" [\u0041-\u0043\]] "\U0001F600"', "éa]😀", True),
        ('root ::= "" | "a" root', "aaa", True),
        ("root ::= [a-c&&b]+", "c&b", True),
        ('root ::= start TREE-x\nstart ::= "s"\nTREE-x ::= "t" root?', "stst", True),
    ):
        assert allows({"grammar": grammar}, text) is holds, (grammar, text)
