"""Possible causes of a low speedup, from the figures: suspicions, not proofs, each with what to
measure next."""

import math
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from naive_speculate.infer.costs import CostTable
from naive_speculate.tools.doctor.diagnosis import Diagnosis, Suspect
from naive_speculate.tools.doctor.ends import (
    ALIVE,
    DEAD,
    EVIDENCE,
    UNKNOWN_STEPS,
    Fade,
    drop,
    fade,
    likelihood,
)
from naive_speculate.tools.doctor.reading import Reading, mean

NONE, LOW_FIRST, CLIFF, SMALL, GAIN = 0.1, 0.5, 0.75, 0.15, 1.03
# above about this many tokens per pass, computing takes longer than reading the weights on current
# GPUs
MANY_TOKENS = 256
RARE = 0.5  # the share of steps with draft tokens below which drafts are rare
# tokens per step from which drafting should pay, and the measured speedup that counts as one
HIGH, FASTER = 1.5, 1.15
COSTLY = 0.35  # the drafter's share of a step from which it costs too much
MUCH = 0.7  # the share of the others' rate below which a process is named
ARITHMETIC = (
    "The share of draft tokens that are accepted falls with k by arithmetic, as later ones are"
    " reached less often: compare α, or tokens per pass."
)

_EXPERTS = re.compile(
    r"\b\d+(?:\.\d+)?[BT]-A\d+(?:\.\d+)?B\b|\b\d+x\d+B\b"
    r"|\b(?:Mixtral|DeepSeek-(?:V[2-9]|R1(?!-Distill))|Kimi-K\d|gpt-oss|Llama-4|MiniMax-M\d"
    r"|GLM-(?:4\.[5-9](?!V-Flash)|[5-9])|Qwen\d?-?MoE|OLMoE)[\w.-]*"
    r"|--enable-expert-parallel\b|\benable_expert_parallel['\"]?\s*[=:]\s*True"
    r"|\bn_expert\s*=\s*[1-9]\d*|\bnum_(?:local_)?experts['\"]?\s*[=:]\s*[1-9]\d*",
    re.IGNORECASE,
)
_FINDINGS: dict[str, dict[str, str]] = tomllib.loads(
    Path(__file__).with_name("findings.toml").read_text(encoding="utf-8")
)


def experts(text: str) -> str:
    match = _EXPERTS.search(text)
    return match[0] if match else ""


def diagnose(
    reading: Reading, costs: CostTable | None = None, *, num_draft_tokens: int | None = None
) -> Diagnosis:
    """Diagnose an engine's figures; arguments and errors as of `Diagnosis`."""
    diagnosis = Diagnosis(reading, costs, num_draft_tokens)
    apart = list(_processes(diagnosis))
    dead = any(suspect.name == "fades" for suspect in apart)
    # what the living and the dead have together describes neither
    num_after_end = reading.num_after_end
    counts = [_suspect("after_end", num_after_end=num_after_end)] if num_after_end else []
    listed = [*apart, *(() if dead else _acceptance(diagnosis)), *_speed(diagnosis), *counts]
    dropped = dead or any(one.name in ("drops_to_zero", "near_zero") for one in listed)
    diagnosis.suspects = (*listed, *_window(diagnosis, dropped))
    return diagnosis


def is_set(width: float) -> bool:
    return abs(width - round(width)) < 0.05


def _suspect(finding: str, *optional: str, **values: Any) -> Suspect:
    fields = {k: text.strip().replace("\n", " ") for k, text in _FINDINGS[finding].items()}
    for name in fields.keys() - {"name", "words", "next"}:
        values[name] = f"{fields[name].format(**values)} " if name in optional else ""
    words, next = (fields[name].format(**values).strip() for name in ("words", "next"))
    return Suspect(fields.get("name", finding), words, next)


def _processes(diagnosis: Diagnosis) -> Iterator[Suspect]:
    each = {name: Diagnosis(one) for name, one in diagnosis.reading.processes.items()}
    steps = {name: one.reading.num_steps or UNKNOWN_STEPS for name, one in each.items()}
    rates = {
        name: one.conditional[0] if one.conditional else one.alpha for name, one in each.items()
    }
    known = {name: rate for name, rate in rates.items() if rate is not None}
    if len(known) < 2:
        return
    dead = [name for name, rate in known.items() if rate <= DEAD]
    apart = dead if dead and max(known.values()) >= ALIVE else [min(known, key=known.__getitem__)]
    rest = [name for name in known if name not in apart]

    def hits_of(names: Sequence[str]) -> tuple[float, float]:
        return sum(known[name] * steps[name] for name in names), sum(steps[name] for name in names)

    (hits, num), (other_hits, other_num) = hits_of(apart), hits_of(rest)
    gain = likelihood(hits, num) + likelihood(other_hits, other_num)
    if gain - likelihood(hits + other_hits, num + other_num) < EVIDENCE:
        return
    if apart is dead:
        shares = {"dead": _percent(hits / num), "alive": _percent(other_hits / other_num)}
        yield _suspect("one_is_dead", names=", ".join(apart), steps=num, **shares)
    elif hits / num <= MUCH * other_hits / other_num:
        yield from _differing(apart[0], {name: each[name] for name in known})


def _differing(process: str, each: Mapping[str, Diagnosis]) -> Iterator[Suspect]:
    widths = {name: one.num_draft_tokens for name, one in each.items()}
    differ = len({round(width, 2) for width in widths.values() if width}) > 1
    shown = ", ".join(f"{width:.3g} in {name}" for name, width in widths.items() if width)
    low = each[process].alpha
    alphas = [one.alpha for name, one in each.items() if name != process]
    rest = mean(alpha for alpha in alphas if alpha is not None)
    if low is not None and rest is not None:
        values = {"low": low, "rest": rest, "shown": shown, "arithmetic": ARITHMETIC}
        optional = ("windows",) if differ else ()
        yield _suspect("one_differs", *optional, process=process, **values)


def _fade_of(reading: Reading) -> tuple[Fade | None, str]:
    """Where acceptance ends during a run, and in which process."""
    for name, one in reading.processes.items():
        if (decline := fade(one.course)) is not None:
            return decline, name
    return (None if reading.processes else fade(reading.course)), ""


def _acceptance(diagnosis: Diagnosis) -> Iterator[Suspect]:
    reading, conditional = diagnosis.reading, diagnosis.conditional
    fades, process = _fade_of(reading)
    if fades is not None:
        where = "in some reports"
        if fades.position is not None:
            where = f"from about position {fades.position:,.0f} of the text on"
        where += f" of {process}" if process else ""
        stays = ("stays",) if fades.position is None and fades.stays else ()
        yield _suspect("fades", *stays, fade=fades, where=where, after=_percent(fades.after))
    first = conditional[0] if conditional else diagnosis.alpha
    tokens = diagnosis.mean_acceptance_length
    if first is None and tokens is not None and tokens - 1 < NONE:
        first = tokens - 1  # the window is unknown, but no index accepts more than this
    if first is None or (fades is not None and fades.before >= LOW_FIRST):
        return
    second = conditional[1] if len(conditional) > 1 else None
    subject = f"The first draft token is accepted in {_percent(first)} of the steps"
    if not conditional:
        subject = f"{_percent(first)} of the judged draft tokens are accepted"
    zero = _zero_index(diagnosis)
    if zero is not None:
        yield _drops_to_zero(reading, *zero)
    if first < NONE:
        copies = ("copies",) if second is not None and second >= LOW_FIRST else ()
        yield _suspect("near_zero", *copies, first=subject, second=second)
    elif first < LOW_FIRST:
        yield _suspect("mismatch", first=subject)
    elif zero is None and second is not None and second < CLIFF * first and diagnosis.whole_rates:
        yield _suspect("cliff", first=first, second=second)


def _zero_index(diagnosis: Diagnosis) -> tuple[int, float] | None:
    """Where windows are short, an index without an accepted token may have had no draft token."""
    reading = diagnosis.reading
    if _short(diagnosis) and not reading.judged:
        return None
    return drop(reading.rates, reading.num_steps)


def _drops_to_zero(reading: Reading, index: int, chance: float) -> Suspect:
    before, rate = reading.rates[index - 1 : index + 1]
    values: dict[str, Any] = {"before": _percent(before), "rate": _percent(rate)}
    if not reading.num_steps:
        return _suspect("drops_to_zero", index=index, last=index - 1, **values)
    values |= {"steps": round(reading.num_steps * before), "chance": _chance(chance)}
    return _suspect("drops_to_zero", "reached", index=index, last=index - 1, **values)


def _speed(diagnosis: Diagnosis) -> Iterator[Suspect]:
    reading, measured = diagnosis.reading, diagnosis.measured_speedup
    tokens, share = diagnosis.mean_acceptance_length, diagnosis.draft_share
    if reading.drafted_share is not None and tokens is not None:  # a speed is of all steps
        tokens = 1 + (tokens - 1) * reading.drafted_share
        if reading.drafted_share < RARE:
            yield _suspect("rare_drafts", share=_percent(reading.drafted_share), tokens=tokens)
    slow, high = measured is not None and measured < FASTER, tokens is not None and tokens >= HIGH
    if measured is not None and slow and tokens is not None and high:
        yield _suspect("no_speedup", tokens=tokens, measured=measured, step=tokens / measured)
    unmeasured = reading.draft_share is not None and measured is None
    if share is not None and share >= COSTLY and (slow or unmeasured):
        yield _suspect("draft_cost", share=share)
    if reading.experts and high and (measured is None or slow):
        yield _suspect("experts", experts=reading.experts)
    requests, width = reading.requests_running, (diagnosis.num_draft_tokens or 0) + 1
    if requests is not None and width > 1 and requests * width > MANY_TOKENS:
        yield _suspect("batch", requests=requests, width=width, all=requests * width)
    if diagnosis.speedup is not None and diagnosis.speedup < 1:
        yield _suspect("does_not_pay", speedup=diagnosis.speedup)
    elif slow and tokens is not None and not high:
        yield _suspect("did_not_pay", measured=measured, tokens=tokens)


def _window(diagnosis: Diagnosis, dropped: bool) -> Iterator[Suspect]:
    """`dropped`: acceptance ends at an index, so that a shorter window was named already."""
    rates, width, gain = diagnosis.unconditional, diagnosis.num_draft_tokens, diagnosis.gain
    if width is None:
        return
    best = diagnosis.best_k if is_set(width) else None
    if best is not None and gain is not None and gain > GAIN and best != width:
        name = "k_too_large" if best < width else "k_too_small"
        yield _suspect(name, best=best, gain=gain, width=width)
    elif best is None and diagnosis.whole_rates and width > 1 and rates[-1] < SMALL and not dropped:
        yield _suspect("k_may_be_too_large", last=rates[-1])
    if _short(diagnosis):
        yield _suspect("short_windows", width=width, most=len(rates))


def _short(diagnosis: Diagnosis) -> bool:
    rates, width = diagnosis.unconditional, diagnosis.num_draft_tokens
    return width is not None and len(rates) > 1 and width < 0.8 * len(rates)


def _percent(share: float) -> str:
    return f"{share:.0%}" if share >= 0.1 or not share else f"{share:.1%}"


def _chance(chance: float) -> str:
    if chance >= 0.001:
        return f"{chance:.1%}"
    return f"10^{math.floor(math.log10(max(chance, 1e-300)))}"
