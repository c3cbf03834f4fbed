"""Records hidden states of chosen layers during a forward of a transformers model."""

import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import nn
from transformers import PreTrainedModel
from transformers.modeling_layers import GradientCheckpointingLayer

from naive_speculate.infer.forward import check_layers


@contextmanager
def hidden_states(model: PreTrainedModel, layers: Sequence[int]) -> Iterator[dict[int, torch.Tensor]]:
    """A context in which this thread's forward stores the residual stream after each of the layers in a dictionary.

    Hooks are needed: transformers' `output_hidden_states` returns the last one only after the final norm. `model`: a
    decoder-only model. `layers`: numbers of decoder layers before each state; 0 for the embeddings. Raises `ValueError` if a
    layer does not exist, or the modules of the layers cannot be found.
    """
    found: dict[int, torch.Tensor] = {}
    if not layers:
        yield found
        return
    modules = _decoder_layers(model)
    check_layers(layers, len(modules))
    thread = threading.get_ident()  # other threads may use the model at the same time

    def store(layer: int, states: Any) -> None:
        if threading.get_ident() == thread:
            found[layer] = states[0] if isinstance(states, tuple) else states

    def store_input(_module: nn.Module, inputs: tuple[Any, ...], options: dict[str, Any]) -> None:
        store(0, inputs or options.get("hidden_states"))

    with ExitStack() as hooks:
        for layer in set(layers):
            if layer == 0:
                hook = modules[0].register_forward_pre_hook(store_input, with_kwargs=True)
            else:
                hook = modules[layer - 1].register_forward_hook(lambda _, _inputs, output, layer=layer: store(layer, output))
            hooks.callback(hook.remove)
        yield found


def _decoder_layers(model: PreTrainedModel) -> list[nn.Module]:
    for module in model.get_decoder().modules():
        if isinstance(module, nn.ModuleList) and all(isinstance(layer, GradientCheckpointingLayer) for layer in module):
            return list(module)
    raise ValueError(f"layers: {type(model).__name__} has no list of decoder layers")
