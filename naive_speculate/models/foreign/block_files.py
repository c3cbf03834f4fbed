"""What the files of a block drafter hold beyond layers: its options, and the weights of DSpark,
DFlash 2 and XPress.

Two layouts. z-lab/dflash 0.1.0 has options in `dflash_config` or at the top; a sliding layer is
causal within its block unless `is_causal` says otherwise. vLLM's speculators 0.9.0 has them at the
top, under other names; see `BlockOptions.window_from_anchor`.
"""

from collections.abc import Callable, Mapping
from typing import Any

import torch

from naive_speculate.models.foreign.block import BlockOptions, Convolution
from naive_speculate.models.foreign.chain import CandidateSelector, Chain, MarkovChain, Refiner
from naive_speculate.models.heads.weights import HeadWeights

_SECTION = "dflash_config"
_BLOCK_SIZE = 16  # of z-lab/dflash
Take = Callable[..., torch.Tensor]
"""Reads a tensor by name and checks its shape, -1 for any number."""


def block_option(config: Mapping[str, Any], name: str, default: Any = None) -> Any:
    """An option in `dflash_config`, else at the top (`_draft_value` of z-lab/dflash)."""
    value = (config.get(_SECTION) or {}).get(name)
    value = config.get(name) if value is None else value
    return default if value is None else value


def mask_token(config: Mapping[str, Any], vocab_size: int) -> int:
    """The target's token that a mask reads; a `ValueError` if it has none such."""
    mask = block_option(config, "mask_token_id")
    if type(mask) is not int or not 0 <= mask < vocab_size:
        raise ValueError(
            f"mask_token_id must be one of the target's {vocab_size} tokens, got {mask!r:.80}"
        )
    return mask


def block_options(config: Mapping[str, Any], kind: str, vocab_size: int) -> BlockOptions:
    """How a block drafter's blocks are computed. Raises `ValueError` for odd values."""
    ours = "speculators_model_type" in config
    size = block_option(config, "block_size", None if ours else _BLOCK_SIZE)
    from_anchor = block_option(config, "sample_from_anchor", ours and kind == "dspark")
    if type(size) is not int or size < 2:
        raise ValueError(f"block_size must be a whole number of at least 2, got {size!r:.80}")
    if block_option(config, "shift_label"):
        raise ValueError(
            "shift_label is not supported: a mask must predict the token at its own position"
        )
    if ours:
        non_causal = block_option(config, "sliding_window_non_causal", kind == "dflash2")
        causal = False if _flag("sliding_window_non_causal", non_causal) else None
    else:
        causal = block_option(config, "is_causal")
        causal = None if causal is None else _flag("is_causal", causal)
    return BlockOptions(
        block_size=size,
        mask_token_id=mask_token(config, vocab_size),
        from_anchor=_flag("sample_from_anchor", from_anchor),
        causal=causal,
        window_from_anchor=ours,
        embedding_scale=_number(config, "input_embedding_scale", 1.0),
        output_scale=_number(config, "output_multiplier", 1.0),
        softcap=_number(config, "final_logit_softcapping", 0.0),
    )


def chain_in(take: Take, config: Mapping[str, Any], kind: str, weights: HeadWeights) -> Any:
    """What draws the block in order, from the tensors of this kind; None for DFlash."""
    d, all_tokens, known = len(weights.norm), len(weights.embedding), len(weights.head)
    sizes = {"d": d, "all_tokens": all_tokens, "known": known}
    chain: Chain | None = None
    if kind == "dspark":
        chain = _markov(take, config, **sizes)
    elif kind == "dflash2":
        chain = _selector(take, config, **sizes)
    elif kind == "xpress":
        chain = _refiner(take, config, **sizes)
    return chain


def _markov(
    take: Take, config: Mapping[str, Any], d: int, all_tokens: int, known: int
) -> MarkovChain | None:
    rank, at = _whole(config, "markov_rank", 256, least=0), "markov_head."
    if not rank:
        return None
    kind, gate, joint = config.get("markov_head_type", "vanilla"), None, None
    if kind == "gated":
        gate = (
            take(f"{at}gate_proj.weight", rank, d + rank),
            take(f"{at}gate_proj.bias", rank),
        )
    elif kind == "rnn":
        joint = (
            take(f"{at}joint_proj.weight", 3 * rank, 2 * rank + d),
            take(f"{at}joint_proj.bias", 3 * rank),
        )
    elif kind != "vanilla":
        raise ValueError(f"markov_head_type is {kind!r:.80}, not 'vanilla', 'gated' or 'rnn'")
    return MarkovChain(
        take(f"{at}markov_w1.weight", all_tokens, rank),
        take(f"{at}markov_w2.weight", known, rank),
        gate,
        joint,
    )


def _selector(
    take: Take, config: Mapping[str, Any], d: int, all_tokens: int, known: int
) -> CandidateSelector:
    if known != all_tokens:
        raise ValueError(f"DFlash 2 drafts all {all_tokens} tokens, lm_head.weight has {known}")
    rank, top_k = (_whole(config, f"selector_{name}", 0) for name in ("rank", "top_k"))
    if top_k > known:
        raise ValueError(f"selector_top_k is {top_k}, the target has {known} tokens")
    at = "candidate_selector."
    return CandidateSelector(
        take(f"{at}predecessor_codebook", all_tokens, rank),
        take(f"{at}successor_codebook", all_tokens, rank),
        take(f"{at}hidden_projection.weight", rank, d),
        top_k,
    )


def _refiner(take: Take, config: Mapping[str, Any], d: int, all_tokens: int, known: int) -> Refiner:
    rank, size = _whole(config, "xpress_rank", 256), _whole(config, "block_size", 0)
    at = "refiner_head."
    gate = take(f"{at}mlp_gate.weight", -1, rank)
    return Refiner(
        embedding=take(f"{at}token_embed.weight", all_tokens, rank),
        down_state=take(f"{at}down_h.weight", rank, d),
        down_mean=take(f"{at}down_g.weight", rank, d),
        project=take(f"{at}in_proj.weight", rank, 3 * rank),
        mix=take(f"{at}mix_l", rank, size, size),
        gate=gate,
        up=take(f"{at}mlp_up.weight", len(gate), rank),
        down=take(f"{at}mlp_down.weight", rank, len(gate)),
        output=take(f"{at}readout.weight", known, rank),
    )


def convolutions_in(
    take: Take, config: Mapping[str, Any], kind: str, weights: HeadWeights
) -> list[tuple[Convolution, Convolution]]:
    """DFlash 2's convolutions around attention and MLP of each layer; empty for other kinds."""
    if kind != "dflash2":
        return []
    d = len(weights.norm)
    taps, width = (_whole(config, f"conv_{name}_size", 0) for name in ("kernel", "group"))
    if d % width:
        raise ValueError(f"conv_group_size is {width}, which does not divide hidden_size {d}")

    def convolution(at: str) -> Convolution:
        kernels = take(f"{at}.kernel_projection.weight", 2 * taps * d // width, d)
        return Convolution(take(f"{at}.base_kernel", 2, taps, d), kernels)

    return [
        (convolution(f"layers.{index}.attention_conv"), convolution(f"layers.{index}.mlp_conv"))
        for index in range(len(weights.layers))
    ]


def _whole(config: Mapping[str, Any], name: str, default: int, least: int = 1) -> int:
    value = block_option(config, name, default)
    if type(value) is not int or value < least:
        raise ValueError(f"{name} must be a whole number of at least {least}, got {value!r:.80}")
    return value


def _number(config: Mapping[str, Any], name: str, default: float) -> float:
    value = block_option(config, name, default)
    if type(value) not in (int, float) or not abs(value) < float("inf"):
        raise ValueError(f"{name} must be a number, got {value!r:.80}")
    return float(value)


def _flag(name: str, value: Any) -> bool:
    if type(value) is not bool:
        raise ValueError(f"{name} must be true or false, got {value!r:.80}")
    return value
