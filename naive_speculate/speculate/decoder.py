"""The speculative decoder: `stream` for one prompt, `generate` for one or many, and what an
engine builds on."""

from collections.abc import Iterator, Sequence
from typing import Any, overload

import torch

from naive_speculate.events.event import Event, FinishReason
from naive_speculate.pair import ModelPair
from naive_speculate.sampling.options import takes_fields_of
from naive_speculate.sampling.params import SamplingParams
from naive_speculate.speculate.admission import Admission, MakeRandom
from naive_speculate.speculate.batch import Batch
from naive_speculate.speculate.draft.suffix_trie import EarlierOutputs
from naive_speculate.speculate.request import Prompt, Request, as_requests
from naive_speculate.speculate.run import GenerationResult, Run, collect, decode
from naive_speculate.speculate.sequence import CancelFlag


class SpeculativeDecoder:
    """Decodes with a pair of models.

    Several threads may call its methods at once; they share the models and nothing else.

    Args:
        pair: Target and draft; see `load_pair`.
        earlier_outputs: How many outputs of runs with suffix decoding are kept for later runs to
            draft from; the oldest go first. None for none. Texts stay lossless, but drafts, and
            so the output of a seed, then depend on earlier outputs, and drafts may show one
            caller's words to another.

    Attributes:
        admission: Checks requests and makes runs of them.
        earlier: The kept outputs; None where none are kept.

    Raises:
        ValueError: If `earlier_outputs` is not a positive whole number.
    """

    def __init__(
        self,
        pair: ModelPair,
        *,
        earlier_outputs: int | None = None,
    ) -> None:
        self.pair = pair
        self.admission = Admission(pair)
        self.earlier = None if earlier_outputs is None else EarlierOutputs(earlier_outputs)

    @takes_fields_of(Request)
    def stream(
        self,
        prompt: Prompt,
        params: SamplingParams | None = None,
        *,
        cancel: CancelFlag | None = None,
        **options: Any,
    ) -> Iterator[Event]:
        """Decode one prompt and yield its events as they happen.

        Args:
            prompt: Text or token ids; with `chat` also messages, mappings with role and content.
            params: How tokens are chosen and when generation ends.
            cancel: A `threading.Event` or the like. Set it to end the run with the event
                `finished` and the reason `cancelled`.
            **options: Fields of `Request`, such as `num_draft_tokens=5`, `drafter`, `chat`, and
                `detail`, of which "none" is the fastest.

        Yields:
            Event: From `started` to `finished`.

        Raises:
            ValueError: Before the first event, naming the argument and what was given. If a step
                fails, the last event reports the failure, which is raised after it.
        """
        params = params or SamplingParams()
        if params.num_sequences > 1:
            raise ValueError(
                f"n must be 1 to stream, got n={params.n} and best_of={params.best_of}; use"
                " generate"
            )
        return self._stream(self.prepare(Request(prompt, params, **options), cancel))

    @overload
    def generate(
        self,
        prompt: str | list[int] | list[dict[str, str]],
        params: SamplingParams | None = None,
        *,
        cancel: CancelFlag | None = None,
        **options: Any,
    ) -> GenerationResult: ...

    @overload
    def generate(
        self,
        prompt: list[str] | list[list[int]] | list[list[dict[str, str]]],
        params: SamplingParams | Sequence[SamplingParams] | None = None,
        *,
        cancel: CancelFlag | None = None,
        **options: Any,
    ) -> list[GenerationResult]: ...

    @takes_fields_of(Request)
    def generate(
        self,
        prompt: Prompt | Sequence[Prompt],
        params: SamplingParams | Sequence[SamplingParams] | None = None,
        *,
        cancel: CancelFlag | None = None,
        **options: Any,
    ) -> GenerationResult | list[GenerationResult]:
        """Decode one prompt, or a list of prompts as one batch.

        Args:
            prompt: As for `stream`, or a list of such.
            params: One for all, or a list with one per prompt.
            cancel: As for `stream`.
            **options: As for `stream`.

        Returns:
            The result, or a list of them. With n > 1 it is the most probable sequence's, and
            `outputs` has all n.

        Raises:
            ValueError: Naming the argument and what was given, before any model runs.
        """
        requests, single = as_requests(prompt, params, options)
        runs: list[Run] = []
        for request in requests:
            runs.append(self.prepare(request, cancel, first_row=sum(len(run.rows) for run in runs)))
        with torch.no_grad():  # once for all steps
            results = collect(runs, decode(self.new_batch(), runs))
        return results[0] if single else results

    def prepare(
        self,
        request: Request,
        cancel: CancelFlag | None = None,
        *,
        first_row: int = 0,
        random: MakeRandom | None = None,
    ) -> Run:
        """Check a request and make its run; see `Admission.run`."""
        return self.admission.run(request, cancel, first_row=first_row, random=random)

    def new_batch(self) -> Batch:
        """A batch without rows."""
        return Batch(self.pair, self.admission.vocabulary, self.earlier)

    def _stream(self, run: Run) -> Iterator[Event]:
        try:
            for events in decode(self.new_batch(), [run]):
                yield from events
        except Exception as error:
            yield from run.end(FinishReason.ERROR, f"{type(error).__name__}: {error}")
            raise
