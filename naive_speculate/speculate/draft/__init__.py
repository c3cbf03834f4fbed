"""Where a step's draft tokens come from: one file per drafter, and their registry."""

from naive_speculate.pair import ModelPair
from naive_speculate.sampling.registry import Registry
from naive_speculate.speculate.draft.given import GIVEN, GivenDrafter
from naive_speculate.speculate.draft.head import HeadDrafter
from naive_speculate.speculate.draft.model import ModelDrafter
from naive_speculate.speculate.draft.prompt_lookup import PromptLookupDrafter
from naive_speculate.speculate.draft.proposal import BatchDrafter, Proposal, check_proposal, merge
from naive_speculate.speculate.draft.suffix import SuffixDrafter

_MODELS = "naive_speculate.models"

DRAFTERS: Registry[type[BatchDrafter]] = Registry(
    {
        "model": ModelDrafter,
        "head": HeadDrafter,
        "block": f"{_MODELS}.foreign.block_drafter:BlockDrafter",
        "mtp": f"{_MODELS}.foreign.mtp_drafter:MtpDrafter",
        "assistant": f"{_MODELS}.foreign.assistant_drafter:AssistantDrafter",
        "suffix": SuffixDrafter,
        "suffix+head": f"{_MODELS}.heads.suffix_head:SuffixHeadDrafter",
        "prompt_lookup": PromptLookupDrafter,
    }
)
"""Drafters by the name that `drafter` takes; `DRAFTERS["mine"] = Mine` adds one."""

_TRANSLATED: Registry[type[BatchDrafter]] = Registry(
    {
        "model": f"{_MODELS}.translation.drafter:TranslatedDrafter",
        GIVEN: f"{_MODELS}.translation.drafter:TranslatedGivenDrafter",
    }
)


def drafter_for(name: str, pair: ModelPair) -> type[BatchDrafter]:
    """The drafter of a registered name, or of user-supplied drafts, for a pair."""
    drafter = (GivenDrafter if name == GIVEN else DRAFTERS[name]).suited_to(pair)
    if pair.translation is None:
        return drafter
    if drafter is ModelDrafter:
        return _TRANSLATED["model"]
    return _TRANSLATED[GIVEN] if drafter is GivenDrafter else drafter


__all__ = [
    "DRAFTERS",
    "GIVEN",
    "BatchDrafter",
    "HeadDrafter",
    "ModelDrafter",
    "Proposal",
    "SuffixDrafter",
    "check_proposal",
    "drafter_for",
    "merge",
]
