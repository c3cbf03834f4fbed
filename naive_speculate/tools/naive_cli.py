"""What stands around the loop of `naive.py`: its steps and arguments, and its command, which prints
a line per step in the palette's colours, and a summary."""

import math
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from rich.console import Console
from rich.text import Text
from transformers.utils import logging

from naive_speculate.events import EventKind
from naive_speculate.infer.plain import as_batch_model
from naive_speculate.models import ModelPair, load_pair
from naive_speculate.sampling.params import check_unicode
from naive_speculate.sampling.random_source import SeededRandom, fresh_seed
from naive_speculate.text import Vocabulary, visible
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


@dataclass(frozen=True)
class StepTokens:
    """What one step did: x₁ … x_γ, n, and the emitted tokens, x₁ … x_n and t; without t where the
    text ends before it."""

    draft_token_ids: list[int]
    num_accepted: int
    token_ids: list[int]

    @property
    def num_judged(self) -> int:
        """The number of accepted and rejected draft tokens; those after a rejection are
        discarded."""
        return min(self.num_accepted + 1, len(self.draft_token_ids))

    def tokens(self) -> list[tuple[EventKind, int]]:
        """The step's tokens in order, each with its kind."""
        n, gamma = self.num_accepted, len(self.draft_token_ids)
        kinds = [EventKind.ACCEPTED] * n + [EventKind.REJECTED] + [EventKind.DISCARDED] * gamma
        own = EventKind.BONUS if n == gamma else EventKind.RESAMPLED
        drafts = list(zip(kinds, self.draft_token_ids, strict=False))
        return drafts + [(own, t) for t in self.token_ids[n:]]


Decode = Callable[..., Iterable[StepTokens]]  # `naive.speculative_decode`


def run_command(decode: Decode, arguments: Sequence[str] | None = None) -> int:
    """Run the command, which prints the steps of `decode`; returns the exit status, and exits
    with 2 for bad input."""
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
        random = SeededRandom(
            fresh_seed() if args.seed is None else args.seed,
            device=getattr(pair.target, "device", "cpu"),
        )
        steps = decode(
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


def check_arguments(
    pair: ModelPair,
    prompt: Sequence[int],
    num_draft_tokens: int,
    max_new_tokens: int,
    temperature: float,
) -> None:
    """Raise a `ValueError` that names the argument, for what `speculative_decode` cannot do."""
    if pair.draft is None:
        raise ValueError("pair has no draft model")
    if pair.translation is not None:
        raise ValueError("pair has a draft model with another tokenizer than the target's")
    if not prompt:
        raise ValueError("prompt_token_ids is empty")
    if outside := [token for token in prompt if not 0 <= token < pair.vocab_size]:
        raise ValueError(
            f"prompt_token_ids holds {outside[0]}, outside the vocabulary of {pair.vocab_size}"
        )
    if num_draft_tokens < 0:
        raise ValueError(f"num_draft_tokens must not be negative, got {num_draft_tokens}")
    if max_new_tokens < 1:
        raise ValueError(f"max_new_tokens must be positive, got {max_new_tokens}")
    if not (
        temperature == 0 or 0.001 <= temperature < math.inf
    ):  # logits divided by less could overflow
        raise ValueError(f"temperature must be 0 or at least 0.001, got {temperature}")
    length = len(prompt) + max_new_tokens
    for model in (pair.target, pair.draft):
        positions = as_batch_model(model).max_positions
        if positions is not None and length > positions:
            raise ValueError(
                f"max_new_tokens is {max_new_tokens}: prompt and output may take {positions}"
                f" tokens, not {length}"
            )


def _print_run(vocabulary: Vocabulary, steps: Iterable[StepTokens]) -> None:
    """Print a line per step, then the text and a summary."""
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
