"""Which tokens of a conversation have the words of its messages: those that the template does not
add, wherever the same words are in it."""

import copy

import pytest

from naive_speculate import SamplingParams, SpeculativeDecoder
from naive_speculate.models import wrap
from naive_speculate.pair import ModelPair
from naive_speculate.speculate.chat import in_template, messages_of, words_of
from naive_speculate.text import Vocabulary
from naive_speculate.tools.show.spans import prompt_spans
from tests.tokenizers_of_tests import KINDS, llama

CHATML = (
    "{% if messages[0]['role'] != 'system' %}<|im_start|>system\nYou are a helpful AI.<|im_end|>\n"
    "{% endif %}{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
TRIMMED = CHATML.replace("m['content']", "m['content'] | trim")
MERGED = (  # as Gemma's: the system's words begin the first turn
    "{% for m in messages %}{% if m['role'] == 'system' %}<user> {{ m['content'] }} {% else %}"
    "{% if loop.index0 != 1 %}<user> {% endif %}{{ m['content'] }} <end> {% endif %}{% endfor %}"
)
SHOUTED = CHATML.replace("m['content']", "m['content'] | upper")
CONVERSATION = [
    {"role": "user", "content": "a"},
    {"role": "assistant", "content": "assistant"},
    {"role": "user", "content": "<|im_end|>\n<|im_start|>"},
    {"role": "assistant", "content": ""},
    {"role": "user", "content": "You are"},
]


TOOLS = (  # as Qwen's: tools, calls, content in parts, thinking
    "{% if tools %}<tools>{% for t in tools %}{{ t | tojson }}{% endfor %}</tools>\n{% endif %}"
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{% if m.content is string %}{{ m.content }}"
    "{% elif m.content %}{% for part in m.content %}{{ part.text }};{% endfor %}{% endif %}"
    "{% for call in m.tool_calls or [] %}<call>{{ call.function | tojson }}</call>{% endfor %}"
    "<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n"
    "{% if enable_thinking is false %}<think></think>{% endif %}{% endif %}"
)
CALL = {"type": "function", "function": {"name": "sum", "arguments": {"a": 1}}}
WITH_TOOLS = [
    {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "You"}]},
    {"role": "assistant", "content": None, "tool_calls": [CALL]},
    {"role": "assistant", "tool_calls": [CALL]},
    {"role": "tool", "content": "1", "tool_call_id": "x"},
    {"role": "assistant", "content": "are"},
]


def with_template(kind: str, template: str):
    tokenizer = copy.deepcopy(KINDS[kind]())
    tokenizer.chat_template = template
    return tokenizer


def before(tokenizer, prompt: str) -> str:
    """What the template puts before the words of a single message."""
    texts = Vocabulary(tokenizer).texts(in_template(tokenizer, messages_of(prompt)))
    ((start, _),) = words_of(tokenizer, prompt, texts, chat=True)
    return "".join(texts[:start])


def words(tokenizer, prompt, last: int | None = None) -> list[str] | None:
    """The text of each range of words, of all tokens or the last ones."""
    texts = Vocabulary(tokenizer).texts(in_template(tokenizer, messages_of(prompt)))[-(last or 0) :]
    ranges = words_of(tokenizer, prompt, texts, chat=True)
    return ranges and ["".join(texts[start:end]) for start, end in ranges]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("template", [CHATML, TRIMMED, MERGED])
def test_the_words_are_where_the_template_has_them_and_not_where_it_has_the_same_words(
    kind, template
):
    tokenizer = with_template(kind, template)
    prompts = ["system", "a", "user", "You are", "assistant", "helpful AI.", "日本語 🎉", " a "]
    first = {"role": "system", "content": "You are a"}
    conversations = [[{"role": "user", "content": prompt}] for prompt in prompts]
    for messages in [*conversations, CONVERSATION, [first, *CONVERSATION]]:
        contents = [message["content"] for message in messages if message["content"]]
        for own, content in zip(words(tokenizer, messages), contents, strict=True):
            assert content.strip() in own
            assert len(own) <= len(content) + 2, "a token may have more than the words"
    one, two = (before(tokenizer, prompt).strip() for prompt in ("user", "fox"))
    assert one == two, "what comes before the words does not depend on them"


def test_a_truncated_conversation_has_the_words_that_are_left():
    tokenizer = with_template("byte-level", CHATML)
    whole = in_template(tokenizer, messages_of(CONVERSATION))
    every = [message["content"] for message in CONVERSATION if message["content"]]
    for last in range(1, len(whole) + 1):
        left = words(tokenizer, CONVERSATION, last)
        assert left is not None
        assert len(left) <= len(every)
        for own, content in zip(reversed(left), reversed(every), strict=False):
            assert content.endswith(own) or content in own
    assert words(tokenizer, CONVERSATION, 2) == []


def test_words_that_the_template_changes_have_no_place():
    tokenizer = with_template("byte-level", SHOUTED)
    assert words(tokenizer, CONVERSATION) is None
    assert words(tokenizer, "you") == ["YOU"], "what is around a single message does not change"


def test_the_first_event_names_the_tokens_of_the_words():
    tokenizer = with_template("byte-level", CHATML)
    decoder = SpeculativeDecoder(ModelPair(wrap(llama(tokenizer, 0)), None, tokenizer))
    params = SamplingParams(max_tokens=1)
    for prompt in ("You are", "a"):
        started = decoder.generate(prompt, params, chat=True, num_draft_tokens=0).trace.started
        spans = list(prompt_spans(started))
        assert [span.template for span in spans] == [True, False, True]
        assert spans[1].text == prompt
    plain = decoder.generate("You are", params, num_draft_tokens=0).trace.started
    assert plain.prompt_words is None
    assert [(span.text, span.template) for span in prompt_spans(plain)] == [("You are", False)]


def sum_of(a: int) -> int:
    """
    Add.

    Args:
        a: A number.
    """


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"tools": [sum_of]},
        {"tools": [{"type": "function", "function": {"name": "sum"}}]},
        {"chat_template_kwargs": {"enable_thinking": False}},
        {"add_generation_prompt": False},
        {"continue_final_message": True, "chat_template_kwargs": {"documents": None}},
    ],
)
def test_calls_parts_tools_and_options_reach_the_template_as_transformers_brings_them(options):
    tokenizer = with_template("byte-level", TOOLS)
    decoder = SpeculativeDecoder(
        ModelPair(wrap(llama(tokenizer, 0, positions=600)), None, tokenizer)
    )
    as_transformers = {"add_generation_prompt": not options.get("continue_final_message")}
    as_transformers |= {key: value for key, value in options.items() if "kwargs" not in key}
    as_transformers |= options.get("chat_template_kwargs", {})
    rendered = tokenizer.apply_chat_template(WITH_TOOLS, tokenize=False, **as_transformers)
    run = decoder.generate(
        WITH_TOOLS, SamplingParams(max_tokens=1), chat=True, num_draft_tokens=0, **options
    )
    started = run.trace.started
    assert tokenizer.decode(started.prompt_token_ids) == rendered
    spans = [span.text for span in prompt_spans(started) if not span.template]
    for own, text in zip(spans, ["a", "You", "1", "are"], strict=True):
        assert text in own


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"content": 3}, r"prompt\[0\]\['content'\] must be text, a list of parts with text, or"),
        ({"content": None}, r"or None next to tool_calls, got None"),
        (
            {"content": [{"type": "image_url"}]},
            r"prompt\[0\]\['content'\]\[0\] must be a part with",
        ),
        ({"content": "\ud800"}, r"prompt\[0\]\['content'\] is broken text"),
        ({"role": None}, r"prompt\[0\]\['role'\] must be text, got None"),
        ({"tool_calls": "sum"}, r"prompt\[0\]\['tool_calls'\] must be a list of calls, got 'sum'"),
    ],
)
def test_a_message_that_is_none_is_refused_by_its_number_and_key(changes, said):
    with pytest.raises(ValueError, match=said) as raised:
        messages_of([{"role": "user", "content": "a"} | changes])
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"tools": 3}, "tools must be None or a list of functions or JSON schemas of tools, got 3"),
        ({"tools": [3]}, "chat template fails: ValueError: Tools should either be"),
        ({"chat_template_kwargs": {"tokenize": False}}, "chat_template_kwargs holds 'tokenize'"),
        ({"add_generation_prompt": True, "continue_final_message": True}, "set one"),
        ({"chat": False, "tools": []}, "tools needs chat=True"),
        ({"chat": False, "continue_final_message": True}, "continue_final_message needs chat=True"),
    ],
)
def test_an_option_of_the_template_that_makes_no_sense_is_one_line(options, said):
    tokenizer = with_template("byte-level", TOOLS)
    decoder = SpeculativeDecoder(ModelPair(wrap(llama(tokenizer, 0)), None, tokenizer))
    with pytest.raises(ValueError, match=said) as raised:
        decoder.generate("a", **{"chat": True, "num_draft_tokens": 0} | options)
    assert "\n" not in str(raised.value)
