"""Records transformers' own assisted generation: its loop runs unchanged while its results are
observed.

The loop is not copied (transformers 5.23, `generation/utils.py`, `_assisted_decoding` and
`_speculative_sampling`). Three hooks are attached to this model: its candidate generator, whose
two methods begin and end a step; a forward hook on the target; and from there to the end of the
step a torch function mode, which observes the uniform draws and the next token's distribution.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
import transformers
from pydantic_core import to_jsonable_python
from torch.overrides import TorchFunctionMode

from naive_speculate.events.emitter import Emitter
from naive_speculate.events.event import Event, EventKind, FinishReason, TopTokens
from naive_speculate.events.record import Outcome, StepRecord
from naive_speculate.events.trace import Trace
from naive_speculate.sampling.params import SamplingParams
from naive_speculate.speculate.outcomes import TOP_TOKENS, top_tokens
from naive_speculate.speculate.rules import overlap
from naive_speculate.text import TextStream, Vocabulary, one_line
from naive_speculate.tools.watch_kinds import (
    check_options,
    counts_rejected,
    drafter_of,
    models_of,
    passes_rotary_limit,
    window_of,
)

_OF_DRAWS = ("top_h", "typical_p", "epsilon_cutoff", "eta_cutoff", "renormalize_logits")
_OTHERS = (
    *_OF_DRAWS,
    "no_repeat_ngram_size",
    "encoder_repetition_penalty",
    "encoder_no_repeat_ngram_size",
    "bad_words_ids",
    "sequence_bias",
    "suppress_tokens",
    "begin_suppress_tokens",
    "forced_bos_token_id",
    "forced_eos_token_id",
    "guidance_scale",
    "exponential_decay_length_penalty",
    "remove_invalid_values",
    "watermarking_config",
    "max_time",
    "token_healing",
)
"""Options of transformers that change the output and have no name in this library, sampling
options first."""


def watch(
    model: Any,
    assistant_model: Any,
    inputs: str | Sequence[int] | torch.Tensor | Mapping[str, Any],
    *,
    tokenizer: Any = None,
    seed: int = 0,
    **options: Any,
) -> Trace:
    """Run transformers' assisted generation and return a trace with its own draws and
    probabilities.

    The tokens are those of `torch.manual_seed(seed)` and `model.generate(…)` with the same
    options; the state of torch's generators is restored. The prompt's prefill is part of the
    first step's verification, as in transformers.

    Args:
        model: A transformers model that generates.
        assistant_model: The draft model, a DFlash drafter (`speculation_type="dflash"`), or an
            assistant of Gemma 4; None with `prompt_lookup_num_tokens`, or for the model's own MTP
            layers (`use_mtp`) or first layers (`assistant_early_exit`).
        inputs: One prompt: a text, token ids, a tensor of them of shape `[length]` or `[1,
            length]`, or a tokenizer's output.
        tokenizer: For texts; without it the trace has only token ids.
        seed: For torch's generators.
        options: As for `generate`, such as `do_sample`, `temperature` and `max_new_tokens`.

    Returns:
        Trace: One row, in the form of this library's decoder.

    Raises:
        ValueError: If there is not exactly one prompt, there is no drafter, or an option is not
            supported.
        RuntimeError: If this version of transformers behaves differently from the supported one.
    """
    encoded = _encoded(inputs, tokenizer, model.device)
    prompt = _prompt(encoded, model)
    check_options(model, assistant_model, options)
    vocabulary = Vocabulary(tokenizer)
    recorder = _Recorder(model, vocabulary, TextStream(vocabulary, prompt))
    devices = [model.device] if model.device.type == "cuda" else []
    with torch.random.fork_rng(devices), recorder:
        torch.manual_seed(seed)
        output = recorder.run(
            **encoded, assistant_model=assistant_model, tokenizer=tokenizer, **options
        )
    ended_at, tokens = recorder.seconds(), getattr(output, "sequences", output)[0]
    config = recorder.used_config()
    other_text = passes_rotary_limit(model, len(prompt), len(tokens))
    started = Event(
        EventKind.STARTED,
        prompt=inputs if isinstance(inputs, str) else None,
        prompt_token_ids=prompt,
        prompt_texts=vocabulary.texts(prompt),
        settings=_settings(recorder, len(prompt), options, other_text),
        seed=seed,
        models=models_of(model, assistant_model, recorder.generator),
        device=str(model.device),
    )
    return recorder.trace(Emitter(vocabulary, started), _reason(config, tokens), ended_at)


def _prompt(encoded: Mapping[str, Any], model: Any) -> list[int]:
    prompt: list[int] = encoded["input_ids"][0].tolist()
    count = model.get_input_embeddings().num_embeddings
    if wrong := [token for token in prompt if not 0 <= token < count]:
        raise ValueError(f"inputs has the token id {wrong[0]}, which the model does not have")
    return prompt


def _reason(config: Any, tokens: torch.Tensor) -> FinishReason:
    ends = config._eos_token_tensor
    if ends is not None and bool((tokens[-1] == ends).any()):
        return FinishReason.STOP
    return FinishReason.LENGTH if len(tokens) >= config.max_length else FinishReason.STOP


class _Draws(TorchFunctionMode):
    """Uniforms and their thresholds (`ratios`), a token and what it was drawn from."""

    ratios: torch.Tensor | None = None
    uniforms: torch.Tensor | None = None
    drawn_from: torch.Tensor | None = None
    drawn: torch.Tensor | None = None

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if func is torch.rand_like:
            self.ratios, self.uniforms = args[0], result
        elif func is torch.multinomial:
            self.drawn_from, self.drawn = args[0], result
        return result


class _Recorder:
    def __init__(self, model: Any, vocabulary: Vocabulary, stream: TextStream) -> None:
        self.records: list[StepRecord] = []  # times are in seconds since the run began
        self.config: Any = None  # transformers', once it has made its candidate generator
        self.generator: Any = None
        self.window: int | None = None
        self.draws_drafts = False  # whether drafts were drawn, not the most probable tokens
        self.confidence: float | None = None
        self._model, self._vocabulary, self._stream = model, vocabulary, stream
        self._draws: _Draws | None = None
        self._drafting = False
        self._own_seconds = 0.0  # excluded from reported times

    def __enter__(self) -> "_Recorder":
        self._make = self._model._get_candidate_generator
        self._model._get_candidate_generator = self._generator
        self._hook = self._model.register_forward_hook(self._verified)
        self._depth = getattr(self._base().config, "num_hidden_layers", None)
        self._began = time.perf_counter()
        return self

    def __exit__(self, *_: object) -> None:
        self._hook.remove()
        del self._model._get_candidate_generator
        self._end_draws()
        if self._depth is not None:  # an early exit that fails leaves its own number
            self._base().config.num_hidden_layers = self._depth

    def _base(self) -> Any:
        return getattr(self._model, self._model.base_model_prefix, self._model)

    def run(self, **options: Any) -> Any:
        """A `ValueError` if transformers cannot draft with this model."""
        try:
            return self._model.generate(**options)
        except (IndexError, KeyError, AttributeError, TypeError) as error:
            if not self._drafting:
                raise
            raise ValueError(self._cannot(error)) from error

    def _cannot(self, error: Exception) -> str:
        return (
            f"transformers {transformers.__version__} cannot draft so with"
            f" {type(self._model).__name__} ({type(error).__name__}: {one_line(error)})"
        )

    def used_config(self) -> Any:
        """A `ValueError` if nothing was drafted."""
        if self.config is None:
            raise ValueError(
                "nothing was drafted: give assistant_model, prompt_lookup_num_tokens, use_mtp or"
                " assistant_early_exit, with num_beams=1"
            )
        return self.config

    def seconds(self) -> float:
        """Since the run began, without the time of recording."""
        if self._model.device.type == "cuda":
            torch.cuda.synchronize(self._model.device)
        return time.perf_counter() - self._began - self._own_seconds

    def _generator(self, *args: Any, **kwargs: Any) -> Any:
        """transformers' own, with its two methods observed."""
        try:
            generator = self._make(*args, **kwargs)
        except torch.OutOfMemoryError:
            raise
        except (RuntimeError, OSError) as error:  # such as of files that it reads
            raise ValueError(self._cannot(error)) from error
        self.config, self.generator = kwargs["generation_config"], generator
        self.window = window_of(generator)
        self.confidence = getattr(generator, "assistant_confidence_threshold", None) or None
        propose, update = generator.get_candidates, generator.update_candidate_strategy
        generator.get_candidates = lambda input_ids, **more: self._propose(propose, input_ids, more)
        generator.update_candidate_strategy = lambda *step: self._update(update, *step)
        return generator

    def _propose(self, propose: Any, input_ids: torch.Tensor, more: dict[str, Any]) -> Any:
        state = self._random_state()
        self._drafting, self._step_began = True, self.seconds()
        candidates, logits = propose(input_ids, **more)
        self._drafting, self._drafted_at = False, self.seconds()
        self.draws_drafts |= not torch.equal(state, self._random_state())
        self._length = input_ids.shape[1]
        self._draft = candidates[0, self._length :].tolist()
        self._q = None if logits is None or not self._draft else logits[0].to(self._model.device)
        return candidates, logits

    def _random_state(self) -> torch.Tensor:
        device = self._model.device
        return torch.cuda.get_rng_state(device) if device.type == "cuda" else torch.get_rng_state()

    def _verified(self, *_: object) -> None:
        """After a forward of the target the following draws decide."""
        if not self._drafting and self.config is not None and self._draws is None:
            self._draws = _Draws()
            self._draws.__enter__()

    def _end_draws(self) -> _Draws:
        draws, self._draws = self._draws, None
        if draws is not None:
            draws.__exit__(None, None, None)
        return draws or _Draws()

    def _update(
        self, update: Any, input_ids: torch.Tensor, scores: torch.Tensor, num_matches: int
    ) -> None:
        draws, decided_at = self._end_draws(), self.seconds()
        update(input_ids, scores, num_matches)
        ended_at = self.seconds()
        outcome = _outcome(
            self._draft, self._q, scores[0], draws, self._vocabulary.text_of, self.draws_drafts
        )
        outcome.draft_seconds = self._drafted_at - self._step_began
        outcome.verify_seconds = decided_at - self._drafted_at
        outcome.total_seconds = ended_at - self._step_began
        token_ids = input_ids[0, self._length :].tolist()
        if outcome.token_ids[: len(token_ids)] != token_ids:
            version = transformers.__version__
            raise RuntimeError(
                f"transformers {version} returned {token_ids}, but the observed draws give"
                f" {outcome.token_ids}"
            )
        ahead = self._stream.fork()
        draft_texts, texts = map(ahead.append, self._draft), map(self._stream.append, token_ids)
        record = StepRecord(
            len(self.records), ended_at, outcome, list(texts), list(draft_texts), None, None, None
        )
        self.records.append(record)
        self._own_seconds += self.seconds() - ended_at

    def trace(self, emitter: Emitter, reason: FinishReason, ended_at: float) -> Trace:
        trace, began = Trace(emitter.started()), time.perf_counter()
        for record in self.records:
            if record is self.records[-1]:
                texts = [*record.texts[:-1], record.texts[-1] + self._stream.flush()]
                record = replace(record, finish_reason=reason, texts=texts)
            trace.events += emitter.step(replace(record, ended_at=began + record.ended_at))
        trace.events += emitter.finished(reason)
        trace.events[-1].time = ended_at
        return trace


def _outcome(
    draft: list[int],
    q_logits: torch.Tensor | None,
    scores: torch.Tensor,
    draws: _Draws,
    text_of: Callable[[int], str],
    draws_drafts: bool,
) -> Outcome:
    """The verdict of transformers on k draft tokens. `draws_drafts`: whether these were drawn."""
    k, p = len(draft), scores.softmax(dim=-1)
    # Algorithm 1, u ≤ p/q
    if draws.uniforms is not None and draws.ratios is not None and draws.drawn is not None:
        accepted = _leading((draws.uniforms <= draws.ratios).flatten().tolist())
        next_token = int(draws.drawn.flatten()[0])
        accept = draws.ratios.flatten().nan_to_num(0.0, 1.0).clamp_max(1.0).tolist()
    else:  # the target's own choice or draw at every index, compared with the draft tokens
        chosen = (scores.argmax(dim=-1) if draws.drawn is None else draws.drawn.flatten()).tolist()
        same = [mine == theirs for mine, theirs in zip(draft, chosen, strict=False)]
        accepted, next_token = _leading(same), chosen[_leading(same)]
        accept = [float(equal) for equal in same]
        if draws.drawn is not None:
            accept = [float(p[i, x]) for i, x in enumerate(draft)]
    outcome = Outcome(draft, accepted, next_token, None, judges_all=False)
    indices, tokens = [*range(k), accepted], [*draft, next_token]
    outcome.values = values = {
        "accept_prob": accept,
        "expected_accept": accept,  # copied tokens, and tokens compared with a choice, are certain
        "target_prob": p[indices, tokens].tolist(),
        "target_entropy": torch.special.entr(p[indices]).sum(dim=-1).tolist(),
        "target_top": (tops := _tops(p[indices], text_of)),
    }
    if q_logits is not None:
        q = q_logits.softmax(dim=-1)
        values |= {
            "draft_prob": q[range(k), draft].tolist(),
            "draft_entropy": torch.special.entr(q).sum(dim=-1).tolist(),
            "draft_top": (draft_tops := _tops(q, text_of)),
            "draft_top_target": _probs_of(draft_tops, p),
            "target_top_draft": _probs_of(tops, q),
        }
        if draws.ratios is not None and draws_drafts:
            values["expected_accept"] = overlap(p[:k], q).tolist()
    if draws.uniforms is not None:
        values["uniform"] = draws.uniforms.flatten().tolist()
        if accepted < k and draws.drawn_from is not None:
            outcome.residual_top = _tops(draws.drawn_from, text_of)[0]
    return outcome


def _leading(verdicts: Sequence[bool]) -> int:
    return next((index for index, accepted in enumerate(verdicts) if not accepted), len(verdicts))


def _tops(probs: torch.Tensor, text_of: Callable[[int], str]) -> list[TopTokens]:
    top = probs.topk(min(TOP_TOKENS, probs.shape[-1]), dim=-1)
    rows = zip(top.indices.tolist(), top.values.tolist(), strict=True)
    return [top_tokens(text_of, tokens, values) for tokens, values in rows]


def _probs_of(tops: Sequence[TopTokens], probs: torch.Tensor) -> list[list[float]]:
    """The other model's probabilities `[rows, vocab_size]` of these tokens."""
    return [[float(at[one.token_id]) for one in top] for at, top in zip(probs, tops, strict=False)]


def _settings(
    recorder: _Recorder, num_prompt_tokens: int, options: Mapping[str, Any], other_text: bool
) -> dict[str, Any]:
    """Under this library's names; others under `generation_config`. `other_text`: whether the text
    may be another than without drafts."""
    config = recorder.config
    sampled = bool(config.do_sample)
    judged = any(record.outcome.values.get("uniform") for record in recorder.records)
    max_tokens = config.max_length - num_prompt_tokens
    min_tokens = max(config.min_new_tokens or 0, (config.min_length or 0) - num_prompt_tokens)
    end = config._eos_token_tensor
    stop = config.stop_strings or ()
    stop = [stop] if isinstance(stop, str) else list(stop)
    used = {
        "max_tokens": max_tokens,
        "min_tokens": min(min_tokens, max_tokens),
        "repetition_penalty": float(config.repetition_penalty or 1.0),
        "temperature": float(config.temperature or 1.0) if sampled else 0.0,
        "top_p": float(config.top_p) if sampled and config.top_p is not None else 1.0,
        "top_k": int(config.top_k or 0) if sampled else 0,
        "min_p": float(config.min_p or 0.0) if sampled else 0.0,
        "stop": stop,
        "include_stop_str_in_output": bool(stop),
        "stop_token_ids": [] if end is None else end.flatten().tolist(),
        "ignore_eos": end is None,
        "logits_processors": (
            len(options.get("logits_processor") or ())
            + bool(options.get("prefix_allowed_tokens_fn"))
        ),
    }
    return (
        SamplingParams().to_dict()
        | used
        | {  # unchecked, since transformers accepts other ranges
            "generation_config": _without_our_names(config),
            "num_draft_tokens": recorder.window,
            "draft_confidence": recorder.confidence,
            "verify_strategy": "speculative_sampling" if judged else "greedy_match",
            "drafter": drafter_of(recorder.generator),
            "detail": "full",
            # judged as if they were drawn, which the most probable tokens are not
            "lossy": other_text
            or (judged and not recorder.draws_drafts)
            or counts_rejected(config),
            "engine": f"transformers {transformers.__version__}",
        }
    )


def _without_our_names(config: Any) -> dict[str, Any]:
    """Options that change the output, differ from the defaults, and have no name here."""
    defaults = config._get_default_generation_params()
    names = [name for name in _OTHERS if config.do_sample or name not in _OF_DRAWS]
    values = {name: getattr(config, name, None) for name in names}
    known = {name: value for name, value in values.items() if value is not None}
    changed = {name: value for name, value in known.items() if value != defaults.get(name)}

    def fallback(value: Any) -> Any:
        return value.to_dict() if hasattr(value, "to_dict") else str(value)

    return to_jsonable_python(changed, fallback=fallback)


def _encoded(inputs: Any, tokenizer: Any, device: torch.device) -> dict[str, Any]:
    if isinstance(inputs, str):
        if tokenizer is None:
            raise ValueError("inputs is a text, which needs a tokenizer")
        inputs = tokenizer(inputs, return_tensors="pt")
    if not hasattr(inputs, "__iter__"):
        raise ValueError(
            f"inputs must be a text, token ids or a tokenizer's output, got {inputs!r:.40}"
        )
    if not isinstance(inputs, Mapping):
        if not isinstance(inputs, torch.Tensor):
            inputs = torch.tensor(list(inputs), dtype=torch.long)
        token_ids = torch.atleast_2d(inputs)
        inputs = {"input_ids": token_ids, "attention_mask": torch.ones_like(token_ids)}
    encoded = {
        name: value.to(device) if isinstance(value, torch.Tensor) else value
        for name, value in inputs.items()
    }
    ids = encoded.get("input_ids")
    if not isinstance(ids, torch.Tensor) or ids.dim() != 2 or ids.shape[0] != 1 or not ids.shape[1]:
        shape = list(ids.shape) if isinstance(ids, torch.Tensor) else type(ids).__name__
        raise ValueError(
            f"inputs must be one prompt with at least one token, got input_ids of shape {shape}"
        )
    return encoded
