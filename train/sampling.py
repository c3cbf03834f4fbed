"""Plain sampling from a model, many rows at once, with the cache of ``transformers``."""

import torch
from torch import Tensor
from transformers import LlamaForCausalLM


@torch.no_grad()
def continue_prompts(
    model: LlamaForCausalLM, prompts: Tensor, new_tokens: int, temperature: float, generator: torch.Generator
) -> Tensor:
    """Prompts ``(rows, length)`` with ``new_tokens`` more each; temperature 0 is greedy; end-of-text does not stop."""
    tokens, step_input, cache = prompts, prompts, None
    for _ in range(new_tokens):
        output = model(input_ids=step_input, past_key_values=cache, use_cache=True, logits_to_keep=1)
        cache = output.past_key_values
        logits = output.logits[:, -1].float()
        if temperature == 0:
            step_input = logits.argmax(-1, keepdim=True)
        else:
            probabilities = torch.softmax(logits / temperature, -1)
            step_input = torch.multinomial(probabilities, 1, generator=generator)
        tokens = torch.cat((tokens, step_input), 1)
    return tokens
