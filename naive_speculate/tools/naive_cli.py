"""The command of `naive.py`: prints a line per step in the palette's colours, and a summary."""

import sys
from collections.abc import Iterable, Sequence

from rich.console import Console
from rich.text import Text
from transformers.utils import logging

from naive_speculate.models import load_pair
from naive_speculate.naive import speculative_decode
from naive_speculate.sampling.random_source import SeededRandom, fresh_seed
from naive_speculate.speculate.naive_step import StepTokens
from naive_speculate.text import Vocabulary, check_unicode, visible
from naive_speculate.tools.arguments import (
    Parser,
    adder,
    as_typed,
    number,
    positive,
    print_for_people,
    whole_number,
)
from naive_speculate.tools.show.spans import Span, legend
from naive_speculate.tools.show.terminal import to_rich


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns the exit status, and exits with 2 for bad input."""
    print_for_people()
    parser = _parser()
    args = parser.parse_args(arguments)
    if args.target is not None and args.draft is None:
        parser.error("--target needs --draft")
    if args.seed is not None and args.seed < 0:
        parser.error(f"--seed must not be negative, got {args.seed}")
    logging.disable_progress_bar()
    logging.set_verbosity_error()
    try:
        check_unicode("prompt", args.prompt)
        pair = load_pair(args.target, args.draft)
        vocabulary = Vocabulary(pair.tokenizer)
        seed = fresh_seed() if args.seed is None else args.seed
        random = SeededRandom(seed, device=getattr(pair.target, "device", "cpu"))
        steps = speculative_decode(
            pair,
            vocabulary.encode(args.prompt),
            num_draft_tokens=args.num_draft_tokens,
            max_new_tokens=args.max_new_tokens,
            temperature=args.temperature,
            random=random,
        )
        _print_run(vocabulary, steps)
    except ValueError as error:
        parser.error(as_typed(str(error), arguments or sys.argv[1:]))
    return 0


def _parser() -> Parser:
    parser = Parser(
        prog="naive_speculate.naive", description="Speculative decoding, one line per step."
    )
    add = adder(parser)
    add("prompt PROMPT")
    add("--target M", "Hub id, local folder or GGUF file (default: the bundled pair)")
    add("--draft M", "the same, with the target's tokenizer")
    add("--num-draft-tokens K", "0 is plain decoding", whole_number, 5)
    add("--max-new-tokens N", "", positive, 64)
    add("--temperature T", "0 is greedy", number, 0.0)
    add("--seed S", "repeats a run (default: a fresh one)", whole_number)
    return parser


def _print_run(vocabulary: Vocabulary, steps: Iterable[StepTokens]) -> None:
    console = Console(highlight=False, soft_wrap=True)
    finished: list[StepTokens] = []
    for step in steps:
        if not finished:
            console.print(Text("  ").join(map(to_rich, legend())))
        finished.append(step)
        line = Text(f"{len(finished):4}")
        for kind, token in step.tokens():
            span = Span(kind, visible(vocabulary.text_of(token)))
            line.append(f"  {span.style.mark} ").append(to_rich(span))
        console.print(line)
    token_ids = [token for step in finished for token in step.token_ids]
    accepted = sum(step.num_accepted for step in finished)
    judged = sum(step.num_judged for step in finished)
    console.print(Text("\n" + "".join(vocabulary.texts(token_ids)) + "\n"))
    per_pass = len(token_ids) / len(finished)
    alpha = f", α = {accepted / judged:.2f}" if judged else ""
    console.print(
        f"{len(token_ids)} tokens in {len(finished)} target passes: {per_pass:.2f} tokens per pass"
        + alpha
    )
