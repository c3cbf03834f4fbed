"""The headline numbers of a run and the sentence that says what is seen, as HTML: pure functions of a trace."""

import html

from naive_speculate.events import FinishReason
from naive_speculate.trace import Trace
from ui.labels import count, percent
from ui.progress import Figures, Progress


def headline(
    trace: Trace,
    plain_rate: float | None = None,
    plain_where: str = "on this machine",
    *,
    live: bool = True,
    figures: Figures | None = None,
) -> str:
    """Sentence and four numbers.

    Args:
        trace: A run, whole or so far.
        plain_rate: Measured tokens a second of plain decoding with the same target; None where that is not known.
        plain_where: Where `plain_rate` was measured, as the label says it.
        live: Whether the run is the visitor's own rather than a recording.
        figures: The trace's, where they are known; counted here without them.
    """
    m = figures or figures_of(trace)
    tiles = [
        _tile("Acceptance rate", _share(m.draft_acceptance_rate), _drafts(m)),
        _tile("Tokens per target pass", _decimal(m.mean_acceptance_length, 2), "plain decoding: 1"),
        _tile("Tokens per second", _decimal(m.tokens_per_second, 0), _plain(plain_rate, plain_where)),
        _tile("Speedup", _times(m.tokens_per_second, plain_rate), "against plain decoding, measured"),
    ]
    return f'<p class="ns-sentence">{sentence(trace, m, live=live)}</p><dl class="ns-tiles">{"".join(tiles)}</dl>'


def figures_of(trace: Trace) -> Figures:
    """The figures of the whole trace."""
    return Progress(trace.events).at(len(trace))


def sentence(trace: Trace, figures: Figures | None = None, *, live: bool = True) -> str:
    """What is seen, in one sentence of HTML."""
    m = figures or figures_of(trace)
    if not m.num_spec_steps:
        return "The prompt is being read, and the first round drafted."
    tokens, passes = count(m.num_generated_tokens, "token"), count(m.num_spec_steps, "pass").replace("passs", "passes")
    if not m.num_draft_tokens:
        said = f"Plain decoding: the target model wrote {tokens} in {passes}, one token a pass."
    else:
        kept = percent(m.draft_acceptance_rate or 0)
        said = (
            f"{_guesser(trace)} guessed ahead, the target model checked each guess and kept {kept} of them: "
            f"<strong>{tokens} in {passes}</strong> of the target model instead of {m.num_generated_tokens:,}."
        )
    if not live:
        said = "In this recorded run, " + said[0].lower() + said[1:]
    return said + _ending(trace)


def _guesser(trace: Trace) -> str:
    started = trace.started
    drafter = (started.settings or {}).get("drafter") if started else None
    return "A search in the text so far" if drafter == "prompt_lookup" else "A small draft model"


def _ending(trace: Trace) -> str:
    finished = trace.finished
    if finished is None:
        return ""
    if finished.finish_reason == FinishReason.CANCELLED:
        return " It was stopped there."
    if finished.finish_reason == FinishReason.ERROR:
        return f" It ended in an error: {html.escape(finished.message or 'no reason is given')}"
    return ""


def _tile(name: str, value: str, note: str) -> str:
    return f"<div><dt>{name}</dt><dd><b>{value}</b><span>{html.escape(note)}</span></dd></div>"


def _drafts(m: Figures) -> str:
    if not m.num_draft_tokens:
        return "nothing was drafted"
    return f"{m.num_accepted_draft_tokens:,} of {count(m.num_draft_tokens, 'draft')} kept"


def _plain(rate: float | None, where: str) -> str:
    return "plain decoding: not measured" if rate is None else f"plain decoding: {rate:.0f}, measured {where}"


def _share(value: float | None) -> str:
    return "–" if value is None else percent(value)


def _decimal(value: float | None, digits: int) -> str:
    return "–" if value is None else f"{value:.{digits}f}"


def _times(rate: float | None, plain: float | None) -> str:
    return "–" if not rate or not plain else f"{rate / plain:.1f}×"


def title(trace: Trace) -> str:
    """One line on a run's settings, in plain text."""
    started = trace.started
    settings = (started.settings or {}) if started else {}
    k = settings.get("num_draft_tokens")
    strategy = str(settings.get("verify_strategy", "")).replace("_", " ")
    temperature = settings.get("temperature")
    parts = [
        strategy,
        f"k = {k}" if k is not None else "",
        f"temperature {temperature:g}" if isinstance(temperature, int | float) else "",
        f"seed {started.seed}" if started and started.seed is not None else "",
    ]
    return " · ".join(part for part in parts if part)[:200]
