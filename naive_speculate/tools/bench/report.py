"""Shows measurements: as tables, as plots in PNG files, and those of a suite as an SVG plot."""

import html
from collections.abc import Mapping, Sequence
from itertools import accumulate
from pathlib import Path
from statistics import fmean
from typing import Any

from rich.console import Console

from naive_speculate.tools.bench.suite import NONE
from naive_speculate.tools.show.palette import LIGHT
from naive_speculate.tools.tables import table

_MAIN_NAMES = {"plain", *(f"k = {k}" for k in range(1, 65))}
_GRIDS = {  # by key of the report: a table's title, and a plot's with its axes
    "by_context": ("A step by tokens of context, ms", "A step's time", "tokens of context", "ms"),
    "by_batch": (
        "All rows' tokens/s by batch size",
        "Throughput of a batch",
        "batch size",
        "tokens/s",
    ),
}
_OF_PROMPTS = {  # by heading: a key of a way's figures, and its format
    "": ("name", ""),
    "tokens/s": ("tokens_per_second", ".0f"),
    "× plain": ("over_plain", ".2f"),
    "× transformers": ("over_transformers", ".2f"),
    "theory": ("predicted", ".2f"),
    "efficiency": ("efficiency", ".0%"),
    "accepted": ("acceptance", ".2f"),
    "α": ("alpha", ".2f"),
    "tokens/forward": ("tokens_per_step", ".2f"),
    "draft ms": ("draft_ms", ".2f"),
    "verify ms": ("verify_ms", ".2f"),
    "step ms": ("step_ms", ".2f"),
    "same tokens": ("same_as_plain", ".0%"),
}
_OF_SUITE = {
    "category": ("category", ""),
    "drafter": ("drafter", ""),
    "questions": ("questions", ""),
    "tokens/step": ("tokens_per_step", ".2f"),
    "accepted by index": ("marginal_acceptance", ".2f"),
    "conditional": ("conditional_acceptance", ".2f"),
    "tokens/s": ("tokens_per_second", ".1f"),
    "× plain": ("over_plain", ".2f"),
    "after the prompt": ("decoding_over_plain", ".2f"),
    "95%": ("interval", ""),
    "same text": ("same_as_plain", ".0%"),
}
_COLORS = ("#0b63a5", "#66367e", "#0d682d", "#8a4b00", "#be1633", "#60646a")
_NAMES, _WIDTH, _BAR, _GAP = 250, 800, 16, 14


def show(report: dict[str, Any], console: Console) -> None:
    drafts = " and ".join(f"[bold]{name}[/]" for name in (report["draft"], report["head"]) if name)
    console.print(
        f"[bold]{report['target']}[/] with {drafts} on {report['device']}, {report['threads']}"
    )
    for mode, lines in report["decoding"].items():
        best = max((line["tokens_per_second"] for line in lines if not line["ours"]), default=None)
        rows = [
            _cells(
                _OF_PROMPTS, line | {"over_transformers": best and line["tokens_per_second"] / best}
            )
            for line in lines
        ]
        console.print(table(rows, left=[""], title=f"Decoding, {mode}"))
    draft, (one, *more) = report["forwards"]["draft_ms"], report["forwards"]["verify_ms"]
    forwards = {"draft, 1 token": draft, "target, 1": one}
    forwards |= {str(tokens): ms for tokens, ms in enumerate(more, start=2)}
    cells = {name: f"{ms:.2f}" for name, ms in forwards.items()}
    console.print(table([cells], title="A forward at 100 tokens of context, ms"))
    for key, (title, *_) in _GRIDS.items():
        if report[key]:
            rows = [
                {"": _window_name(window)}
                | {str(size): f"{x:.2f}" if x < 100 else f"{x:.0f}" for size, x in points.items()}
                for window, points in report[key].items()
            ]
            console.print(table(rows, left=[""], title=title))
    overhead = ", ".join(
        f"{detail} {share:+.1%}" for detail, share in report["event_overhead"].items()
    )
    memory = ", ".join(f"{name} {mib:.0f} MiB" for name, mib in report["memory_mib"].items())
    console.print(f"Events cost: {overhead}. Peak memory: {memory or 'unknown'}.")


def show_suite(report: dict[str, Any], console: Console) -> None:
    console.print(_summary_line(report))
    cells = []
    for category, lines in _rows(report):
        for number, (drafter, one) in enumerate(lines.items()):
            words = {"category": "" if number else category, "drafter": drafter}
            words["interval"] = "–".join(f"{end:.2f}" for end in one["decoding_interval"] or ())
            cells.append(_cells(_OF_SUITE, one | words))
    made = table(cells, left=["category", "drafter"])
    for last in accumulate(len(lines) for _, lines in _rows(report)):
        made.rows[last - 1].end_section = True
    console.print(made)
    for sentence in _means(list(report["categories"].values())):
        console.print(sentence)


def _means(categories: Sequence[Mapping[str, Any]]) -> list[str]:
    """A sentence for each drafter; each category counts once."""
    sentences = []
    for name in categories[0] if len(categories) > 1 else ():
        means = []
        for heading in ("tokens/step", "× plain", "after the prompt"):
            values = [each[name][_OF_SUITE[heading][0]] for each in categories]
            if None not in values:
                means.append(f"{fmean(values):.2f} {heading}")
        if name != NONE:
            sentences.append(f"{name}, mean of the categories: {', '.join(means)}")
    return sentences


def _cells(columns: Mapping[str, tuple[str, str]], figures: Mapping[str, Any]) -> dict[str, str]:
    cells = {}
    for heading, (key, form) in columns.items():
        value = figures[key]
        if isinstance(value, list):
            cells[heading] = " ".join("–" if one is None else f"{one:{form}}" for one in value)
        else:
            cells[heading] = "" if value is None else f"{value:{form}}"
    return cells


def _summary_line(report: dict[str, Any]) -> str:
    models = ", ".join(
        f"{role} {report[role]}" for role in ("target", "draft", "head") if report[role]
    )
    chat = "chat template" if report["chat"] else "no chat template"
    windows = report["num_draft_tokens"]
    k = ", ".join(map(str, windows)) if isinstance(windows, list) else windows
    how = f"k = {k}, temperature {report['temperature']:g}, {report['max_tokens']} tokens, {chat}"
    ended = " Interrupted: only the questions so far." if report["interrupted"] else ""
    where = report["device"] + (f", {report['threads']} threads" if report["threads"] else "")
    return f"{report['suite']}: {models}, on {where}; {how}.{ended}"


def _rows(report: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    categories = list(report["categories"].items())
    return categories if len(categories) == 1 else [*categories, ("overall", report["overall"])]


def save_plots(report: dict[str, Any], folder: Path) -> list[Path]:
    """Returns the paths in an existing folder. Needs matplotlib."""
    from matplotlib.figure import Figure  # optional

    saved = []

    def figure(
        name: str, title: str, across: str, up: str, curves: dict[str, dict[Any, float]]
    ) -> None:
        canvas = Figure(figsize=(6, 4), layout="constrained")
        axes = canvas.add_subplot(title=title, xlabel=across, ylabel=up)
        for (label, points), marker in zip(curves.items(), "osD^vx" * len(curves), strict=False):
            axes.plot(list(points), list(points.values()), marker=marker, label=label)
        axes.set_ylim(bottom=0)
        axes.legend()
        saved.append(folder / f"{name}.png")
        canvas.savefig(saved[-1], dpi=130)

    speeds: dict[str, dict[Any, float]] = {}
    for mode, lines in report["decoding"].items():
        fixed = [line for line in lines if line["ours"] and line["name"] in _MAIN_NAMES]
        for name, key in (("measured", "over_plain"), ("theory", "predicted")):
            known = [line for line in fixed if line[key] is not None]
            points = {line["num_draft_tokens"]: line[key] for line in known}
            speeds[f"{name}, {mode}"] = points
    figure("speedup", "Speedup over plain decoding", "drafted tokens k", "×", speeds)
    for key, (_, title, across, up) in _GRIDS.items():
        if report[key]:
            curves = {_window_name(window): points for window, points in report[key].items()}
            figure(key, title, across, up, curves)
    return saved


def _window_name(window: int) -> str:
    return f"k = {window}" if window else "plain"


def suite_svg(report: dict[str, Any]) -> str:
    """Speed after the prompt relative to plain decoding per category and drafter, with its
    interval."""
    drafters = [name for name in report["overall"] if name != NONE]
    every = [one for _, lines in _rows(report) for one in lines.values()]
    most = max(
        value
        for one in every
        for value in (1.0, one["decoding_over_plain"], *(one["decoding_interval"] or ()))
    )
    scale = (_WIDTH - _NAMES - 60) / most
    body, y = [], 60.0

    def words(x: float, text: str, anchor: str = "start", color: str = LIGHT.ink) -> str:
        return (
            f'<text x="{x:g}" y="{y + 12:g}" font-size="13" fill="{color}"'
            f' text-anchor="{anchor}">{html.escape(text)}</text>'
        )

    for category, lines in _rows(report):
        body.append(words(10, category))
        for number, name in enumerate(drafters):
            one, color = lines[name], _COLORS[number % len(_COLORS)]
            ratio = one["decoding_over_plain"]
            width, between = ratio * scale, one["decoding_interval"] or [ratio] * 2
            low, high = (_NAMES + value * scale for value in between)
            body.append(words(_NAMES - 8, name, "end", color))
            body.append(
                f'<rect x="{_NAMES}" y="{y:g}" width="{width:g}" height="{_BAR}" fill="{color}"'
                ' fill-opacity="0.6"/>'
            )
            body.append(
                f'<path d="M{low:g} {y + _BAR / 2:g}H{high:g}" stroke="{LIGHT.ink}"'
                ' stroke-width="1.5"/>'
            )
            body.append(words(max(high, _NAMES + width) + 6, f"{ratio:.2f}"))
            y += _BAR + 3
        y += _GAP
    plain, title = _NAMES + scale, html.escape(_summary_line(report))
    body.append(f'<path d="M{plain:g} 48V{y:g}" stroke="{LIGHT.ink}" stroke-dasharray="4 3"/>')
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {y + 10:g}"'
        f' width="{_WIDTH}" height="{y + 10:g}" '
        f'font-family="system-ui, sans-serif" role="img"><title>{title}</title><rect width="100%"'
        ' height="100%" '
        f'fill="{LIGHT.page}"/><text x="10" y="24" font-size="16" fill="{LIGHT.ink}">Speed after'
        " the prompt ÷ plain "
        f'decoding, with 95% intervals</text><text x="{plain:g}" y="44" font-size="12"'
        f' fill="{LIGHT.muted}" '
        f'text-anchor="middle">plain</text>'
        f"{''.join(body)}</svg>\n"
    )
