"""A target model and what drafts for it."""

import sys
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, cast

import torch

from naive_speculate.costs import CostTable
from naive_speculate.infer.head.model import DraftHead, check_head
from naive_speculate.infer.inferencer import eos_token_ids
from naive_speculate.infer.plain import as_batch_model
from naive_speculate.infer.protocols import KVCache, LanguageModel
from naive_speculate.known import DRAFTERS
from naive_speculate.translation import Translation, translation_between

_HERE = Path(__file__).resolve().parent
_IN_REPOSITORY = _HERE.parent / "assets" / "pair"
BUNDLED_PAIR = _IN_REPOSITORY if _IN_REPOSITORY.is_dir() else _HERE / "bundled_pair"
"""The pair that ships: in the repository, or within the installed library."""

_VERIFY_GROWTH = 0.03


@dataclass(frozen=True)
class ModelPair:
    """A target model, and what drafts for it.

    Attributes:
        target: The model whose output is wanted.
        draft: A smaller model; None where only drafting without a model or plain decoding is wanted.
        tokenizer: A transformers tokenizer; None where prompts are token ids.
        draft_tokenizer: The draft's, where it has another than the target; then the tokens that both know are drafted.
        measured_costs: Costs measured for this pair, for `num_draft_tokens="auto"`; else they are estimated.
        head: A draft head, which drafts from the target's hidden states; None where there is none.
        measured_head_costs: As `measured_costs`, where the head drafts.
        fastest_drafter: Which of "model", "head", "suffix" and "suffix+head" was measured to decode fastest; None where that
            was not measured.
        weights: Which weights the target has, for people, where its name does not tell; None where nothing need be said.

    Raises:
        ValueError: If target or draft is not a language model, or one of transformers without `wrap`, or its end-of-sequence
            token is not a token id, the head is for another target, the draft's tokenizer shares fewer than a tenth of the
            target's tokens, or the pair has no drafter of `fastest_drafter`.
    """

    target: LanguageModel
    draft: LanguageModel | None = None
    tokenizer: Any = None
    measured_costs: CostTable | None = None
    draft_tokenizer: Any = None
    head: DraftHead | None = None
    measured_head_costs: CostTable | None = None
    fastest_drafter: str | None = None
    weights: str | None = None

    def __post_init__(self) -> None:
        for name, model in {"target": self.target, **({} if self.draft is None else {"draft": self.draft})}.items():
            if _is_of_transformers(model):
                raise ValueError(f"{name} is transformers' {type(model).__name__}, which naive_speculate.models.wrap must wrap")
            if not callable(getattr(model, "forward", None)):
                raise ValueError(f"{name} must be a LanguageModel with forward(query_token_ids, kv_cache), got {model!r:.80}")
            try:
                eos_token_ids(model)
            except ValueError as error:
                raise ValueError(f"{name}: {error}") from None
        if self.draft_tokenizer is not None and (self.draft is None or self.tokenizer is None):
            raise ValueError("draft_tokenizer was given without a " + ("draft" if self.draft is None else "tokenizer"))
        self.translation  # noqa: B018 - refuses a draft with too few common tokens
        if self.head is not None:
            check_head(self.head, self.target)
        present = {"model": self.draft, "head": self.head, "suffix": self.target, "suffix+head": self.head}
        if self.fastest_drafter is not None and present.get(self.fastest_drafter) is None:
            allowed = " or ".join(map(repr, present))
            raise ValueError(f"fastest_drafter must be {allowed} and in the pair, got {self.fastest_drafter!r:.80}")

    @cached_property
    def translation(self) -> Translation | None:
        """Between the tokens of target and draft; None where they are the same."""
        if self.draft_tokenizer is None:
            return None
        try:
            return translation_between(self.tokenizer, self.draft_tokenizer)
        except ValueError as error:
            raise ValueError(f"draft_tokenizer {error}") from None

    @cached_property
    def vocab_size(self) -> int:
        """Number of token ids that can be generated: all of the target's, or without the padding that no token of the tokenizer
        uses, by which the embeddings of one family may differ. The tokenizer may have tokens that the target does not know, as
        Gemma 3's has for images."""
        size = _vocab_size(self.target)
        if self.tokenizer is None:
            return size
        used = min(size, max(self.tokenizer.get_vocab().values(), default=-1) + 1)
        return size if self.draft is None or self.translation is not None else max(used, min(size, _vocab_size(self.draft)))

    @cached_property
    def drafting(self) -> LanguageModel | None:
        """The draft model, with logits of -inf for tokens that it does not know, unless it has a tokenizer of its own."""
        if self.draft is None or self.translation or (known := _vocab_size(self.draft)) >= self.vocab_size:
            return self.draft
        return cast(LanguageModel, _Widened(self.draft, known, self.vocab_size))

    @cached_property
    def names(self) -> dict[str, str]:
        """The models' names, for people."""
        models = {"target": self.target, "draft": self.draft, "head": self.head}
        return {role: _name(model) for role, model in models.items() if model is not None}

    @property
    def default_drafter(self) -> str:
        """What drafts where a request does not say: what was measured to be fastest; where nothing was measured, the pair's own
        model, or else its head.

        Without a model or a head that is suffix decoding: it drafts for any target, and prompt lookup gives hardly ever more
        tokens a forward (`benchmarks/drafters.py`) and mostly takes more drafts.
        """
        if self.fastest_drafter is not None:
            return self.fastest_drafter
        if self.draft is not None:
            return "model"
        return "suffix" if self.head is None else "head"

    @cached_property
    def num_parameters(self) -> dict[str, int]:
        """How many parameters target, draft and head have, as far as they tell; of the head, all but its embeddings."""
        counts = {"target": self.target, "draft": self.draft, "head": self.head}
        known = {role: getattr(model, "num_parameters", None) for role, model in counts.items()}
        return {role: int(count) for role, count in known.items() if count is not None}

    def costs(self, drafter: str) -> CostTable:
        """Costs of drafting and verifying with a drafter of this name, in target forwards over one token; copying is taken to
        cost nothing, and "suffix+head" what the head costs.

        They do not depend on how fast this machine is just now, so that a seed repeats a run everywhere. Without measured
        ones, a forward is taken to cost its share of the weights.
        """
        costs = self.measured_costs or CostTable(self._share(self.draft), tuple(1 + _VERIFY_GROWTH * k for k in range(9)))
        if drafter in ("head", "suffix+head"):
            return self.measured_head_costs or CostTable(self._share(self.head), costs.verify)
        return costs if drafter == "model" else CostTable(0.0, costs.verify)

    def _share(self, model: Any) -> float:
        """A model's share of the target's weights, which its forward is taken to cost."""
        size, whole = (int(getattr(one, "num_parameters", 1)) for one in (model, self.target))
        return max(min(1.0, size / max(1, whole)) if model else 0.0, 0.02)


class _Widened:
    """A model with a smaller vocabulary than its partner's: it proposes what it knows and reads token 0 for the rest."""

    def __init__(self, model: LanguageModel, known: int, vocab_size: int) -> None:
        self._model, self._known, self.vocab_size = model, known, vocab_size

    def forward(self, query_token_ids: torch.Tensor, kv_cache: KVCache, **options: Any) -> torch.Tensor:
        """See `LanguageModel.forward`."""
        known = query_token_ids.masked_fill(query_token_ids >= self._known, 0)
        logits = self._model.forward(known, kv_cache, **options)
        return torch.nn.functional.pad(logits, (0, self.vocab_size - self._known), value=-torch.inf)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)


def _is_of_transformers(model: Any) -> bool:
    """Whether it is one of transformers' own models; who has one has imported their class."""
    classes = sys.modules.get("transformers.modeling_utils")
    return classes is not None and isinstance(model, classes.PreTrainedModel)


def _vocab_size(model: LanguageModel) -> int:
    return as_batch_model(model).vocab_size


def _name(model: LanguageModel | DraftHead) -> str:
    name = str(getattr(model, "name", type(model).__name__))
    path = Path(name)
    if BUNDLED_PAIR in path.parents:
        return f"bundled {path.name}"
    if DRAFTERS in path.parents:
        return f"{path.parent.name} {path.name}"
    return path.name if path.exists() else name
