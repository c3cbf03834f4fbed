"""Prints the measurements as tables and saves them as plots."""

from pathlib import Path
from typing import Any

from rich.console import Console

from naive_speculate.tables import table

_MAIN_NAMES = {"plain", *(f"k = {k}" for k in range(1, 65))}
_GRIDS = {  # by key of the report: a table's title, and a plot's with its axes
    "by_context": ("A step by tokens of context, ms", "A step's time", "tokens of context", "ms"),
    "by_batch": ("All rows' tokens/s by batch size", "Throughput of a batch", "batch size", "tokens/s"),
}


def show(report: dict[str, Any], console: Console) -> None:
    """Print the whole report."""
    drafts = " and ".join(f"[bold]{name}[/]" for name in (report["draft"], report["head"]) if name)
    console.print(f"[bold]{report['target']}[/] with {drafts} on {report['device']}, {report['threads']}")
    for mode, lines in report["decoding"].items():
        best = max((line["tokens_per_second"] for line in lines if not line["ours"]), default=None)
        console.print(table([_cells(line, best) for line in lines], left=[""], title=f"Decoding, {mode}"))
    forwards = {f"{tokens}": f"{ms:.2f}" for tokens, ms in enumerate(report["forwards"]["verify_ms"][1:], start=2)}
    one = {"draft, 1 token": f"{report['forwards']['draft_ms']:.2f}", "target, 1": f"{report['forwards']['verify_ms'][0]:.2f}"}
    console.print(table([one | forwards], title="A forward at 100 tokens of context, ms"))
    for key, (title, *_) in _GRIDS.items():
        if report[key]:
            rows = [
                {"": _window_name(window)} | {str(size): f"{x:.2f}" if x < 100 else f"{x:.0f}" for size, x in points.items()}
                for window, points in report[key].items()
            ]
            console.print(table(rows, left=[""], title=title))
    overhead = ", ".join(f"{detail} {share:+.1%}" for detail, share in report["event_overhead"].items())
    memory = ", ".join(f"{name} {mib:.0f} MiB" for name, mib in report["memory_mib"].items())
    console.print(f"Events cost: {overhead}. Peak memory: {memory or 'unknown'}.")


def _cells(line: dict[str, Any], best: float | None) -> dict[str, str]:
    def number(value: float | None) -> str:
        return "" if value is None else f"{value:.2f}"

    return {
        "": line["name"],
        "tokens/s": f"{line['tokens_per_second']:.0f}",
        "× plain": number(line["over_plain"]),
        "× transformers": "" if best is None else f"{line['tokens_per_second'] / best:.2f}",
        "theory": number(line["predicted"]),
        "efficiency": "" if line["efficiency"] is None else f"{line['efficiency']:.0%}",
        "accepted": number(line["acceptance"]),
        "α": number(line["alpha"]),
        "tokens/forward": number(line["tokens_per_forward"]),
        "draft ms": number(line["draft_ms"]),
        "verify ms": number(line["verify_ms"]),
        "step ms": number(line["step_ms"]),
        "same tokens": f"{line['same_as_plain']:.0%}",
    }


def save_plots(report: dict[str, Any], folder: Path) -> list[Path]:
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
    for mode, lines in report["decoding"].items():
        fixed = [line for line in lines if line["ours"] and line["name"] in _MAIN_NAMES]
        for name, key in (("measured", "over_plain"), ("theory", "predicted")):
            points = {line["num_draft_tokens"]: line[key] for line in fixed if line[key] is not None}
            speeds[f"{name}, {mode}"] = points
    figure("speedup", "Speedup over plain decoding", "drafted tokens k", "×", speeds)
    for key, (_, title, across, up) in _GRIDS.items():
        if report[key]:
            figure(key, title, across, up, {_window_name(window): points for window, points in report[key].items()})
    return saved


def _window_name(window: int) -> str:
    return f"k = {window}" if window else "plain"
