"""Shows a run in the terminal: tokens in the palette's colours as they arrive, with a legend and
the figures at the end."""

import math
from collections.abc import Mapping, Sequence

from rich.console import Console
from rich.style import Style as RichStyle
from rich.table import Table
from rich.text import Text

from naive_speculate.events import OUTPUT_KINDS, Event, EventKind, Logprob
from naive_speculate.events.steps import steps
from naive_speculate.speculate.draft import DRAFTERS
from naive_speculate.tools.show.expected import draft_sampling_rates, expected_acceptance
from naive_speculate.tools.show.palette import PROMPT
from naive_speculate.tools.show.spans import LEGEND, Span, legend, prompt_spans, token_span
from naive_speculate.tools.tables import Output

_SHOWN = [kind for kind in LEGEND if kind != EventKind.DISCARDED]
MAX_ALTERNATIVES = 20  # most printed alternatives of a token
LEAST_REST = 0.0005  # least total probability of the other tokens that is printed


class TerminalView:
    """Prints events; if standard output is not a terminal, only the generated text and requested
    log-probabilities."""

    def __init__(self, console: Console | None = None) -> None:
        self.console = console or Output(soft_wrap=True)
        self._events: list[Event] = []  # of the current run

    def show(self, event: Event) -> None:
        self._events.append(event)
        if not self.console.is_terminal:
            self._plain(event)
        elif event.kind == EventKind.STARTED:
            self.console.print(Text("  ").join(map(to_rich, legend(_SHOWN))), end="\n\n")
            if drafter := drafter_lines(event):
                self.console.print(Text(drafter, style="dim"), end="\n\n")
            self.console.print(*map(to_rich, prompt_spans(event)), sep="", end="")
        elif event.kind in _SHOWN:
            self.console.print(to_rich(token_span(event)), end="")
        elif event.kind == EventKind.FINISHED:
            self._figures(event)
            self._copies()
        if event.kind == EventKind.FINISHED:
            self._logprobs(event)
            self._events = []

    def _plain(self, event: Event) -> None:
        if event.kind in OUTPUT_KINDS:
            self.console.file.write(event.text or "")
        elif event.kind == EventKind.FINISHED:
            self.console.file.write("\n")
        self.console.file.flush()

    def _figures(self, event: Event) -> None:
        metrics = event.metrics or {}
        table = Table(show_header=False, box=None, pad_edge=False)
        rows = {
            "ended by": str(event.finish_reason),
            "tokens": metrics.get("num_generated_tokens"),
            "tokens per target pass": metrics.get("mean_acceptance_length"),
            "draft tokens accepted": metrics.get("draft_acceptance_rate"),
            "luck and skill": expected_acceptance(self._events),
            "draft sampling": draft_sampling_rates(self._events),
            "tokens per second": metrics.get("tokens_per_second"),
        }
        for name, value in rows.items():
            if value is not None:
                shown = f"{value:.2f}" if isinstance(value, float) else str(value)
                table.add_row(Text(name, style="dim"), shown)
        self.console.print("\n")
        self.console.print(table)
        if event.message:
            self.console.print(Text(event.message))

    def _copies(self) -> None:
        """The text, with the sources of accepted copied tokens underlined."""
        sources = {
            draft.copied_from
            for step in steps(self._events)
            for draft in step.drafts[: step.num_accepted]
        } - {None}
        if sources:
            texts = list(self._events[0].prompt_texts or [])
            texts += [event.text or "" for event in self._events if event.kind in OUTPUT_KINDS]
            styles = ("underline" if index in sources else "dim" for index in range(len(texts)))
            self.console.print("\nThe sources of accepted copied tokens are underlined:")
            self.console.print(Text.assemble(*zip(texts, styles, strict=True)))

    def _logprobs(self, event: Event) -> None:
        output = [
            one.logprobs
            for one in self._events
            if one.kind in OUTPUT_KINDS and one.logprobs is not None
        ]
        for title, entries in (("prompt", event.prompt_logprobs), ("output", output)):
            if entries:
                self.console.print("", logprobs_table(title, entries), sep="\n")


def logprobs_table(title: str, entries: Sequence[Mapping[int, Logprob] | None]) -> Table:
    """Each token's own first, then those of the most probable tokens; None entries are skipped."""
    table = Table(
        title=f"Log-probabilities: {title}", title_justify="left", box=None, pad_edge=False
    )
    for name in ("token", "logprob", "rank"):
        table.add_column(name, justify="left" if name == "token" else "right", no_wrap=True)
    table.add_column("most probable", overflow="fold")
    for entry in entries:
        if entry is not None:
            own, *others = entry.values()
            best = sorted([own, *others], key=lambda p: p.rank) if others else []
            shown = [f"{p.token!r} {p.logprob:.2f}" for p in best[:MAX_ALTERNATIVES]]
            if len(best) > len(shown):
                shown.append(f"… {len(best) - len(shown)} more with --json")
            rest = 1 - math.fsum(math.exp(p.logprob) for p in best[:MAX_ALTERNATIVES])
            if best and rest > LEAST_REST:
                shown.append(f"all others {math.log(rest):.2f}")
            table.add_row(
                Text(repr(own.token)), f"{own.logprob:.4f}", str(own.rank), Text("  ".join(shown))
            )
    return table


def to_rich(span: Span) -> Text:
    """For a terminal, in the palette's dark style, since most terminals are dark; underline and
    strike distinguish the kinds without colour. The prompt is dim, tokens unknown to the draft
    are inverted."""
    style = span.style
    if style is PROMPT:
        return Text(span.text, "dim")
    double = "double" in style.line
    looks = RichStyle(
        color=style.dark,
        underline="underline" in style.line and not double,
        underline2=double,
        strike="line-through" in style.line,
        reverse=span.unknown or None,
    )
    return Text(span.text, looks)


def drafter_lines(started: Event) -> str:
    """The drafter, the target's weights, the layers that are read, the number of shared tokens."""
    settings = started.settings or {}
    drafter = DRAFTERS.get(settings.get("drafter", ""))
    drafts = drafter is not None and drafter.title and settings.get("num_draft_tokens") != 0
    lines = [f"{drafter.title}: {drafter.about}"] if drafter is not None and drafts else []
    if started.weights is not None:
        lines.append(f"The target has {started.weights}.")
    if started.head_layers:
        depth = started.target_layers or max(started.head_layers)
        bars = "".join("█" if layer in started.head_layers else "░" for layer in range(depth + 1))
        read = ", ".join(map(str, started.head_layers))
        lines.append(f"It reads the target after layers {read} of {depth}: {bars}")
    if started.vocabularies is not None:
        shared, total = started.vocabularies.get("shared", 0), started.vocabularies.get("target", 0)
        lines.append(
            f"The draft has another tokenizer with {shared:,} of the target's {total:,} tokens; the"
            " others are shown inverted."
        )
    return "\n".join(lines)
