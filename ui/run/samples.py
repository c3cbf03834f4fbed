"""The start of a run's text, drawn again and again with drafts and without: two histograms that
grow alike, which is what "same distribution" means.

A batch is decoded at a time, while nobody else decodes (`Catalog.events`), so visitors wait for at
most one; the browser asks for the next one until it has enough or its reader stops.
"""

import math
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import gradio as gr

from naive_speculate.events import OUTPUT_KINDS, Event
from naive_speculate.sampling.random_source import fresh_seed
from naive_speculate.serving import Request
from ui.assets import component, render
from ui.host.measuring import NotMeasured, in_turn
from ui.labels import number, to_json
from ui.run.runs import Runs

TOKENS = 3
MOST = 400  # texts of each kind
ROWS = 8
SHOWN = 6  # texts with a bar of their own
MOST_BEGUN = 200  # pairs of samples that are kept
TITLE = "The start of this text, drawn again"
UNREPEATED = "This run was not decoded here. Press Run for one that can be drawn again."


@dataclass
class Samples:
    """Both samples of a run's first tokens. `decode` returns the events of a request, of which one
    has up to `rows` sequences."""

    decode: Callable[[Request], list[Event]]
    request: Request
    rows: int = ROWS
    drafted: Counter[str] = field(default_factory=Counter)
    plain: Counter[str] = field(default_factory=Counter)

    def more(self) -> dict[str, Any]:
        """Add a batch to each sample, and return `figures`. Raises what `decode` raises."""
        rows = max(1, min(self.rows, MOST - self.plain.total()))
        for counts, request in (
            (self.drafted, self.request),
            (self.plain, replace(self.request, num_draft_tokens=0)),
        ):
            params = replace(
                request.params, n=rows, max_tokens=TOKENS, min_tokens=0, seed=fresh_seed()
            )
            texts = dict[int, str]()
            for event in self.decode(replace(request, params=params)):
                if event.kind in OUTPUT_KINDS:
                    texts[event.row] = texts.get(event.row, "") + (event.text or "")
            counts.update(texts.values())
        return self.figures()

    def figures(self) -> dict[str, Any]:
        """For the browser: the number of `draws` of each kind, whether there will be more, the
        most frequent texts with their shares, and a sentence."""
        draws = {"drafts": self.drafted.total(), "plain": self.plain.total()}
        both = self.drafted + self.plain
        names = [text for text, _ in both.most_common(SHOWN)]
        samples = {"drafts": self.drafted, "plain": self.plain}
        rows: list[dict[str, Any]] = [
            {"text": text, **shares(samples, draws, {text})} for text in names
        ]
        if rest := both.keys() - set(names):
            rows.append({"text": None, **shares(samples, draws, rest)})
        return {
            "draws": min(draws.values()),
            "more": min(draws.values()) < MOST,
            "rows": rows,
            "sentence": sentence(rows, draws),
        }


def shares(
    samples: Mapping[str, Counter[str]], draws: Mapping[str, int], texts: set[str]
) -> dict[str, float]:
    """Of each sample, the share of these texts."""
    return {
        name: sum(counts[text] for text in texts) / max(1, draws[name])
        for name, counts in samples.items()
    }


def sentence(rows: list[dict[str, Any]], draws: Mapping[str, int]) -> str:
    """How far apart the samples are, and how far two samples of one distribution would be. The
    difference of two shares of a text with probability p has the variance p(1 − p)(1/n + 1/m), and
    the mean of its amount is √(2/π) times the deviation."""
    apart = sum(abs(row["drafts"] - row["plain"]) for row in rows) / 2
    spread = sum(1 / max(1, drawn) for drawn in draws.values())
    pooled = [(row["drafts"] + row["plain"]) / 2 for row in rows]
    chance = sum(math.sqrt(2 / math.pi * p * (1 - p) * spread) for p in pooled) / 2
    return (
        f"The two differ by {number(apart, 2)} (total variation); two samples of the same"
        f" distribution would differ by about {number(chance, 2)}."
    )


def build_samples(runs: Runs) -> gr.HTML:
    """The component; `assets/js/samples.js` shows it for a sampled run."""

    begun: dict[tuple[str, int], Callable[[], dict[str, Any]]] = {}  # the oldest first

    async def draw(request: object) -> str:
        """A batch more: `[run id, number]` → JSON: `Samples.figures`, or the `reason` why there is
        none. Another number begins new samples."""
        match request:
            case [str(run_id), int(number)] if run := runs.read(run_id):
                if run.again is None:
                    return to_json({"reason": UNREPEATED})
                more = begun.pop((run_id, number), None) or run.again()
                begun[run_id, number] = more
                while len(begun) > MOST_BEGUN:
                    del begun[next(iter(begun))]
                return to_json(await in_turn(lambda: _answer(more), run.visitor))
        return ""

    return component("samples", render("samples", title=TITLE), server_functions=[draw])


def _answer(more: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    try:
        return more()
    except (NotMeasured, ValueError, RuntimeError) as error:
        return {"reason": str(error)}
