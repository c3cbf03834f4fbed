"""Lesson 13: 8-bit weights and drafts both shorten the reading, so each takes away what the other
gains."""

from collections.abc import Iterator
from functools import lru_cache
from statistics import median
from typing import Any

from naive_speculate import ModelPair, SamplingParams, SpeculativeDecoder, load_pair
from naive_speculate.infer.plain import as_batch_model
from naive_speculate.models.threads import leave_cores_to
from naive_speculate.tools.bench.measure import Decoded, forward_timer, our_way
from ui.charts.figures import ACCEPTED, INK, MUTED, TARGET, Figure, axis, figure, line, nice_ceiling
from ui.experiments.compare_texts import source_of
from ui.experiments.lessons.lesson import (
    Data,
    Lesson,
    Progress,
    Trial,
    View,
    asking,
)
from ui.experiments.sweep import prompts_for
from ui.host.measuring import machine_name
from ui.labels import as_shown, milliseconds

FORMS = {"float32": "float32", "int8": "8 bits"}
LANES = {
    "float32": "float32",
    "int8": "8 bits",
    "float32+drafts": "float32 with drafts",
    "int8+drafts": "8 bits with drafts",
}
COUNTS = tuple(range(1, 10))
CONTEXT = 64
ROUNDS = 25  # of passes over each number of tokens
TURNS, TOKENS, PROMPTS = 3, 64, 4
CLOCK = 100  # tokens that each lane writes
DRAW = 0.04  # a smaller relative difference is none


@lru_cache(maxsize=1)
def _pairs(source: str | None) -> dict[str, ModelPair]:
    """The same models in both forms; those of the last call stay loaded."""
    pairs = {form: load_pair(source, device="cpu", weights=form) for form in FORMS}
    leave_cores_to(pairs["float32"].target)
    return pairs


def measure(trial: Trial) -> Iterator[Progress]:
    yield Progress("Loading the models in float32 and in 8 bits …")
    served = trial.catalog.of(trial.settings.pair)
    pairs = _pairs(source_of(served))
    timers = {
        (form, count): forward_timer(as_batch_model(pair.target), CONTEXT, count)
        for form, pair in pairs.items()
        for count in COUNTS
    }
    times: dict[tuple[str, int], list[float]] = {key: [] for key in timers}
    for number in range(1, ROUNDS + 1):  # alternating, so that a disturbance affects all
        yield Progress(f"Timing passes, round {number} of {ROUNDS} …")
        for key, timer in timers.items():
            times[key].append(timer())
    prompts = [trial.settings.prompt, *prompts_for(served.engine.about.models.get("target"))]
    runs: dict[str, list[Decoded]] = {}
    for runs in decode(pairs, prompts[:PROMPTS], chat=served.engine.about.chat):
        yield Progress(f"Decoding text {len(runs['float32'])} of {TURNS * PROMPTS} …")
    yield Progress("Done.", _data(times, runs))


def decode(
    pairs: dict[str, ModelPair], prompts: list[str], *, chat: bool
) -> Iterator[dict[str, list[Decoded]]]:
    """Every lane's runs so far; the lanes alternate. The first text warms up and is left out."""
    params = SamplingParams(temperature=0.0, max_tokens=TOKENS, ignore_eos=True)
    ways: dict[str, Any] = {}  # which take a prompt as a text, too
    for form, pair in pairs.items():
        decoder, drafter = SpeculativeDecoder(pair), _drafter(pair)
        ways[form] = our_way(decoder, 0, params, drafter, chat=chat)
        ways[f"{form}+drafts"] = our_way(decoder, "auto", params, drafter, chat=chat)
    for way in ways.values():
        way.decode(prompts[0], 0)
    runs: dict[str, list[Decoded]] = {lane: [] for lane in LANES}
    for prompt in prompts * TURNS:
        for lane in LANES:
            runs[lane].append(ways[lane].decode(prompt, 0))
        yield runs


def _drafter(pair: ModelPair) -> str:
    if pair.head is not None:
        return "suffix+head"
    return "model" if pair.draft is not None else "suffix"


def _data(times: dict[tuple[str, int], list[float]], runs: dict[str, list[Decoded]]) -> Data:
    def equal(one: str, other: str) -> int:
        pairs = zip(runs[one], runs[other], strict=True)
        return sum(a.token_ids == b.token_ids for a, b in pairs) // TURNS

    return {
        "machine": machine_name("cpu"),
        "passes": {
            form: {str(count): median(times[form, count]) for count in COUNTS} for form in FORMS
        },
        "speeds": {lane: median(run.decoding_speed for run in runs[lane]) for lane in LANES},
        "texts": len(runs["float32"]) // TURNS,
        "same": min(equal(form, f"{form}+drafts") for form in FORMS),
        "kept": equal("float32", "int8"),
    }


def gain(data: Data, lane: str) -> float:
    """How many times as fast as float32 alone."""
    return float(data["speeds"][lane] / data["speeds"]["float32"])


def _seconds(data: Data, form: str, count: int) -> float:
    return as_shown(data["passes"][form][str(count)])


def _ratio(data: Data, form: str) -> float:
    """A pass over the most tokens, relative to one over one."""
    return _seconds(data, form, COUNTS[-1]) / _seconds(data, form, 1)


def combined(data: Data) -> int:
    """Together: 0 as fast as the faster one alone, 1 as fast as the two multiplied, 2 between."""
    rounded, drafted = gain(data, "int8"), gain(data, "float32+drafts")
    both = gain(data, "int8+drafts")
    if both <= max(rounded, drafted) * (1 + DRAW):
        return 0
    return 1 if both >= rounded * drafted * (1 - DRAW) else 2


def costlier(data: Data) -> int:
    """In which form nine tokens cost more, relative to one: 0 in 8 bits, 1 in float32, 2
    neither."""
    times = _ratio(data, "int8") / _ratio(data, "float32")
    return 0 if times > 1 + DRAW else 1 if times < 1 - DRAW else 2


WHY = (
    "Rounding shortens the reading, but not the arithmetic. So more tokens in a pass, which"
    " float32 gets almost for free, cost time in 8 bits: rounding takes away what drafting uses.",
    "Here more tokens cost float32 more: its arithmetic is slower as well.",
    "Here rounding took nothing from drafting.",
)
TOGETHER = (
    "Together they are no faster than the better one alone.",
    "Here they multiply: nothing was lost.",
    "Each takes away a part of what the other gains.",
)


def words(data: Data) -> dict[str, str]:
    gains = {lane: gain(data, lane) for lane in LANES}
    texts, fastest = data["texts"], max(LANES, key=lambda lane: gains[lane])
    return {
        "float_one": milliseconds(data["passes"]["float32"]["1"]),
        "int_one": milliseconds(data["passes"]["int8"]["1"]),
        "float_nine": milliseconds(data["passes"]["float32"]["9"]),
        "int_nine": milliseconds(data["passes"]["int8"]["9"]),
        "float_ratio": f"{_ratio(data, 'float32'):.1f}",
        "int_ratio": f"{_ratio(data, 'int8'):.1f}",
        "why": WHY[costlier(data)],
        "rounded": f"{gains['int8']:.2f}",
        "drafted": f"{gains['float32+drafts']:.2f}",
        "product": f"{gains['int8'] * gains['float32+drafts']:.2f}",
        "both": f"{gains['int8+drafts']:.2f}",
        "drafted_int": f"{gains['int8+drafts'] / gains['int8']:.2f}",
        "together": TOGETHER[combined(data)],
        "same": str(data["same"]),
        "kept": str(data["kept"]),
        "texts": str(texts),
        "fastest": LANES[fastest],
    }


def right(data: Data) -> list[int]:
    return [combined(data), costlier(data)]


def views(data: Data) -> list[View]:
    curves = _curves(data)
    first = [{**trace, "x": [1], "y": trace["y"][:1]} for trace in curves["data"]]
    said = "A pass over one token: rounding makes it shorter. And over nine?"
    one = asking({**curves, "data": first}, [COUNTS[-1]], said)
    return [
        {"figure": _lanes(data, 1)},
        {"figure": one},
        {"figure": curves},
        {"figure": _lanes(data, 3)},
        *[{"figure": _lanes(data, 4)}] * 2,
    ]


def _curves(data: Data) -> Figure:
    """Milliseconds of a pass by its tokens, in both forms."""
    looks = {"float32": (TARGET, "solid"), "int8": (ACCEPTED, "dash")}
    traces = [
        line(
            FORMS[form],
            list(COUNTS),
            [1000 * data["passes"][form][str(count)] for count in COUNTS],
            color,
            "%{x} tokens: %{y:.1f} ms",
            dash=dash,
            mode="lines+markers",
        )
        for form, (color, dash) in looks.items()
    ]
    top = max(max(trace["y"]) for trace in traces)
    said = (
        f"Nine tokens: {_ratio(data, 'float32'):.1f} times the time of one in float32,"
        f" {_ratio(data, 'int8'):.1f} times in 8 bits"
    )
    x = axis("tokens in one pass", 0.5, 9.5, dtick=1)
    y = axis("ms", 0, 1.15 * top)
    return figure(traces, takeaway=said, x=x, y=y, height=320)


def _lanes(data: Data, shown: int) -> Figure:
    """Seconds that each lane takes for the same number of tokens, on one clock; a question mark
    in place of the others."""
    names = list(LANES.values())
    seconds = [CLOCK / data["speeds"][lane] for lane in LANES]
    texts = [
        f"{taken:.1f} s" + ("" if lane == "float32" else f" · {gain(data, lane):.2f}×")
        for lane, taken in zip(LANES, seconds, strict=True)
    ]
    lanes = {
        "type": "bar",
        "orientation": "h",
        "name": "seconds",
        "x": seconds[:shown],
        "y": list(range(shown)),
        "text": texts[:shown],
        "textposition": "auto",
        "insidetextanchor": "start",
        "marker": {"color": [MUTED, TARGET, ACCEPTED, INK][:shown]},
        "hovertemplate": "%{text}<extra></extra>",
        "showlegend": False,
    }
    said = (
        f"{CLOCK} tokens on one clock: with 8 bits and drafts {gain(data, 'int8+drafts'):.2f} times"
        " as fast as float32 alone"
        if shown == len(LANES)
        else f"{CLOCK} tokens on one clock. When do the others arrive?"
    )
    x = axis("seconds", 0, nice_ceiling(max(seconds)))
    y = {
        "tickvals": list(range(len(names))),
        "ticktext": [name.replace(" with", "<br>with") for name in names],
        "range": [len(names) - 0.4, -0.6],
    }
    marks = [
        {"text": "?", "x": 0, "y": at, "xanchor": "left", "font": {"size": 22}}
        for at in range(shown, len(names))
    ]
    return figure([lanes], takeaway=said, x=x, y=y, height=320, annotations=marks)


LESSON = Lesson(13, measure, words, right, views, timed=True)
