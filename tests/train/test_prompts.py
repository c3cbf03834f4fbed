"""The prompts that a target answers in training are those that `chat=True` gives it."""

import json
import re
from itertools import islice
from typing import Any

import pytest
import torch

from naive_speculate import ModelPair
from naive_speculate.models import wrap
from tests.tokenizers_of_tests import byte_level, legacy, llama, unigram
from train.data import Collector, Template, chat_template, read_given, source_of
from train.stream import stream

TEMPLATES = {  # each with what finds the turn in its text
    "spaces": ("[I] {{ messages[0].content | trim }} [/I]", r"\[I\](.*)\[/I\]"),
    "lines": ("<user>\n{{ messages[0].content | trim }}\n<answer>\n", r"<user>\n(.*)\n<answer>"),
    "twice": (
        "Q: {{ messages[0].content | trim }}\nAgain: {{ messages[0].content | trim }}\nA:",
        r"Q:(.*)\nAgain:.*\nA:",
    ),
}
PASSAGE = "The old king opened the door of the castle and said, who are you? " * 3


@pytest.fixture(autouse=True)
def short(monkeypatch):
    for room in ("data", "stream"):
        monkeypatch.setattr(f"train.{room}.MAX_TURN", 8)
        monkeypatch.setattr(f"train.{room}.MAX_ANSWER", 12)
        monkeypatch.setattr(f"train.{room}.OPENINGS", ("Write a story about", "What is "))


def chatty(make, template) -> tuple[Any, Any]:
    """A pair whose tokenizer has this template, and its model in transformers."""
    tokenizer = make("prose")
    model = llama(tokenizer, seed=0, num_layers=2, positions=1024)
    tokenizer.chat_template = TEMPLATES[template][0]
    return ModelPair(wrap(model, "torch"), tokenizer=tokenizer), model


def rendered(tokenizer, template, prompt) -> list[int]:
    """The prompt of `chat=True` for the turn in a prompt."""
    found = re.search(TEMPLATES[template][1], tokenizer.decode(prompt), re.DOTALL)
    assert found
    messages = [{"role": "user", "content": found[1].strip()}]
    return list(
        tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_dict=False)
    )


@pytest.mark.parametrize("template", TEMPLATES)
@pytest.mark.parametrize("make", [byte_level, legacy, unigram])
def test_the_target_answers_whole_prompts_and_what_it_computed_there_is_kept(make, template):
    pair, model = chatty(make, template)
    passages = [pair.tokenizer(PASSAGE, add_special_tokens=False).input_ids]
    for about in ([], passages):
        written = Collector(pair, source_of(pair, "made here", [1]), 0).write(about, 320)
        for row in islice(written, 5):
            prompt = row.tokens[: row.answer_start]
            assert prompt == rendered(pair.tokenizer, template, prompt)
            assert about == [] or "castle" in pair.tokenizer.decode(prompt)
            with torch.no_grad():
                tokens = torch.tensor([row.tokens[: len(row.states)]])
                seen = model(tokens, output_hidden_states=True)
            states = torch.stack(row.states).float()
            assert torch.allclose(states, seen.hidden_states[1][0], atol=2e-2)
            likeliest = torch.stack([ids[0] for ids, _ in row.likeliest])
            theirs = seen.logits[0].gather(-1, likeliest[:, None])[:, 0]
            assert torch.allclose(theirs, seen.logits[0].amax(-1), atol=1e-4)  # there may be ties


@pytest.mark.parametrize("template", TEMPLATES)
@pytest.mark.parametrize("make", [byte_level, legacy])
def test_so_it_does_in_a_stream(make, template):
    pair, _ = chatty(make, template)
    passages = [pair.tokenizer(PASSAGE, add_special_tokens=False).input_ids]
    texts = stream(pair, chat_template(pair.tokenizer), passages, 400, 5, 0)
    special = {*pair.tokenizer.all_special_ids}  # spaces next to them are not in the text
    prompts = [texts.prompt(number) for number in range(len(texts.lengths))]
    prompts = [prompt for prompt in prompts if not special & {*prompt}]
    assert all(prompt == rendered(pair.tokenizer, template, prompt) for prompt in prompts)
    about = ["castle" in pair.tokenizer.decode(prompt) for prompt in prompts]
    assert len(about) > 20 > sum(about) > 0
    assert int(texts.answers.sum()) >= 400


def test_a_base_target_continues_what_a_prompt_of_text_has():
    tokenizer = legacy("prose")
    tokenizer.chat_template = None
    pair = ModelPair(wrap(llama(tokenizer, seed=0, num_layers=2), "torch"), tokenizer=tokenizer)
    passage = tokenizer(PASSAGE, add_special_tokens=False).input_ids
    row = next(Collector(pair, source_of(pair, "made here", [1]), 0).write([passage], 320))
    texts = stream(pair, None, [passage], 50, 2, 0)
    for prompt in (row.tokens[: row.answer_start], texts.prompt(0)):
        assert prompt == tokenizer(PASSAGE).input_ids[:32]
    assert prompt[0] == tokenizer.bos_token_id


@pytest.mark.parametrize(
    ("template", "line"),
    [
        ("{{ messages[0].content | upper }}", "does not contain the user's words unchanged"),
        ("{{ messages[0].content }}", "has nothing before the user's words"),
        ("{{ raise_exception('no user\n may speak') }}", "fails: TemplateError: no user may speak"),
    ],
)
def test_a_template_that_cannot_be_used_is_one_line(template, line):
    tokenizer = byte_level("prose")
    tokenizer.chat_template = template
    with pytest.raises(ValueError, match=rf"^the chat template {line}$"):
        Template(tokenizer)


def test_files_may_begin_with_a_mark_and_have_empty_lines(tmp_path):
    path, line = tmp_path / "given", json.dumps({"prompt": [1, 2, 3], "answer": [4, 5, 6]})
    for text in (
        f"\ufeff{line}\n",
        f"{line}\n\n",
        f"\ufeff\r\n{line}\r\n \r\n{line}",
        f"{line}\n\f",
    ):
        path.write_bytes(text.encode())
        assert read_given(path, 97) == [([1, 2, 3], [4, 5, 6])] * text.count("prompt")
