"""From a request to a sequence: everything is checked here, before any model runs."""

from typing import Any

import torch

from naive_speculate.events import Event
from naive_speculate.infer.inferencer import eos_token_ids
from naive_speculate.models import ModelPair
from naive_speculate.sampling.guided import GrammarCompiler, GuidedDecodingParams
from naive_speculate.sampling.params import SamplingParams, check_unicode
from naive_speculate.sampling.pipeline import LogitsPipeline
from naive_speculate.sampling.random_source import RandomSource, SeededRandom, fresh_seed
from naive_speculate.speculate.emitter import Emitter
from naive_speculate.speculate.proposal import DRAFTERS
from naive_speculate.speculate.request import Prompt, check_strategy, check_window
from naive_speculate.speculate.sequence import CancelFlag, Detail, Sequence
from naive_speculate.speculate.verifiers import VERIFIERS, VerifyStrategy
from naive_speculate.speculate.window import AutoWindow, FixedWindow
from naive_speculate.speculate.workspace import Workspace
from naive_speculate.text import Vocabulary


class Admission:
    """Makes sequences for one pair: what a decoder does before its first step.

    Attributes:
        pair: Target and draft.
        vocabulary: Its tokenizer.
        vocab_size: Number of token ids that can be generated.
        device: Where the target computes.
        eos_token_ids: The target's end-of-sequence tokens.
        max_positions: How many tokens a sequence may have; None for no limit.
    """

    def __init__(self, pair: ModelPair) -> None:
        self.pair = pair
        self.vocabulary = Vocabulary(pair.tokenizer)
        self.vocab_size = pair.vocab_size
        self.device: torch.device = getattr(pair.target, "device", torch.device("cpu"))
        self.eos_token_ids = eos_token_ids(pair.target)
        self.max_positions: int | None = getattr(pair.target, "max_positions", None)
        self._grammars: GrammarCompiler | None = None

    def new_workspace(self) -> Workspace:
        """Caches for sequences that are to be stepped together."""
        return Workspace(self.pair, self.vocab_size, self.vocabulary, self.device)

    def new_sequence(
        self, prompt: Prompt, params: SamplingParams | None = None, *, workspace: Workspace | None = None, **options: Any
    ) -> tuple[Sequence, list[Event]]:
        """Make a sequence that `step` can take; `Workspace.release` frees its place.

        Args:
            prompt, params: As for `stream`.
            workspace: Whose caches to use; by default one of its own.
            **options: As for `prepare`.

        Returns:
            tuple: The sequence and its first events.

        Raises:
            ValueError: Naming the argument and what was given.
        """
        sequence = self.prepare(prompt, params, **options)
        return sequence, self.place(sequence, workspace or self.new_workspace())

    def place(self, sequence: Sequence, workspace: Workspace) -> list[Event]:
        """Give a prepared sequence its place in the caches: its run begins. Returns its first events."""
        workspace.take_in(sequence)
        return sequence.emitter.started(sequence.facts)

    def prepare_group(self, prompt: Prompt, params: SamplingParams, *, first_row: int = 0, **options: Any) -> list[Sequence]:
        """Prepare the sequences of one request, as many as its n or best_of says; their draws differ, their seed does not.

        Args:
            prompt, params: As for `stream`.
            first_row: The row of the first one.
            **options: As for `prepare`.

        Raises:
            ValueError: Naming the argument and what was given.
        """
        seed = params.seed if params.seed is not None else fresh_seed()
        return [
            self.prepare(
                prompt,
                params,
                row=first_row + index,
                random_source=SeededRandom(seed, index, self.device),
                seed=seed,
                **options,
            )
            for index in range(params.num_sequences)
        ]

    def prepare(
        self,
        prompt: Prompt,
        params: SamplingParams | None = None,
        *,
        num_draft_tokens: int | str = 5,
        verify_strategy: VerifyStrategy | str = VerifyStrategy.SPECULATIVE_SAMPLING,
        drafter: str = "model",
        detail: Detail = "full",
        cancel: CancelFlag | None = None,
        row: int = 0,
        random_source: RandomSource | None = None,
        seed: int | None = None,
    ) -> Sequence:
        """Check a request and make its sequence, which has no place in any cache yet. Threads may do so side by side.

        Args:
            prompt, params, num_draft_tokens, verify_strategy, drafter, detail, cancel: As for `stream`.
            row: The number that its events carry.
            random_source: Where its draws come from; by default a source seeded by the parameters.
            seed: The seed to report, where `random_source` was made from it.

        Raises:
            ValueError: Naming the argument and what was given.
        """
        params = params or SamplingParams()
        strategy = check_strategy(verify_strategy)
        window_size = check_window(num_draft_tokens)
        if detail not in ("full", "probs", "none"):
            raise ValueError(f"detail must be 'full', 'probs' or 'none', got {detail!r:.80}")
        if drafter not in DRAFTERS:
            raise ValueError(f"drafter must be one of {', '.join(DRAFTERS)}, got {drafter!r:.80}")
        if drafter == "model" and self.pair.draft is None and window_size != 0:
            raise ValueError("drafter is 'model', but this pair has no draft model; use 'prompt_lookup'")
        token_ids = self.encode(prompt, params)
        seed = seed if seed is not None else params.seed if params.seed is not None else fresh_seed()
        stops = frozenset(params.stop_token_ids) | frozenset(() if params.ignore_eos else self.eos_token_ids)
        pipeline = LogitsPipeline(
            params,
            token_ids,
            self.vocab_size,
            sorted(stops | frozenset(self.eos_token_ids)),
            self.vocabulary.bad_word_sequences(params.bad_words) if params.bad_words else (),
            self._grammar(params).compile(params.guided_decoding)
            if isinstance(params.guided_decoding, GuidedDecodingParams)
            else None,
        )
        costs = self.pair.costs(drafter)
        limit = len(token_ids) + params.max_tokens
        settings = params.to_dict() | {
            "num_draft_tokens": num_draft_tokens,
            "verify_strategy": strategy.value,
            "drafter": drafter,
            "detail": detail,
            "lossy": VERIFIERS[strategy].lossy and not params.greedy,
        }
        return Sequence(
            row=row,
            prompt_token_ids=token_ids,
            token_ids=list(token_ids),
            params=params,
            strategy=strategy,
            drafter=drafter,
            window=AutoWindow(costs) if window_size is None else FixedWindow(window_size),
            detail=detail,
            random=random_source or SeededRandom(seed, 0, self.device),
            pipeline=pipeline,
            stop_token_ids=stops,
            max_length=limit if self.max_positions is None else min(limit, self.max_positions),
            emitter=Emitter(row, self.vocabulary, params, token_ids, stops),
            facts={
                "prompt": prompt if isinstance(prompt, str) else None,
                "prompt_token_ids": token_ids,
                "prompt_texts": self.vocabulary.texts(token_ids),
                "settings": settings,
                "seed": seed,
                "models": self.pair.names,
                "device": str(self.device),
                "cost_table": costs.to_dict() if window_size is None else None,
            },
            cancel=cancel,
        )

    def encode(self, prompt: Prompt, params: SamplingParams | None = None) -> list[int]:
        """Token ids of a prompt, checked.

        Raises:
            ValueError: If it is empty, not in the vocabulary, or longer than the model's positions.
        """
        if isinstance(prompt, str):
            if not prompt:
                raise ValueError("prompt is empty")
            check_unicode("prompt", prompt)
            token_ids = self.vocabulary.encode(prompt)
        else:
            token_ids = list(prompt)
            for token in token_ids:
                if not isinstance(token, int) or isinstance(token, bool) or not 0 <= token < self.vocab_size:
                    raise ValueError(f"prompt holds {token!r}, expected token ids from 0 to {self.vocab_size - 1}")
        if params is not None and params.truncate_prompt_tokens is not None:
            token_ids = token_ids[-params.truncate_prompt_tokens :]
        if not token_ids:
            raise ValueError("prompt is empty: it has no tokens")
        if self.max_positions is not None and len(token_ids) > self.max_positions:
            surplus = len(token_ids) - self.max_positions
            raise ValueError(
                f"prompt has {len(token_ids)} tokens, {surplus} more than the {self.max_positions} that the model can take"
            )
        return token_ids

    def _grammar(self, params: SamplingParams) -> GrammarCompiler:
        if self.pair.tokenizer is None:
            raise ValueError(f"guided_decoding={params.guided_decoding!r} needs a tokenizer, and this pair has none")
        if self._grammars is None:
            self._grammars = GrammarCompiler(self.pair.tokenizer, self.vocab_size, self.eos_token_ids)
        return self._grammars
