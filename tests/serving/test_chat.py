"""A prompt in the tokenizer's chat template: it is what is decoded, and a template that is missing or broken is one line."""

import threading

import pytest
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from transformers import PreTrainedTokenizerFast

from naive_speculate import ModelPair, SamplingParams, SpeculativeDecoder
from naive_speculate.serving import LocalEngine, Request, SoloEngine
from tests.serving.contract import joined
from ui.host.catalog import Catalog, ServedPair

PARAMS = SamplingParams(max_tokens=4, seed=1, n=2)


@pytest.fixture
def tokenizer():
    model = WordLevel({f"w{number}": number for number in range(97)}, unk_token="w0")
    made = PreTrainedTokenizerFast(tokenizer_object=Tokenizer(model))
    made.backend_tokenizer.pre_tokenizer = Whitespace()
    made.chat_template = "w90 {{ messages[0].content }} {% if add_generation_prompt %}w91{% endif %}"
    return made


@pytest.fixture(params=[LocalEngine, SoloEngine])
def engine(request, tiny_pair, tokenizer):
    made = request.param(SpeculativeDecoder(ModelPair(tiny_pair.target, tiny_pair.draft, tokenizer)))
    yield made
    made.close()


def test_the_wrapped_prompt_is_decoded_and_the_given_one_is_reported(engine, tiny_decoder):
    trace = joined(engine, Request("w3 w4", PARAMS, chat=True))
    started = [event for event in trace if event.kind == "started"]
    assert [event.prompt for event in started] == ["w3 w4", "w3 w4"]
    assert [event.prompt_token_ids for event in started] == [[90, 3, 4, 91]] * 2
    alone = tiny_decoder.generate([90, 3, 4, 91], PARAMS)
    assert sorted(trace.row(row).token_ids for row in range(2)) == sorted(output.token_ids for output in alone.outputs)


def test_without_chat_the_prompt_is_decoded_as_it_is(engine):
    started = joined(engine, Request("w3 w4", PARAMS)).started
    assert (started.prompt, started.prompt_token_ids) == ("w3 w4", [3, 4])


@pytest.mark.parametrize("template", [None, ""])
def test_chat_without_a_template_is_refused(engine, tokenizer, template):
    tokenizer.chat_template = template
    with pytest.raises(ValueError, match=r"^chat=True needs a chat template, and this pair's tokenizer has none$"):
        joined(engine, Request("w3", PARAMS, chat=True))


def test_chat_without_a_tokenizer_is_refused(tiny_engine):
    with pytest.raises(ValueError, match=r"^chat=True needs a chat template, and this pair's tokenizer has none$"):
        joined(tiny_engine, Request("w3", PARAMS, chat=True))


@pytest.mark.parametrize(
    ("prompt", "said"),
    [
        ("", "prompt is empty"),
        ([3, 4], "chat=True needs a prompt of text, got 2 token ids"),
        ("a\ud800", "prompt is broken text: character 1 is half of a surrogate pair"),
    ],
)
def test_a_prompt_that_no_template_can_take_is_refused(engine, prompt, said):
    with pytest.raises(ValueError, match=f"^{said}$"):
        joined(engine, Request(prompt, PARAMS, chat=True))


@pytest.mark.parametrize(
    ("template", "said"),
    [
        ("{% for %}", "TemplateSyntaxError: Expected an expression"),
        ("{{ messages[0].content.nope.more }}", "UndefinedError: .* has no attribute 'nope'"),
        ("{{ raise_exception('no user\n\nmay speak') }}", "TemplateError: no user may speak$"),
        ("{{ messages[0].content + 3 }}", "TypeError: "),
        ({"tool_use": "w1"}, "ValueError: .* no default specified"),
    ],
)
def test_a_template_that_fails_is_one_line(engine, tokenizer, template, said):
    tokenizer.chat_template = template
    with pytest.raises(ValueError, match=f"^chat=True: the tokenizer's chat template fails: {said}") as refused:
        joined(engine, Request("w3", PARAMS, chat=True))
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("pair", "prompt", "chat", "told"),
    [("chatty", "w3", True, [90, 3, 91]), ("chatty", "w3", False, [3]), ("plain", [3], True, [3])],
)
def test_the_page_asks_for_chat_only_where_the_pair_has_a_template(engine, tiny_engine, pair, prompt, chat, told):
    catalog = Catalog({"chatty": ServedPair(engine), "plain": ServedPair(tiny_engine)})
    started, *_ = catalog.stream(pair, Request(prompt, PARAMS, chat=chat), threading.Event())
    assert started.prompt_token_ids == told
