"""Records the run that visitors meet first: `python -m ui.record`, again whenever the bundled pair changes."""

import argparse
import threading
from dataclasses import replace

from naive_speculate.trace import Trace
from ui.host import Offer, offer
from ui.recorded import FOLDER, PLAIN, SPECULATIVE, START
from ui.settings import Settings


def main() -> None:
    """Record the run, and one of plain decoding with the same settings to compare it with."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=START.seed, help="seed of both runs (%(default)s)")
    parser.add_argument("--target", help="target model; the bundled pair without it")
    parser.add_argument("--draft", help="draft model")
    args = parser.parse_args()
    chosen = offer(args.target, args.draft, device="cpu")
    settings = replace(START, seed=args.seed)
    FOLDER.mkdir(exist_ok=True)
    for path, k in ((SPECULATIVE, settings.num_draft_tokens), (PLAIN, 0)):
        trace = record(chosen, replace(settings, num_draft_tokens=k))
        if k == 0:  # only its times are wanted
            trace = Trace(replace(event, target_top=None) for event in trace)
        trace.save(path)
        m = trace.metrics
        print(f"{path.name}: {len(trace)} events, {m.num_generated_tokens} tokens, {m.tokens_per_second:.1f} tokens/s")
        print(trace.text)


def record(chosen: Offer, settings: Settings) -> Trace:
    """One run, after one that warms up."""
    for _ in range(2):
        trace = Trace(chosen.stream(settings, threading.Event()))
    return trace


if __name__ == "__main__":
    main()
