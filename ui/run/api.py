"""The endpoint for programs and language models: `/generate` streams a run's events, and its
last answer is the text with the run's figures."""

import inspect
from collections.abc import AsyncGenerator, Iterable, Mapping
from contextlib import aclosing
from dataclasses import replace
from functools import partial
from typing import Any, Literal, NamedTuple

import gradio as gr
from gradio.events import api
from pydantic import BaseModel, model_serializer

from naive_speculate.events import Event, EventKind
from naive_speculate.events.event import OUTPUT_KINDS
from naive_speculate.sampling.options import Option
from naive_speculate.speculate.draft import DRAFTERS
from naive_speculate.speculate.tree import MAX_NODES
from naive_speculate.speculate.verify import VERIFIERS
from ui.checks import RANGES
from ui.host.catalog import DECODING, Catalog
from ui.host.visitors import VISITOR_BYTES, Weighed
from ui.run.runs import TOO_LARGE, ShownRun, request_of
from ui.run.settings import OPTIONS, TREE, Settings, checked

SECONDS_PER_LIST = 0.15  # programs get fewer and longer lists than the page
_USUAL = Settings()

ABOUT = "Continue a prompt by speculative decoding, and get the text with the run's figures."
ANSWER = (
    "a list with the event `finished`: the generated text, the finish reason and the metrics."
    " Before it, programs that read the stream get the other events, in lists of the new ones."
)


class Parameter(NamedTuple):
    """A parameter of the endpoint: its type, its default, and a line with its allowed values."""

    type: Any
    default: Any
    line: str


_OWN = {
    "prompt": Parameter(str, ..., "The start of a text, or a question to a model that chats."),
    "max_tokens": Parameter(
        int, _USUAL.max_tokens, "Stop after this many tokens: 1 to {max_tokens}."
    ),
    "num_draft_tokens": Parameter(
        int | Literal["auto"],
        _USUAL.num_draft_tokens,
        "Draft tokens per step: {k}. 0 is plain decoding, auto follows acceptance rate and costs."
        " At temperature 0 a busy server may draft fewer; the text is the same.",
    ),
    "verify_strategy": Parameter(
        str, _USUAL.verify_strategy, "How draft tokens are judged: {rules}."
    ),
    "drafter": Parameter(
        str, "", "What drafts: {drafters}. Empty for the default of these models."
    ),
    "tree": Parameter(
        str,
        "",
        "Several candidates per position, as numbers of children by depth, such as {tree}, at most"
        " {nodes} nodes in all. Empty for none.",
    ),
    "stop": Parameter(
        list[str] | None,
        None,
        "Texts that end the generation; they are not part of the text. Up to 64.",
    ),
    "guided": Parameter(
        Literal["", "choice", "regex", "json"],
        "",
        'The form that the text must have: "choice", "regex" or "json". Empty for any; the form'
        " itself is guided_text.",
    ),
    "guided_text": Parameter(
        str, "", "One allowed text per line, a regular expression, or a JSON schema."
    ),
    "events": Parameter(
        bool, False, "Put all events of the run into the one answer, which then is not streamed."
    ),
}
"""Parameters that are not simply an option of the library."""
_FIRST = (
    *("prompt", "max_tokens", "temperature", "top_p", "seed", "num_draft_tokens"),
    *("verify_strategy", "drafter", "draft_sampling", "tree", "stop", "top_k", "min_p"),
    *("repetition_penalty", "guided", "guided_text", "events"),
)
"""The places of these never change, for programs that send a list of values."""


def parameters(options: Iterable[Option]) -> dict[str, Parameter]:
    """The endpoint's parameters by name, with one for each option. The lines hold {limits}."""
    every = {each.name: _parameter(each) for each in options} | _OWN
    return {name: every[name] for name in dict.fromkeys([*_FIRST, *every])}


def _parameter(option: Option) -> Parameter:
    default = getattr(_USUAL, option.name, option.default)
    kind = Literal[*option.among] if option.among else option.form
    line = option.line.replace("{", "{{").replace("}", "}}")
    return Parameter(kind if default is not None else kind | None, default, line)


PARAMETERS = parameters(OPTIONS.values())
"""Gradio reads a docstring line by line, and shows the lines to programs and language models."""


class _Unwritten(BaseModel):
    """A list of events for a program, converted to JSON values only when the reader fetches it.

    Gradio walks through all values several times, and blocks the decoder's thread meanwhile.
    This is a single value to Gradio, and an unread list costs nothing. The last event of a list
    with `text` gets this text.
    """

    events: Any  # `Weighed`; not to be validated
    text: str | None = None

    @model_serializer
    def _values(self) -> list[dict[str, Any]]:
        values = [event.to_dict() for event in self.events.value]
        if self.text is not None and values:
            values[-1]["text"] = self.text
        return values


def add_api(catalog: Catalog) -> None:
    """Add the endpoint to the page that is being built."""

    async def generate(*inputs: Any) -> AsyncGenerator[list[dict[str, Any]]]:
        values = dict(zip(PARAMETERS, inputs, strict=False))
        async with aclosing(_lists(catalog, values)) as lists:
            async for new in lists:
                yield new

    _declare(generate, PARAMETERS)
    generate.__doc__ = _description(catalog)
    api(
        generate,
        api_name="generate",
        concurrency_id=DECODING,
        concurrency_limit=catalog.concurrency,
    )


def _declare(function: Any, parameters: Mapping[str, Parameter]) -> None:
    """Give a function the signature and annotations that Gradio reads."""
    one = inspect.Parameter
    answer = function.__annotations__["return"]
    function.__signature__ = inspect.Signature(
        [
            one(
                name,
                one.POSITIONAL_OR_KEYWORD,
                default=one.empty if each.default is ... else each.default,
                annotation=each.type,
            )
            for name, each in parameters.items()
        ],
        return_annotation=answer,
    )
    types = {name: each.type for name, each in parameters.items()}
    function.__annotations__ = types | {"return": answer}


def _description(catalog: Catalog) -> str:
    """The endpoint's docstring as Gradio parses it, with one line per parameter."""
    limits = {
        "max_tokens": catalog.max_tokens,
        "k": RANGES["num_draft_tokens"],
        "nodes": MAX_NODES,
        "tree": TREE,
    }
    names = {"rules": ", ".join(VERIFIERS), "drafters": ", ".join(DRAFTERS)}
    lines = [f"{name}: {each.line.format(**limits, **names)}" for name, each in PARAMETERS.items()]
    return "\n".join([ABOUT, "", "Args:", *lines, "", "Returns:", ANSWER])


async def _lists(catalog: Catalog, values: dict[str, Any]) -> AsyncGenerator[Any]:
    """The run's new events, list by list; the last list is the `finished` event with the text.
    The run ends when the program stops reading."""
    if values["num_draft_tokens"] == "auto":
        values = values | {"auto": True, "num_draft_tokens": _USUAL.num_draft_tokens}
    at_once, stop = values.pop("events"), values.pop("stop")
    run = ShownRun(keeps=False)
    answer = _Answer()
    try:
        run.settings = settings = checked(values)
        catalog.check_limits(settings.window, settings.max_tokens)
        request = await request_of(settings)
        request = replace(request, params=replace(request.params, stop=stop))
        run.start(partial(catalog.start, settings.pair, request, reader=run.reader()))
        async for _, events in run.batches(SECONDS_PER_LIST):
            answer.add(events)
            if run.size > VISITOR_BYTES and at_once:
                run.end(TOO_LARGE)
            elif not at_once and (new := answer.take()):
                yield _Unwritten(events=Weighed(new, run.weight_of(new)))
        if run.error is not None:
            raise run.error
        last = answer.take(last=True)
        yield _Unwritten(events=Weighed(last, run.weight_of(last)), text=answer.text)
    except ValueError as error:
        raise gr.Error(str(error), print_exception=False) from None
    finally:
        run.cancel.set()


class _Answer:
    """The events that are not yet given away, and the text of all."""

    def __init__(self) -> None:
        self.text = ""
        self._events: list[Event] = []

    def add(self, events: list[Event]) -> None:
        self._events += events
        self.text += "".join(event.text or "" for event in events if event.kind in OUTPUT_KINDS)

    def take(self, *, last: bool = False) -> list[Event]:
        """The new events; before the last time, without `finished`."""
        taken = [event for event in self._events if last or event.kind != EventKind.FINISHED]
        self._events = self._events[len(taken) :]
        return taken
