"""Lesson 11: a tie that flips, because bfloat16 rounds a pass over several rows differently from
a pass over one."""

from collections.abc import Iterator

from naive_speculate.tools.differ import find_flip
from ui.charts.figures import ACCEPTED, INK, REJECTED, Figure, axis
from ui.experiments.compare_texts import scores_of
from ui.experiments.lessons.lesson import Data, Lesson, Progress, Trial, View, bar_chart, spoken
from ui.labels import end_of

ROWS = 5
TOKENS, TRIES = 96, 40
# sampled texts have more positions at which two tokens are nearly equally probable
TEMPERATURE = 0.9


def measure(trial: Trial) -> Iterator[Progress]:
    yield Progress("Loading the target in float32 and in bfloat16 …")
    full, half = scores_of(trial.catalog, trial.settings.pair)
    for number in range(1, TRIES + 1):
        yield Progress(f"Searching text {number} of {TRIES} for a tie that flips …")
        seed = (trial.settings.seed or 0) + number
        trace = trial.run(
            seed=seed,
            num_draft_tokens=0,
            temperature=TEMPERATURE,
            max_tokens=TOKENS,
            ignore_eos=True,
        )
        prompt = (trace.started and trace.started.prompt_token_ids) or []
        flip = find_flip(full, half, [*prompt, *trace.token_ids], len(prompt), num_rows=ROWS)
        if flip is not None and flip.before not in trial.earlier:
            yield Progress(
                "Found one. Press again for another one.", flip.to_dict() | {"key": flip.before}
            )
            return
    yield Progress("No tie flipped in these texts. Try another prompt.")


def words(data: Data) -> dict[str, str]:
    exact, _, half_one, half_many = (margin["margin"] for margin in data["margins"])
    a, b = spoken(data["one"]), spoken(data["many"])
    return {
        "before": end_of(data["before"], 50).replace("\n", " "),
        "a": a,
        "b": b,
        "top": a if exact > 0 else b,
        "margin": f"{abs(exact):.4f}",
        "rows": str(data["num_rows"]),
        "half_one_lead": _lead(half_one, a),
        "half_many_lead": _lead(half_many, b),
    }


def _lead(margin: float, token: str) -> str:
    if margin:
        return f"“{token}” leads by {abs(margin):.4f}"
    return f"both are exactly equally probable, and “{token}” comes first in the vocabulary"


def views(data: Data) -> list[View]:
    return [{"figure": _chart(data, shown)} for shown in (0, 2, 3, 4)]


def _chart(data: Data, shown: int) -> Figure:
    """The lead of one token over the other in the first computations; question marks stand for
    the others."""
    a, b = spoken(data["one"]), spoken(data["many"])
    leads = [margin["margin"] for margin in data["margins"]]
    names = [
        f"{m['dtype']},<br>{m['num_rows']} row{'s' * (m['num_rows'] > 1)}" for m in data["margins"]
    ]
    reach = 1.35 * max(map(abs, leads))
    colors = [ACCEPTED if lead > 0 else REJECTED for lead in leads]
    texts = [f"{lead:+.4f}".replace("-", "−") for lead in leads]
    said = f"How much “{a}” leads “{b}”, in nats" if shown else "Which token leads?"
    if shown > 3:
        said = f"The lead changes sides: “{a}” with one row, “{b}” with {data['num_rows']}"
    y = axis(f"← “{b}” leads · “{a}” leads →", -reach, reach, zeroline=True, zerolinecolor=INK)
    return bar_chart(said, names, leads[:shown], texts, colors, y, constraintext="none", width=0.55)


LESSON = Lesson(11, measure, words, lambda _: [2, 0], views, timed=True)
