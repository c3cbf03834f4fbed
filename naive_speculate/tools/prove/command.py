"""The command `python -m naive_speculate prove`: of a part of this project by name, or of a
server by its endpoint."""

import argparse
import json
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from pydantic_core import to_json
from rich.console import Console

from naive_speculate.tools.arguments import (
    Parser,
    adder,
    lines_of_file,
    parsed,
    positive,
    positive_number,
    print_json,
)
from naive_speculate.tools.prove.plan import PROMPTS
from naive_speculate.tools.prove.server import Server
from naive_speculate.tools.tables import Output, progress_bar

_temperatures = parsed(
    lambda text: tuple(dict.fromkeys(float(part) for part in text.split(","))),
    "numbers above 0 with commas between them",
    lambda values: all(0 < value <= 10 for value in values),
)
_share = parsed(float, "a number from 0.01 and below 1", lambda number: 0.01 <= number < 1)
_headers = parsed(
    lambda text: tuple(part.strip() for part in text.split(":", 1)),
    "NAME: VALUE",
    lambda parts: len(parts) == 2 and bool(parts[0]),
)
_fields = parsed(
    json.loads, 'a JSON object such as {"top_k": 0}', lambda value: isinstance(value, dict)
)


_MERGES = (
    "merges tokens of one text into one entry of top_logprobs, so that their probabilities are not"
    " known: give a local copy of the model with --reference FOLDER"
)


def _parser() -> Parser:
    parser = Parser(
        prog="naive_speculate prove",
        description=(
            "Prove that a verifier, drafter or rejection sampler is lossless, or test that a"
            " server is."
        ),
        epilog=(
            "Exit status: 0 if lossless, or if no difference was found; 1 otherwise; 2 for bad"
            " input; 3 if a server's test stopped before it was decided."
        ),
    )
    what = "what can be imported, such as my_drafter:MyDrafter; or a registered name"
    parser.add_argument("name", metavar="MODULE:NAME", nargs="?", help=what)
    add = adder(parser.add_argument_group("a server"))
    _add_tests(add)
    _add_requests(add)
    return parser


def _add_tests(add: Callable[..., Any]) -> None:
    add("--endpoint URL", "an OpenAI-compatible server, such as http://127.0.0.1:8000/v1")
    add("--model M", "the model's name on the server")
    add(
        "--reference FOLDER", "a local copy of the model (default: trust the server's own logprobs)"
    )
    add("--prompts FILE", "one prompt per line (default: four)", lines_of_file, PROMPTS)
    help = "with commas between them (default: 1,0.6)"
    add("--temperatures T,T…", help, _temperatures, (1.0, 0.6))
    help = (
        "the smallest bias worth finding, as total variation; decides the number of samples"
        " (default: %(default)s)"
    )
    add("--bias B", help, _share, 0.1)
    add("--samples N", "samples per prompt and temperature, instead of --bias", positive)


def _add_requests(add: Callable[..., Any]) -> None:
    add("--concurrency N", "requests at once", positive, 8)
    add("--greedy-tokens N", "length of the greedy texts", positive, 32)
    add("--max-requests N", "requests of this run", positive, 20_000)
    add("--max-seconds S", "seconds of this run", positive_number, 3600.0)
    add("--work FILE", "record the answers here, and continue from it", Path)
    add("--body JSON", 'fields for every request, such as {"top_k": 0}', _fields, {})
    add("--header NAME:VALUE", "for every request; repeatable", _headers, [], action="append")
    add("--seed N", "of the requests' seeds", positive, 1)
    add("--json", "print the result as a JSON object, and nothing else", action="store_true")


def main(arguments: Sequence[str] | None = None) -> int:
    """Raises `ValueError` if an input is bad, or the server cannot be tested; `OSError` if a file
    cannot be read or written."""
    parser = _parser()
    args = parser.parse_args(arguments)
    if (args.name is None) == (args.endpoint is None):
        parser.error("give MODULE:NAME, or --endpoint URL with --model M")
    if args.name is not None:
        from naive_speculate.tools.proofs.proof import prove

        proof = prove(args.name)
        print(proof)
        return 0 if proof.lossless else 1
    if args.model is None:
        parser.error("--endpoint needs --model M, the model's name on the server")
    headers = dict(args.header)
    with closing(Server(args.endpoint, args.model, args.body, headers, args.max_seconds)) as server:
        return _prove_server(server, args)


def _prove_server(server: Server, args: argparse.Namespace) -> int:
    from naive_speculate.tools.goodness import samples_needed
    from naive_speculate.tools.prove.evidence import ERROR_RATE, Evidence, states_raw
    from naive_speculate.tools.prove.plan import LENGTH, POSITIONS, Budget, Record, Settings, send
    from naive_speculate.tools.prove.reference import Reference
    from naive_speculate.tools.prove.report import Report
    from naive_speculate.tools.prove.stated import fetch

    prompts = args.prompts
    first = server.adapt(prompts[0])
    if not first.top and args.reference is None:
        raise ValueError(
            f"{server.url} reports no logprobs: give a local copy of the model with --reference"
            " FOLDER"
        )
    if first.top and server.merges(prompts[0]):
        if args.reference is None:
            raise ValueError(f"{server.url} {_MERGES}")
        server.text_only = True
    reference = None if args.reference is None else Reference(args.reference)
    num_tests = len(prompts) * len(args.temperatures) * POSITIONS + 3
    samples = args.samples or samples_needed(args.bias, server.num_top, ERROR_RATE / num_tests)
    raw = (
        reference is None and any(t != 1 for t in args.temperatures) and states_raw(server, prompts)
    )
    n = server.completions_per_request(prompts[0])
    length = LENGTH if first.tokens and not server.text_only else POSITIONS
    shape = (args.temperatures, samples, args.concurrency, n, args.greedy_tokens, args.seed, length)
    settings = Settings(args.endpoint, args.model, server.fields, tuple(prompts), *shape)
    record = Record(args.work, settings)
    with progress_bar(Console(stderr=True), transient=True, disable=args.json) as progress:
        budget = Budget(args.max_requests, args.max_seconds)
        server.deadline = budget.deadline
        send(server, settings, record, budget, progress)
        if reference is None:
            fetch(server, settings, record, raw, budget)
    evidence = Evidence(settings, record, reference, raw, server.num_top)
    own = "its own logprobs" + " (stated before temperature)" * raw
    report = Report(
        evidence, own if reference is None else f"the copy in {args.reference}", budget.cost
    )
    if evidence.merged and not any(finding.fit.degrees for finding in report.findings):
        raise ValueError(f"{server.url} {_MERGES}")
    if args.json:
        print_json(to_json(report.to_dict(), inf_nan_mode="null").decode())
    else:
        report.show(Output())
    return int(report.status)
