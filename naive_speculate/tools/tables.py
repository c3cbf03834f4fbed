"""Tables, progress bars and consoles of the command lines."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import zip_longest
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Column, Table


class Output(Console):
    """`width` columns wide if it is a file or a pipe. The error of a closed pipe is raised."""

    def __init__(self, width: int | None = None, **options: Any) -> None:
        super().__init__(highlight=False, **options)
        if width is not None and not self.is_terminal:
            self.width = width

    def on_broken_pipe(self) -> None:
        """rich would exit silently."""
        raise


def table(
    rows: Sequence[Mapping[str, Any]],
    left: Collection[str] = (),
    styles: Iterable[str] = (),
    **look: Any,
) -> Table:
    """Headings are the keys of the rows; columns are aligned to the right, but for those in
    `left`."""
    headings = rows[0] if rows else ()
    made = Table(
        *(
            Column(name, justify="left" if name in left else "right", no_wrap=name in left)
            for name in headings
        ),
        **look,
    )
    for row, style in zip_longest(rows, styles):
        made.add_row(*row.values(), style=style)
    return made


def progress_bar(console: Console, **options: Any) -> Progress:
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        console=console,
        **options,
    )


@contextmanager
def rounding_bar(weights: str) -> Iterator[Callable[[float], object]]:
    """A bar on the terminal while weights are rounded, for `load_pair`'s `progress`."""
    console = Console(stderr=True)
    columns = TextColumn("{task.description}"), BarColumn()
    hidden = not console.is_terminal or weights == "float32"
    with Progress(*columns, console=console, transient=True, disable=hidden) as bar:
        task = bar.add_task("rounding the weights", total=1.0, visible=False)
        yield lambda share: bar.update(task, completed=share, visible=share < 1)
