"""Where a step's draft tokens come from: one file per drafter, and their registry."""

from naive_speculate.models.foreign.assistant_drafter import AssistantDrafter
from naive_speculate.models.foreign.block_drafter import BlockDrafter
from naive_speculate.models.foreign.parallel import ParallelHead
from naive_speculate.models.heads.suffix_head import SuffixHeadDrafter
from naive_speculate.models.translation.drafter import TranslatedDrafter
from naive_speculate.pair import ModelPair
from naive_speculate.speculate.draft.given import GIVEN, GivenDrafter, TranslatedGivenDrafter
from naive_speculate.speculate.draft.head import HeadDrafter, MtpDrafter, ParallelHeadDrafter
from naive_speculate.speculate.draft.model import ModelDrafter
from naive_speculate.speculate.draft.prompt_lookup import PromptLookupDrafter
from naive_speculate.speculate.draft.proposal import BatchDrafter, Proposal, check_proposal, merge
from naive_speculate.speculate.draft.suffix import SuffixDrafter

DRAFTERS: dict[str, type[BatchDrafter]] = {
    "model": ModelDrafter,
    "head": HeadDrafter,
    "block": BlockDrafter,
    "mtp": MtpDrafter,
    "assistant": AssistantDrafter,
    "suffix": SuffixDrafter,
    "suffix+head": SuffixHeadDrafter,
    "prompt_lookup": PromptLookupDrafter,
}
"""Drafters by the name that `drafter` takes; `DRAFTERS["mine"] = Mine` adds one."""

OWN_DRAFTERS = frozenset(
    {
        *DRAFTERS.values(),
        ParallelHeadDrafter,
        TranslatedDrafter,
        GivenDrafter,
        TranslatedGivenDrafter,
    }
)
"""The drafters of this package, whose proposals need no check."""


def drafter_for(name: str, pair: ModelPair) -> type[BatchDrafter]:
    """The drafter of a registered name, or of user-supplied drafts, for a pair; a draft model
    with another tokenizer is translated."""
    if name == GIVEN:
        return GivenDrafter if pair.translation is None else TranslatedGivenDrafter
    drafter = DRAFTERS[name]
    if drafter is BlockDrafter and isinstance(pair.head, ParallelHead):
        return ParallelHeadDrafter
    return (
        TranslatedDrafter if drafter is ModelDrafter and pair.translation is not None else drafter
    )


__all__ = [
    "DRAFTERS",
    "GIVEN",
    "OWN_DRAFTERS",
    "AssistantDrafter",
    "BatchDrafter",
    "BlockDrafter",
    "HeadDrafter",
    "ModelDrafter",
    "Proposal",
    "SuffixDrafter",
    "SuffixHeadDrafter",
    "check_proposal",
    "drafter_for",
    "merge",
]
