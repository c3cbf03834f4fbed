"""Models with Llama's shapes and no training, of a chosen acceptance."""

import torch
from transformers import LlamaConfig, LlamaForCausalLM

# width, MLP, layers, heads, heads of keys
SHAPES = {
    "8B": (4096, 14336, 32, 32, 8),
    "1B": (2048, 8192, 16, 32, 8),
    "0.1B": (768, 2048, 12, 12, 4),
    "tiny": (64, 128, 2, 4, 2),
}
VOCAB_SIZE = 32_000


def random_llama(name: str, accepted: float, device: str) -> LlamaForCausalLM:
    """A model that continues token t by t + 1, except a share of the tokens, where it is wrong."""
    width, mlp, layers, heads, kv_heads = SHAPES[name]
    config = LlamaConfig(
        hidden_size=width,
        intermediate_size=mlp,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=kv_heads,
        vocab_size=VOCAB_SIZE,
        max_position_embeddings=4096,
        bos_token_id=None,
        eos_token_id=None,
        tie_word_embeddings=False,
    )
    torch.set_default_dtype(torch.bfloat16 if device == "cuda" else torch.float32)
    with torch.device(device), torch.no_grad():
        model = LlamaForCausalLM(config).eval()
        for layer in model.model.layers:
            layer.self_attn.o_proj.weight.zero_()
            layer.mlp.down_proj.weight.zero_()
        embeddings = model.model.embed_tokens.weight.normal_()
        successor = (torch.arange(VOCAB_SIZE) + 1) % VOCAB_SIZE
        wrong = torch.rand(VOCAB_SIZE, generator=torch.Generator(device).manual_seed(0)) >= accepted
        successor[wrong] = successor[wrong].roll(1)
        model.lm_head.weight[successor] = embeddings
    torch.set_default_dtype(torch.float32)
    model.generation_config.pad_token_id = 0
    return model
