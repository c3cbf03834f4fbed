"""What `SpeculativeDecoder.generate` returns."""

from collections.abc import Sequence as Seq
from dataclasses import dataclass, field
from typing import Any

from naive_speculate.events import Event, FinishReason
from naive_speculate.metrics import Metrics
from naive_speculate.speculate.sequence import Logprob, Sequence
from naive_speculate.trace import Trace


@dataclass(slots=True)
class GenerationResult:
    """One decoded sequence.

    Attributes:
        text: The generated text.
        token_ids: The generated tokens, an end-of-sequence or stop token included.
        finish_reason: Why it ended.
        trace: Its events.
        metrics: Its figures.
        logprobs: For each generated token, log-probabilities by token id; None unless asked for.
        prompt_logprobs: The same for the prompt; None for the first token, which nothing predicts.
        cumulative_logprob: Sum of the generated tokens' log-probabilities; None for a single sequence without logprobs.
        outputs: All n sequences, the most probable first; this one is the first of them.
    """

    text: str
    token_ids: list[int]
    finish_reason: FinishReason
    trace: Trace
    metrics: Metrics
    logprobs: list[dict[int, Logprob]] | None = None
    prompt_logprobs: list[dict[int, Logprob] | None] | None = None
    cumulative_logprob: float | None = None
    outputs: list["GenerationResult"] = field(default_factory=list, repr=False)

    def to_dict(self) -> dict[str, Any]:
        """The result as plain JSON values, without its events."""
        return {
            "text": self.text,
            "token_ids": self.token_ids,
            "finish_reason": self.finish_reason.value,
            "metrics": self.metrics.to_dict(),
            "logprobs": None if self.logprobs is None else [_plain(entry) for entry in self.logprobs],
            "prompt_logprobs": None
            if self.prompt_logprobs is None
            else [None if entry is None else _plain(entry) for entry in self.prompt_logprobs],
            "cumulative_logprob": self.cumulative_logprob,
            "outputs": [output.to_dict() for output in self.outputs] if len(self.outputs) > 1 else [],
        }


def collect(groups: Seq[Seq[Sequence]], events: Seq[Event]) -> list[GenerationResult]:
    """Results of finished sequences, one for each group of sequences that share a prompt."""
    traces: dict[int, Trace] = {sequence.row: Trace() for group in groups for sequence in group}
    for event in events:
        traces[event.row].append(event)
    results = []
    for group in groups:
        outputs = [_result(sequence, traces[sequence.row]) for sequence in group]
        if len(outputs) > 1:
            outputs.sort(key=lambda o: (o.finish_reason != FinishReason.ERROR, o.cumulative_logprob or 0.0), reverse=True)
        outputs = outputs[: group[0].params.n]
        outputs[0].outputs = list(outputs)
        results.append(outputs[0])
    return results


def _result(sequence: Sequence, trace: Trace) -> GenerationResult:
    assert sequence.finish_reason is not None
    token_ids = trace.token_ids
    asked = sequence.params.logprobs is not None
    return GenerationResult(
        text=trace.text,
        token_ids=token_ids,
        finish_reason=sequence.finish_reason,
        trace=trace,
        metrics=trace.metrics,
        logprobs=sequence.logprobs[: len(token_ids)] if asked else None,
        prompt_logprobs=sequence.prompt_logprobs,
        cumulative_logprob=sequence.cumulative_logprob if sequence.wants_logprobs else None,
    )


def _plain(entry: dict[int, Logprob]) -> dict[str, Any]:
    return {str(token): {"logprob": p.logprob, "rank": p.rank, "token": p.token} for token, p in entry.items()}
