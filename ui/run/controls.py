"""The controls: one component for every field of `Settings`, with a line of help each."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields
from functools import wraps
from typing import Any

import gradio as gr
from gradio.components import Component

from naive_speculate.speculate.draft import DRAFTERS
from ui.host.catalog import MAX_DRAFT_TOKENS
from ui.host.errors import message_of
from ui.notify import QUIET, warn
from ui.run.guided import build_guided
from ui.run.settings import Settings, checked

EXAMPLES = {
    "A fairy tale": "Once upon a time there was a little fox who lived",
    "A dialogue": '"Good morning," said the mole. "Where are you going?"\n\n"I am looking for my hat," said the',
    "A list": "In the basket there were apples, pears, plums,",
    "An odd one": "The quarterly report on semiconductor exports shows",
}
"""Prompts to begin with where the pair does not chat, by the name on their button; the draft is kept ever less often from one
to the next."""
QUESTIONS = (
    "What is the capital of France?",
    "Write a Python function that reverses a list.",
    "Explain gravity to a child.",
    "List five fruits.",
    "Translate to French: Where is the library?",
)
"""The same where it does."""

STRATEGIES = [
    ("Speculative sampling", "speculative_sampling"),
    ("Greedy match", "greedy_match"),
    ("Block verification", "block_verification"),
    ("Typical acceptance (not lossless)", "typical_acceptance"),
]
OWN_DRAFTER = (
    "The pair's own",
    "Its head or draft model: the faster, where that was measured. Without either, what was already said.",
)

Controls = dict[str, Component]
"""The components by the name of the `Settings` field that they hold."""


def build_experiment(
    run: gr.Button,
    stop: gr.Button,
    work: Callable[..., Iterator[tuple[Any, ...]]],
    inputs: Sequence[Component],
    outputs: Sequence[Component],
    stopped: str,
    **options: Any,
) -> None:
    """Let a button begin an experiment, and another end it.

    Args:
        run, stop: The buttons.
        work: Yields values for the outputs. A ValueError is told in a toast; what else goes wrong is told where it stands.
        inputs: What it takes.
        outputs: What it fills, two or more; the first of them says how it stands.
        stopped: What is said there once it was stopped. The words come when the browser has let go of the experiment: until
            then it would ignore a press that begins the next one.
        options: Of the event that begins it.
    """
    status, *others = outputs
    skip = [gr.skip()] * len(others)

    @wraps(work)
    def told(*values: Any, **more: Any) -> Iterator[tuple[Any, ...]]:
        try:
            yield from work(*values, **more)
        except ValueError as error:
            warn(error)
            yield "", *skip
        except Exception as error:
            yield f"It ended in an error: {message_of(error)}.", *skip

    going = run.click(told, list(inputs), list(outputs), **options)
    stop.click(None, None, None, cancels=going, queue=False, **QUIET)
    going.failure(lambda: stopped, None, status, queue=False, **QUIET)  # Gradio takes a cancelled event for one that failed


def build_prompt(start: Settings) -> gr.Textbox:
    """The prompt."""
    return gr.Textbox(
        start.prompt,
        label="Prompt",
        lines=3,
        max_lines=8,
        placeholder="Ask a question, or begin a story…",
        elem_id="prompt",
        info="The target model answers or continues this text. Shift + Enter runs.",
    )


def build_examples(prompts: Mapping[str, str], *, visible: bool) -> tuple[gr.Row, dict[gr.Button, str]]:
    """A row of buttons with these names, and the prompt of each."""
    with gr.Row(elem_classes="ns-examples", visible=visible) as row:
        buttons = {
            gr.Button(name, size="sm", variant="secondary", elem_classes="ns-example"): text for name, text in prompts.items()
        }
    return row, buttons


def _slider(start: Settings, name: str, low: float, high: float, step: float, label: str, info: str, **more: Any) -> gr.Slider:
    return gr.Slider(low, high, getattr(start, name), step=step, label=label, info=info, **more)


def _number(start: Settings, name: str, label: str, info: str, **more: Any) -> gr.Number:
    return gr.Number(getattr(start, name), label=label, info=info, **more)


def build_main(start: Settings) -> Controls:
    """The controls that a lesson turns most.

    Numbers have no bounds here: Gradio's own complaint would not say which field it is about.
    """
    made: Controls = {}
    said = "[Guesses](#term-k) a round; 0 is [plain decoding](#term-plain)."
    made["num_draft_tokens"] = _slider(start, "num_draft_tokens", 0, MAX_DRAFT_TOKENS, 1, "Draft tokens (k)", said, elem_id="k")
    said = "0 takes the likeliest [token](#term-token); [higher](#term-temperature) is wilder."
    made["temperature"] = _slider(start, "temperature", 0, 2, 0.05, "Temperature", said, elem_id="temperature")
    made["verify_strategy"] = gr.Dropdown(
        STRATEGIES,
        value=start.verify_strategy,
        label="Verification",
        info="How the [target](#term-target) judges the [drafts](#term-draft): [rules](#term-sampling).",
        elem_id="strategy",
    )
    with gr.Row():
        made["max_tokens"] = _number(start, "max_tokens", "Max tokens", "Ends the text.", min_width=110, elem_id="max-tokens")
        made["seed"] = _number(start, "seed", "Seed", "[Repeats](#term-seed) a run.", min_width=110, elem_id="seed")
    return made


def drafter_choices(names: Sequence[str]) -> list[tuple[str, str]]:
    """A choice for each of these names of the registry, after the pair's own: two lines, the second says what it is."""
    words = {"": OWN_DRAFTER} | {name: (DRAFTERS[name].title or name, DRAFTERS[name].about) for name in names}
    return [(f"{title}\n{about}", name) for name, (title, about) in words.items()]


def build_more(start: Settings, *, chat_template: bool, drafters: Sequence[str]) -> Controls:
    """The less used controls; `drafters` are the names of those to choose from."""
    made: Controls = {}
    with gr.Accordion("More", open=False, elem_id="more"):
        made["drafter"] = gr.Radio(
            drafter_choices(drafters),
            value=start.drafter,
            label="Drafter",
            info="Who [guesses](#term-draft). The text is the same kind with each.",
            elem_id="drafter",
        )
        made["auto"] = gr.Checkbox(
            start.auto,
            label="Choose k automatically",
            info="From the [acceptance](#term-alpha) seen so far and the pair's [costs](#term-cost).",
        )
        made["top_p"] = _slider(
            start, "top_p", 0.05, 1, 0.05, "Top-p", "Keep the likeliest tokens up to this much [probability](#term-top-p)."
        )
        made["top_k"] = _number(start, "top_k", "Top-k", "Keep so many of the likeliest tokens; -1 keeps all.")
        made["min_p"] = _slider(
            start, "min_p", 0, 1, 0.01, "Min-p", "Drop tokens less likely than this share of the likeliest."
        )
        made["repetition_penalty"] = _slider(
            start, "repetition_penalty", 0.5, 2, 0.05, "Repetition penalty", "Above 1, tokens seen before become less likely."
        )
        made["presence_penalty"] = _slider(
            start, "presence_penalty", -2, 2, 0.1, "Presence penalty", "Taken off the logit of every token generated before."
        )
        made["frequency_penalty"] = _slider(
            start, "frequency_penalty", -2, 2, 0.1, "Frequency penalty", "The same, once for each time it was generated."
        )
        made["stop"] = gr.Textbox(
            start.stop,
            label="Stop strings",
            lines=2,
            info="One a line; the text [ends before one](#term-stop). \\n is a line break.",
        )
        made |= build_guided(start.guided, start.guided_text)
        made["ignore_eos"] = gr.Checkbox(
            start.ignore_eos, label="Go on after the end", info="Write up to max tokens, even where the model would end."
        )
        made["chat"] = gr.Checkbox(
            start.chat,
            label="Chat template",
            info="Wrap the prompt as the model was taught to chat.",
            visible=chat_template,
        )
    return made


def build_pair(choices: list[tuple[str, str]]) -> Controls:
    """The choice between pairs, shown where there is one; `choices` are labels with values."""
    return {
        "pair": gr.Dropdown(
            choices,
            value="",
            label="Models",
            info="Target and draft.",
            visible=len(choices) > 1,
            elem_id="pair",
        )
    }


def ordered(controls: Controls) -> list[Component]:
    """The components in the order of the fields of `Settings`."""
    return [controls[field.name] for field in fields(Settings)]


def read(values: tuple[Any, ...]) -> Settings:
    """The settings from the components' values, in the order of `ordered`.

    Raises:
        ValueError: Names the field that is empty or of the wrong kind.
    """
    return checked({field.name: value for field, value in zip(fields(Settings), values, strict=True)})
