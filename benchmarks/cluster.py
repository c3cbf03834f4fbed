"""Compares replicas on Ray with this process: many clients on both, a replica killed during
runs, an update during runs.

    python -m benchmarks.cluster [--clients 100] [--replicas 2] [--tokens 96] [--rows 16]

Starts its own Ray with CPU replicas of the bundled pair, `--rows` rows each, and stops it at the
end. All clients send their requests, each with its own prompt and seed, at the same moment; each
text must equal that of a single run. Then the same again while one replica's process is killed,
and while all replicas are replaced.
"""

import os
from functools import partial

from rich.table import Table

from benchmarks.measuring import Answer, first_tokens, options_of, output
from benchmarks.replicas import APP, DRAFTS, crowd, kill_one, replicas, request_of, wait_for_all
from naive_speculate import SpeculativeDecoder, load_pair
from naive_speculate.models.threads import THREADS_VARIABLE, leave_cores_to
from naive_speculate.serving import LocalEngine
from naive_speculate.serving.ray import cluster
from naive_speculate.serving.ray.app import DecoderArgs

ROWS = (
    "events/s",
    "tokens/s",
    "first token p50",
    "first token p95",
    "texts as alone",
    "ended with an error",
    "lost",
    "retried on another replica",
)


def figures(answers: list[Answer], seconds: float, expected: list[str]) -> list[str]:
    """One column of the table."""
    median, late = first_tokens(answers) or (float("nan"), float("nan"))
    texts = zip(answers, expected, strict=True)
    whole = [(a.text, text) for a, text in texts if a.ended not in (None, "error")]
    return [
        f"{sum(answer.events for answer in answers) / seconds:.0f}",
        f"{sum(answer.tokens for answer in answers) / seconds:.0f}",
        f"{median:.2f} s",
        f"{late:.2f} s",
        f"{sum(a == b for a, b in whole)} of {len(whole)}",
        str(sum(answer.ended == "error" for answer in answers)),
        str(sum(answer.ended is None for answer in answers)),
    ]


def main() -> None:
    """Measure and print."""
    options = options_of(__doc__, clients=100, replicas=2, tokens=96, rows=16)
    clients, tokens, number = options.clients, options.tokens, options.replicas
    os.environ.setdefault(THREADS_VARIABLE, "1")  # as a replica has
    decoder = SpeculativeDecoder(load_pair(device="cpu"))
    leave_cores_to(decoder.pair.target)
    requests = [request_of(client, tokens) for client in range(clients)]
    decode = partial(decoder.generate, num_draft_tokens=DRAFTS)
    expected = [decode(str(request.prompt), request.params).text for request in requests]
    local = LocalEngine(decoder, max_rows=options.rows)
    crowd(local, 4, 16)
    columns = {"this process": [*figures(*crowd(local, clients, tokens), expected), ""]}
    local.close()
    args = DecoderArgs(
        max_rows=options.rows, min_replicas=number, max_replicas=number, drain_seconds=120
    )
    changed = args.model_copy(update={"max_prompt_tokens": 500})
    with replicas(args) as engine:
        crowd(engine, 8 * number, 16)
        for column in (f"{number} replicas", "one killed", "all replaced"):
            before = engine.retried
            meanwhile = kill_one(engine) if column == "one killed" else None
            if column == "all replaced":
                meanwhile = partial(cluster.deploy, APP, changed)
            cells = figures(*crowd(engine, clients, tokens, meanwhile), expected)
            columns[column] = [*cells, str(engine.retried - before)]
            wait_for_all(args)
    rows = f"{options.rows} rows per replica"
    title = f"{clients} clients at once, {tokens} tokens each, {rows}, k = {DRAFTS}"
    table = Table("", *columns, title=title)
    for row in zip(ROWS, *columns.values(), strict=True):
        table.add_row(*row)
    output(100).print(table)


if __name__ == "__main__":
    main()
