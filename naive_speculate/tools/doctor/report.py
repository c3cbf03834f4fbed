"""A diagnosis in the terminal."""

from dataclasses import replace
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from naive_speculate.tools.doctor.diagnosis import Diagnosis, Window
from naive_speculate.tools.doctor.rules import rule
from naive_speculate.tools.doctor.suspects import is_set
from naive_speculate.tools.tables import table

BAR = 20
MOST = 8  # processes that are listed
# draft costs for which the best window is shown if none was given
EXAMPLES = (0.01, 0.05, 0.1, 0.2)


def show(diagnosis: Diagnosis, console: Console, basis: str = "as given") -> None:
    console.print(Text(f"{diagnosis.reading.engine}, {diagnosis.reading.format}", style="bold"))
    console.print(Text(f"format as in {diagnosis.reading.source}", style="dim"), end="\n\n")
    grid = Table(show_header=False, box=None, pad_edge=False)
    for name, value in figures(diagnosis).items():
        grid.add_row(Text(name, style="dim"), value)
    console.print(grid)
    if diagnosis.unconditional:
        rates = enumerate(zip(diagnosis.conditional, diagnosis.unconditional, strict=True))
        rows = [
            {
                "index": str(index),
                "accepted, if reached": "–" if if_reached is None else f"{if_reached:.1%}",
                "accepted, of all steps": f"{share:.1%}",
                "": "█" * round(share * BAR),
            }
            for index, (if_reached, share) in rates
        ]
        console.print("", table(rows, left=[""], box=None, pad_edge=False), sep="\n")
    if diagnosis.windows:
        windows = shown_windows(diagnosis)
        styles = ["bold" if window.k == diagnosis.best_k else "" for window in windows]
        rows = [_row(window, diagnosis.costs is not None) for window in windows]
        shown = table(rows, styles=styles, box=None, pad_edge=False)
        line = best_window(diagnosis, basis)
        line += " Give yours: --draft-cost." if diagnosis.costs is None else ""
        console.print("", shown, "", Text(line), sep="\n")
    listed = [f"! {one.words}\n  Measure next: {one.next}" for one in diagnosis.suspects]
    console.print("", Text("\n".join(listed or [no_problems(diagnosis)])), sep="\n")
    console.print("", Text("\n".join(caveats(diagnosis)), style="dim"), sep="\n")


def figures(diagnosis: Diagnosis) -> dict[str, str]:
    reading, rate, drafts = diagnosis.reading, diagnosis.draft_acceptance_rate, None
    alpha = "unknown: the window is missing (--num-draft-tokens)"
    if diagnosis.alpha is not None:
        alpha = f"{diagnosis.alpha:.3f}"
        alpha += f" ± {diagnosis.alpha_error:.3f}" if diagnosis.alpha_error else ""
        alpha += " (assuming the same α at every index)" if diagnosis.alpha_assumes_one else ""
    if reading.num_draft_tokens is not None:
        drafts = f"{reading.num_draft_tokens}, of which {reading.num_accepted_tokens} accepted"
    rows: dict[str, Any] = {
        "α": alpha,
        "tokens per target pass": diagnosis.mean_acceptance_length,
        "draft tokens accepted": None if rate is None else f"{rate:.1%}",
        "draft tokens per step": diagnosis.num_draft_tokens,
        "drafted": drafts,
        "requests at once": reading.requests_running,
        "processes": processes(diagnosis),
        "speedup with these costs": diagnosis.speedup,
        "measured speedup": diagnosis.measured_speedup,
    }
    return {
        name: f"{value:.2f}" if isinstance(value, float) else str(value)
        for name, value in rows.items()
        if value is not None
    }


def processes(diagnosis: Diagnosis) -> str | None:
    words = []
    for name, one in diagnosis.reading.processes.items():
        own = Diagnosis(one)
        alpha = "unknown" if own.alpha is None else f"{own.alpha:.2f}"
        tokens = own.mean_acceptance_length
        words.append(f"{name}: α {alpha}" + (f", {tokens:.2f} tokens per pass" if tokens else ""))
    more = f"; and {len(words) - MOST} more" if len(words) > MOST else ""
    return "; ".join(words[:MOST]) + more or None


def shown_windows(diagnosis: Diagnosis) -> tuple[Window, ...]:
    most = max(8, round(diagnosis.num_draft_tokens or 0), diagnosis.best_k or 0)
    return diagnosis.windows[:most]


def best_window(diagnosis: Diagnosis, basis: str = "as given") -> str:
    costs = diagnosis.costs
    if costs is None:
        tokens = {0: 1.0} | {window.k: window.tokens for window in diagnosis.windows}
        best = ", ".join(
            f"{max(tokens, key=lambda k: tokens[k] / (1 + k * cost))} for {cost:g}"
            for cost in EXAMPLES
        )
        return (
            "Best k by the cost of a draft pass (a target pass is 1, verifying costs no more):"
            f" {best}."
        )
    verify = ", ".join(f"{cost:g}" for cost in costs.verify)
    line = (
        f"Best k: {diagnosis.best_k} (a draft pass costs {costs.draft:.3g}, verifying {verify};"
        f" {basis})."
    )
    return line + (" Drafting does not pay." if diagnosis.best_k == 0 else "")


def _row(window: Window, with_costs: bool) -> dict[str, str]:
    def limit(value: float | None) -> str:
        return "never" if value is None else f"{value:.3f}"

    tokens = f"{window.tokens:.2f}" + ("" if window.measured else "*")
    row = {
        "k": str(window.k),
        "tokens per step": tokens,
        "pays if a draft costs less than": limit(window.break_even_draft_cost),
    }
    if with_costs:
        row |= {"and α is above": limit(window.break_even_alpha)}
        row |= {"speedup": f"{window.speedup:.2f}"}
    return row


def no_problems(diagnosis: Diagnosis) -> str:
    if diagnosis.measured_speedup is not None:
        return "No problems found."
    return (
        "No problems found. Measure next: tokens per second with drafting and without, on the same"
        " prompts (--speed, --plain-speed). High acceptance alone is no speedup."
    )


def caveats(diagnosis: Diagnosis) -> list[str]:
    reading = diagnosis.reading
    lines = [*rule(reading.engine), *reading.derived, *reading.unknown]
    width = reading.other_drafted_per_step
    if width is not None and diagnosis.num_draft_tokens == reading.drafted_per_step:
        read = replace(reading, drafted_per_step=width, other_drafted_per_step=None)
        other = Diagnosis(read, diagnosis.costs)
        lines.append(
            f"By the other meaning k is {other.num_draft_tokens:.3g}, α {other.alpha:.3f}, and"
            f" {other.draft_acceptance_rate:.1%} of the draft tokens are accepted. Give k to decide"
            " (--num-draft-tokens)."
        )
    if diagnosis.num_draft_tokens is not None and not is_set(diagnosis.num_draft_tokens):
        lines.append(
            "Windows differ in length. If the drafter ends them when it is unsure, α holds for"
            " tokens it was sure of, and predicts little for longer windows."
        )
    if any(not window.measured for window in diagnosis.windows):
        lines.append("* derived: there is no rate for this index.")
    lines.append("No engine reports its sampling parameters, templates or pass costs here.")
    return lines
