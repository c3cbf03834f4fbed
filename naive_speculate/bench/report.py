"""Prints the measurements as tables and saves them as plots."""

from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Column, Table

from naive_speculate.bench.measure import Line

_MAIN_NAMES = {"plain", *(f"k = {k}" for k in range(1, 65))}


def show(report: dict[str, Any], lines: dict[str, list[Line]], console: Console) -> None:
    """Print the whole report."""
    drafts = " and ".join(f"[bold]{name}[/]" for name in (report["draft"], report["head"]) if name)
    console.print(f"[bold]{report['target']}[/] with {drafts} on {report['device']}, {report['threads']}")
    for mode, found in lines.items():
        console.print(_comparison(mode, found))
    names = ["draft, 1 token", "target, 1", *map(str, range(2, len(report["forwards"]["verify_ms"]) + 1))]
    forwards = Table(*(Column(name, justify="right") for name in names), title="A forward at 100 tokens of context, ms")
    forwards.add_row(f"{report['forwards']['draft_ms']:.2f}", *(f"{ms:.2f}" for ms in report["forwards"]["verify_ms"]))
    console.print(forwards)
    for key, title in (("by_context", "A step by tokens of context, ms"), ("by_batch", "All rows' tokens/s by batch size")):
        if report[key]:
            console.print(_grid(title, report[key]))
    overhead = ", ".join(f"{detail} {share:+.1%}" for detail, share in report["event_overhead"].items())
    memory = ", ".join(f"{name} {mib:.0f} MiB" for name, mib in report["memory_mib"].items())
    console.print(f"Events cost: {overhead}. Peak memory: {memory or 'unknown'}.")


def save_plots(report: dict[str, Any], lines: dict[str, list[Line]], folder: Path) -> list[Path]:
    """Save plots; returns their paths. Raises `ValueError` if matplotlib is not installed."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise ValueError("plots need matplotlib: pip install 'naive-speculate[plots]'") from None
    folder.mkdir(parents=True, exist_ok=True)
    saved = []

    def figure(name: str, title: str, across: str, up: str, curves: dict[str, dict[Any, float]]) -> None:
        canvas = Figure(figsize=(6, 4), layout="constrained")
        axes = canvas.add_subplot(title=title, xlabel=across, ylabel=up)
        for (label, points), marker in zip(curves.items(), "osD^vx" * len(curves), strict=False):
            axes.plot(list(points), list(points.values()), marker=marker, label=label)
        axes.set_ylim(bottom=0)
        axes.legend()
        saved.append(folder / f"{name}.png")
        canvas.savefig(saved[-1], dpi=130)

    speeds: dict[str, dict[Any, float]] = {}
    for mode, found in lines.items():
        fixed = [line for line in found if isinstance(line.num_draft_tokens, int) and line.name in _MAIN_NAMES]
        speeds[f"measured, {mode}"] = {line.num_draft_tokens: line.over_plain for line in fixed if line.ours}
        speeds[f"theory, {mode}"] = {
            line.num_draft_tokens: line.predicted for line in fixed if line.ours and line.predicted is not None
        }
    figure("speedup", "Speedup over plain decoding", "drafted tokens k", "×", speeds)
    for key, title, across, up in (
        ("by_context", "A step's time", "tokens of context", "ms"),
        ("by_batch", "Throughput of a batch", "batch size", "tokens/s"),
    ):
        if report[key]:
            figure(key, title, across, up, {_window_name(window): points for window, points in report[key].items()})
    return saved


def _comparison(mode: str, lines: list[Line]) -> Table:
    best = max((line.tokens_per_second for line in lines if not line.ours), default=None)
    table = Table(title=f"Decoding, {mode}")
    table.add_column("", no_wrap=True)
    for line in lines:
        cells = {
            "tokens/s": f"{line.tokens_per_second:.0f}",
            "× plain": f"{line.over_plain:.2f}",
            "× transformers": "" if best is None else f"{line.tokens_per_second / best:.2f}",
            "theory": _number(line.predicted),
            "efficiency": "" if line.efficiency is None else f"{line.efficiency:.0%}",
            "accepted": _number(line.acceptance),
            "α": _number(line.alpha),
            "tokens/forward": f"{line.tokens_per_forward:.2f}",
            "draft ms": _number(line.draft_ms),
            "verify ms": _number(line.verify_ms),
            "step ms": _number(line.step_ms),
            "same tokens": f"{line.same_as_plain:.0%}",
        }
        if not table.rows:
            for heading in cells:
                table.add_column(heading, justify="right")
        table.add_row(line.name, *cells.values())
    return table


def _grid(title: str, rows: dict[int, dict[int, float]]) -> Table:
    table = Table("", *(Column(str(column), justify="right") for column in next(iter(rows.values()))), title=title)
    for window, points in rows.items():
        table.add_row(_window_name(window), *(f"{value:.2f}" if value < 100 else f"{value:.0f}" for value in points.values()))
    return table


def _window_name(window: int) -> str:
    return f"k = {window}" if window else "plain"


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"
