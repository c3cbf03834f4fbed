"""The models here are tiny: one thread computes them fastest, above all where several test processes share the cores."""

import os

import torch

os.environ.setdefault("NAIVE_SPECULATE_THREADS", "1")
torch.set_num_threads(1)
