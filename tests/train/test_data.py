"""Training reads every window of an epoch once, in an order that a resumed run continues."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from train.data import TokenStream


def test_an_epoch_holds_every_window_once_and_the_next_is_in_another_order() -> None:
    stream = TokenStream(np.arange(101, dtype=np.uint16), seed=1)
    epochs = [[int(stream.next_window(10)[0]) for _ in range(10)] for _ in range(2)]
    assert sorted(epochs[0]) == sorted(epochs[1]) == list(range(0, 100, 10))
    assert epochs[0] != epochs[1]


def test_a_window_carries_one_label_more_than_inputs() -> None:
    batch = TokenStream(np.arange(50, dtype=np.uint16), seed=1).next_batch(3, 8, torch.device("cpu"))
    assert batch.shape == (3, 9)
    assert bool((batch[:, 1:] == batch[:, :-1] + 1).all())


def test_a_stream_resumes_at_its_position() -> None:
    tokens = np.arange(1000, dtype=np.uint16)
    straight, first = TokenStream(tokens, seed=5), TokenStream(tokens, seed=5)
    for _ in range(7):
        straight.next_window(16)
        first.next_window(16)
    resumed = TokenStream(tokens, seed=5, position=first.position)
    assert [straight.next_window(16)[0] for _ in range(90)] == [resumed.next_window(16)[0] for _ in range(90)]


def test_too_few_tokens_are_an_error() -> None:
    with pytest.raises(ValueError, match="too few"):
        TokenStream(np.arange(8, dtype=np.uint16), seed=1).next_window(8)
