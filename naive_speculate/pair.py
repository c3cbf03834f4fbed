"""A target model and its drafters."""

import sys
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, cast

import torch

from naive_speculate.infer.costs import CostTable
from naive_speculate.infer.inferencer import eos_token_ids
from naive_speculate.infer.plain import as_batch_model
from naive_speculate.infer.protocols import Head, KVCache, LanguageModel, Translation
from naive_speculate.text import check_tokenizer

_HERE = Path(__file__).resolve().parent
_IN_REPOSITORY = _HERE.parent / "assets" / "pair"
BUNDLED_PAIR = _IN_REPOSITORY if _IN_REPOSITORY.is_dir() else _HERE / "bundled_pair"
"""The folder of the bundled pair: in the repository, or in the installed library."""

_VERIFY_GROWTH = 0.03


@dataclass(frozen=True)
class ModelPair:
    """A target model and its drafters.

    Attributes:
        target: The model whose output distribution is preserved.
        draft: A smaller model; None for drafting without a model or plain decoding.
        tokenizer: A transformers tokenizer; None if prompts are token ids.
        translation: From the target's tokens to the draft's, if the draft has another tokenizer;
            then only tokens that both have are drafted. `load_pair` makes it.
        measured_costs: Measured costs of this pair, for `num_draft_tokens="auto"`; otherwise
            they are estimated.
        head: A draft head, a block drafter or an assistant, which drafts from what the target
            computed; optional.
        measured_head_costs: As `measured_costs`, with the head as drafter.
        fastest_drafter: The measured fastest of "model", "head", "suffix" and "suffix+head";
            None if not measured.
        weights: A description of the target's weights, if its name is not enough.

    Raises:
        ValueError: If target or draft is not a language model, is a transformers model without
            `wrap`, or has an invalid end-of-sequence token; if the head is for another target,
            a translation lacks draft or tokenizer, or the pair lacks `fastest_drafter`.
    """

    target: LanguageModel
    draft: LanguageModel | None = None
    tokenizer: Any = None
    measured_costs: CostTable | None = None
    translation: Translation | None = None
    head: Head | None = None
    measured_head_costs: CostTable | None = None
    fastest_drafter: str | None = None
    weights: str | None = None

    def __post_init__(self) -> None:
        for name, model in {
            "target": self.target,
            **({} if self.draft is None else {"draft": self.draft}),
        }.items():
            if _is_of_transformers(model):
                raise ValueError(
                    f"{name} is transformers' {type(model).__name__}, which"
                    " naive_speculate.models.wrap must wrap"
                )
            if not callable(getattr(model, "forward", None)):
                raise ValueError(
                    f"{name} must be a LanguageModel with forward(query_token_ids, kv_cache), got"
                    f" {model!r:.80}"
                )
            try:
                eos_token_ids(model)
            except ValueError as error:
                raise ValueError(f"{name}: {error}") from None
        check_tokenizer(self.tokenizer)
        if self.translation is not None and (self.draft is None or self.tokenizer is None):
            raise ValueError(
                "translation was given without a "
                + ("draft" if self.draft is None else "tokenizer")
            )
        if self.head is not None:
            if not isinstance(self.head, Head):
                raise ValueError(
                    f"head must be a DraftHead, which load_pair loads, got {self.head!r:.80}"
                )
            self.head.check_target(self.target)
        role = "head" if self.head is None else self.head.role
        eagle = self.head if role == "head" else None
        present = {
            "model": self.draft,
            role: self.head,
            "suffix": self.target,
            "suffix+head": eagle,
        }
        if self.fastest_drafter is not None and present.get(self.fastest_drafter) is None:
            allowed = " or ".join(map(repr, present))
            raise ValueError(
                f"fastest_drafter must be {allowed} and in the pair, got"
                f" {self.fastest_drafter!r:.80}"
            )

    @cached_property
    def vocab_size(self) -> int:
        """Number of token ids that can be generated.

        This is the target's vocabulary without padding that the tokenizer does not use, since
        padding differs within a family. The tokenizer may have tokens that the target lacks,
        such as Gemma 3's image tokens.
        """
        size = _vocab_size(self.target)
        if self.tokenizer is None:
            return size
        used = min(size, max(self.tokenizer.get_vocab().values(), default=-1) + 1)
        return (
            size
            if self.draft is None or self.translation is not None
            else max(used, min(size, _vocab_size(self.draft)))
        )

    @cached_property
    def drafting(self) -> LanguageModel | None:
        """The draft model, with logits of -inf for tokens that it lacks, unless it has its own
        tokenizer."""
        if (
            self.draft is None
            or self.translation
            or (size := _vocab_size(self.draft)) >= self.vocab_size
        ):
            return self.draft
        return cast(LanguageModel, _Widened(self.draft, size, self.vocab_size))

    @property
    def has_mtp(self) -> bool:
        """Whether the target's checkpoint has a multi-token prediction layer, for the drafter
        "mtp"."""
        return getattr(self.target, "load_mtp", None) is not None

    @cached_property
    def mtp(self) -> Any:
        """That layer, loaded on first use; a `ValueError` if it is broken."""
        return cast(Any, self.target).load_mtp()

    @cached_property
    def names(self) -> dict[str, str]:
        """The models' names for display."""
        names = {role: _name(model) for role, model in self._models.items()}
        return names | ({"mtp": names["target"]} if self.has_mtp else {})

    @property
    def _models(self) -> dict[str, Any]:
        head = {} if self.head is None else {self.head.role: self.head}
        return (
            {"target": self.target} | ({} if self.draft is None else {"draft": self.draft}) | head
        )

    @property
    def default_drafter(self) -> str:
        """The drafter of requests that name none: the measured fastest, else the pair's model,
        else its head, else suffix decoding.

        Suffix decoding works for any target. Prompt lookup rarely gives more tokens per forward
        (`benchmarks/drafters.py`) and mostly needs more draft tokens.
        """
        if self.fastest_drafter is not None:
            return self.fastest_drafter
        if self.draft is not None:
            return "model"
        return "suffix" if self.head is None else self.head.role

    @cached_property
    def num_parameters(self) -> dict[str, int]:
        """Number of parameters of target, draft and head, if available; the head's without
        embeddings."""
        counts = {
            role: getattr(model, "num_parameters", None) for role, model in self._models.items()
        }
        return {role: int(count) for role, count in counts.items() if count is not None}

    def costs(self, drafter: str) -> CostTable:
        """Costs of drafting and verifying with a drafter, in target forwards over one token.

        Copying costs nothing, "suffix+head" as much as the head. A block drafter's only forward
        counts as part of the verification, since its cost does not depend on the number of
        drafts. Without measurements, a forward costs its share of the weights.
        """
        costs = self.measured_costs or CostTable(
            self._share(self.draft), tuple(1 + _VERIFY_GROWTH * k for k in range(9))
        )
        if drafter in ("head", "suffix+head"):
            return self.measured_head_costs or CostTable(self._share(self.head), costs.verify)
        if drafter == "block":
            return CostTable(
                0.0,
                (costs.verify[0], *(cost + self._share(self.head) for cost in costs.verify[1:])),
            )
        if drafter == "assistant":
            return CostTable(self._share(self.head), costs.verify)
        if drafter == "mtp":
            return CostTable(self._share(self.mtp), costs.verify)
        return costs if drafter == "model" else CostTable(0.0, costs.verify)

    @cached_property
    def learned(self) -> dict[str, Any]:
        """What was learned of the costs of each drafter; see `speculate/costs.py`."""
        return {}

    def _share(self, model: Any) -> float:
        """A model's number of parameters ÷ the target's, the estimated cost of its forward."""
        size, whole = (int(getattr(one, "num_parameters", 1)) for one in (model, self.target))
        return max(min(1.0, size / max(1, whole)) if model else 0.0, 0.02)


class _Widened:
    """A model with a smaller vocabulary than the target: it proposes its own tokens and reads
    token 0 for others."""

    def __init__(self, model: LanguageModel, own_size: int, vocab_size: int) -> None:
        self._model, self._own_size, self.vocab_size = model, own_size, vocab_size

    def forward(
        self, query_token_ids: torch.Tensor, kv_cache: KVCache, **options: Any
    ) -> torch.Tensor:
        """See `LanguageModel.forward`."""
        query = query_token_ids.masked_fill(query_token_ids >= self._own_size, 0)
        logits = self._model.forward(query, kv_cache, **options)
        return torch.nn.functional.pad(
            logits, (0, self.vocab_size - self._own_size), value=-torch.inf
        )

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)


def _is_of_transformers(model: Any) -> bool:
    """Whether it is a transformers model; if so, its class is imported already."""
    classes = sys.modules.get("transformers.modeling_utils")
    return classes is not None and isinstance(
        getattr(model, "_orig_mod", model),  # of `torch.compile`
        classes.PreTrainedModel,
    )


def _vocab_size(model: LanguageModel) -> int:
    return as_batch_model(model).vocab_size


def _name(model: LanguageModel | Head) -> str:
    name = str(getattr(model, "name", type(model).__name__))
    path = Path(name)
    if BUNDLED_PAIR in path.parents:
        return f"bundled {path.name}"
    if BUNDLED_PAIR.parent in path.parents:
        return f"{path.parent.name} {path.name}"
    return path.name if path.exists() else name
