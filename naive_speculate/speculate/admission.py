"""From a request to a run: validate, plan, build. Everything is checked here, before any model
runs."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

from naive_speculate.events.emitter import Emitter
from naive_speculate.events.event import Event, EventKind
from naive_speculate.infer.costs import CostTable
from naive_speculate.infer.inferencer import eos_token_ids
from naive_speculate.infer.plain import as_batch_model
from naive_speculate.pair import ModelPair
from naive_speculate.sampling.masks import MASKS, Mask, MaskMaker
from naive_speculate.sampling.options import options_of
from naive_speculate.sampling.params import SamplingParams, check_unicode
from naive_speculate.sampling.pipeline import LogitsPipeline
from naive_speculate.sampling.random_source import RandomSource, SeededRandom, fresh_seed
from naive_speculate.speculate.chat import in_template, messages_of, words_of
from naive_speculate.speculate.costs import learned_costs
from naive_speculate.speculate.draft import DRAFTERS, GIVEN, BatchDrafter, drafter_for
from naive_speculate.speculate.request import MAX_DRAFT_TOKENS, GivenDraft, Prompt, Request
from naive_speculate.speculate.run import Run
from naive_speculate.speculate.sequence import CancelFlag, SequenceState
from naive_speculate.speculate.tree import parse_tree
from naive_speculate.speculate.verify import VERIFIERS, Verifier, VerifyStrategy, verifier_for
from naive_speculate.speculate.window import AutoWindow, CopyOrAskWindow, FixedWindow, Window
from naive_speculate.text import StopStrings, TextStream, Vocabulary

_MANY_TOKENS = 2**31  # more tokens than any tokenizer has or can be asked about


MakeRandom = Callable[[int, int], RandomSource]
"""Makes a row's random source from the request's seed and the row's number among its siblings."""


_OPTIONS = tuple(options_of(Request))
_OF_DRAFTS = 2**32  # distinguishes a row's drafts from all rows


class _Plan(NamedTuple):
    """What is drafted for a request."""

    verifier: Verifier  # judges its drafts
    drafter: str  # name of its drafter
    drafting: type[BatchDrafter] | None  # its class; None where nothing is drafted
    size: int | None  # draft tokens per step; None for "auto"
    tree: tuple[int, ...] | None  # the children of a node by depth, where it drafts trees
    given_draft: GivenDraft | None  # a user-supplied draft, in token ids


class _Limits(NamedTuple):
    """Where a request's sequences end."""

    max_length: int  # the most tokens, prompt included
    stop_token_ids: frozenset[int]  # tokens that end them
    end_token_ids: frozenset[int]  # those of them that are the model's own end


class _Windows(NamedTuple):
    """How many tokens are drafted per step."""

    new: Callable[[], Window]  # a row's window
    costs: CostTable  # what they assume
    repeat: bool  # whether a seed repeats them


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
        self._makers: dict[str, MaskMaker] = {}

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
        verifier = verifier_for(request.verify_strategy, params.greedy)
        drafter = self._drafter(request)
        token_ids = self.encode(self._as_chat(request) if request.chat else request.prompt, params)
        self._checked("stop_token_ids", params.stop_token_ids or ())
        plan = self._plan(request, token_ids, verifier, drafter)
        limits = self._limits(params, len(token_ids))
        seed = params.seed if params.seed is not None else fresh_seed()
        draws = random or partial(SeededRandom, device=self.device)
        windows = self._windows(request, plan, random is not None or params.seed is not None)
        rows = []
        for index, pipeline in enumerate(self._pipelines(params, token_ids, limits)):
            source = draws(seed, index)
            row = SequenceState(
                row=first_row + index,
                prompt_token_ids=token_ids,
                token_ids=list(token_ids),
                params=params,
                verifier=verifier,
                drafter=drafter,
                window=windows.new(),
                detail=request.detail,
                random=source,
                draft_random=draws(seed, index + _OF_DRAFTS) if verifier.matches_draws else source,
                pipeline=pipeline,
                stop_token_ids=limits.stop_token_ids,
                end_token_ids=limits.end_token_ids,
                max_length=limits.max_length,
                text=self._text(params, token_ids),
                stops=_stop_strings(params),
                cancel=cancel,
                repeats=windows.repeat,
                draft_sampling=request.draft_sampling,
                tree=plan.tree,
                given_draft=plan.given_draft,
            )
            rows.append(row)
        return Run(rows, self._emitters(request, rows, plan, seed, windows.costs))

    def _plan(
        self, request: Request, token_ids: list[int], verifier: Verifier, drafter: str
    ) -> "_Plan":
        """What is drafted; the prompt's token ids are checked."""
        draft = self._given_draft(request, token_ids, verifier.greedy)
        tree = self._tree(request, drafter, verifier)
        size = None if request.num_draft_tokens == "auto" else int(request.num_draft_tokens)
        size = size if tree is None else len(tree)
        drafting = drafter_for(drafter, self.pair) if size != 0 else None
        return _Plan(verifier, drafter, drafting, size, tree, draft)

    def _limits(self, params: SamplingParams, num_prompt_tokens: int) -> "_Limits":
        """Where the sequences end."""
        max_length = self._max_length(num_prompt_tokens, params.max_tokens)
        ends = frozenset(() if params.ignore_eos else self.eos_token_ids)
        return _Limits(max_length, frozenset(params.stop_token_ids or ()) | ends, ends)

    def _windows(self, request: Request, plan: "_Plan", repeats: bool) -> "_Windows":
        """The windows of a request's rows; `repeats`: whether a seed must repeat them."""
        size, greedy = plan.size, request.params.greedy
        # of plain decoding only the verification costs
        priced = plan.drafter if plan.drafting is not None else "suffix"
        shrinks = (
            request.shrink_in_batch
            and (greedy or not repeats)
            and plan.given_draft is None
            and plan.tree is None
        )
        learned = (
            learned_costs(self.pair, priced) if shrinks or (size is None and not repeats) else None
        )
        costs = self.pair.costs(priced) if repeats or learned is None else learned.table()
        least = request.draft_confidence
        auto = partial(
            AutoWindow, costs, least, greedy=plan.verifier.greedy, learned=learned, repeats=repeats
        )

        def new() -> Window:
            if size is not None:
                return FixedWindow(size, least, learned)
            if plan.drafting is not None and plan.drafting.copies_or_asks:
                return CopyOrAskWindow(auto(copies=True), auto())
            return auto()

        return _Windows(new, costs, repeats or size is not None)

    def _text(self, params: SamplingParams, token_ids: list[int]) -> TextStream | None:
        """What turns a sequence's tokens into text."""
        if not params.detokenize or self.vocabulary.tokenizer is None:
            return None
        special = (params.skip_special_tokens, params.spaces_between_special_tokens)
        return TextStream(self.vocabulary, token_ids, *special)

    def _emitters(
        self,
        request: Request,
        rows: Sequence[SequenceState],
        plan: "_Plan",
        seed: int,
        costs: CostTable,
    ) -> list[Emitter]:
        """An emitter per row, with the event that opens its run."""
        params, verifier, pair, drafting = (
            request.params,
            plan.verifier,
            self.pair,
            plan.drafting,
        )
        translation = pair.translation if drafting is not None and drafting.translates else None
        head: Any = drafting.head_of(pair) if drafting is not None else None
        settings = params.to_dict() | {name: getattr(request, name) for name in _OPTIONS}
        settings |= {
            "num_draft_tokens": request.num_draft_tokens if plan.tree is None else plan.size,
            "verify_strategy": str(request.verify_strategy),
            "drafter": rows[0].drafter,
            "detail": request.detail,
            "lossy": not params.greedy and (verifier.lossy or verifier.greedy),
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
            cost_table=costs.to_dict() if plan.size is None else None,
            vocabularies=None if translation is None else translation.counts,
            head_layers=None if head is None else list(head.layers),
            target_layers=None if head is None else getattr(pair.target, "num_layers", None),
        )
        known = None if translation is None else translation.to_draft
        return [Emitter(self.vocabulary, replace(started, row=row.row), known) for row in rows]

    def encode(self, prompt: Prompt, params: SamplingParams | None = None) -> list[int]:
        """Token ids of a prompt, checked. Raises `ValueError` if it is empty, not in the
        vocabulary, or longer than the model's positions."""
        if isinstance(prompt, str):
            if not prompt:
                raise ValueError("prompt is empty")
            check_unicode("prompt", prompt)
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

    def _given_draft(self, request: Request, history: list[int], greedy: bool) -> GivenDraft | None:
        """A user-supplied draft that continues a text, checked, in token ids."""
        if request.given_draft is None:
            return None
        if (size := request.num_draft_tokens) in (0, "auto"):
            raise ValueError(
                f"given_draft needs num_draft_tokens from 1 to {MAX_DRAFT_TOKENS}, got {size!r}"
            )
        if greedy:
            needed = "a temperature above 0 and a strategy that samples"
            raise ValueError(f"given_draft needs {needed}: its probability has no other use")
        if request.draft_sampling != "sampled":
            raise ValueError(
                f"given_draft needs draft_sampling='sampled', got {request.draft_sampling!r}"
            )
        draft = request.given_draft.draft
        if isinstance(draft, str):
            check_unicode("given_draft", draft)
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
        """Token ids of a text, or of messages, in the tokenizer's chat template."""
        messages = messages_of(request.prompt)
        if not self.has_chat_template:
            needing = "chat=True" if isinstance(request.prompt, str) else "a prompt of messages"
            raise ValueError(f"{needing} needs a chat template, and this pair's tokenizer has none")
        return in_template(self.pair.tokenizer, messages, request.template_options)

    def _drafter(self, request: Request) -> str:
        """The name of what drafts; where nothing is drafted, the pair may lack what it needs."""
        name, able = request.drafter, ("head", "model")  # those that draft trees
        if name is None and request.tree is not None and self.pair.default_drafter not in able:
            name = next((each for each in able if DRAFTERS[each].obstacle(self.pair) is None), None)
        name = self.pair.default_drafter if name is None else name
        if not isinstance(name, str) or name not in DRAFTERS:
            raise ValueError(f"drafter must be one of {', '.join(DRAFTERS)}, got {name!r:.80}")
        has_draft = request.given_draft is not None
        drafting = "model" if has_draft else name  # which draws where the user leaves it to it
        if (has_draft or request.num_draft_tokens != 0) and (
            obstacle := DRAFTERS[drafting].obstacle(self.pair)
        ) is not None:
            raise ValueError(f"drafter is {drafting!r}, but {obstacle}")
        return GIVEN if has_draft else name

    def _tree(self, request: Request, drafter: str, verifier: Verifier) -> tuple[int, ...] | None:
        """The children of a node by depth, checked; None where no trees are drafted."""
        tree = request.tree
        if tree is None:
            return None
        shape = parse_tree(tree)
        if request.num_draft_tokens == 0:
            return None
        needs = f"tree={tree!r} needs"
        if not (drafting := drafter_for(drafter, self.pair)).drafts_trees:
            raise ValueError(
                f"{needs} the drafter 'head', or 'model' with the target's tokens, got {drafter!r}"
            )
        if not verifier.greedy and verifier is not VERIFIERS[VerifyStrategy.SPECULATIVE_SAMPLING]:
            raise ValueError(
                f"{needs} verify_strategy 'speculative_sampling', got"
                f" {str(request.verify_strategy)!r}"
            )
        if request.draft_confidence is not None:
            raise ValueError(f"{needs} draft_confidence None, got {request.draft_confidence}")
        for model in (
            self.pair.target,
            self.pair.drafting if drafting.head_of(self.pair) is None else None,
        ):
            if model is not None and not as_batch_model(model).takes_trees:
                raise ValueError(
                    f"{needs} a model that computes a tree in one pass, {type(model).__name__}"
                    " does not"
                )
        return shape

    @property
    def has_chat_template(self) -> bool:
        """Whether the tokenizer can wrap a text as a message."""
        return bool(getattr(self.pair.tokenizer, "chat_template", None))

    def _pipelines(
        self, params: SamplingParams, prompt: list[int], limits: "_Limits"
    ) -> list[LogitsPipeline]:
        """A pipeline for each sequence."""
        return [
            LogitsPipeline(
                params,
                prompt,
                self.vocab_size,
                sorted(limits.stop_token_ids | frozenset(self.eos_token_ids)),
                self.vocabulary.bad_word_sequences(params.bad_words) if params.bad_words else (),
                self._masks(params, prompt),
            )
            for _ in range(params.num_sequences)
        ]

    def _max_length(self, num_prompt_tokens: int, max_tokens: int | None) -> int:
        limits = [] if max_tokens is None else [num_prompt_tokens + max_tokens]
        if self.max_positions is not None:
            limits.append(self.max_positions)
        if not limits:
            raise ValueError(
                "max_tokens is None, but this model has no limit of its own (max_positions): give a"
                " number"
            )
        return min(limits)

    def _masks(self, params: SamplingParams, prompt: list[int]) -> dict[str, Mask]:
        """The masks of a sequence, by the option that asks for each."""
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
                    self.pair.tokenizer, self.vocab_size, self.eos_token_ids
                )
            masks[name] = self._makers[name].mask(value, prompt)
        return masks


def _stop_strings(params: SamplingParams) -> StopStrings | None:
    """What looks for a sequence's stop strings."""
    return StopStrings(params.stop, params.include_stop_str_in_output) if params.stop else None
