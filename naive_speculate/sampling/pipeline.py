"""From logits to probabilities: every sampling parameter that changes the distribution,
batches of sequences, and sums over distributions.

Target and draft use the same pipeline. What depends on history (penalties, min_tokens,
bad_words, grammars, custom processors) is computed at each index of the draft window with the
drafts before it. That keeps speculation lossless: every draft is judged by the distribution that
plain decoding would have used at its position.
"""

import inspect
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, cast

import torch
from transformers import LogitsProcessor, MinPLogitsWarper, TopKLogitsWarper, TopPLogitsWarper

from naive_speculate.sampling.masks import Mask
from naive_speculate.sampling.params import SamplingParams

WARPERS: dict[str, Callable[[Any], LogitsProcessor | None]] = {
    "min_p": lambda share: MinPLogitsWarper(float(share)) if share > 0 else None,
    "top_k": lambda count: TopKLogitsWarper(count) if count > 0 else None,
    "top_p": lambda share: TopPLogitsWarper(float(share)) if share < 1 else None,
}
"""What changes the scores after temperature, in this order: the option's name, and what makes the
warper of its value; None where the value changes nothing."""

_IN_FLOAT = (torch.float32, torch.float64)
_NOTHING = "-infinity for every token"


class LogitsPipeline:
    """Turns logits into the distribution of a sequence's next token.

    `stop_token_ids` are what min_tokens forbids, `masks` those of `MASKS` by option. `plain` is set
    where the scores are the logits, `needs_history` where they depend on the tokens generated
    before, `guided` where a grammar changes the distribution. Raises `ValueError` if a parameter
    names a token outside the vocabulary, or all parameters together leave no token.
    """

    def __init__(
        self,
        params: SamplingParams,
        prompt_token_ids: Sequence[int],
        vocab_size: int,
        stop_token_ids: Sequence[int] = (),
        bad_words: Sequence[Sequence[int]] = (),
        masks: Mapping[str, Mask] | None = None,
    ) -> None:
        self.params = params
        self._prompt = list(prompt_token_ids)
        self._vocab_size = vocab_size
        self._stops = [token for token in stop_token_ids if token < vocab_size]
        masks = masks or {}
        self._grammar = grammar = masks.get("guided_decoding")
        self.word_filter: Any = masks.get("filter_words")
        bad_words = [
            word for word in bad_words if max(word) < vocab_size
        ]  # others are never generated
        self._bad_sequences = [list(word) for word in bad_words if len(word) > 1]
        self._processors: list[tuple[Any, bool]] = [
            (f, _takes_prompt(f)) for f in params.logits_processors or ()
        ]
        self._bias = self._static_bias([word[0] for word in bad_words if len(word) == 1])
        self._penalised = (
            params.repetition_penalty != 1
            or params.frequency_penalty != 0
            or params.presence_penalty != 0
        )
        by_history = (
            self._penalised,
            self._bad_sequences,
            self._processors,
            *masks,
            params.min_tokens,
        )
        self.needs_history = any(by_history)
        self.guided = grammar is not None
        self.plain = not self.needs_history and self._bias is None
        values = {name: getattr(params, name) for name in WARPERS}
        warpers = [make(values[name]) for name, make in WARPERS.items()]
        self._warpers = [warper for warper in warpers if warper is not None]
        self.warp_key = (params.temperature, *values.values())

    def scores(
        self, logits: torch.Tensor, history: list[int], window: Sequence[int] = ()
    ) -> torch.Tensor:
        """Everything before temperature: logits `[1 + len(window) or more, vocab_size]`, of
        which row t follows `history + window[:t]` and later rows are padding, become scores of
        the same shape; forbidden tokens have -inf. Raises `ValueError` if a custom processor
        returns something of another shape."""
        if self.plain:
            return logits
        scores = logits.clone()
        if self._bias is not None:
            self._bias = self._bias.to(scores.device)
            scores += self._bias
        if self.needs_history:
            for index in range(min(len(scores), len(window) + 1)):
                before = history + list(window[:index])
                for _, row in self._stages(scores[index], before):
                    scores[index] = row
                if self._penalised:
                    self._penalise(scores[index], before)
        return scores

    def forced_text(self, history: list[int]) -> str:
        """The text that the grammar forces after a history; "" without a grammar."""
        return "" if self._grammar is None else self._grammar.forced_text(history)

    def probabilities(self, scores: torch.Tensor) -> torch.Tensor:
        """Temperature, `WARPERS` and softmax of scores `[..., vocab_size]`. Each
        distribution sums to 1, or is NaN where every score is -inf or any is NaN or +inf. At
        temperature 0 nothing is drawn; the probabilities are then those of temperature 1."""
        rows = scores.reshape(-1, scores.shape[-1])
        if self.params.temperature not in (0, 1):
            rows = _cooled(rows, float(self.params.temperature))
        for warper in self._warpers:
            rows = warper(cast(torch.LongTensor, None), cast(torch.FloatTensor, rows))
        return torch.softmax(rows, dim=-1).view_as(scores)

    def why_none(self, logits: torch.Tensor, history: list[int]) -> str:
        """Why no token can be chosen at a position without a distribution, from the model's
        logits `[vocab_size]` and the tokens before."""
        row = logits.to(torch.float32 if logits.dtype != torch.float64 else logits.dtype, copy=True)
        if fault := _fault(row):
            return f"the target model emitted {fault}"
        params = self.params
        bans = [
            name
            for name in ("filter_words", "allowed_token_ids", "bad_words", "min_tokens")
            if getattr(params, name)
        ]
        if self._bias is not None:
            row += self._bias.to(row.device)
        for stage, after in self._stages(row, history):
            if (fault := _fault(after)) is None:
                continue
            if stage is None:
                return f"{' and '.join(bans)} ban every token that the model gives a probability"
            if stage is not self._grammar:
                what = "banned every token" if fault == _NOTHING else f"returned {fault}"
                return f"logits_processors: {stage!r:.80} {what}"
            bans += ["logits_processors"] if params.logits_processors else []
            if not bans:
                return "guided_decoding allows no token that the model gives a probability"
            return f"guided_decoding and {' and '.join(bans)} have no token in common"
        return "the probabilities are not finite"

    def _stages(self, row: torch.Tensor, history: list[int]) -> Iterator[tuple[Any, torch.Tensor]]:
        """What depends on history, but for penalties: what changed the scores `[vocab_size]`,
        None for bans, and the result."""
        self._ban(row, history)
        yield None, row
        for processor, takes_prompt in self._processors:
            prompt, shape = [list(self._prompt)] if takes_prompt else [], row.shape
            row = processor(*prompt, list(history), row)
            if not isinstance(row, torch.Tensor) or row.shape != shape:
                raise ValueError(
                    f"logits_processors: {processor!r} must return logits of shape {list(shape)}"
                )
            yield processor, row
        if self._grammar is not None:
            self._grammar.apply(row := row.clone(), history)  # it may be the processor's own
            yield self._grammar, row

    def _ban(self, row: torch.Tensor, history: list[int]) -> None:
        if self.word_filter is not None:
            self.word_filter.apply(row, history)
        for word in self._bad_sequences:
            if (
                len(history) >= len(word) - 1
                and history[len(history) - len(word) + 1 :] == word[:-1]
            ):
                row[word[-1]] = -torch.inf
        if len(history) < self.params.min_tokens:
            row[self._stops] = -torch.inf

    def _penalise(self, row: torch.Tensor, history: list[int]) -> None:
        generated = self._counts(history).to(row.device)
        if self.params.repetition_penalty != 1:
            used = self._of_prompt.to(row.device) + generated > 0
            penalty = self.params.repetition_penalty
            row.copy_(torch.where(used, torch.where(row > 0, row / penalty, row * penalty), row))
        row -= self.params.frequency_penalty * generated
        row -= self.params.presence_penalty * (generated > 0)

    @cached_property
    def _of_prompt(self) -> torch.Tensor:
        return self._counts(self._prompt)

    def _counts(self, token_ids: list[int]) -> torch.Tensor:
        """How often each token occurs; those outside the vocabulary do not count."""
        inside = [token for token in token_ids if token < self._vocab_size]
        return torch.bincount(torch.tensor(inside, dtype=torch.int64), minlength=self._vocab_size)

    def _static_bias(self, bad_tokens: list[int]) -> torch.Tensor | None:
        params = self.params
        if params.allowed_token_ids is None and not bad_tokens and not params.logit_bias:
            return None
        bias = torch.zeros(self._vocab_size)
        for name in ("logit_bias", "allowed_token_ids"):
            for token in getattr(params, name) or ():
                if token >= self._vocab_size:
                    raise ValueError(
                        f"{name} holds token {token}, but the vocabulary ends at"
                        f" {self._vocab_size - 1}"
                    )
        for token, value in (params.logit_bias or {}).items():
            bias[token] += min(max(value, -100.0), 100.0)
        if params.allowed_token_ids is not None:
            forbidden = torch.ones(self._vocab_size, dtype=torch.bool)
            forbidden[list(params.allowed_token_ids)] = False
            bias[forbidden] = -torch.inf
        bias[bad_tokens] = -torch.inf
        left = bias > -torch.inf
        if params.min_tokens:
            left[self._stops] = False
        if not left.any():
            words = list(params.bad_words or [])
            options = (
                f"allowed_token_ids={list(params.allowed_token_ids or [])!r:.80},"
                f" bad_words={words!r:.80}"
            )
            raise ValueError(
                f"no token is left to generate with {options}, min_tokens={params.min_tokens}"
            )
        return bias


def in_float(logits: torch.Tensor) -> torch.Tensor:
    """Logits in float32, or in float64 if they are."""
    return logits if logits.dtype in _IN_FLOAT else logits.float()


def batch_scores(
    pipelines: Sequence[LogitsPipeline],
    logits: torch.Tensor,
    histories: Sequence[list[int]],
    windows: Sequence[list[int]] | None = None,
) -> torch.Tensor:
    """Each row's logits `[batch_size, width, vocab_size]` through its own pipeline, up to
    temperature; the same shape, float32 or float64. `histories`: the tokens that each row has
    generated before the first index; not read where all pipelines are plain. `windows`: the
    draft tokens after it."""
    scores = logits if logits.dtype in _IN_FLOAT else logits.float()
    for pipeline in pipelines:
        if not pipeline.plain:
            break
    else:
        return scores
    windows = windows or [[] for _ in pipelines]
    rows = zip(pipelines, scores, histories, windows, strict=True)
    return torch.stack([pipeline.scores(row, past, window) for pipeline, row, past, window in rows])


def batch_probabilities(
    pipelines: Sequence[LogitsPipeline], scores: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Each row's scores `[batch_size, width, vocab_size]` to probabilities, and whether each
    position has a distribution, bool `[batch_size, width]`.

    It has none where every token is banned, or a score is NaN or infinite. It gets the uniform
    one: a draft may be drawn from that, but no token of the output.
    """
    first = pipelines[0]
    if len({pipeline.warp_key for pipeline in pipelines}) == 1:
        probs = first.probabilities(scores)
    else:
        probs = torch.stack(
            [pipeline.probabilities(row) for pipeline, row in zip(pipelines, scores, strict=True)]
        )
    lost = probs[..., 0].isnan()
    return probs.masked_fill_(lost[..., None], 1 / probs.shape[-1]), ~lost


def entropy(probs: torch.Tensor) -> torch.Tensor:
    """Entropies in nats over the last dimension; faster than `torch.special.entr`."""
    least = torch.finfo(probs.dtype).tiny  # keeps the logarithm of 0 finite; it is multiplied by 0
    return 0.0 - torch.linalg.vecdot(probs, probs.clamp_min(least).log_())


def overlap(target_probs: torch.Tensor, draft_probs: torch.Tensor) -> torch.Tensor:
    """Σ min(target, draft) of distributions `[..., vocab_size]`: the probability, shape `[...]`,
    that speculative sampling accepts a token drawn from the draft (Leviathan et al. 2023,
    Theorem 3.5). Where the draft is certain of a token, it is the target's probability of that
    token."""
    return torch.minimum(target_probs, draft_probs).sum(dim=-1).clamp_max(1.0)


def residual(
    target_probs: torch.Tensor, draft_probs: torch.Tensor, scale: torch.Tensor | None = None
) -> torch.Tensor:
    """The distribution ∝ max(0, scale · target − draft), shape `[..., vocab_size]`, with `scale`
    `[...]` or 1; the target's own where that is 0 everywhere. Unscaled, it is so only where the
    two are equal, and there no draft is ever rejected."""
    scaled = target_probs if scale is None else scale[..., None] * target_probs
    left = (scaled - draft_probs).clamp_min(0)
    total = left.sum(dim=-1, keepdim=True)
    return torch.where(total > 0, left / total, target_probs)


def _cooled(scores: torch.Tensor, temperature: float) -> torch.Tensor:
    """Each score's distance from the row's best ÷ temperature: only -inf can overflow."""
    least = torch.finfo(scores.dtype).tiny
    return (scores - scores.amax(dim=-1, keepdim=True)).div_(
        min(max(temperature, least), 1 / least)
    )


def _fault(row: torch.Tensor) -> str | None:
    """Why scores are no distribution; None if they are one."""
    if row.isnan().any():
        return "NaN"
    best = row.amax().item()
    return None if math.isfinite(best) else "infinity" if best > 0 else _NOTHING


def _takes_prompt(processor: Any) -> bool:
    """Whether a custom processor takes the prompt as the first of three arguments."""
    try:
        parameters = inspect.signature(processor).parameters.values()
    except ValueError:  # built-in callables may have no signature
        return False
    positional = [
        p
        for p in parameters
        if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD) and p.default is p.empty
    ]
    return len(positional) == 3
