"""A run in the terminal: tokens in the palette's colours, as they come, with a legend and the figures at the end."""

from collections.abc import Mapping, Sequence

from rich.console import Console
from rich.style import Style as RichStyle
from rich.table import Table
from rich.text import Text

from naive_speculate.events import OUTPUT_KINDS, Event, EventKind, Logprob
from naive_speculate.palette import STYLES

_SHOWN = (EventKind.ACCEPTED, EventKind.REJECTED, EventKind.RESAMPLED, EventKind.BONUS)
MAX_ALTERNATIVES = 20
"""Of a token's most probable alternatives, so many are printed."""


class _Console(Console):
    def on_broken_pipe(self) -> None:
        """Raise the error that is being handled; rich would end the program without a word."""
        raise


class TerminalView:
    """Prints events. Where standard output is not a terminal, only the generated text, and what was asked for beside it."""

    def __init__(self, console: Console | None = None) -> None:
        self.console = console or _Console(highlight=False, soft_wrap=True)
        self._logprobs: list[Mapping[int, Logprob] | None] = []

    def show(self, event: Event) -> None:
        """Print what one event adds."""
        if not self.console.is_terminal:
            self._plain(event)
        elif event.kind == EventKind.STARTED:
            self._legend()
            if event.vocabularies is not None:
                self.console.print(Text(_shared(event.vocabularies), style="dim"), end="\n\n")
            self.console.print(Text("".join(event.prompt_texts or []), style="dim"), end="")
        elif event.kind in _SHOWN:
            self.console.print(Text(_visible(event), style=token_style(event.kind)), end="")
        elif event.kind == EventKind.FINISHED:
            self._figures(event)
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
        legend = Text()
        for kind in _SHOWN:
            legend.append(f"{STYLES[kind].mark} {STYLES[kind].label}", style=token_style(kind))
            legend.append("  ")
        self.console.print(legend, end="\n\n")

    def _figures(self, event: Event) -> None:
        metrics = event.metrics or {}
        table = Table(show_header=False, box=None, pad_edge=False)
        rows = {
            "ended by": str(event.finish_reason),
            "tokens": metrics.get("num_generated_tokens"),
            "tokens per target forward": metrics.get("mean_acceptance_length"),
            "drafts accepted": metrics.get("draft_acceptance_rate"),
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
                self.console.print()
                self.console.print(logprobs_table(title, entries))
        self._logprobs = []


def logprobs_table(title: str, entries: Sequence[Mapping[int, Logprob] | None]) -> Table:
    """Log-probabilities of tokens as a table.

    Args:
        title: What tokens they are.
        entries: For each token, its own log-probability first, then the most probable ones'; None where nothing predicts it.
    """
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
                shown.append(f"… {len(best) - len(shown)} more, which --json tells")
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


def _shared(vocabularies: Mapping[str, int]) -> str:
    shared, total = vocabularies.get("shared", 0), vocabularies.get("target", 0)
    return f"The draft has another tokenizer and knows {shared:,} of the target's {total:,} tokens."


def _visible(event: Event) -> str:
    """The token's text; a struck-through line break would break the line, so it is shown as a sign."""
    text = event.text or ""
    return text.replace("\n", "⏎") if event.kind == EventKind.REJECTED else text
