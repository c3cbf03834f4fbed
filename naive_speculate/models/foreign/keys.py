"""Which keys of a drafter's configuration are read, and why the others do not matter.

A configuration says how a drafter computes. A key that is ignored could make the drafts wrong
without a word. So every key is read, or listed here, or an error. A
key whose value is null, false or empty switches something off, and is no error.
"""

from collections.abc import Mapping
from typing import Any

_LAYER = """
attention_bias head_dim hidden_act hidden_size intermediate_size layer_types max_position_embeddings
max_window_layers mlp_bias model_type num_attention_heads num_hidden_layers num_key_value_heads
partial_rotary_factor quantization_config rms_norm_eps rope_parameters rope_scaling rope_theta
sliding_window tie_word_embeddings use_sliding_window vocab_size
"""
"""Read in `checkpoint.py` and `infer/llama`, at the top level or in `transformer_layer_config`."""
_EAGLE = """
draft_vocab_size eagle_aux_hidden_state_layer_ids eagle_config fc_norm norm_before_residual
norm_before_fc norm_output
"""
_BLOCK = """
aux_hidden_state_layer_ids block_size dflash_config final_logit_softcapping
input_embedding_scale is_causal mask_token_id output_multiplier sample_from_anchor shift_label
sliding_window_non_causal target_layer_ids
"""
_ASSISTANT = """
backbone_hidden_size centroid_intermediate_top_k model_type num_centroids text_config
tie_word_embeddings use_ordered_embeddings
"""
_LAYERS_OF_ASSISTANT = """
global_head_dim head_dim hidden_size intermediate_size layer_types model_type num_attention_heads
num_hidden_layers num_kv_shared_layers per_layer_config rms_norm_eps rope_parameters sliding_window
use_bidirectional_attention vocab_size
"""
"""Read in `assistant_files.py`, at the top level and in `text_config`."""
_BY_KIND = {
    "eagle3": "",
    "peagle": "mask_token_id",
    "dflash": "",
    "dspark": "markov_head_type markov_rank",
    "dflash2": "conv_group_size conv_kernel_size selector_rank selector_top_k",
    "xpress": "xpress_rank",
}
"""Kinds of drafters, and the keys that only they have."""
KINDS = tuple(_BY_KIND)
BLOCK_KINDS = ("dflash", "dspark", "dflash2", "xpress")

_REASONS = {
    "names and versions": """
        architectures _commit_hash _name_or_path name_or_path auto_map speculators_model_type
        speculators_version speculators_config transformers_version target_model_type modal_type
        torch_dtype dtype""",
    "the target's: its tokens end texts, and its sizes are those of the tensors": """
        bos_token_id eos_token_id pad_token_id sep_token_id decoder_start_token_id
        num_target_layers target_hidden_size target_vocab_size target_model_name_or_path""",
    "of parallel draft heads, which `parallel_draft_step` = 1 does not have": """
        parallel_draft_heads_num_layers""",
    "the tensors show it": "has_lm_head",
    "of training": """
        attention_dropout classifier_dropout embed_requires_grad initializer_range
        gradient_checkpointing loss_function pretraining_tp use_cache""",
    "of experts, which the tensors do not have": """
        decoder_sparse_step moe_intermediate_size norm_topk_prob num_experts num_experts_per_tok
        num_local_experts output_router_logits router_aux_loss_coef router_jitter_noise
        top_k_experts""",
    "a prediction of acceptance, which verification does not need": """
        confidence_head_with_markov enable_confidence_head""",
    "passes of engines that resolve a block in parallel; here it is drawn in order": """
        num_jacobi_passes""",
    "the size of a network, which the tensors show": "xpress_mlp_ratio",
    "options of transformers for other models, or for generation": """
        chunk_size_feed_forward id2label label2id problem_type is_encoder_decoder is_decoder
        add_cross_attention cross_attention_hidden_size output_attentions output_hidden_states
        return_dict return_dict_in_generate output_scores torchscript tie_encoder_decoder
        pruned_heads finetuning_task task_specific_params tokenizer_class prefix use_bfloat16
        tf_legacy_loss min_length max_length do_sample early_stopping num_beams num_beam_groups
        diversity_penalty temperature top_k top_p typical_p repetition_penalty length_penalty
        no_repeat_ngram_size encoder_no_repeat_ngram_size bad_words_ids num_return_sequences
        forced_bos_token_id forced_eos_token_id remove_invalid_values suppress_tokens
        begin_suppress_tokens exponential_decay_length_penalty attn_implementation
        _attn_implementation _attn_implementation_autoset ignore_keys_at_rope_validation""",
}
_IGNORED = {key for keys in _REASONS.values() for key in keys.split()}
_ONLY: dict[str, Any] = {
    "use_aux_hidden_state": True,
    "use_input_layernorm_in_first_layer": True,
    "use_last_layernorm": True,
    "next_layer_regular": True,
    "parallel_draft_step": 1,
    "use_mtp_layernorm": False,
    "position_embedding_type": "rope",
}
"""Options of which only one value is computed, most of them of ModelOpt's heads."""
_REASONS_OF_ASSISTANT = {
    "of keys and values, which are the target's": """
        attention_k_eq_v num_global_key_value_heads num_key_value_heads""",
    "of frequencies that change with the length, which are not supported": """
        max_position_embeddings""",
    "transformers' own class does not apply it": "final_logit_softcapping",
    "the top level's decides": "tie_word_embeddings",
}
"""Keys of an assistant's `text_config`."""
_IGNORED_OF_ASSISTANT = {key for keys in _REASONS_OF_ASSISTANT.values() for key in keys.split()}
_ONLY_OF_ASSISTANT: dict[str, Any] = {
    "attention_bias": False,
    "hidden_activation": "gelu_pytorch_tanh",
    "hidden_size_per_layer_input": 0,
    "vocab_size_per_layer_input": 0,
    "enable_moe_block": False,
    "use_double_wide_mlp": False,
}


def check_keys(config: Mapping[str, Any], kind: str) -> None:
    """Raise a `ValueError` that names a key of a drafter's configuration which is neither read
    nor known not to matter."""
    if kind == "assistant":
        _check(config, set(_ASSISTANT.split()), "")
        read = set(_LAYERS_OF_ASSISTANT.split()) | _IGNORED_OF_ASSISTANT
        _check(config.get("text_config") or {}, read, "text_config.", _ONLY_OF_ASSISTANT)
        return
    read = {*_LAYER.split(), *_BY_KIND[kind].split()}
    read |= set((_BLOCK + " draft_vocab_size" if kind in BLOCK_KINDS else _EAGLE).split())
    _check(config, read | {"transformer_layer_config"}, "")
    for section in ("dflash_config", "eagle_config"):
        _check(config.get(section) or {}, read, f"{section}.")
    _check(
        config.get("transformer_layer_config") or {},
        set(_LAYER.split()),
        "transformer_layer_config.",
    )


def _check(section: Any, read: set[str], name: str, only: Mapping[str, Any] = _ONLY) -> None:
    if not isinstance(section, Mapping):
        raise ValueError(f"{name.rstrip('.')} must be a mapping, got {section!r:.80}")
    for key, value in section.items():
        if key in only:
            if value is not None and value != only[key]:
                raise ValueError(f"{name}{key} is {value!r:.80}, only {only[key]!r} is supported")
        elif key not in read | _IGNORED and not (value is None or value is False or value == []):
            raise ValueError(
                f"its configuration has {name}{key} = {value!r:.80}, which is not read: the drafts"
                " could be wrong"
            )
