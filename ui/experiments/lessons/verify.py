"""Lesson 2: one step, token by token: drafted, judged in one pass, and the target's own token. It
is the stage's drawing, with what goes into the pass and comes out of it below."""

from collections.abc import Iterator, Sequence

from markupsafe import Markup

from naive_speculate.events import Event, EventKind
from naive_speculate.events.steps import Step, steps
from naive_speculate.events.trace import Trace
from naive_speculate.tools.show.drawing import step_svg
from ui.assets import render, variable
from ui.experiments.lessons.find_examples import full_step, text_before
from ui.experiments.lessons.lesson import Data, Lesson, Progress, Trial, View, parts, spoken
from ui.labels import count, end_of

K = 4
TOKENS = 80
TRIES = 12
FOLLOWING = 3
NUMBERS = {"p": "target_prob", "q": "draft_prob", "accept": "accept_prob", "u": "uniform"}
"""A token's numbers in the data, and in events."""
LAYOUTS = {"wide": "lesson", "narrow": "narrow"}


def measure(trial: Trial) -> Iterator[Progress]:
    yield Progress("Decoding …")
    for trace in trial.sampled(TRIES, temperature=0.7, num_draft_tokens=K, max_tokens=TOKENS):
        example = full_step(trace, FOLLOWING)
        if example is not None:
            m = trace.metrics
            said = f"{count(m.num_generated_tokens, 'token')} in {count(m.num_spec_steps, 'step')}."
            yield Progress(said, _data(trace, example))
            return
    yield Progress("No step both accepted and rejected draft tokens. Try another prompt.")


def _data(trace: Trace, example: Step) -> Data:
    shown = [step for step in steps(trace) if 0 <= step.number - example.number <= FOLLOWING]
    return {
        "before": end_of(text_before(trace, example.before)),
        "rounds": [
            {"drafts": [*map(_token, step.verdicts)], "added": step.added and _token(step.added)}
            for step in shown
        ],
        "tokens": trace.metrics.num_generated_tokens,
        "passes": trace.metrics.num_spec_steps,
    }


def _token(event: Event) -> Data:
    token = {"kind": event.kind.value, "text": event.text or event.token or ""}
    numbers = {name: getattr(event, field) for name, field in NUMBERS.items()}
    return token | {name: value for name, value in numbers.items() if value is not None}


def words(data: Data) -> dict[str, str]:
    drafts, added = data["rounds"][0]["drafts"], data["rounds"][0]["added"]
    kept = sum(draft["kind"] == "accepted" for draft in drafts)
    refused = next(draft["text"] for draft in drafts if draft["kind"] == "rejected")
    thrown = len(drafts) - kept - 1
    return {
        "k": str(len(drafts)),
        "kept": str(kept),
        "guess": spoken(refused),
        "added": spoken(added["text"]),
        "gained": str(kept + 1),
        "thrown": "The draft token after it is"
        if thrown == 1
        else f"The {thrown or 'other'} draft tokens after it are",
        "tokens": str(data["tokens"]),
        "passes": str(data["passes"]),
        "pace": f"{data['tokens'] / data['passes']:.1f}",
    }


def _view(at: int, *more: str, lit: Sequence[str] = ()) -> View:
    """The drawing at a time of its animation, in milliseconds (`ENDS` in assets/js/machine.js)."""
    return parts("drawing", *more, lit=lit) | {"at": at}


VIEWS = [
    _view(0),
    _view(0),
    _view(1000),
    _view(1800, "columns", lit=["columns"]),
    _view(3200, "columns"),
    _view(4400, "columns"),
    _view(4400, "columns", "next", lit=["next"]),
]


def markup(data: Data) -> str:
    first, *following = data["rounds"]
    drawings = {
        place: Markup(step_svg(_events(data), 0, layout=layout, paint=variable))
        for place, layout in LAYOUTS.items()
    }
    return render(
        "lesson_step",
        drawings=drawings,
        following=following,
        columns=_columns(data["before"], first),
    )


def _events(data: Data) -> list[Event]:
    """The first step's events, as far as its drawing needs them."""
    first = data["rounds"][0]
    events = [Event(EventKind.STARTED, prompt=data["before"])]
    for index, token in enumerate([*first["drafts"], first["added"]]):
        numbers = {NUMBERS[name]: value for name, value in token.items() if name in NUMBERS}
        known = {"step": 0, "index": index, "token_id": 0, "text": token["text"]} | numbers
        if token is not first["added"]:
            events.append(Event(EventKind.PROPOSED, **known))
        events.append(Event(EventKind(token["kind"]), **known))
    return events


def _columns(before: str, first: Data) -> list[Data]:
    """The columns of the target pass, each with the token that it reads and the one that it
    judges, the next; the last one predicts what follows all draft tokens."""
    drafts = first["drafts"]
    read = [(before.split() or [before])[-1], *(draft["text"] for draft in drafts)]
    judged = [*drafts, {"text": "", "kind": "bonus"}]
    return [
        {
            "reads": spoken(text),
            "judges": draft["text"] and spoken(draft["text"]),
            "p": draft.get("p"),
        }
        for text, draft in zip(read, judged, strict=True)
    ]


LESSON = Lesson(2, measure, words, lambda _: [0, 1], lambda _: VIEWS, markup=markup)
