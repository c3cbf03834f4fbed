"""Writes docs/engines.md from the results."""

import json
from pathlib import Path
from typing import Any

from benchmarks.engines.compare import all_sampled, whole
from benchmarks.engines.compare import biased as _biased
from benchmarks.engines.options import forgotten

PAGE = Path(__file__).resolve().parents[2] / "docs" / "engines.md"
INTRODUCTION = """# Engines on trial

Does a text with drafts follow the target? Each engine runs in an environment of its own, with
pinned versions, on the same tiny random models. Greedy texts with drafts are compared with the
engine's own plain texts; their draft model is close to the target, and three of four of its
favourites are the target's. The first four sampled tokens, with a draft model far from the target,
are compared with exact probabilities, which come from enumerating this project's plain decoder over
the same weights: a G-test with a false alarm rate of 0.1% per verdict. Each biased verdict was
repeated with a second set of seeds. With a draft far from the target a window is rarely accepted
whole, so the target is its own draft in one more column: the token after such a window shows there.
A near draft, sharper than the target and often accepted, is in another one: residuals and ratios of
the wrong position show there (tests/bench/test_engines.py has what each draft shows).
The prompt with a repetition penalty was chosen so that a penalty that forgets all but its last
token shows: that cell is a sensitive case, not a typical size of the bias.
This page is made from `benchmarks/engines/results/`.

`make engines` repeats everything, `make engines ENGINE=mlx-lm` a single engine. It ends with a line
per engine: how many verdicts are as before, and which are not; its status is 1 if one has changed
or could not be tried. mlx-lm needs `python3.12` on the path, dejavuu `python3.13`; without them, or
without the package registry, the other engines are tried all the same.
"""
KEYS = """
“right”: no bias found; in brackets the smallest total variation that the test finds with 90%
power. “**biased**”: the total variation from the target's distribution with its 95% interval.
“–”: the engine has no such setting, or could not be tried; its sentence says why. (The target as
draft needs a draft model.)

“With drafts it forgets”: options of 50 greedy texts of 24 tokens, each tried with and without
drafts where the engine takes it: logit bias, a forbidden token (the text's favourite), no repeated
pair of tokens, a grammar, a stop string, a minimum length; min-p so high that only the greedy text
is left; and a seed, which must give the same text twice. The count says how many texts are what
they must be. “Ignored”: the engine takes the option in silence, and no text changes.

Each sentence says what the engine does, the rule by which it accepts a draft token and the source
line of that rule, what its own figure counts, how many passes of the target a text takes whose
draft tokens are all accepted (as the adapter or its own figures count them), what log-probabilities
it gives with drafts (nothing, if the adapter reads none), and how to repeat the trial.
"""
SPEEDS = """
## SmolLM2 with one draft

SmolLM2-135M in float32 with one thread, greedy, 3 draft tokens per step, texts of 48 tokens with
their short prompts: `make engines ENGINE="mlx-lm --only speed"`. The draft is SmolLM2 with its
matrices rounded to four bits once more. It is as large as the target, so a step of four forwards
emits at most four tokens and nothing becomes faster; but every engine can load it, and the loss is
what the engine adds. Each text is decoded by the engine plainly and with drafts, and here plainly
and with drafts, one after the other on a machine with other work: only the ratios mean something.
They are geometric means. “× its own plain” is the speed with drafts relative to the same engine's
without. “Tokens per pass”: an adapter counts the passes of the target; llama.cpp's come from its
accepted drafts. Engines that draft nothing in the pass over the prompt, as llama.cpp,
openvino-genai and economize do, need one pass more. A speed may be older than the verdicts: the
last column has its versions and its date.
"""
PER_PASS = ("per_pass", "our_per_pass")
SAME = 1e-3  # log-probabilities that differ by less do so by rounding


def write_report(results: Path, page: Path = PAGE) -> None:
    """Write the page from all results of a folder."""
    page.write_text(report(results), encoding="utf-8", newline="\n")


def report(results: Path) -> str:
    """The page, as Markdown."""
    engines = {
        path.stem: json.loads(path.read_text(encoding="utf-8"))
        for path in sorted(results.glob("*.json"))
    }
    settings = list(dict.fromkeys(name for one in engines.values() for name in all_sampled(one)))
    penalty = "greedy, repetition penalty 1.3"
    heads = ["engine", "drafts", "greedy text = plain", penalty, *settings]
    heads.append("with drafts it forgets")
    lines = [f"| {' | '.join(heads)} |", f"|{'---|' * len(heads)}"]
    for name, one in engines.items():
        for way in (
            ["plain", *one.get("greedy", {}), *_only_sampled(one)] if one["sampled"] else ["none"]
        ):
            lines.append(f"| {' | '.join(_row(name, one, way, settings))} |")
    sentences = "\n".join(f"- **{name}** {_sentence(name, one)}" for name, one in engines.items())
    table = "\n".join(lines)
    return f"{INTRODUCTION}\n{table}\n{KEYS}\n{sentences}\n{_speeds(engines)}"


def _only_sampled(one: dict[str, Any]) -> list[str]:
    ways = dict.fromkeys(way for verdicts in one["sampled"].values() for way in verdicts)
    return [way for way in ways if way != "plain" and way not in one.get("greedy", {})]


def _row(name: str, one: dict[str, Any], way: str, settings: list[str]) -> list[str]:
    version = next(iter(one["versions"].values()), "")
    equal = [_equal(one.get(part, {}).get(way)) for part in ("greedy", "greedy_penalty")]
    verdicts = all_sampled(one)
    cells = [_cell(verdicts.get(setting, {}).get(way)) for setting in settings]
    return [f"{name} {version}".strip(), way, *equal, *cells, forgotten(one, way)]


def _equal(greedy: dict[str, int] | None) -> str:
    if greedy is None:
        return "–"
    said = f"{greedy['equal']} of {greedy['texts']}"
    return said if greedy["equal"] == greedy["texts"] else f"**{said}**"


def _cell(verdict: dict[str, Any] | None) -> str:
    if verdict is None:
        return "–"
    if not _biased(verdict):
        return f"right ({verdict['smallest']:.2f})"
    low, high = verdict["interval"]
    if (low, high) == (0, 1):  # texts of probability 0: the test has no interval
        return f"**biased** {verdict['total_variation']:.2f}, with texts that are impossible"
    return f"**biased** {verdict['total_variation']:.2f} ({low:.2f}–{high:.2f})"


def _sentence(name: str, one: dict[str, Any]) -> str:
    """What an engine does, in plain words, and how to repeat it."""
    when = f"`make engines ENGINE={name}`, {one['date']}, {one['machine']}."
    if "failed" in one:
        return f"could not be tried: {one['failed']}. {when}"
    versions = _named(one["versions"])
    rule = f"{one['rule']} (`{one['source']}`)"
    if not one["sampled"]:
        return f"cannot be judged. {rule} {when} Versions: {versions}."
    biased = [
        f"{way} at {setting}"
        for setting, verdicts in all_sampled(one).items()
        for way, verdict in verdicts.items()
        if _biased(verdict)
    ]
    differs = [way for way, own in one.get("greedy", {}).items() if own["equal"] < own["texts"]]
    penalised = one.get("greedy_penalty", {}).items()
    differs += [
        f"{way} and a repetition penalty"
        for way, own in penalised
        if own["equal"] < own["texts"] and way not in differs
    ]
    said = [f"does not follow the target with {', '.join(biased)}"] if biased else []
    said += [f"changes greedy texts with {', '.join(differs)}"] if differs else []
    said = said or ["was right in all that was tried"]
    rest = [rule, one["counts"], *_figures(one), *_full(one)]
    not_greedy = {f"greedy, {way}": why for way, why in one.get("not_greedy", {}).items()}
    rest += [f"Left out: {what}. {why}" for what, why in (not_greedy | one["skips"]).items()]
    if one.get("top_p_first"):
        rest.append(
            "It applies top-p before temperature; so does the distribution it is judged by."
        )
    return " ".join([f"{' and '.join(said)}.", *filter(None, rest), when, f"Versions: {versions}."])


def _figures(one: dict[str, Any]) -> list[str]:
    """The engine's own counts of a text, and missing log-probabilities."""
    said = []
    for way, own in one["figures"].items():
        counts = {"drafted": own["drafted"], "accepted": own["accepted"]}
        if known := [f"{number} {name}" for name, number in counts.items() if number is not None]:
            said.append(f"Its own figures with {way}, {own['tokens']} tokens: {', '.join(known)}.")
        if own["logprobs_missing"]:
            said.append(f"With {way}, {own['logprobs_missing']} tokens have no log-probabilities.")
        elif (differ := own.get("logprobs_differ")) is not None:
            same = "are" if differ < SAME else f"differ by up to {differ:.1g} from"
            said.append(f"With {way}, log-probabilities {same} those of plain decoding.")
    return said


def _full(one: dict[str, Any]) -> list[str]:
    """Passes of a text whose draft tokens are all accepted."""
    said: dict[str, list[str]] = {}
    for way, own in one.get("full", {}).items():
        passes = f"{own['tokens']} tokens take {own['passes']} passes (at least {own['least']})"
        lacks = "" if whole(own) else ": **steps whose drafts are all accepted lack a token**"
        said.setdefault(f"{passes}{lacks}", []).append(way)
    return [
        f"With the target as its own draft model ({', '.join(ways)}), {what}."
        for what, ways in said.items()
    ]


def _speeds(engines: dict[str, dict[str, Any]]) -> str:
    """The section about SmolLM2, with a row per engine."""
    rows = [[name, *_speed(one["speed"])] for name, one in engines.items() if one.get("speed")]
    heads = ["engine", "texts equal", "tokens per pass", "× its own plain"]
    heads += ["here: tokens per pass", "here: × plain", "its plain ÷ plain here", "measured with"]
    lines = [f"| {' | '.join(cells)} |" for cells in (heads, *rows)]
    lines.insert(1, f"|{'---|' * len(heads)}")
    left_out = [
        f"- **{name}** is not measured. {why}"
        for name, one in engines.items()
        if (why := one.get("not_timed")) and one["sampled"]
    ]
    return "\n".join([SPEEDS, *lines, *([""] * bool(left_out)), *left_out]) + "\n" if rows else ""


def _speed(own: dict[str, Any]) -> list[str]:
    def ratio(values: list[float | None]) -> str:
        mean, low, high = values
        return f"{mean:.2f}" + (f" ({low:.2f}–{high:.2f})" if low and high else "")

    per_pass = ["–" if own[key] is None else f"{own[key]:.2f}" for key in PER_PASS]
    equal = f"{own['equal']} of {own['texts']}"
    gains = [ratio(own[key]) for key in ("ratio", "our_ratio", "plain_to_ours")]
    measured = f"{_named(own['versions'])}; {own['date']}"
    return [equal, per_pass[0], gains[0], per_pass[1], *gains[1:], measured]


def _named(versions: dict[str, str]) -> str:
    return ", ".join(f"{name} {version}" for name, version in versions.items())
