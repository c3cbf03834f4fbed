"""Small random models of the Llama family, and what is compared with transformers over them."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from transformers import (
    AutoModelForCausalLM,
    LlamaConfig,
    MistralConfig,
    PreTrainedModel,
    Qwen2Config,
    Qwen3Config,
)

from naive_speculate.infer import BatchLanguageModel
from naive_speculate.infer.transformers_model import TransformersLanguageModel
from naive_speculate.models.llama.cuda_graphs import Graphs
from naive_speculate.models.llama.model import LlamaLanguageModel
from naive_speculate.models.llama.stored import StoredLlama
from naive_speculate.models.llama.torch import TorchLlama
from tests.tiny import shape

VOCAB = 97
TOLERANCE = 1e-4
SHAPE = shape(
    hidden_size=64,
    intermediate_size=48,
    num_hidden_layers=2,
    max_position_embeddings=640,
    pad_token_id=None,
)
LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 1e4,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
}
LLAMA3 |= {"original_max_position_embeddings": 64}
YARN = {
    "rope_type": "yarn",
    "rope_theta": 1e4,
    "factor": 4.0,
    "original_max_position_embeddings": 128,
}
FAMILIES: dict[str, Callable[[], Any]] = {
    "llama": lambda: LlamaConfig(**SHAPE),
    "llama tied": lambda: LlamaConfig(**SHAPE, tie_word_embeddings=True),
    "llama biased": lambda: LlamaConfig(**SHAPE, attention_bias=True),
    "llama all heads": lambda: LlamaConfig(**SHAPE | {"num_key_value_heads": 4}),
    "llama narrow heads": lambda: LlamaConfig(**SHAPE, head_dim=8),
    "llama linear rope": lambda: LlamaConfig(
        **SHAPE, rope_parameters={"rope_type": "linear", "factor": 2.0, "rope_theta": 1e4}
    ),
    "llama3 rope": lambda: LlamaConfig(**SHAPE, rope_parameters=LLAMA3),
    "llama yarn": lambda: LlamaConfig(**SHAPE, rope_parameters=YARN),
    "mistral": lambda: MistralConfig(**SHAPE, sliding_window=None),
    "mistral window": lambda: MistralConfig(**SHAPE, sliding_window=6),
    "qwen2": lambda: Qwen2Config(**SHAPE),
    "qwen2 mixed windows": lambda: Qwen2Config(
        **SHAPE, use_sliding_window=True, sliding_window=5, max_window_layers=1
    ),
    "qwen3": lambda: Qwen3Config(**SHAPE, head_dim=32),
    "qwen3 tied": lambda: Qwen3Config(**SHAPE, head_dim=16, tie_word_embeddings=True),
}
EXECUTORS = ("onnx", "torch", "graphs")
WAYS = ("transformers", *EXECUTORS)


def random_model(
    config: Any, seed: int = 0, attention: str | None = "eager", dtype: torch.dtype = torch.float32
) -> PreTrainedModel:
    """A model whose every parameter matters: also norms and biases are random."""
    torch.manual_seed(seed)
    model = AutoModelForCausalLM.from_config(config, attn_implementation=attention).to(dtype).eval()
    for parameter in model.parameters():
        centre = 1.0 if parameter.dim() == 1 and parameter.mean() > 0.5 else 0.0
        torch.nn.init.normal_(parameter, centre, 0.2)
    return model


def halved(model: Any) -> PreTrainedModel:
    """The model in bfloat16."""
    return model.to(torch.bfloat16)


def compute_again(compute: Callable[[], torch.Tensor]) -> tuple[Callable[[], None], torch.Tensor]:
    """What a CUDA graph does, on the CPU: the same computation on the same tensors, which
    nothing but their content changes."""
    logits = compute()
    return lambda: (logits.copy_(compute()), None)[1], logits


def made(source: PreTrainedModel, executor: str) -> Any:
    """The model in an executor of `WAYS`."""
    if executor == "transformers":
        return TransformersLanguageModel(source)
    if executor != "graphs":
        return LlamaLanguageModel.from_transformers(source, executor)
    stored = StoredLlama.of(source)
    graphs = Graphs(stored.shape, stored.rotary, compute_again)
    return LlamaLanguageModel(
        stored, "torch", TorchLlama(stored.shape, stored.weights, stored.rotary, graphs)
    )


def tokens(rows: int, count: int) -> torch.Tensor:
    return torch.randint(0, VOCAB, (rows, count))


def direct_logits(source: PreTrainedModel, token_ids: Sequence[int]) -> torch.Tensor:
    """transformers' logits at every position of a sequence, without any cache."""
    with torch.inference_mode():
        return source(torch.tensor([token_ids]), use_cache=False).logits[0]


def final_norm(source: PreTrainedModel) -> torch.nn.Module | None:
    """The norm after the last layer; None where a model norms each layer's output itself, or has
    its norm deeper inside."""
    return getattr(source.base_model, "norm", getattr(source.base_model, "ln_f", None))


def own_features(
    source: PreTrainedModel, token_ids: torch.Tensor, layers: Sequence[int]
) -> torch.Tensor:
    """transformers' hidden states of these layers, 0 for the embeddings, `[rows, tokens,
    len(layers) * hidden_size]`. The last layer's are those before the final norm, where there is
    one."""
    kept: list[Any] = []
    if (norm := final_norm(source)) is not None:
        hook = norm.register_forward_pre_hook(lambda _, inputs: kept.append(inputs[0]))
    with torch.no_grad():
        states = list(
            source(input_ids=token_ids, use_cache=False, output_hidden_states=True).hidden_states
        )
    if norm is not None:
        hook.remove()
        states[-1] = kept[0]
    return torch.cat([states[layer] for layer in layers], dim=-1)


class Rows:
    """Runs forwards over a ragged cache, records what every row holds, and compares with a
    forward over the whole sequence."""

    def __init__(self, model: BatchLanguageModel, source: PreTrainedModel, count: int) -> None:
        self.model, self.source = model, source
        self.cache: Any = model.new_cache(count)
        self.held: list[list[int]] = [[] for _ in range(count)]

    def forward(
        self,
        count: int,
        rows: Sequence[int],
        crop: Sequence[int] | None = None,
        num_logits: int | None = None,
    ) -> None:
        view = self.cache.rows(rows)
        query = tokens(len(rows), count)
        logits = self.model.forward(query, view, num_logits=num_logits)
        wanted = num_logits or count
        assert logits.shape == (len(rows), wanted, VOCAB)
        for row, new, got in zip(rows, query.tolist(), logits, strict=True):
            self.held[row] += new
            expected = direct_logits(self.source, self.held[row])[-wanted:]
            torch.testing.assert_close(got, expected, rtol=0, atol=TOLERANCE)
        if crop is not None:
            view.crop(list(crop))
            for row, surplus in zip(rows, crop, strict=True):
                self.held[row] = self.held[row][: len(self.held[row]) - surplus]
        assert self.cache.lengths == [len(held) for held in self.held]
