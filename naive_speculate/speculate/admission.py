"""From a request to a run: tokens, plan, sequences. Everything is checked before any model runs."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from naive_speculate.infer.inferencer import eos_token_ids
from naive_speculate.infer.plain import as_batch_model
from naive_speculate.pair import ModelPair
from naive_speculate.sampling.params import SamplingParams
from naive_speculate.sampling.random_source import RandomSource, SeededRandom, fresh_seed
from naive_speculate.speculate.build import Builder
from naive_speculate.speculate.chat import in_template, messages_of
from naive_speculate.speculate.plan import plan_of
from naive_speculate.speculate.request import GivenDraft, Prompt, Request
from naive_speculate.speculate.run import Run
from naive_speculate.speculate.sequence import CancelFlag
from naive_speculate.text import Vocabulary

_MANY_TOKENS = 2**31  # more tokens than any tokenizer has or can be asked about


MakeRandom = Callable[[int, int], RandomSource]
"""Makes a row's random source from the request's seed and the row's number among its siblings."""


class Admission:
    """Checks requests to one pair, and makes runs of them. Threads may call it at the same time.

    Attributes:
        pair: Target and draft.
        vocabulary: Its tokenizer.
        vocab_size: Number of token ids that can be generated.
        device: Where the target computes.
        eos_token_ids: The target's end-of-sequence tokens, those that it can generate.
        max_positions: How many tokens a sequence may have; None for no limit.
    """

    def __init__(self, pair: ModelPair) -> None:
        target = as_batch_model(pair.target)
        self.pair = pair
        self.vocabulary = Vocabulary(pair.tokenizer)
        self.vocab_size = pair.vocab_size
        self.device = target.device
        self.max_positions = target.max_positions
        self.eos_token_ids = tuple(
            token for token in eos_token_ids(pair.target) if 0 <= token < self.vocab_size
        )
        self._builder = Builder(pair, self.vocabulary, self.device, self.eos_token_ids)

    def run(
        self,
        request: Request,
        cancel: CancelFlag | None = None,
        *,
        first_row: int = 0,
        random: MakeRandom | None = None,
    ) -> Run:
        """Check a request and make its run, whose rows are in no batch yet and are numbered from
        `first_row`. Setting `cancel` ends it early. Draws come from the seed, unless `random`
        makes the rows' sources. Raises `ValueError`, naming the field and what was given."""
        params = request.params
        token_ids = self.encode(self._as_chat(request) if request.chat else request.prompt, params)
        self._checked("stop_token_ids", params.stop_token_ids or ())
        draft, seeded = self._given_draft(request, token_ids), params.seed is not None
        plan, drafting = plan_of(
            request,
            self.pair,
            len(token_ids),
            self.eos_token_ids,
            draft,
            seeded or random is not None,
        )
        seed = params.seed if params.seed is not None else fresh_seed()
        source = partial(random or partial(SeededRandom, device=self.device), seed)
        rows = self._builder.sequences(params, token_ids, plan, drafting, source, cancel, first_row)
        return Run(rows, self._builder.emitters(request, rows, drafting, seed))

    def encode(self, prompt: Prompt, params: SamplingParams | None = None) -> list[int]:
        """Token ids of a prompt, checked. Raises `ValueError` if it is empty, not in the
        vocabulary, or longer than the model's positions."""
        if isinstance(prompt, str):
            if not prompt:
                raise ValueError("prompt is empty")
            prompt = self.vocabulary.encode(prompt)
        elif any(isinstance(each, Mapping) for each in prompt):
            raise ValueError("prompt holds messages, which need chat=True")
        token_ids = self._checked("prompt", prompt)
        if params is not None and params.truncate_prompt_tokens is not None:
            token_ids = token_ids[-params.truncate_prompt_tokens :]
        if not token_ids:
            raise ValueError("prompt is empty: it has no tokens")
        if self.max_positions is not None and len(token_ids) > self.max_positions:
            surplus = len(token_ids) - self.max_positions
            raise ValueError(
                f"prompt has {len(token_ids)} tokens, {surplus} more than the {self.max_positions}"
                " that the model can take"
            )
        return token_ids

    def _given_draft(self, request: Request, history: list[int]) -> GivenDraft | None:
        """A user-supplied draft that continues a text, checked, in token ids."""
        if request.given_draft is None:
            return None
        draft = request.given_draft.draft
        if isinstance(draft, str):
            draft = self.vocabulary.continuing(draft, history) or self.vocabulary.encode(
                draft, "given_draft", begins=False
            )
        checked = self._checked("given_draft", draft)
        if not checked:
            raise ValueError("given_draft is empty: it has no tokens")
        return replace(request.given_draft, draft=checked)

    def _checked(self, name: str, token_ids: Sequence[Any]) -> list[int]:
        """Token ids as a list, refused under the argument's name where one is none."""
        checked = list(token_ids)
        for token in checked:
            if (
                not isinstance(token, int)
                or isinstance(token, bool)
                or not 0 <= token < self.vocab_size
            ):
                known = (
                    isinstance(token, int)
                    and self.vocab_size <= token < _MANY_TOKENS
                    and self.vocabulary.piece(token)
                )
                shown = f"{token!r:.80} ({known!r:.80})" if known else f"{token!r:.80}"
                raise ValueError(
                    f"{name} holds {shown}, expected token ids from 0 to {self.vocab_size - 1}"
                )
        return checked

    def _as_chat(self, request: Request) -> list[int]:
        messages = messages_of(request.prompt)
        if not self.has_chat_template:
            needing = "chat=True" if isinstance(request.prompt, str) else "a prompt of messages"
            raise ValueError(f"{needing} needs a chat template, and this pair's tokenizer has none")
        return in_template(self.pair.tokenizer, messages, request.template_options)

    @property
    def has_chat_template(self) -> bool:
        """Whether the tokenizer can wrap a text as a message."""
        return bool(getattr(self.pair.tokenizer, "chat_template", None))
