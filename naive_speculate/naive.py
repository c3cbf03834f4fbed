"""Speculative decoding in one file: Algorithm 1 of Leviathan et al. 2023 (arXiv 2211.17192),
repeated until the text ends.

Chen et al. 2023 (arXiv 2302.01318, Algorithm 2) found the same method. A small draft model
samples γ tokens, one by one. The target model scores all of them in one forward, which takes
little longer than a forward over one token. Then the draft tokens are accepted or rejected such
that the text has exactly the target's distribution.

Names are Leviathan's: p is the target's distribution, q the draft's, x₁ … x_γ are the draft
tokens, n of them are accepted, and t is the target's own token after them. `SpeculativeDecoder`
does the same for batches, with all parameters and with events.

    python -m naive_speculate.naive "Once upon a time"
"""

import math
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from rich.console import Console
from rich.text import Text
from transformers.utils import logging

from naive_speculate.arguments import (
    Parser,
    as_typed,
    number,
    positive,
    print_for_people,
    whole_number,
)
from naive_speculate.events import EventKind
from naive_speculate.infer import BasicInferencer, KVCache, new_cache
from naive_speculate.infer.inferencer import eos_token_ids
from naive_speculate.models import ModelPair, load_pair
from naive_speculate.palette import STYLES
from naive_speculate.sampling.params import check_unicode
from naive_speculate.sampling.pipeline import in_float
from naive_speculate.sampling.random_source import RandomSource, SeededRandom, fresh_seed
from naive_speculate.speculate.drafter import Drafter
from naive_speculate.speculate.utils import greedy_match, speculative_sampling
from naive_speculate.terminal import token_style
from naive_speculate.text import Vocabulary, visible


@dataclass(frozen=True)
class Step:
    """What one step did.

    Attributes:
        draft_token_ids: x₁ … x_γ.
        num_accepted: n, from 0 to γ. The draft token after them was rejected, and those after
            that were discarded.
        token_ids: The emitted tokens: x₁ … x_n and t; without t where the text ends before it.
    """

    draft_token_ids: list[int]
    num_accepted: int
    token_ids: list[int]

    @property
    def num_judged(self) -> int:
        """The number of accepted and rejected draft tokens."""
        return min(self.num_accepted + 1, len(self.draft_token_ids))

    def tokens(self) -> list[tuple[EventKind, int]]:
        """The step's tokens in order, each with what happened to it."""
        n, gamma = self.num_accepted, len(self.draft_token_ids)
        kinds = [EventKind.ACCEPTED] * n + [EventKind.REJECTED] + [EventKind.DISCARDED] * gamma
        own = EventKind.BONUS if n == gamma else EventKind.RESAMPLED
        return [
            *zip(kinds, self.draft_token_ids, strict=False),
            *((own, t) for t in self.token_ids[n:]),
        ]


@dataclass(frozen=True)
class Sampler:
    """Turns logits into distributions and draws from them; the `TokenSampler` of the `Drafter`.

    Attributes:
        temperature: Divides the logits.
        random: The source of all draws.
        end_token_ids: The target's end-of-sequence tokens. Drafting stops after one.
        vocab_size: The number of tokens. Logits after these are padding.
    """

    temperature: float
    random: RandomSource
    end_token_ids: Sequence[int]
    vocab_size: int

    def probs(self, logits: torch.Tensor) -> torch.Tensor:
        """softmax(logits / T). At T = 0 that is its limit: probability 1 for the most probable
        token.

        Args:
            logits: Shape `[..., vocab_size or more]`.

        Returns:
            torch.Tensor: Shape `[..., vocab_size]`, float32, or float64 if the logits are.
        """
        logits = in_float(logits[..., : self.vocab_size])
        if self.temperature == 0:
            return torch.zeros_like(logits).scatter_(-1, logits.argmax(dim=-1, keepdim=True), 1.0)
        return torch.softmax(logits / self.temperature, dim=-1)

    def sample(self, logits: torch.Tensor) -> torch.Tensor:
        """See `TokenSampler.sample`."""
        return torch.stack([self.random.categorical(row) for row in self.probs(logits)])

    def is_done(self, token_ids: torch.Tensor) -> bool:
        """See `TokenSampler.is_done`."""
        return all(token in self.end_token_ids for token in token_ids.tolist())


def speculative_decode(
    pair: ModelPair,
    prompt_token_ids: Sequence[int],
    *,
    num_draft_tokens: int = 5,
    max_new_tokens: int = 64,
    temperature: float = 0.0,
    random: RandomSource | None = None,
) -> Iterator[Step]:
    """Decode one sequence and yield each step as soon as it is done.

    Args:
        pair: A target and a draft model with the same tokenizer.
        prompt_token_ids: The text so far, at least one token.
        num_draft_tokens: γ, positive.
        max_new_tokens: Limit on emitted tokens, positive. An end-of-sequence token ends the text
            earlier and is emitted.
        temperature: 0 decodes greedily: the emitted tokens are the target's most probable ones.
        random: The source of all draws; None for one with a fresh seed.

    Raises:
        ValueError: Naming the argument, with the first step.
    """
    _check(pair, prompt_token_ids, num_draft_tokens, max_new_tokens, temperature)
    assert pair.drafting is not None
    device = getattr(pair.target, "device", torch.device("cpu"))
    random = random or SeededRandom(fresh_seed(), device=device)
    end_token_ids = eos_token_ids(pair.target)
    sampler = Sampler(temperature, random, end_token_ids, pair.vocab_size)
    drafter = Drafter(BasicInferencer(pair.drafting))
    draft_cache, target_cache = new_cache(pair.drafting), new_cache(pair.target)
    tokens = list(prompt_token_ids)
    max_length = len(tokens) + max_new_tokens

    done = False
    while not done:
        # 1. Draft. The draft model samples x₁ … x_γ from q₁ … q_γ. Near the length limit, γ is
        # smaller.
        gamma = min(num_draft_tokens, max_length - len(tokens))
        draft = drafter.draft(_lacking(tokens, draft_cache, device), draft_cache, gamma, sampler)
        x, q = draft.token_ids[0], sampler.probs(draft.token_logits[0])

        # 2. Score. One forward of the target over x₁ … x_γ gives p₁ … p_{γ+1}.
        logits = pair.target.forward(
            _lacking(tokens + x.tolist(), target_cache, device), target_cache
        )
        p = sampler.probs(logits[0, -len(x) - 1 :])

        # 3. Verify. Accept x₁ … x_n. After a rejection t ~ norm(max(0, p_{n+1} − q_{n+1})),
        # otherwise t ~ p_{γ+1}.
        n, t = greedy_match(p, x) if temperature == 0 else speculative_sampling(p, q, x, random)

        # 4. Roll back. Both caches forget the tokens after x_n. After γ accepted tokens, the
        # draft's cache lacks x_γ.
        for kv_cache in (draft_cache, target_cache):
            kv_cache.crop(max(0, kv_cache.get_num_tokens() - len(tokens) - int(n)))

        # 5. Emit. x₁ … x_n and t join the text, up to an end token or the length limit.
        emitted = []
        for token in [*x[:n].tolist(), int(t)]:
            emitted.append(token)
            done = token in end_token_ids or len(tokens) + len(emitted) == max_length
            if done:
                break
        tokens += emitted
        yield Step(x.tolist(), int(n), emitted)


def _lacking(token_ids: list[int], kv_cache: KVCache, device: torch.device) -> torch.Tensor:
    """The tokens that a cache lacks, shape `[1, num_lacking]`: the prompt in the first step,
    later the last one or two."""
    return torch.tensor([token_ids[kv_cache.get_num_tokens() :]], device=device)


def _check(
    pair: ModelPair,
    prompt: Sequence[int],
    num_draft_tokens: int,
    max_new_tokens: int,
    temperature: float,
) -> None:
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
    for name, value in (("num_draft_tokens", num_draft_tokens), ("max_new_tokens", max_new_tokens)):
        if value < 1:
            raise ValueError(f"{name} must be positive, got {value}")
    if not (
        temperature == 0 or 0.001 <= temperature < math.inf
    ):  # logits divided by less could overflow
        raise ValueError(f"temperature must be 0 or at least 0.001, got {temperature}")
    length = len(prompt) + max_new_tokens
    for model in (pair.target, pair.draft):
        positions = getattr(model, "max_positions", None)
        if positions is not None and length > positions:
            raise ValueError(
                f"max_new_tokens is {max_new_tokens}: prompt and output may take {positions}"
                f" tokens, not {length}"
            )


def _print_run(vocabulary: Vocabulary, steps: Iterator[Step]) -> None:
    """Print a line per step, then the text and a summary."""
    console = Console(highlight=False, soft_wrap=True)
    shown = (
        EventKind.ACCEPTED,
        EventKind.REJECTED,
        EventKind.DISCARDED,
        EventKind.RESAMPLED,
        EventKind.BONUS,
    )
    legend = Text("  ").join(
        Text(f"{STYLES[kind].mark} {STYLES[kind].label}", token_style(kind)) for kind in shown
    )
    finished: list[Step] = []
    for step in steps:
        if not finished:
            console.print(legend)
        finished.append(step)
        line = Text(f"{len(finished):4}")
        for kind, token in step.tokens():
            line.append(f"  {STYLES[kind].mark} ").append(
                visible(vocabulary.text_of(token)), token_style(kind)
            )
        console.print(line)
    token_ids = [token for step in finished for token in step.token_ids]
    alpha = sum(step.num_accepted for step in finished) / sum(step.num_judged for step in finished)
    console.print(Text("\n" + "".join(vocabulary.texts(token_ids)) + "\n"))
    per_pass = len(token_ids) / len(finished)
    console.print(
        f"{len(token_ids)} tokens in {len(finished)} target passes: {per_pass:.2f} tokens per pass,"
        f" α = {alpha:.2f}"
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; returns the exit status, and exits with 2 for bad input."""
    print_for_people()
    parser = Parser(
        prog="naive_speculate.naive", description="Speculative decoding, one line per step."
    )
    parser.add_argument("prompt", metavar="PROMPT")
    parser.add_argument(
        "--target",
        metavar="M",
        help="Hub id, local folder or GGUF file (default: the bundled pair)",
    )
    parser.add_argument("--draft", metavar="M", help="the same, with the target's tokenizer")
    parser.add_argument(
        "--num-draft-tokens", type=positive, default=5, metavar="K", help="default: %(default)s"
    )
    parser.add_argument(
        "--max-new-tokens", type=positive, default=64, metavar="N", help="default: %(default)s"
    )
    parser.add_argument(
        "--temperature",
        type=number,
        default=0.0,
        metavar="T",
        help="0 is greedy (default: %(default)s)",
    )
    parser.add_argument(
        "--seed", type=whole_number, metavar="S", help="repeats a run (default: a fresh one)"
    )
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


if __name__ == "__main__":
    sys.exit(main())
