"""What a target with recurrent layers costs: `python -m benchmarks.recurrent`; random weights of
about 10 M parameters.

For each family: a forward over 6 tokens, over 9 (3 of them replayed), and the copy of the state,
in forwards over one token. A family whose cache is cropped replays and copies nothing.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import transformers
from transformers.models.auto.configuration_auto import CONFIG_MAPPING
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

from benchmarks.measuring import seconds
from naive_speculate.models.load import wrap
from naive_speculate.models.recurrent import copied

SIZE = {
    "vocab_size": 8192,
    "hidden_size": 256,
    "num_hidden_layers": 8,
    "intermediate_size": 768,
    "pad_token_id": None,
}
ATTENTION = {"num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 32}
MIXED = {"layer_types": (["linear_attention"] * 3 + ["full_attention"]) * 2}
DELTA = {f"linear_num_{part}_heads": 8 for part in ("key", "value")}
DELTA |= {f"linear_{part}_head_dim": 32 for part in ("key", "value")}
MAMBA_2 = {
    "mamba_n_heads": 16,
    "mamba_d_head": 32,
    "mamba_d_state": 64,
    "mamba_expand": 2,
    "mamba_n_groups": 1,
}
FAMILIES: dict[str, dict[str, Any]] = {
    "qwen3_5_text": ATTENTION | DELTA | MIXED,
    "olmo_hybrid": ATTENTION | DELTA | MIXED,
    "lfm2": ATTENTION | {"layer_types": ["conv", "conv", "conv", "full_attention"] * 2},
    "falcon_h1": ATTENTION | MAMBA_2 | {"mamba_d_ssm": 512},
    "granitemoehybrid": (
        ATTENTION
        | MAMBA_2
        | {
            "layer_types": ["mamba", "mamba", "mamba", "attention"] * 2,
            "num_local_experts": 0,
        }
    ),
    "mamba": {"state_size": 16},
    "mamba2": {"state_size": 64, "num_heads": 16, "head_dim": 32, "n_groups": 1},
    "falcon_mamba": {"state_size": 16},
}


def main() -> None:
    """Measure every family and print a table."""
    print(
        "| family | verify 5 drafts | with 3 replayed tokens | copy the state | state, MB"
        " |\n|---|---|---|---|---|"
    )
    for family, more in FAMILIES.items():
        torch.manual_seed(0)
        config = CONFIG_MAPPING[family](**(SIZE | more))
        model: Any = wrap(
            getattr(transformers, MODEL_FOR_CAUSAL_LM_MAPPING_NAMES[family])(config).eval()
        )
        cache = model.new_cache(1)
        model.forward(torch.randint(8, 8000, (1, 64)), cache)
        cache.caches[0].settle()
        state = cache.caches[0].now

        def forward(num_tokens: int, model: Any = model, state: Any = state) -> Callable[[], Any]:
            query = list(range(10, 10 + num_tokens))
            return lambda: model._compute_state(query, copied(state), (), 64)

        with torch.no_grad():
            copying = seconds(partial(copied, state), 15)
            one, six, nine = (seconds(forward(count), 15) - copying for count in (1, 6, 9))
        kept = [
            t
            for layer in state.layers
            for d in (layer.__dict__.get("conv_states"), layer.__dict__.get("recurrent_states"))
            for t in (d or {}).values()
            if t is not None
        ]
        size = sum(tensor.nbytes for tensor in kept) / 1e6
        again = (f"{nine / one:.2f}", f"{copying / one:.2f}")
        if cache.caches[0].crops:
            again = ("replays none", "copies none")
        print(f"| {family} | {six / one:.2f} | {' | '.join(again)} | {size:.2f} |", flush=True)


if __name__ == "__main__":
    main()
