"""The controls: one component per field of `Settings`, with a line of help each."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields
from functools import wraps
from importlib.util import find_spec
from typing import Any

import gradio as gr
from gradio.components import Component

from naive_speculate.speculate.draft import DRAFTERS
from ui.host.errors import message_of
from ui.notify import QUIET, warn
from ui.run.settings import TITLES, Settings, checked

EXAMPLES = {
    "A fairy tale": "Once upon a time there was a little fox who lived",
    "A dialogue": '"Good morning," said the mole. "Where are you going?"\n\n"I am looking for my hat," said the',
    "A list": "In the basket there were apples, pears, plums,",
    "An odd one": "The quarterly report on semiconductor exports shows",
}
"""Example prompts for pairs that do not chat, by button label, in order of falling acceptance."""
QUESTIONS = (
    "Write a Python function that reverses a list.",
    "What is the capital of France?",
    "Explain gravity to a child.",
    "List five fruits.",
)
"""Example prompts for pairs that chat."""

STRATEGIES = [
    ("Speculative sampling", "speculative_sampling"),
    ("Greedy match", "greedy_match"),
    ("Block verification", "block_verification"),
    ("Typical acceptance (not lossless)", "typical_acceptance"),
]
OWN_DRAFTER = ("Default", "The drafter that this pair comes with. Without one, earlier text is copied.")

ANIMAL = {
    "type": "object",
    "properties": {
        "animal": {"enum": ["fox", "bear", "hedgehog"]},
        "name": {"type": "string", "maxLength": 12},
        "age": {"type": "integer", "minimum": 1, "maximum": 99},
    },
    "required": ["animal", "name", "age"],
}
GUIDES = {
    "choice": " in the forest.\n by the sea.\n under a tree.",
    "regex": r"( [a-z]+){5,12}\.",
    "json": json.dumps(ANIMAL, indent=1),
}
"""The field's content for each kind, until the visitor changes it."""

FILL = f"""(kind, text) => {{
    const examples = {json.dumps(GUIDES)};
    return !text || Object.values(examples).includes(text) ? examples[kind] ?? "" : text;
}}"""
HINTS = dict.fromkeys(TITLES, "An example; change it.") | {
    "choice": "An example; change it. One text per line, each with its leading space."
}
SHOW = f'(kind) => ({{ __type__: "update", visible: Boolean(kind), info: {json.dumps(HINTS)}[kind] }})'

Controls = dict[str, Component]  # the components by `Settings` field


def build_experiment(
    run: gr.Button,
    stop: gr.Button,
    work: Callable[..., Iterator[tuple[Any, ...]]],
    inputs: Sequence[Component],
    outputs: Sequence[Component],
    stopped: str,
    **options: Any,
) -> None:
    """Connect a button that starts an experiment and one that stops it.

    `work` yields values for the outputs, of which the first shows the status. A ValueError becomes a toast; any other error is
    shown as the status. `stopped` is the status after Stop. It appears once the browser has released the experiment: before
    that, it would ignore another start.
    """
    status, *others = outputs
    skip = [gr.skip()] * len(others)

    @wraps(work)
    def guarded(*values: Any, **more: Any) -> Iterator[tuple[Any, ...]]:
        try:
            yield from work(*values, **more)
        except Exception as error:
            yield failed(error), *skip

    going = run.click(guarded, list(inputs), list(outputs), **options)
    stop.click(None, None, None, cancels=going, queue=False, **QUIET)
    going.failure(lambda: stopped, None, status, queue=False, **QUIET)  # to Gradio, a cancelled event has failed


def failed(error: Exception) -> str:
    """The status of an experiment that failed. A ValueError is shown as a toast instead."""
    if isinstance(error, ValueError):
        warn(error)
        return ""
    return f"It ended in an error: {message_of(error)}."


def build_examples(prompts: Mapping[str, str], *, visible: bool) -> tuple[gr.Row, dict[gr.Button, str]]:
    """A row of buttons with these names, and the prompt of each."""
    look: dict[str, Any] = {"size": "sm", "variant": "secondary", "elem_classes": "ns-example"}
    with gr.Row(elem_classes="ns-examples", visible=visible) as row:
        buttons = {gr.Button(name, **look): text for name, text in prompts.items()}
    return row, buttons


def build_dials(start: Settings) -> Controls:
    """The two controls that are always visible.

    Numbers have no bounds here, because Gradio's own error message would not name the field.
    """
    k = gr.Number(start.num_draft_tokens, label="Draft tokens (k)", min_width=0, elem_id="k")
    temperature = gr.Number(start.temperature, label="Temperature", step=0.1, min_width=0, elem_id="temperature")
    return {"num_draft_tokens": k, "temperature": temperature}


def drafter_choices(names: Sequence[str]) -> list[tuple[str, str]]:
    """The default and a choice per registered name: two lines each, the second a description."""
    words = {"": OWN_DRAFTER} | {name: (DRAFTERS[name].title or name, DRAFTERS[name].about) for name in names}
    return [(f"{title}\n{about}", name) for name, (title, about) in words.items()]


def build_drawer(
    start: Settings, *, chat_template: bool, drafters: Sequence[str], pairs: list[tuple[str, str]]
) -> tuple[Controls, gr.Button]:
    """All other controls in a drawer, which is closed at first, and the button that copies a link to them. The pairs to choose
    from are labels with values; a single one is no choice."""
    made: Controls = {}
    with gr.Accordion("More settings", open=False, elem_id="more"):
        made["pair"] = gr.Dropdown(pairs, value="", label="Models", visible=len(pairs) > 1, elem_id="pair")
        made |= _build_drafting(start, drafters)
        made |= _build_sampling(start)
        made |= build_guided(start.guided, start.guided_text)
        made |= _build_end(start, chat_template)
        share = gr.Button("Copy link to these settings", size="sm", elem_id="share")
    return made, share


def _build_drafting(start: Settings, drafters: Sequence[str]) -> Controls:
    made: Controls = {}
    info, label = "How the [target](#term-target) judges [draft tokens](#term-draft): [rules](#term-sampling).", "Verification"
    made["verify_strategy"] = gr.Dropdown(STRATEGIES, value=start.verify_strategy, label=label, info=info, elem_id="strategy")
    info = "What proposes the [draft tokens](#term-draft). The output distribution is the same with each."
    names = drafter_choices(drafters)
    made["drafter"] = gr.Radio(names, value=start.drafter, label="Drafter", info=info, elem_id="drafter")
    info = (
        "Drawn from the draft's distribution, or its most probable tokens. Argmax helps if the draft is less sure than the "
        "target."
    )
    ways, label = [("Sampled", "sampled"), ("Argmax", "argmax")], "Draft tokens of a model"
    made["draft_sampling"] = gr.Radio(ways, value=start.draft_sampling, label=label, info=info, elem_id="draft-sampling")
    info = (
        "Several candidates per position: 4x2x1 drafts 4 tokens, 2 after each, then 1. More chances per target pass, "
        "but each node costs verification: on 2 cores a pass over 17 tokens costs 1.84 single ones. One level, such as 4, "
        "can pay off; deeper trees are only for teaching. Needs a draft head or a draft model."
    )
    made["tree"] = gr.Textbox(start.tree, label="Token tree", placeholder="4x2x1", info=info, elem_id="tree")
    info = "From the [acceptance rate](#term-alpha) so far and the pair's [costs](#term-cost)."
    made["auto"] = gr.Checkbox(start.auto, label="Choose k automatically", info=info)
    return made


SLIDERS = {
    "top_p": (0.05, 1, 0.05, "Top-p", "Keep the most probable tokens up to this total [probability](#term-top-p)."),
    "min_p": (0, 1, 0.01, "Min-p", "Drop tokens below this fraction of the highest probability."),
    "repetition_penalty": (0.5, 2, 0.05, "Repetition penalty", "Above 1, earlier tokens become less likely."),
    "presence_penalty": (-2, 2, 0.1, "Presence penalty", "Subtracted from the logit of each generated token."),
    "frequency_penalty": (-2, 2, 0.1, "Frequency penalty", "The same, once per time it was generated."),
}
"""Least and largest value, step, label and help."""


def _build_sampling(start: Settings) -> Controls:
    seed = gr.Number(start.seed, label="Seed", info="[Same seed](#term-seed), same text.", elem_id="seed")
    made: Controls = {"seed": seed}
    for name, (low, high, step, label, info) in SLIDERS.items():
        made[name] = gr.Slider(low, high, getattr(start, name), step=step, label=label, info=info)
        if name == "top_p":
            made["top_k"] = gr.Number(start.top_k, label="Top-k", info="Keep only the k likeliest tokens; -1 keeps all.")
    return made


def build_guided(kind: str, text: str) -> Controls:
    """The controls with their initial values; hidden if xgrammar is not installed."""
    possible = find_spec("xgrammar") is not None
    kinds = [("Nothing", ""), *((title, kind) for kind, title in TITLES.items())]
    info = (
        "[Blocks](#term-guided) every token that violates it, for draft and target alike. Text that it requires, such as "
        "the keys of JSON, is drafted without a drafter: this helps where a schema has long fixed parts."
    )
    choice = gr.Dropdown(kinds, value=kind, label="Guide the text by", info=info, elem_id="guided", visible=possible)
    look: dict[str, Any] = {"lines": 3, "max_lines": 12, "elem_id": "guided-text", "visible": possible and bool(kind)}
    source = gr.Textbox(text, label="Guide", info=HINTS.get(kind), **look)
    choice.input(None, [choice, source], source, js=FILL, **QUIET)
    choice.change(None, choice, source, js=SHOW, **QUIET)
    return {"guided": choice, "guided_text": source}


def _build_end(start: Settings, chat_template: bool) -> Controls:
    made: Controls = {}
    info = "Stop after this many."
    made["max_tokens"] = gr.Number(start.max_tokens, label="Max tokens", info=info, elem_id="max-tokens")
    info = "One per line; the text [ends before it](#term-stop). \\n is a line break."
    made["stop"] = gr.Textbox(start.stop, label="Stop strings", lines=2, info=info)
    info = "Continue up to max tokens, even if the model would end."
    made["ignore_eos"] = gr.Checkbox(start.ignore_eos, label="Ignore the end token", info=info)
    info = "Format the prompt as in the model's chat training."
    made["chat"] = gr.Checkbox(start.chat, label="Chat template", info=info, visible=chat_template)
    return made


def ordered(controls: Controls) -> list[Component]:
    return [controls[field.name] for field in fields(Settings)]


def read(values: Sequence[Any]) -> Settings:
    """The settings from the components' values, in the order of `ordered`; see `checked`."""
    return checked({field.name: value for field, value in zip(fields(Settings), values, strict=True)})
