"""Where a step's draft tokens come from: one file a drafter, and their registry."""

from naive_speculate.speculate.draft.head import HeadDrafter
from naive_speculate.speculate.draft.model import ModelDrafter
from naive_speculate.speculate.draft.prompt_lookup import PromptLookupDrafter
from naive_speculate.speculate.draft.proposal import BatchDrafter, Proposal, check_proposal, merge

DRAFTERS: dict[str, type[BatchDrafter]] = {
    "model": ModelDrafter,
    "head": HeadDrafter,
    "prompt_lookup": PromptLookupDrafter,
}
"""Drafters by the name that `drafter` takes; `DRAFTERS["mine"] = Mine` adds one."""

OWN_DRAFTERS = frozenset(DRAFTERS.values())
"""Those of this package, whose proposals need no check."""

__all__ = [
    "DRAFTERS",
    "OWN_DRAFTERS",
    "BatchDrafter",
    "HeadDrafter",
    "ModelDrafter",
    "PromptLookupDrafter",
    "Proposal",
    "check_proposal",
    "merge",
]
