"""From a request to what its sequences have in common: what drafts, how much, and where they end.
No model runs here, and no sequence is made."""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from naive_speculate.infer.costs import CostTable
from naive_speculate.infer.plain import as_batch_model
from naive_speculate.pair import ModelPair
from naive_speculate.speculate.costs import learned_costs
from naive_speculate.speculate.draft import DRAFTERS, GIVEN, BatchDrafter, drafter_for
from naive_speculate.speculate.request import GivenDraft, Request
from naive_speculate.speculate.sequence import Plan
from naive_speculate.speculate.window import AutoWindow, CopyOrAskWindow, FixedWindow, Window


class Drafting(NamedTuple):
    """How a request's drafts come about."""

    kind: type[BatchDrafter] | None  # None where nothing is drafted
    size: int | None  # draft tokens per step; None for "auto"
    costs: CostTable  # what windows assume
    new_window: Callable[[], Window]  # a sequence's window


def plan_of(
    request: Request,
    pair: ModelPair,
    num_prompt_tokens: int,
    eos_token_ids: tuple[int, ...],
    given_draft: GivenDraft | None,
    seeded: bool,
) -> tuple[Plan, Drafting]:
    """The plan of a request whose tokens are checked; `seeded`: whether its seed must repeat it.
    Raises `ValueError`, naming the field and what was given, if the pair cannot do it."""
    drafter = _drafter(request, pair)
    _check_tree(request, pair, drafter)
    drafting = _drafting(request, pair, drafter, seeded)
    params = request.params
    ends = frozenset(() if params.ignore_eos else eos_token_ids)
    plan = Plan(
        verifier=request.verifier,
        drafter=drafter,
        tree=request.shape,
        given_draft=given_draft,
        detail=request.detail,
        draft_sampling=request.draft_sampling,
        stop_token_ids=frozenset(params.stop_token_ids or ()) | ends,
        end_token_ids=ends,
        max_length=_max_length(num_prompt_tokens, params.max_tokens, pair),
        repeats=seeded or drafting.size is not None,
    )
    return plan, drafting


def _drafter(request: Request, pair: ModelPair) -> str:
    """The name of what drafts; where nothing is drafted, the pair may lack what it needs."""
    name, able = request.drafter, ("head", "model")  # those that draft trees
    if name is None and request.tree is not None and pair.default_drafter not in able:
        name = next((each for each in able if DRAFTERS[each].obstacle(pair) is None), None)
    name = pair.default_drafter if name is None else name
    if not isinstance(name, str) or name not in DRAFTERS:
        raise ValueError(f"drafter must be one of {', '.join(DRAFTERS)}, got {name!r:.80}")
    has_draft = request.given_draft is not None
    drafting = "model" if has_draft else name  # which draws where the user leaves it to it
    if (has_draft or request.num_draft_tokens != 0) and (
        obstacle := DRAFTERS[drafting].obstacle(pair)
    ) is not None:
        raise ValueError(f"drafter is {drafting!r}, but {obstacle}")
    return GIVEN if has_draft else name


def _check_tree(request: Request, pair: ModelPair, drafter: str) -> None:
    """Raise a `ValueError` if drafter or models have no trees, where some are to be drafted."""
    if request.shape is None:
        return
    needs, drafting = f"tree={request.tree!r} needs", drafter_for(drafter, pair)
    if not drafting.drafts_trees:
        raise ValueError(
            f"{needs} the drafter 'head', or 'model' with the target's tokens, got {drafter!r}"
        )
    draft = pair.drafting if drafting.head_of(pair) is None else None
    for model in (pair.target, draft):
        if model is not None and not as_batch_model(model).takes_trees:
            raise ValueError(
                f"{needs} a model that computes a tree in one pass, {type(model).__name__} does not"
            )


def _drafting(request: Request, pair: ModelPair, drafter: str, seeded: bool) -> Drafting:
    size = None if request.num_draft_tokens == "auto" else int(request.num_draft_tokens)
    size = size if request.shape is None else len(request.shape)
    kind = drafter_for(drafter, pair) if size != 0 else None
    priced = "suffix" if kind is None else drafter  # of plain decoding only the verification costs
    shrinks = (
        request.shrink_in_batch
        and (request.params.greedy or not seeded)
        and request.given_draft is None
        and request.shape is None
    )
    learned = learned_costs(pair, priced) if shrinks or (size is None and not seeded) else None
    costs = pair.costs(priced) if seeded or learned is None else learned.table()
    least, greedy = request.draft_confidence, request.verifier.greedy
    auto = partial(AutoWindow, costs, least, greedy=greedy, learned=learned, repeats=seeded)

    def new() -> Window:
        if size is not None:
            return FixedWindow(size, least, learned)
        if kind is not None and kind.copies_or_asks:
            return CopyOrAskWindow(auto(copies=True), auto())
        return auto()

    return Drafting(kind, size, costs, new)


def _max_length(num_prompt_tokens: int, max_tokens: int | None, pair: ModelPair) -> int:
    positions = as_batch_model(pair.target).max_positions
    limits = [] if max_tokens is None else [num_prompt_tokens + max_tokens]
    if positions is not None:
        limits.append(positions)
    if not limits:
        raise ValueError(
            "max_tokens is None, but this model has no limit of its own (max_positions): give a"
            " number"
        )
    return min(limits)
