"""What the benchmarks share: options, times, clients at the same moment, tables.

Ways of decoding are compared by `in_turn` of `naive_speculate.tools.bench.measure`, and their
speeds by `naive_speculate.tools.ratio`.
"""

import argparse
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from statistics import median
from typing import Any, NoReturn, TypeVar

from rich.console import Console
from rich.table import Column, Table

from naive_speculate.events import OUTPUT_KINDS
from naive_speculate.serving import Engine, Request, Unavailable
from naive_speculate.tools.arguments import Parser, number, positive, print_for_people
from ui.host.measuring import machine_name

T = TypeVar("T")
Fields = Mapping[str, Any]  # of an event


def options_of(
    doc: str | None,
    argv: Sequence[str] | None = None,
    choices: Mapping[str, Collection[str]] | None = None,
    **defaults: Any,
) -> argparse.Namespace:
    """The command line, described by the module's text: an option for each default, of its type.

    A list takes one value or more, False is a switch, None a text. A type is a required argument.
    Bad input ends the program with status 2 and one line.
    """
    parser = Parser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in defaults.items():
        if isinstance(default, type):
            parser.add_argument(name, type=default)
            continue
        look: dict[str, Any] = {"default": default}
        one = default[0] if isinstance(default, list) and default else default
        if default is False:
            look["action"] = "store_true"
        else:
            kinds = {int: positive, float: number, type(Path()): Path}
            look["type"] = kinds.get(type(one), str)
            look["choices"] = (choices or {}).get(name)
            look["nargs"] = "+" if isinstance(default, list) else None
        parser.add_argument("--" + name.replace("_", "-"), **look)
    return parser.parse_args(argv)


def run_command(main: Callable[[], int | None]) -> NoReturn:
    """Run a script; bad input ends it with status 2 and one line."""
    try:
        sys.exit(main())
    except (ValueError, OSError) as error:
        print(f"{Path(sys.argv[0]).stem}: {' '.join(str(error).split())}", file=sys.stderr)
        sys.exit(2)


def seconds(
    work: Callable[[], Any], repeats: int, of: Callable[[list[float]], float] = median
) -> float:
    """The median time of some calls, or another one `of` them."""
    times = []
    for _ in range(repeats):
        began = time.perf_counter()
        work()
        times.append(time.perf_counter() - began)
    return of(times)


@dataclass
class Answer:
    """What one client got."""

    text: str = ""
    tokens: int = 0
    events: int = 0
    first_token: float | None = None  # seconds
    seconds: float = 0.0
    ended: str | None = None  # by the `finish_reason`; None: it was lost


def follow(
    batches: Iterable[Iterable[Fields]], began: Callable[[], object] = lambda: None
) -> Answer:
    """Read a run's events to their end; `began` is called at its first token."""
    answer, start = Answer(), time.perf_counter()
    try:
        for event in (event for events in batches for event in events):
            answer.events += 1
            if event["kind"] in OUTPUT_KINDS:
                if answer.first_token is None:
                    answer.first_token = time.perf_counter() - start
                    began()
                answer.text += event["text"] or ""
                answer.tokens += 1
            if event["kind"] == "finished":
                answer.ended = event["finish_reason"]
    except (OSError, Unavailable):
        answer.ended = None
    answer.seconds = time.perf_counter() - start
    return answer


def from_engine(engine: Engine, request: Request) -> Iterator[list[Fields]]:
    """The events of a request, for `follow`."""
    names = ("kind", "text", "finish_reason")
    for events in engine.submit(request):
        yield [{name: getattr(event, name) for name in names} for event in events]


def together(
    clients: int, one: Callable[[int], T], meanwhile: Callable[[], object] = lambda: None
) -> tuple[list[T], float]:
    """What all clients get, who begin at the same moment, and the seconds until the last of them
    has it; `meanwhile` is called once they have begun."""
    gate = threading.Barrier(clients + 1)

    def gated(client: int) -> T:
        gate.wait()
        return one(client)

    with ThreadPoolExecutor(clients) as pool:
        futures = [pool.submit(gated, client) for client in range(clients)]
        gate.wait()
        began = time.perf_counter()
        meanwhile()
        answers = [future.result() for future in futures]
    return answers, time.perf_counter() - began


def first_tokens(answers: Sequence[Answer]) -> tuple[float, float] | None:
    """Median and 95th percentile of the seconds until the first token."""
    times = sorted(one.first_token for one in answers if one.first_token is not None)
    return (median(times), times[min(len(times) - 1, int(0.95 * len(times)))]) if times else None


def here() -> str:
    """The machine and the date."""
    return f"{machine_name('cpu')}, {date.today():%d %B %Y}"


def numbers(*headings: str) -> list[Column]:
    """Columns of numbers."""
    return [Column(heading, justify="right") for heading in headings]


def output(width: int) -> Console:
    """The terminal, or lines of this width if the output is a file."""
    print_for_people()
    console = Console()
    return console if console.is_terminal else Console(width=width)


def show(table: Table, width: int, path: Path | None) -> None:
    """Print a table, and save it in a file if there is a path."""
    output(width).print(table)
    if path is not None:
        with path.open("w", encoding="utf-8") as file:
            Console(file=file, width=width).print(table)
