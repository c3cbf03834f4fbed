"""Ways to decode a prompt: this decoder in its modes, transformers plain and assisted."""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from transformers import GenerationConfig

from naive_speculate.events import Event
from naive_speculate.events.metrics import Metrics
from naive_speculate.sampling.params import SamplingParams
from naive_speculate.speculate.decoder import SpeculativeDecoder


@dataclass(frozen=True)
class Run:
    """One prompt decoded one way."""

    token_ids: list[int]  # the output
    seconds: float  # wall time of the whole call, prompt included
    target_forwards: int  # forwards of the target after the prompt's
    events: Sequence[Event] = ()  # this decoder's; none of transformers
    prompt_seconds: float = 0.0  # of `seconds`, those before the first step

    @property
    def speed(self) -> float:
        """Tokens per second."""
        return len(self.token_ids) / self.seconds

    @property
    def decoding_speed(self) -> float:
        """Tokens per second after the prompt."""
        return len(self.token_ids) / (self.seconds - self.prompt_seconds)


def prompt_seconds(metrics: Metrics) -> float:
    """Seconds of a run of this decoder before its first step, estimated from the first token's time and the mean step."""
    if metrics.time_to_first_token is None:
        return 0.0
    return max(0.0, metrics.time_to_first_token - (metrics.draft_seconds + metrics.verify_seconds) / metrics.num_spec_steps)


@dataclass(frozen=True)
class Way:
    """A way to decode: `decode(prompt token ids, seed)`."""

    name: str  # its name in tables
    num_draft_tokens: int | str  # draft tokens per step, "auto", or 0 for plain decoding
    ours: bool  # whether it is this decoder
    decode: Callable[[list[int], int], Run]
    drafter: str = "model"  # the drafter of this decoder


def our_way(
    decoder: SpeculativeDecoder, num_draft_tokens: int | str, params: SamplingParams, drafter: str = "model", **options: Any
) -> Way:
    """This decoder, with parameters and options of its `generate`, without details in events unless they are options."""
    options = {"num_draft_tokens": num_draft_tokens, "drafter": drafter, "detail": "none"} | options

    def decode(prompt: list[int], seed: int) -> Run:
        # with a seed, "auto" learns no costs, and a head does not round
        seeded = replace(params, seed=seed if params.temperature and num_draft_tokens != "auto" else None)
        began = time.perf_counter()
        result = decoder.generate(prompt, seeded, **options)
        seconds = time.perf_counter() - began
        steps, before = result.metrics.num_spec_steps, prompt_seconds(result.metrics)
        return Run(list(result.token_ids), seconds, steps, result.trace.events, before)

    name = "plain" if num_draft_tokens == 0 else f"k = {num_draft_tokens}"
    if strategy := options.get("verify_strategy"):
        name = f"{strategy.replace('_', ' ')}, {name}"
    if drafter != "model":
        name = f"{drafter.replace('_', ' ')}, {name}"
    return Way(name, num_draft_tokens, True, decode, drafter)


class Transformers:
    """transformers' `generate` with a number of torch threads. Unless `ends`, it changes the models: end tokens no longer end a
    text."""

    def __init__(self, target: Any, draft: Any, new_tokens: int, ends: bool = False) -> None:
        self.target, self.draft = target, draft
        self.new_tokens = new_tokens
        self.threads = torch.get_num_threads()
        self.forwards = 0
        self.second = 0.0  # when its second forward began
        self._ends = target.generation_config.eos_token_id if ends else None
        for model in (target, draft):  # the default for a `GenerationConfig`
            if model is not None:
                model.generation_config.eos_token_id = self._ends
        target.register_forward_pre_hook(self._count)

    def choose_threads(self, prompt: list[int]) -> None:
        """Choose the number of torch threads with the fastest plain or assisted generation: 1, all cores, or all but one; they
        are tried alternately."""
        cores = torch.get_num_threads()
        candidates = sorted({1, max(1, cores - 1), cores})
        fastest = dict.fromkeys(candidates, math.inf)
        for threads in 3 * candidates:
            self.threads = threads
            seconds = min(self.way(k, 0.0).decode(prompt, 0).seconds for k in (0, 5))
            fastest[threads] = min(fastest[threads], seconds)
        self.threads = min(candidates, key=fastest.__getitem__)

    def way(self, num_draft_tokens: int, temperature: float, lookup: bool = False) -> Way:
        """Plain generation, or with a constant number of draft tokens: of the draft model, or with `lookup` of the prompt."""

        drawn = {"temperature": temperature, "top_k": 0, "top_p": 1.0} if temperature else {}
        config = GenerationConfig(
            max_new_tokens=self.new_tokens, do_sample=bool(drawn), pad_token_id=0, eos_token_id=self._ends, **drawn
        )

        def decode(prompt: list[int], seed: int) -> Run:
            torch.manual_seed(seed)
            query = torch.tensor([prompt], device=self.target.device)
            options: dict[str, Any] = {}
            if lookup:
                options["prompt_lookup_num_tokens"] = num_draft_tokens
            elif num_draft_tokens:
                draft_config = self.draft.generation_config
                draft_config.num_assistant_tokens = num_draft_tokens
                draft_config.num_assistant_tokens_schedule = "constant"
                draft_config.assistant_confidence_threshold = 0.0
                options["assistant_model"] = self.draft
            self.forwards = 0
            before = torch.get_num_threads()
            torch.set_num_threads(self.threads)
            began = time.perf_counter()
            output = self.target.generate(query, attention_mask=torch.ones_like(query), generation_config=config, **options)
            token_ids = output[0, len(prompt) :].tolist()
            seconds = time.perf_counter() - began
            torch.set_num_threads(before)
            # Its first forward reads the prompt, and gives a token as later forwards do.
            step = (began + seconds - self.second) / max(1, self.forwards - 1)
            reading = max(0.0, self.second - began - step) if self.forwards > 1 else 0.0
            return Run(token_ids, seconds, self.forwards, prompt_seconds=reading)

        how = f"k = {num_draft_tokens}" if num_draft_tokens else "plain"
        return Way(f"transformers, {'prompt lookup, ' if lookup else ''}{how}", num_draft_tokens, False, decode)

    def _count(self, *_: Any) -> None:
        self.forwards += 1
        if self.forwards == 2:
            self.second = time.perf_counter()
