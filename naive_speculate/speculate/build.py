"""From a plan to a run's sequences and their emitters."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch

from naive_speculate.events.emitter import Emitter
from naive_speculate.events.event import Event, EventKind
from naive_speculate.pair import ModelPair
from naive_speculate.sampling.masks import MASKS, Mask, MaskMaker
from naive_speculate.sampling.options import options_of
from naive_speculate.sampling.params import SamplingParams
from naive_speculate.sampling.pipeline import LogitsPipeline
from naive_speculate.sampling.random_source import RandomSource
from naive_speculate.speculate.chat import words_of
from naive_speculate.speculate.plan import Drafting
from naive_speculate.speculate.request import Request
from naive_speculate.speculate.sequence import CancelFlag, Plan, SequenceState
from naive_speculate.text import StopStrings, TextStream, Vocabulary

_OPTIONS = tuple(options_of(Request))
_OF_DRAFTS = 2**32  # distinguishes a row's drafts from all rows


class Builder:
    """Makes the sequences of requests to one pair; see `Admission` for the arguments."""

    def __init__(
        self,
        pair: ModelPair,
        vocabulary: Vocabulary,
        device: torch.device,
        eos_token_ids: tuple[int, ...],
    ) -> None:
        self.pair, self.vocabulary, self.device = pair, vocabulary, device
        self.eos_token_ids = eos_token_ids
        self._makers: dict[str, MaskMaker] = {}

    def sequences(
        self,
        params: SamplingParams,
        prompt_token_ids: list[int],
        plan: Plan,
        drafting: Drafting,
        source: Callable[[int], RandomSource],
        cancel: CancelFlag | None,
        first_row: int,
    ) -> list[SequenceState]:
        """The sequences of a request, numbered from `first_row`; `source` makes the random source
        of a number."""
        rows = []
        for index in range(params.num_sequences):
            random, (text, stops) = source(index), self._texts(params, prompt_token_ids)
            row = SequenceState(
                first_row + index,
                prompt_token_ids,
                params,
                plan,
                window=drafting.new_window(),
                random=random,
                draft_random=source(index + _OF_DRAFTS) if plan.verifier.matches_draws else random,
                pipeline=self._pipeline(params, prompt_token_ids, plan),
                text=text,
                stops=stops,
                cancel=cancel,
            )
            rows.append(row)
        return rows

    def emitters(
        self, request: Request, rows: Sequence[SequenceState], drafting: Drafting, seed: int
    ) -> list[Emitter]:
        """An emitter per row, with the event that opens its run."""
        pair, params, plan = self.pair, request.params, rows[0].plan
        translation = (
            pair.translation if drafting.kind is not None and drafting.kind.translates else None
        )
        head: Any = None if drafting.kind is None else drafting.kind.head_of(pair)
        settings = params.to_dict() | {name: getattr(request, name) for name in _OPTIONS}
        settings |= {
            "num_draft_tokens": request.num_draft_tokens if plan.tree is None else drafting.size,
            "verify_strategy": str(request.verify_strategy),
            "drafter": plan.drafter,
            "detail": request.detail,
            "lossy": not params.greedy and (plan.verifier.lossy or plan.verifier.greedy),
        }
        texts = self.vocabulary.texts(rows[0].prompt_token_ids)
        started = Event(
            EventKind.STARTED,
            prompt=request.prompt if isinstance(request.prompt, str) else None,
            prompt_token_ids=rows[0].prompt_token_ids,
            prompt_texts=texts,
            prompt_words=words_of(
                pair.tokenizer,
                request.prompt,
                texts,
                chat=request.chat,
                options=request.template_options,
            ),
            settings=settings,
            seed=seed,
            models=pair.names,
            weights=pair.weights,
            device=str(self.device),
            cost_table=drafting.costs.to_dict() if drafting.size is None else None,
            vocabularies=None if translation is None else translation.counts,
            head_layers=None if head is None else list(head.layers),
            target_layers=None if head is None else getattr(pair.target, "num_layers", None),
        )
        known = None if translation is None else translation.to_draft
        return [Emitter(self.vocabulary, replace(started, row=row.row), known) for row in rows]

    def _pipeline(
        self, params: SamplingParams, prompt_token_ids: list[int], plan: Plan
    ) -> LogitsPipeline:
        return LogitsPipeline(
            params,
            prompt_token_ids,
            self.pair.vocab_size,
            sorted(plan.stop_token_ids | frozenset(self.eos_token_ids)),
            self.vocabulary.bad_word_sequences(params.bad_words) if params.bad_words else (),
            self._masks(params, prompt_token_ids),
        )

    def _texts(
        self, params: SamplingParams, token_ids: list[int]
    ) -> tuple[TextStream | None, StopStrings | None]:
        """What turns a sequence's tokens into text, and what looks for its stop strings."""
        text = stops = None
        if params.detokenize and self.vocabulary.tokenizer is not None:
            special = (params.skip_special_tokens, params.spaces_between_special_tokens)
            text = TextStream(self.vocabulary, token_ids, *special)
        if params.stop:
            stops = StopStrings(params.stop, params.include_stop_str_in_output)
        return text, stops

    def _masks(self, params: SamplingParams, prompt: list[int]) -> dict[str, Mask]:
        masks = {}
        for name in MASKS:
            if (value := getattr(params, name)) is None:
                continue
            if self.pair.tokenizer is None:
                raise ValueError(
                    f"{name}={MASKS[name].plain(value)!r:.80} needs a tokenizer, and this pair has"
                    " none"
                )
            if name not in self._makers:
                self._makers[name] = MASKS[name](
                    self.pair.tokenizer, self.pair.vocab_size, self.eos_token_ids
                )
            masks[name] = self._makers[name].mask(value, prompt)
        return masks
