"""Shows the results of `bench --suite` as a table and as an SVG plot."""

import html
from itertools import accumulate
from typing import Any

from rich.console import Console

from naive_speculate.bench.suite import NONE
from naive_speculate.palette import LIGHT
from naive_speculate.tables import table

_COLORS = ("#0b63a5", "#66367e", "#0d682d", "#8a4b00", "#be1633", "#60646a")
_NAMES, _WIDTH, _BAR, _GAP = 250, 800, 16, 14


def show_suite(report: dict[str, Any], console: Console) -> None:
    """Print the table, one row per category and drafter."""
    console.print(summary_line(report))
    cells = [
        _cells(category if number == 0 else "", drafter, one)
        for category, found in rows(report)
        for number, (drafter, one) in enumerate(found.items())
    ]
    made = table(cells, left=["category", "drafter"])
    for last in accumulate(len(found) for _, found in rows(report)):
        made.rows[last - 1].end_section = True
    console.print(made)


def summary_line(report: dict[str, Any]) -> str:
    """One line with the models and settings."""
    models = ", ".join(f"{role} {report[role]}" for role in ("target", "draft", "head") if report[role])
    chat = "chat template" if report["chat"] else "no chat template"
    windows = report["num_draft_tokens"]
    k = ", ".join(map(str, windows)) if isinstance(windows, list) else windows
    how = f"k = {k}, temperature {report['temperature']:g}, {report['max_tokens']} tokens, {chat}"
    ended = " Interrupted: only the questions so far." if report["interrupted"] else ""
    where = f"{report['device']}, {report['threads']} threads" if report["threads"] else report["device"]
    return f"{report['suite']}: {models}, on {where}; {how}.{ended}"


def rows(report: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    """The categories, and "overall" if there are several."""
    found = list(report["categories"].items())
    return found if len(found) == 1 else [*found, ("overall", report["overall"])]


def _cells(category: str, drafter: str, one: dict[str, Any]) -> dict[str, str]:
    between = one["decoding_interval"]
    return {
        "category": category,
        "drafter": drafter,
        "questions": str(one["questions"]),
        "tokens/step": f"{one['tokens_per_step']:.2f}",
        "accepted by index": _rates(one["marginal_acceptance"]),
        "conditional": _rates(one["conditional_acceptance"]),
        "tokens/s": f"{one['tokens_per_second']:.1f}",
        "× plain": f"{one['over_plain']:.2f}",
        "after the prompt": f"{one['decoding_over_plain']:.2f}",
        "95%": "" if between is None else f"{between[0]:.2f}–{between[1]:.2f}",
        "same text": "" if one["same_as_plain"] is None else f"{one['same_as_plain']:.0%}",
    }


def _rates(rates: list[float | None]) -> str:
    return " ".join("–" if rate is None else f"{rate:.2f}" for rate in rates)


def suite_svg(report: dict[str, Any]) -> str:
    """The plot: speed after the prompt relative to plain decoding per category and drafter, with its interval."""
    drafters = [name for name in report["overall"] if name != NONE]
    every = [one for _, found in rows(report) for one in found.values()]
    most = max(value for one in every for value in (1.0, one["decoding_over_plain"], *(one["decoding_interval"] or ())))
    scale = (_WIDTH - _NAMES - 60) / most
    body, y = [], 60.0

    def words(x: float, text: str, anchor: str = "start", color: str = LIGHT.ink) -> str:
        return f'<text x="{x:g}" y="{y + 12:g}" font-size="13" fill="{color}" text-anchor="{anchor}">{html.escape(text)}</text>'

    for category, found in rows(report):
        body.append(words(10, category))
        for number, name in enumerate(drafters):
            one, color = found[name], _COLORS[number % len(_COLORS)]
            ratio = one["decoding_over_plain"]
            width, between = ratio * scale, one["decoding_interval"] or [ratio] * 2
            low, high = (_NAMES + value * scale for value in between)
            body.append(words(_NAMES - 8, name, "end", color))
            body.append(f'<rect x="{_NAMES}" y="{y:g}" width="{width:g}" height="{_BAR}" fill="{color}" fill-opacity="0.6"/>')
            body.append(f'<path d="M{low:g} {y + _BAR / 2:g}H{high:g}" stroke="{LIGHT.ink}" stroke-width="1.5"/>')
            body.append(words(max(high, _NAMES + width) + 6, f"{ratio:.2f}"))
            y += _BAR + 3
        y += _GAP
    plain, title = _NAMES + scale, html.escape(summary_line(report))
    body.append(f'<path d="M{plain:g} 48V{y:g}" stroke="{LIGHT.ink}" stroke-dasharray="4 3"/>')
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {y + 10:g}" width="{_WIDTH}" height="{y + 10:g}" '
        f'font-family="system-ui, sans-serif" role="img"><title>{title}</title><rect width="100%" height="100%" '
        f'fill="{LIGHT.page}"/><text x="10" y="24" font-size="16" fill="{LIGHT.ink}">Speed after the prompt ÷ plain '
        f'decoding, with 95% intervals</text><text x="{plain:g}" y="44" font-size="12" fill="{LIGHT.muted}" '
        f'text-anchor="middle">plain</text>'
        f"{''.join(body)}</svg>\n"
    )
