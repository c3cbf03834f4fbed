"""A prompt in the tokenizer's chat template: it is what is decoded, and a template that is
missing or broken is one line."""

import threading

import pytest

from naive_speculate import ModelPair, SamplingParams, SpeculativeDecoder
from naive_speculate.serving import LocalEngine, Request, SoloEngine
from tests.serving.contract import joined
from tests.tiny import words
from ui.host.catalog import Catalog, ServedPair

PARAMS = SamplingParams(max_tokens=4, seed=1, n=2)


@pytest.fixture
def tokenizer():
    made = words()
    made.chat_template = (
        "w90 {{ messages[0].content }} {% if add_generation_prompt %}w91{% endif %}"
    )
    return made


@pytest.fixture(params=[LocalEngine, SoloEngine])
def engine(request, tiny_pair, tokenizer):
    made = request.param(
        SpeculativeDecoder(ModelPair(tiny_pair.target, tiny_pair.draft, tokenizer))
    )
    yield made
    made.close()


def test_the_wrapped_prompt_is_decoded_and_the_given_one_is_reported(engine, tiny_decoder):
    trace = joined(engine, Request("w3 w4", PARAMS, chat=True))
    started = [event for event in trace if event.kind == "started"]
    assert [event.prompt for event in started] == ["w3 w4", "w3 w4"]
    assert [event.prompt_token_ids for event in started] == [[90, 3, 4, 91]] * 2
    alone = tiny_decoder.generate([90, 3, 4, 91], PARAMS)
    assert sorted(trace.row(row).token_ids for row in range(2)) == sorted(
        output.token_ids for output in alone.outputs
    )


def test_messages_are_decoded_as_the_template_renders_them(engine, tiny_pair, tokenizer):
    tokenizer.chat_template = "{% for m in messages %}{{ m.role }} {{ m.content }} {% endfor %}w91"
    messages = [{"role": "w7", "content": "w3"}, {"role": "w8", "content": "w4 w5"}]
    decoder = SpeculativeDecoder(ModelPair(tiny_pair.target, tokenizer=tokenizer))
    plain = {"chat": True, "num_draft_tokens": 0}
    results = decoder.generate([messages, messages[:1]], SamplingParams(max_tokens=2), **plain)
    prompts = [result.trace.started.prompt_token_ids for result in results]
    assert prompts == [[7, 3, 8, 4, 5, 91], [7, 3, 91]]
    assert (
        decoder.generate(messages, SamplingParams(max_tokens=2), chat=True).trace[0].prompt is None
    )
    *_, last = decoder.stream(messages, SamplingParams(max_tokens=2), chat=True)
    assert last.metrics["num_generated_tokens"] == 2
    assert joined(engine, Request(messages, PARAMS, chat=True))[0].prompt_token_ids == prompts[0]


NO_TEMPLATE = "chat=True needs a chat template, and this pair's tokenizer has none$"
FAILS = "chat=True: the tokenizer's chat template fails: "


def test_what_no_template_can_take_and_a_template_that_is_missing_or_fails_is_one_line(
    engine, tiny_engine, tokenizer
):
    usable = tokenizer.chat_template
    for prompt, template, said in (
        ("", usable, "prompt is empty$"),
        ([3, 4], usable, "chat=True needs a prompt of text or messages, got 2 token ids$"),
        (
            [{"role": "user"}],
            usable,
            r"prompt\[0\]\['content'\] must be text, .* got None$",
        ),
        (
            [{"role": "user", "content": "w3"}, 4],
            usable,
            r"prompt\[1\] must be a message, got 4$",
        ),
        (
            [{"role": "user", "content": "w3"}],
            None,
            "a prompt of messages needs a chat template, and this pair's tokenizer has none$",
        ),
        (
            "a\ud800",
            usable,
            r"prompt\[0\]\['content'\] is broken text: character 1 is half of a surrogate pair$",
        ),
        ("w3", None, NO_TEMPLATE),
        ("w3", "", NO_TEMPLATE),
        ("w3", "{% for %}", f"{FAILS}TemplateSyntaxError: Expected an expression"),
        (
            "w3",
            "{{ messages[0].content.nope.more }}",
            f"{FAILS}UndefinedError: .* has no attribute 'nope'",
        ),
        (
            "w3",
            "{{ raise_exception('no user\n\nmay speak') }}",
            f"{FAILS}TemplateError: no user may speak$",
        ),
        ("w3", "{{ messages[0].content + 3 }}", f"{FAILS}TypeError: "),
        ("w3", {"tool_use": "w1"}, f"{FAILS}ValueError: .* no default specified"),
    ):
        tokenizer.chat_template = template
        with pytest.raises(ValueError, match=f"^{said}") as refused:
            joined(engine, Request(prompt, PARAMS, chat=True))
        assert "\n" not in str(refused.value)
    with pytest.raises(ValueError, match=r"^prompt holds messages, which need chat=True$"):
        joined(engine, Request([{"role": "user", "content": "w3"}], PARAMS))
    with pytest.raises(ValueError, match=f"^{NO_TEMPLATE}"):  # nor has a pair without a tokenizer
        joined(tiny_engine, Request("w3", PARAMS, chat=True))


def test_the_page_asks_for_chat_only_where_the_pair_has_a_template(engine, tiny_engine):
    catalog = Catalog({"chatty": ServedPair(engine), "plain": ServedPair(tiny_engine)})
    for pair, prompt, chat, told in (
        ("chatty", "w3", True, [90, 3, 91]),
        ("chatty", "w3", False, [3]),
        ("plain", [3], True, [3]),
    ):
        started, *_ = catalog.stream(pair, Request(prompt, PARAMS, chat=chat), threading.Event())
        assert (started.prompt, started.prompt_token_ids) == (
            prompt if isinstance(prompt, str) else None,
            told,
        )
