"""The controls: one component per field of `Settings`, with a line of help each."""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields
from functools import wraps
from importlib.util import find_spec
from typing import Any

import gradio as gr
from gradio.components import Component

from naive_speculate.sampling.options import Option
from naive_speculate.speculate.draft import DRAFTERS
from naive_speculate.speculate.tree import MAX_NODES
from ui.host.errors import message_of
from ui.notify import QUIET, warn
from ui.run.settings import OF_PARAMS, OF_REQUEST, OPTIONS, TITLES, TREE, Settings, checked

EXAMPLES = {
    "A fairy tale": "Once upon a time there was a little fox who lived",
    "A dialogue": (
        '"Good morning," said the mole. "Where are you going?"\n\n"I am looking for my hat,"'
        " said the"
    ),
    "A list": "In the basket there were apples, pears, plums,",
    "An odd one": "The quarterly report on semiconductor exports shows",
}
"""Example prompts for pairs that do not chat, by button label, in order of falling acceptance."""
QUESTIONS = (
    "Write a Python function that reverses a list.",
    "What is the largest ocean on Earth?",
    "What is the capital of France?",
    "Explain gravity to a child.",
    "List five fruits.",
)
"""Example prompts for pairs that chat."""

STRATEGIES = [
    ("Speculative sampling", "speculative_sampling"),
    ("Greedy match", "greedy_match"),
    ("Block verification", "block_verification"),
    ("Sample match", "sample_match"),
    ("Typical acceptance (not lossless)", "typical_acceptance"),
]
OWN_DRAFTER = (
    "Default",
    "The drafter that this pair comes with. Without one, earlier text is copied.",
)

HELP = {
    "verify_strategy": (
        "How the [target](#term-target) judges [draft tokens](#term-draft):"
        " [rules](#term-sampling)."
    ),
    "drafter": (
        "What proposes the [draft tokens](#term-draft). The output distribution is the same with"
        " each."
    ),
    "tree": (
        f"Several candidates per position: {TREE} drafts 3 tokens, 2 after each, then 1; at most"
        f" {MAX_NODES} in all. More chances per target pass, but each node costs verification: on"
        " 2 cores a pass over 17 tokens costs 1.84 single ones. One level, such as 4, can pay off;"
        " deeper trees are only for teaching. Needs a draft head or a draft model."
    ),
    "auto": "From the [acceptance rate](#term-alpha) so far and the pair's [costs](#term-cost).",
    "guided": (
        "[Blocks](#term-guided) every token that violates it, for draft and target alike. Text that"
        " it requires, such as the keys of JSON, is drafted without a drafter: this helps where a"
        " schema has long fixed parts."
    ),
    "stop": "One per line; the text [ends before it](#term-stop). \\n is a line break.",
    "chat": "Format the prompt as in the model's chat training.",
}
"""The line of help of the page's own controls, by `Settings` field. A library's option has its."""

GUIDED = find_spec("llguidance") is not None  # whether text can be guided
KINDS = [(title, kind) for kind, title in {"": "Nothing", **TITLES}.items()]
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
SHOW = (
    f'(kind) => ({{ __type__: "update", visible: Boolean(kind), info: {json.dumps(HINTS)}[kind] }})'
)

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

    `work` yields values for the outputs, of which the first shows the status. A ValueError
    becomes a toast; any other error is shown as the status. `stopped` is the status after Stop.
    It appears once the browser has released the experiment: before that, it would ignore another
    start.
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
    going.failure(
        lambda: stopped, None, status, queue=False, **QUIET
    )  # to Gradio, a cancelled event has failed


def failed(error: Exception) -> str:
    """The status of an experiment that failed. A ValueError is shown as a toast instead."""
    if isinstance(error, ValueError):
        warn(error)
        return ""
    return f"It ended in an error: {message_of(error)}."


def build_examples(prompts: Mapping[str, str]) -> tuple[gr.Row, dict[gr.Button, str]]:
    """A row of buttons with these names, and the prompt of each."""
    look: dict[str, Any] = {"size": "sm", "variant": "secondary", "elem_classes": "ns-example"}
    with gr.Row(elem_classes="ns-examples") as row:
        buttons = {gr.Button(name, **look): text for name, text in prompts.items()}
    return row, buttons


def drafter_choices(names: Sequence[str]) -> list[tuple[str, str]]:
    """The default and a choice per registered name: two lines each, the second a description."""
    words = {"": OWN_DRAFTER} | {
        name: (DRAFTERS[name].title or name, DRAFTERS[name].about) for name in names
    }
    return [(f"{title}\n{about}", name) for name, (title, about) in words.items()]


class _Builder:
    """Makes one component per `Settings` field, with its start value and its line of help.
    Numbers have no bounds here, because Gradio's own error message would not name the field."""

    def __init__(self, start: Settings) -> None:
        self._start = start
        self.made: Controls = {}

    def add(self, kind: Callable[..., Component], name: str, label: str, **looks: Any) -> None:
        looks = {"info": HELP.get(name)} | looks
        value = getattr(self._start, name)
        classes = f"ns-field-{name}"
        self.made[name] = kind(value=value, label=label, elem_classes=classes, **looks)

    def add_option(self, option: Option, **looks: Any) -> None:
        """Add the control of a library's option."""
        kind, of_kind = control_of(option)
        looks = {"info": option.help} | of_kind | looks
        self.add(kind, option.name, str(option.title), **looks)

    def add_others(self, options: Iterable[Option]) -> None:
        """Add the controls of those options that have none yet."""
        for option in options:
            if option.name not in self.made:
                self.add_option(option)


def control_of(option: Option) -> tuple[Callable[..., Component], dict[str, Any]]:
    """The component for an option, and its looks."""
    if option.form is bool:
        return gr.Checkbox, {}
    if option.among:
        return gr.Radio, {"choices": [(name.capitalize(), name) for name in option.among]}
    if option.step is not None and option.between is not None:
        low, high = option.between
        return gr.Slider, {"minimum": low, "maximum": high, "step": option.step}
    return gr.Number, {}


def build_settings(
    start: Settings, pairs: list[tuple[str, str]], drafters: Sequence[str]
) -> tuple[Controls, gr.Button]:
    """All controls but the prompt, most of them in a drawer, which is closed at first, and the
    button that copies a link to them. The pairs to choose from are labels with values.
    `ui.run.pairs` fills in what depends on the pair, but Gradio checks values against the first
    choices."""
    builder = _Builder(start)
    add, add_option = builder.add, builder.add_option
    with gr.Row(elem_classes="ns-dials"):
        add(gr.Number, "num_draft_tokens", "Draft tokens (k)", min_width=0, elem_id="k")
        looks: dict[str, Any] = {"info": None, "step": 0.1, "min_width": 0}
        add_option(OPTIONS["temperature"], **looks, elem_id="temperature")
    with gr.Accordion("More settings", open=False, elem_id="more"):
        with _group("Who drafts"):
            looks = {"choices": drafter_choices(drafters), "elem_id": "drafter"}
            add(gr.Radio, "drafter", "Drafter", **looks)
            add(gr.Textbox, "tree", "Token tree", placeholder=TREE, elem_id="tree")
            add(gr.Checkbox, "auto", "Choose k automatically")
            builder.add_others(OF_REQUEST.values())
        with _group("Who judges"):
            add(gr.Dropdown, "pair", "Models", choices=pairs, elem_id="pair")
            looks = {"choices": STRATEGIES, "elem_id": "strategy"}
            add(gr.Dropdown, "verify_strategy", "Verification", **looks)
        with _group("Sampling"):
            add_option(OPTIONS["seed"], elem_id="seed")
            for name in ("top_p", "top_k", "min_p"):  # the usual ones first
                add_option(OPTIONS[name])
            limits = ("max_tokens", "ignore_eos")
            builder.add_others(each for each in OF_PARAMS.values() if each.name not in limits)
        with _group("Limits"):
            add_option(OPTIONS["max_tokens"], elem_id="max-tokens")
            add(gr.Textbox, "stop", "Stop strings", lines=2)
            add_option(OPTIONS["ignore_eos"])
            add(gr.Checkbox, "chat", "Chat template")
            _build_guide(add, builder.made)
        share = gr.Button("Copy link to these settings", size="sm", elem_id="share")
    return builder.made, share


@contextmanager
def _group(title: str) -> Iterator[None]:
    """A group of the drawer's settings, under its title."""
    with gr.Column(elem_classes="ns-group"):
        gr.HTML(f"<h2>{title}</h2>", apply_default_css=False)
        yield


def _build_guide(add: Callable[..., None], made: Controls) -> None:
    """The kind of guide and its text, which is visible once a kind is chosen."""
    looks: dict[str, Any] = {"choices": KINDS, "visible": GUIDED, "elem_id": "guided"}
    add(gr.Dropdown, "guided", "Guide the text by", **looks)
    looks = {"lines": 3, "max_lines": 12, "visible": False, "elem_id": "guided-text"}
    add(gr.Textbox, "guided_text", "Guide", **looks)
    kind: Any = made["guided"]
    kind.input(None, [kind, made["guided_text"]], made["guided_text"], js=FILL, **QUIET)
    kind.change(None, kind, made["guided_text"], js=SHOW, **QUIET)


def ordered(controls: Controls) -> list[Component]:
    return [controls[field.name] for field in fields(Settings)]


def read(values: Sequence[Any]) -> Settings:
    """The settings from the components' values, in the order of `ordered`; see `checked`."""
    return checked(
        {field.name: value for field, value in zip(fields(Settings), values, strict=True)}
    )
