"""Records the run that visitors meet first: `python -m ui.run.record`, again whenever the bundled pair changes."""

import argparse
import threading
from dataclasses import replace

from naive_speculate.events.trace import Trace
from ui.host.catalog import Catalog, load_catalog
from ui.host.configuration import Configuration, PairChoice
from ui.run.recorded import FOLDER, PLAIN, SPECULATIVE, START
from ui.run.settings import Settings


def main() -> None:
    """Record the run, and one of plain decoding with the same settings to compare it with."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=START.seed, help="seed of both runs (%(default)s)")
    parser.add_argument("--heats", type=int, default=7, help="runs of each kind, of which the fastest is kept (%(default)s)")
    parser.add_argument("--target", help="target model; the bundled pair without it")
    parser.add_argument("--draft", help="draft model")
    args = parser.parse_args()
    catalog = load_catalog(Configuration((PairChoice("recorded", args.target, args.draft),), device="cpu"))
    settings = replace(START, seed=args.seed)
    FOLDER.mkdir(exist_ok=True)
    for path, trace in zip((SPECULATIVE, PLAIN), record(catalog, settings, args.heats), strict=True):
        trace.save(path)
        m = trace.metrics
        print(f"{path.name}: {len(trace)} events, {m.num_generated_tokens} tokens, {m.tokens_per_second:.1f} tokens/s")
        print(trace.text)


def record(catalog: Catalog, settings: Settings, heats: int) -> tuple[Trace, Trace]:
    """The run and its plain counterpart, each the one that the machine's other work disturbed least.

    A seed makes all runs of a kind alike but for their times, so the fastest of several, made in turn, tells best what
    the decoder takes. The run's end carries the speedup, measured as after a visitor's run, when the
    machine was quietest.
    """
    fastest: dict[int, Trace] = {}
    for _ in range(heats):
        for k in (settings.num_draft_tokens, 0):
            trace = Trace(catalog.stream("", replace(settings, num_draft_tokens=k).request(), threading.Event()))
            if k not in fastest or _seconds(trace) < _seconds(fastest[k]):
                fastest[k] = trace
    measured = [catalog.measure("", settings.request()) for _ in range(heats)]
    fastest[settings.num_draft_tokens][-1].speedup = min(measured, key=lambda found: found.high / found.low)
    plain = Trace(replace(event, target_top=None) for event in fastest[0])  # only its times are wanted
    return fastest[settings.num_draft_tokens], plain


def _seconds(trace: Trace) -> float:
    return max(event.time for event in trace)


if __name__ == "__main__":
    main()
