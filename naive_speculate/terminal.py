"""A run in the terminal: tokens in the palette's colours, as they come, with a legend and the figures at the end."""

import math
from collections.abc import Mapping, Sequence

from rich.console import Console
from rich.style import Style as RichStyle
from rich.table import Table
from rich.text import Text

from naive_speculate.events import OUTPUT_KINDS, Event, EventKind, Logprob
from naive_speculate.events.expected import expected_acceptance
from naive_speculate.palette import STYLES
from naive_speculate.speculate.draft import DRAFTERS

_SHOWN = (EventKind.ACCEPTED, EventKind.REJECTED, EventKind.RESAMPLED, EventKind.BONUS)
_COUNTED = (EventKind.STARTED, EventKind.PROPOSED, EventKind.STEP)
_UNKNOWN = RichStyle(reverse=True)
MAX_ALTERNATIVES = 20
"""Of a token's most probable alternatives, so many are printed."""
LEAST_REST = 0.0005
"""If the other tokens together have a larger probability, it is printed as well."""


class _Console(Console):
    def on_broken_pipe(self) -> None:
        """Raise the error that is being handled; rich would end the program without a word."""
        raise


class TerminalView:
    """Prints events. Where standard output is not a terminal, only the generated text, and what was asked for beside it."""

    def __init__(self, console: Console | None = None) -> None:
        self.console = console or _Console(highlight=False, soft_wrap=True)
        self._logprobs: list[Mapping[int, Logprob] | None] = []
        self._copies = Copies()
        self._counted: list[Event] = []

    def show(self, event: Event) -> None:
        """Print what one event adds."""
        if not self.console.is_terminal:
            self._plain(event)
        elif event.kind == EventKind.STARTED:
            self._legend()
            self._copies = Copies(event.prompt_texts or [])
            if drafter := drafter_lines(event):
                self.console.print(Text(drafter, style="dim"), end="\n\n")
            self.console.print(Text("".join(event.prompt_texts or []), style="dim"), end="")
        elif event.kind in _SHOWN:
            unknown = _UNKNOWN if event.unknown_to_draft else RichStyle()
            self.console.print(Text(_visible(event), style=token_style(event.kind) + unknown), end="")
        elif event.kind == EventKind.FINISHED:
            self._figures(event)
            if copied := self._copies.text():
                self.console.print("\nWhere the kept drafts were copied from is underlined:")
                self.console.print(copied)
        self._copies.add(event)
        if event.kind in _COUNTED:
            self._counted.append(event)
        if event.kind in OUTPUT_KINDS and event.logprobs is not None:
            self._logprobs.append(event.logprobs)
        elif event.kind == EventKind.FINISHED:
            self._tables(event)

    def _plain(self, event: Event) -> None:
        if event.kind in OUTPUT_KINDS:
            self.console.file.write(event.text or "")
        elif event.kind == EventKind.FINISHED:
            self.console.file.write("\n")
        self.console.file.flush()

    def _legend(self) -> None:
        legend = (Text(f"{STYLES[kind].mark} {STYLES[kind].label}", style=token_style(kind)) for kind in _SHOWN)
        self.console.print(Text("  ").join(legend), end="\n\n")

    def _figures(self, event: Event) -> None:
        metrics = event.metrics or {}
        table = Table(show_header=False, box=None, pad_edge=False)
        rows = {
            "ended by": str(event.finish_reason),
            "tokens": metrics.get("num_generated_tokens"),
            "tokens per target forward": metrics.get("mean_acceptance_length"),
            "drafts accepted": metrics.get("draft_acceptance_rate"),
            "luck and skill": expected_acceptance(self._counted),
            "tokens per second": metrics.get("tokens_per_second"),
        }
        for name, value in rows.items():
            if value is not None:
                table.add_row(Text(name, style="dim"), f"{value:.2f}" if isinstance(value, float) else str(value))
        self.console.print("\n")
        self.console.print(table)
        if event.message:
            self.console.print(Text(event.message))

    def _tables(self, event: Event) -> None:
        for title, entries in (("prompt", event.prompt_logprobs), ("output", self._logprobs)):
            if entries:
                self.console.print("", logprobs_table(title, entries), sep="\n")
        self._logprobs = []


def logprobs_table(title: str, entries: Sequence[Mapping[int, Logprob] | None]) -> Table:
    """A table of log-probabilities: each token's own first, then the most probable ones'; None where nothing predicts it."""
    table = Table(title=f"Log-probabilities: {title}", title_justify="left", box=None, pad_edge=False)
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
            table.add_row(Text(repr(own.token)), f"{own.logprob:.4f}", str(own.rank), Text("  ".join(shown)))
    return table


def token_style(kind: EventKind) -> RichStyle:
    """The palette's style for a terminal; the light colours are dark enough for light grounds, so the dark ones are used on
    the terminal's own, which is dark far more often; underline and strike tell the kinds apart without colour."""
    style = STYLES[kind]
    double = "double" in style.line
    return RichStyle(
        color=style.dark,
        underline="underline" in style.line and not double,
        underline2=double,
        strike="line-through" in style.line,
    )


class Copies:
    """Prompt and output of a run, and which of their tokens were copied into drafts that were kept."""

    def __init__(self, texts: Sequence[str] = ()) -> None:
        self._texts = list(texts)
        self._drafted: dict[tuple[int | None, int | None], int] = {}
        self._sources: set[int] = set()

    def add(self, event: Event) -> None:
        """Take in the run's next event."""
        if event.kind == EventKind.PROPOSED and event.copied_from is not None:
            self._drafted[event.step, event.index] = event.copied_from
        elif event.kind in OUTPUT_KINDS:
            self._texts.append(event.text or "")
            if event.kind == EventKind.ACCEPTED and (source := self._drafted.get((event.step, event.index))) is not None:
                self._sources.add(source)

    def text(self) -> Text | None:
        """The text with its copied tokens underlined; None where none was."""
        if not self._sources:
            return None
        pieces = ((text, "underline" if place in self._sources else "dim") for place, text in enumerate(self._texts))
        return Text.assemble(*pieces)


def drafter_lines(started: Event) -> str:
    """What there is to say of a run's models: what drafts, which weights the target has, which layers are read, how
    many tokens are shared."""
    settings = started.settings or {}
    drafter = DRAFTERS.get(settings.get("drafter", "")) if settings.get("num_draft_tokens") != 0 else None
    lines = [f"{drafter.title}: {drafter.about}"] if drafter is not None and drafter.title else []
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
            f"The draft has another tokenizer and knows {shared:,} of the target's {total:,} tokens; the others stand inverted."
        )
    return "\n".join(lines)


def _visible(event: Event) -> str:
    """The token's text; a struck-through line break would break the line, so it is shown as a sign."""
    text = event.text or ""
    return text.replace("\n", "⏎") if event.kind == EventKind.REJECTED else text
