"""Which tokens of a conversation have the words of its messages: those that the template does not
add, wherever the same words are in it."""

import copy

import pytest

from naive_speculate import SamplingParams, SpeculativeDecoder
from naive_speculate.models import wrap
from naive_speculate.models.chat import in_template, messages_of, words_of
from naive_speculate.pair import ModelPair
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
