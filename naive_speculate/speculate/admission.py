"""From a request to a run: validate, plan, build. Everything is checked here, before any model runs."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from naive_speculate.costs import CostTable, LearnedCosts
from naive_speculate.events.emitter import Emitter
from naive_speculate.events.event import Event, EventKind
from naive_speculate.infer.inferencer import eos_token_ids
from naive_speculate.infer.plain import as_batch_model
from naive_speculate.pair import ModelPair
from naive_speculate.sampling.guided import GrammarCompiler, GuidedDecodingParams
from naive_speculate.sampling.masks_apart import MasksApart
from naive_speculate.sampling.params import SamplingParams, check_unicode
from naive_speculate.sampling.pipeline import LogitsPipeline
from naive_speculate.sampling.random_source import RandomSource, SeededRandom, fresh_seed
from naive_speculate.sampling.word_filter import FilterTable, WordFilter
from naive_speculate.sampling.words import WordList, word_list
from naive_speculate.speculate.draft import DRAFTERS, GIVEN, BatchDrafter, drafter_for
from naive_speculate.speculate.request import GivenDraft, Prompt, Request, check_given
from naive_speculate.speculate.run import Run
from naive_speculate.speculate.sequence import CancelFlag, SequenceState
from naive_speculate.speculate.tree import parse_tree
from naive_speculate.speculate.verify import VERIFIERS, Verifier, VerifyStrategy, verifier_for
from naive_speculate.speculate.window import AutoWindow, CopyOrAskWindow, FixedWindow, Window
from naive_speculate.text import StopStrings, TextStream, Vocabulary
from naive_speculate.translation import token_bytes

_MANY_TOKENS = 2**31  # more tokens than any tokenizer has or can be asked about


@dataclass(frozen=True)
class _Plan:
    """A request's fields once they are checked."""

    token_ids: list[int]  # the prompt
    verifier: Verifier  # judges its drafts
    # drafter, drafting: the drafter's name and class; no class where nothing is drafted
    drafter: str
    drafting: type[BatchDrafter] | None
    window_size: int | None  # drafts per step; None for "auto"
    confidence: float | None  # below it a window ends
    tree: tuple[int, ...] | None  # the children of a node by depth, where trees are drafted
    given: GivenDraft | None  # a user-supplied draft, in token ids
    max_length: int  # most tokens of a row, prompt included
    # ends, stops: the model's own end tokens, and all tokens that end a row
    ends: frozenset[int]
    stops: frozenset[int]


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

    def __init__(self, pair: ModelPair, mask_seconds: float | None = None) -> None:
        target = as_batch_model(pair.target)
        self.pair = pair
        self.vocabulary = Vocabulary(pair.tokenizer)
        self.vocab_size = pair.vocab_size
        self.device = target.device
        self.max_positions = target.max_positions
        self.eos_token_ids = tuple(token for token in eos_token_ids(pair.target) if 0 <= token < self.vocab_size)
        self._mask_seconds = mask_seconds
        self._grammars: GrammarCompiler | MasksApart | None = None
        self._filters: dict[WordList, FilterTable] = {}

    def run(
        self, request: Request, cancel: CancelFlag | None = None, *, first_row: int = 0, random: MakeRandom | None = None
    ) -> Run:
        """Check a request and make its run, whose rows are in no batch yet and are numbered from `first_row`. Setting `cancel`
        ends it early. Draws come from the seed, unless `random` makes the rows' sources. Raises `ValueError`, naming the field
        and what was given."""
        plan, params = self._plan(request), request.params
        seed = params.seed if params.seed is not None else fresh_seed()
        pipelines = [self._pipeline(params, plan.token_ids, plan.stops) for _ in range(params.num_sequences)]
        repeats = random is not None or params.seed is not None  # a seed repeats a run, windows included
        priced = plan.drafter if plan.drafting is not None else "suffix"  # of plain decoding only the verification costs
        shrinks = request.shrink_in_batch and (params.greedy or not repeats) and plan.given is None and plan.tree is None
        learned = self.pair.learned_costs(priced) if shrinks or not repeats else None
        costs = self.pair.costs(priced) if repeats or learned is None else learned.table()
        started = self._started(request, plan, seed, costs)
        known = self.pair.translation.to_draft if started.vocabularies is not None and self.pair.translation else None
        special = (params.skip_special_tokens, params.spaces_between_special_tokens)
        streams = params.detokenize and self.vocabulary.tokenizer is not None
        rows, emitters = [], []
        for index, pipeline in enumerate(pipelines):
            row = SequenceState(
                row=first_row + index,
                prompt_token_ids=plan.token_ids,
                token_ids=list(plan.token_ids),
                params=params,
                verifier=plan.verifier,
                drafter=plan.drafter,
                window=self._window(plan, costs, learned, repeats, shrinks),
                detail=request.detail,
                random=SeededRandom(seed, index, self.device) if random is None else random(seed, index),
                pipeline=pipeline,
                stop_token_ids=plan.stops,
                end_token_ids=plan.ends,
                max_length=plan.max_length,
                text=TextStream(self.vocabulary, plan.token_ids, *special) if streams else None,
                stops=StopStrings(params.stop, params.include_stop_str_in_output) if params.stop else None,
                cancel=cancel,
                repeats=repeats or plan.window_size is not None,
                draft_sampling=request.draft_sampling,
                tree=plan.tree,
                given_draft=plan.given,
            )
            rows.append(row)
            emitters.append(Emitter(self.vocabulary, replace(started, row=row.row), known))
        return Run(rows, emitters)

    def _plan(self, request: Request) -> _Plan:
        """Check a request, but for what its pipeline checks."""
        params, given = request.params, request.given_draft
        verifier = verifier_for(request.verify_strategy, params.greedy)
        window_size = None if request.num_draft_tokens == "auto" else int(request.num_draft_tokens)
        name = request.drafter
        if name is None and request.tree is not None and self.pair.default_drafter not in (able := ("head", "model")):
            name = next((each for each in able if DRAFTERS[each].obstacle(self.pair) is None), None)  # those that draft trees
        drafter = self._drafter(name, drafts=window_size != 0 and given is None)
        if given is not None:
            self._drafter("model", drafts=True)  # which draws where the user leaves it to it
        token_ids = self.encode(self._as_chat(request.prompt) if request.chat else request.prompt, params)
        self._checked("stop_token_ids", params.stop_token_ids or ())
        if given is not None:
            check_given(request, verifier.greedy)
            drafter, given = GIVEN, replace(given, draft=self._given(given.draft, token_ids))
        ends = frozenset(() if params.ignore_eos else self.eos_token_ids)
        tree = self._tree(request, drafter, verifier)
        window_size = len(tree) if tree is not None else window_size
        return _Plan(
            token_ids=token_ids,
            verifier=verifier,
            drafter=drafter,
            drafting=drafter_for(drafter, self.pair) if window_size != 0 else None,
            window_size=window_size,
            confidence=request.draft_confidence,
            tree=tree,
            given=given,
            max_length=self._max_length(len(token_ids), params.max_tokens),
            ends=ends,
            stops=frozenset(params.stop_token_ids or ()) | ends,
        )

    def _started(self, request: Request, plan: _Plan, seed: int, costs: CostTable) -> Event:
        """The event that opens the run, of its first row."""
        params, verifier, pair = request.params, plan.verifier, self.pair
        translation = pair.translation if plan.drafting is not None and plan.drafting.translates else None
        head: Any = plan.drafting.head_of(pair) if plan.drafting is not None else None
        settings = params.to_dict() | {
            "num_draft_tokens": request.num_draft_tokens if plan.tree is None else plan.window_size,
            "tree": request.tree,
            "draft_confidence": plan.confidence,
            "verify_strategy": str(request.verify_strategy),
            "drafter": plan.drafter,
            "draft_sampling": request.draft_sampling,
            "detail": request.detail,
            "lossy": not params.greedy and (verifier.lossy or verifier.greedy),
        }
        return Event(
            EventKind.STARTED,
            prompt=request.prompt if isinstance(request.prompt, str) else None,
            prompt_token_ids=plan.token_ids,
            prompt_texts=self.vocabulary.texts(plan.token_ids),
            settings=settings,
            seed=seed,
            models=pair.names,
            weights=pair.weights,
            device=str(self.device),
            cost_table=costs.to_dict() if plan.window_size is None else None,
            vocabularies=None if translation is None else translation.counts,
            head_layers=None if head is None else list(head.layers),
            target_layers=None if head is None else getattr(pair.target, "num_layers", None),
        )

    @staticmethod
    def _window(plan: _Plan, costs: CostTable, learned: LearnedCosts | None, repeats: bool, shrinks: bool) -> Window:
        if plan.window_size is not None:
            return FixedWindow(plan.window_size, plan.confidence, learned if shrinks else None)
        auto = partial(AutoWindow, costs, plan.confidence, greedy=plan.verifier.greedy, learned=learned, repeats=repeats)
        copies_or_asks = plan.drafting is not None and plan.drafting.copies_or_asks
        return CopyOrAskWindow(auto(copies=True), auto()) if copies_or_asks else auto()

    def encode(self, prompt: Prompt, params: SamplingParams | None = None) -> list[int]:
        """Token ids of a prompt, checked. Raises `ValueError` if it is empty, not in the vocabulary, or longer than the model's
        positions."""
        if isinstance(prompt, str):
            if not prompt:
                raise ValueError("prompt is empty")
            check_unicode("prompt", prompt)
            prompt = self.vocabulary.encode(prompt)
        token_ids = self._checked("prompt", prompt)
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

    def _given(self, draft: Prompt, history: list[int]) -> list[int]:
        """Token ids of a word that continues a text."""
        if isinstance(draft, str):
            check_unicode("given_draft", draft)
            draft = self.vocabulary.continuing(draft, history) or self.vocabulary.encode(draft, "given_draft", begins=False)
        found = self._checked("given_draft", draft)
        if not found:
            raise ValueError("given_draft is empty: it has no tokens")
        return found

    def _checked(self, name: str, token_ids: Sequence[int]) -> list[int]:
        """Token ids as a list, refused under the argument's name where one is none."""
        found = list(token_ids)
        for token in found:
            if not isinstance(token, int) or isinstance(token, bool) or not 0 <= token < self.vocab_size:
                known = isinstance(token, int) and self.vocab_size <= token < _MANY_TOKENS and self.vocabulary.piece(token)
                shown = f"{token!r:.80} ({known!r:.80})" if known else f"{token!r:.80}"
                raise ValueError(f"{name} holds {shown}, expected token ids from 0 to {self.vocab_size - 1}")
        return found

    def _as_chat(self, prompt: Prompt) -> list[int]:
        """Token ids of a text in the tokenizer's chat template."""
        if not isinstance(prompt, str):
            raise ValueError(f"chat=True needs a prompt of text, got {len(prompt)} token ids")
        if not prompt:
            raise ValueError("prompt is empty")
        if not self.has_chat_template:
            raise ValueError("chat=True needs a chat template, and this pair's tokenizer has none")
        check_unicode("prompt", prompt)
        messages = [{"role": "user", "content": prompt}]
        try:
            return list(self.pair.tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_dict=False))
        except Exception as error:  # a template is a program, which may fail in any way
            said = " ".join(str(error).split())
            raise ValueError(f"chat=True: the tokenizer's chat template fails: {type(error).__name__}: {said:.300}") from None

    def _drafter(self, name: str | None, drafts: bool) -> str:
        """The name of what drafts; where nothing is drafted, the pair may lack what it needs."""
        name = self.pair.default_drafter if name is None else name
        if not isinstance(name, str) or name not in DRAFTERS:
            raise ValueError(f"drafter must be one of {', '.join(DRAFTERS)}, got {name!r:.80}")
        if drafts and (obstacle := DRAFTERS[name].obstacle(self.pair)) is not None:
            raise ValueError(f"drafter is {name!r}, but {obstacle}")
        return name

    def _tree(self, request: Request, drafter: str, verifier: Verifier) -> tuple[int, ...] | None:
        """The children of a node by depth, checked; None where no trees are drafted."""
        tree = request.tree
        if tree is None:
            return None
        shape = parse_tree(tree)
        if request.num_draft_tokens == 0:
            return None
        given = f"tree={tree!r} needs"
        if not (drafting := drafter_for(drafter, self.pair)).drafts_trees:
            raise ValueError(f"{given} the drafter 'head', or 'model' with the target's tokens, got {drafter!r}")
        if not verifier.greedy and verifier is not VERIFIERS[VerifyStrategy.SPECULATIVE_SAMPLING]:
            raise ValueError(f"{given} verify_strategy 'speculative_sampling', got {str(request.verify_strategy)!r}")
        if request.draft_confidence is not None:
            raise ValueError(f"{given} draft_confidence None, got {request.draft_confidence}")
        for model in (self.pair.target, self.pair.drafting if drafting.head_of(self.pair) is None else None):
            if model is not None and not getattr(model, "takes_trees", False):
                raise ValueError(f"{given} a model that computes a tree in one pass, {type(model).__name__} does not")
        return shape

    @property
    def has_chat_template(self) -> bool:
        """Whether the tokenizer can wrap a text as a message."""
        return bool(getattr(self.pair.tokenizer, "chat_template", None))

    def _pipeline(self, params: SamplingParams, prompt: list[int], stops: frozenset[int]) -> LogitsPipeline:
        guided = params.guided_decoding
        return LogitsPipeline(
            params,
            prompt,
            self.vocab_size,
            sorted(stops | frozenset(self.eos_token_ids)),
            self.vocabulary.bad_word_sequences(params.bad_words) if params.bad_words else (),
            self._grammar(params).compile(guided) if isinstance(guided, GuidedDecodingParams) else None,
            None if params.filter_words is None else WordFilter(self._filter(params.filter_words), prompt),
        )

    def _max_length(self, num_prompt_tokens: int, max_tokens: int | None) -> int:
        limits = [] if max_tokens is None else [num_prompt_tokens + max_tokens]
        if self.max_positions is not None:
            limits.append(self.max_positions)
        if not limits:
            raise ValueError("max_tokens is None, but this model has no limit of its own (max_positions): give a number")
        return min(limits)

    def _filter(self, given: str | WordList) -> FilterTable:
        words = word_list(given)
        if self.pair.tokenizer is None:
            raise ValueError(f"filter_words={words.name!r} needs a tokenizer, and this pair has none")
        if words not in self._filters:
            self._filters[words] = FilterTable(words, token_bytes(self.pair.tokenizer), self.vocab_size)
        return self._filters[words]

    def _grammar(self, params: SamplingParams) -> GrammarCompiler | MasksApart:
        if self.pair.tokenizer is None:
            raise ValueError(f"guided_decoding={params.guided_decoding!r} needs a tokenizer, and this pair has none")
        if self._grammars is None:
            compiler = GrammarCompiler(self.pair.tokenizer, self.vocab_size, self.eos_token_ids)
            self._grammars = compiler if self._mask_seconds is None else MasksApart(compiler, self._mask_seconds)
        return self._grammars
