"""Two diagnoses side by side, and what their difference means."""

import math
from typing import Any

from rich.console import Console
from rich.text import Text

from naive_speculate.tools.doctor.diagnosis import Diagnosis
from naive_speculate.tools.doctor.report import figures
from naive_speculate.tools.doctor.rules import rule
from naive_speculate.tools.doctor.suspects import ARITHMETIC
from naive_speculate.tools.tables import table

_SURE = 3.0  # standard errors from which chance does not explain a difference
_SHARE = "draft tokens accepted"


def compared(diagnosis: Diagnosis, other: Diagnosis) -> list[str]:
    lines = [*_windows(diagnosis, other), *_alphas(diagnosis, other), *_indices(diagnosis, other)]
    engines = diagnosis.reading.engine, other.reading.engine
    if engines[0] != engines[1]:
        lines += ["The engines accept by different rules.", *(rule(name)[0] for name in engines)]
    return lines


def to_dict(diagnosis: Diagnosis, other: Diagnosis) -> dict[str, Any]:
    both = {"diagnosis": diagnosis.to_dict(), "against": other.to_dict()}
    return both | {"comparison": compared(diagnosis, other)}


def show_comparison(diagnosis: Diagnosis, other: Diagnosis, console: Console) -> None:
    ours, theirs = figures(diagnosis), figures(other)
    names = [name for name in ours if name != "processes"]
    names += [name for name in theirs if name not in ours and name != "processes"]
    rows = [{"": "engine", "A": diagnosis.reading.engine, "B": other.reading.engine}]
    rows += [{"": name, "A": ours.get(name, "–"), "B": theirs.get(name, "–")} for name in names]
    console.print(table(rows, left=[""], box=None, pad_edge=False))
    console.print("", Text("\n".join(compared(diagnosis, other))), sep="\n")


def _windows(diagnosis: Diagnosis, other: Diagnosis) -> list[str]:
    k, other_k = diagnosis.num_draft_tokens, other.num_draft_tokens
    shares = diagnosis.draft_acceptance_rate, other.draft_acceptance_rate
    if None in shares:
        return []
    if k is None or other_k is None:
        return [f"A window is unknown, so the shares are not compared. {ARITHMETIC}"]
    if abs(k - other_k) < 0.05:
        return []
    words = f"k is {k:.3g} in A and {other_k:.3g} in B. {ARITHMETIC}"
    at = round(other_k)
    if 1 <= at <= len(diagnosis.windows):
        share = (diagnosis.windows[at - 1].tokens - 1) / at
        words += f" With k = {at}, A would accept {share:.1%}; B accepts {shares[1]:.1%}."
    return [words]


def _alphas(diagnosis: Diagnosis, other: Diagnosis) -> list[str]:
    alpha, other_alpha = diagnosis.alpha, other.alpha
    if alpha is None or other_alpha is None:
        return ["α is unknown in one of them (--num-draft-tokens)."]
    words = f"α is {alpha:.3f} in A and {other_alpha:.3f} in B"
    errors = diagnosis.alpha_error, other.alpha_error
    if errors[0] is None or errors[1] is None:
        return [f"{words}; the steps are not counted, so chance is not excluded."]
    spread = math.hypot(errors[0], errors[1])
    if abs(alpha - other_alpha) <= _SURE * spread:
        return [f"{words}: chance may explain the difference (standard error {spread:.3f})."]
    higher, lower = ("A", "B") if alpha > other_alpha else ("B", "A")
    return [
        f"{words}: more than chance explains (standard error {spread:.3f}). The drafts of {higher}"
        f" fit its target better than those of {lower}, if both had the same prompts and sampling"
        " parameters."
    ]


def _indices(diagnosis: Diagnosis, other: Diagnosis) -> list[str]:
    pairs = zip(diagnosis.conditional, other.conditional, strict=False)
    gaps = [
        (abs(one - two), index, one, two)
        for index, (one, two) in enumerate(pairs)
        if one is not None and two is not None
    ]
    if not gaps or max(gaps)[0] < 0.1:
        return []
    _, index, one, two = max(gaps)
    return [
        f"They differ most at index {index}: if reached, it is accepted in {one:.0%} in A and"
        f" {two:.0%} in B."
    ]
