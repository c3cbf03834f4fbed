"""Lesson 8: many texts at once use the idle compute themselves, so drafting stops paying off."""

from collections.abc import Iterator
from dataclasses import replace

from naive_speculate.speculate.theory import expected_tokens, speedup
from ui.charts.figures import ACCEPTED, INK, TARGET, Figure, axis, figure, inside, line, plain_line
from ui.charts.waterfall import ALPHA, GPU
from ui.experiments.batches import batch_speedups, sizes_for, sweep_batches
from ui.experiments.lessons.lesson import Data, Lesson, Progress, Trial, View, asking, bar_chart
from ui.experiments.lessons.slow import MODEL, PRESET, roofline
from ui.experiments.sweep import prompts_for
from ui.labels import count, milliseconds

K = 4
SHOWN = (1, 32, 256)
MOST = 1024
TURNS, TOKENS, TEMPERATURE = 2, 48, 0.7


def measure(trial: Trial) -> Iterator[Progress]:
    sizes = sizes_for(trial.catalog, trial.settings.pair)
    if not sizes:
        yield Progress(
            "This host does not decode batches in one process, so there is nothing to measure."
        )
        return
    settings = replace(
        trial.settings, max_tokens=TOKENS, temperature=TEMPERATURE, drafter=trial.drafter
    )
    target = trial.catalog.of(trial.settings.pair).engine.about.models.get("target")
    prompts = [trial.settings.prompt, *prompts_for(target)]
    for state in sweep_batches(trial.catalog, settings, prompts, [K], sizes, TURNS):
        speedups = {
            str(size): value.mean for (size, _), value in batch_speedups(state.samples).items()
        }
        yield Progress(
            f"{state.running} …" if state.running else "Done.",
            {"speedups": speedups} if speedups else None,
        )


def calculated(texts: int) -> float:
    """The 70B model's speedup on an H100 with so many texts (`theory.speedup`); the KV cache is
    left out."""
    plain, checked = (GPU.seconds(MODEL, texts * rows) for rows in (1, K + 1))
    return speedup(ALPHA, K, GPU.seconds(PRESET.draft, texts) / plain, checked / plain)


def words(data: Data) -> dict[str, str]:
    last = SHOWN[-1]
    return {
        "alpha": f"{ALPHA:g}",
        "tokens": f"{expected_tokens(ALPHA, K):.1f}",
        "plain": milliseconds(GPU.seconds(MODEL, last)),
        "wide": milliseconds(GPU.seconds(MODEL, last * (K + 1))),
        "crossing": str(next(texts for texts in range(1, MOST) if calculated(texts) < 1)),
        "k": str(K),
        "measured": _by_texts(data),
    }


def _by_texts(data: Data) -> str:
    (size, value), *others = data["speedups"].items()
    return ", ".join(
        [
            f"{value:.2f}× with {count(int(size), 'text')}",
            *(f"{more:.2f}× with {n}" for n, more in others),
        ]
    )


def views(data: Data) -> list[View]:
    sizes = [2**n for n in range(11)]
    curve = line(
        "calculated", sizes, [calculated(size) for size in sizes], TARGET, "%{x} texts: %{y:.2f}×"
    )
    whole = _over_texts(
        [curve], "The speedup on an H100 falls below 1 once the flat part is used up"
    )
    asked = asking(_over_texts([], ""), (0, 1.5, 3), "Speedup by drafting, by the number of texts")
    speedups = list(data["speedups"].values())
    y = {"range": [0, 1.2 * max(*speedups, 1)], "ticksuffix": "×"}
    texts, here = [f"{value:.2f}×" for value in speedups], f"Measured: {_by_texts(data)}"
    names, plain = list(data["speedups"]), plain_line(len(speedups))
    measured = bar_chart(here, names, speedups, texts, ACCEPTED, y, plain, **inside(texts))
    return [
        {"figure": asked, "calculated": True},
        *({"figure": roofline({}, [n, n * (K + 1)]), "calculated": True} for n in SHOWN),
        {"figure": whole, "calculated": True},
        {"figure": measured},
    ]


def _over_texts(traces: list[Figure], said: str) -> Figure:
    plain = line("plain decoding", [1, MOST], [1, 1], INK, dash="dot")
    x = axis("texts at once", -0.1, 3.1, type="log", tickvals=[1, 4, 16, 64, 256, 1024])
    y = axis("speedup", 0, 3.2, ticksuffix="×")
    return figure([*traces, plain], takeaway=said, x=x, y=y, height=320)


NUMBERS = {"temperature": TEMPERATURE, "k": K, "turns": TURNS, "tokens": TOKENS}
LESSON = Lesson(8, measure, words, lambda _: [0, 1, 1], views, timed=True, numbers=NUMBERS)
