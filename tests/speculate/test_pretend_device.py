"""On a pretend CUDA device the decoder does what it does on the CPU, and the host waits once in
a step.

What stays for `pytest -m gpu`: the capture of graphs (`CudaCapture`), CUDA's own kernels and
random numbers, and memory.
"""

from collections.abc import Callable, Iterator
from contextlib import nullcontext
from functools import cache
from types import SimpleNamespace

import pytest
import torch

from naive_speculate import ModelPair, SamplingParams, SpeculativeDecoder
from naive_speculate.infer import TransformersLanguageModel
from naive_speculate.infer.costs import CostTable
from naive_speculate.infer.device import on_device, to_lists
from naive_speculate.models.heads.checkpoint import load_head
from naive_speculate.sampling.random_source import SeededRandom
from naive_speculate.speculate import batch as batches
from naive_speculate.speculate.draft import proposal
from naive_speculate.speculate.request import Request
from tests.heads import head_config, head_tensors, save_head
from tests.models.llama.llamas import made
from tests.pretend_device import PretendDevice, pretend_device
from tests.tiny import noisy_pair

PROMPTS = [[5, 17, 80, 3], [50] + [60, 61, 62] * 4, [9, 4, 9, 4, 9], [33]]
GREEDY = {"verify_strategy": "greedy_match", "detail": "none"}
MIXED = [
    GREEDY,
    {"verify_strategy": "speculative_sampling", "detail": "full"},
    {"verify_strategy": "typical_acceptance", "detail": "probs"},
    {"verify_strategy": "block_verification", "detail": "full", "draft_sampling": "argmax"},
]
Decoders = dict[str, SpeculativeDecoder]


@pytest.fixture(scope="module")
def decoders_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Decoders]:
    """Decoders of one pair with a head, on the CPU and on the device, by executor."""
    layers = {"eagle_aux_hidden_state_layer_ids": [0, 1, 1]}
    folder = save_head(
        tmp_path_factory.mktemp("head"),
        "speculators",
        head_config(),
        head_tensors(head_config()),
        **layers,
    )

    def decoder(executor: str, device: str) -> SpeculativeDecoder:
        pair = noisy_pair(lambda model: made(model.to(device), executor))
        for model in (pair.target, pair.draft):
            if isinstance(model, TransformersLanguageModel):
                model.probe()
        head = load_head(folder, pair.target, torch.device(device), torch.float32, "torch")
        return SpeculativeDecoder(
            ModelPair(
                pair.target, pair.draft, head=head, measured_head_costs=CostTable(0.5, (1.0, 1.1))
            )
        )

    @cache
    def decoders(executor: str) -> Decoders:
        with pretend_device():
            return {device: decoder(executor, device) for device in ("cpu", "cuda")}

    return decoders


@pytest.fixture
def device() -> Iterator[PretendDevice]:
    with pretend_device() as found:
        yield found


def steps_of(decoder: SpeculativeDecoder, each: list[dict], **more) -> tuple[list, list[list[str]]]:
    """What happens to rows of one batch in each step, and where the host waits; draws are the
    same on any device."""
    on_cpu = decoder.pair.target.device.type == "cpu"
    with nullcontext(SimpleNamespace(waits=[])) if on_cpu else pretend_device() as device:
        return _steps_of(decoder, device.waits, each, **more)


def _steps_of(
    decoder: SpeculativeDecoder, waited: list[str], each: list[dict], **more
) -> tuple[list, list[list[str]]]:
    def draws(seed: int, index: int) -> SeededRandom:
        random = SeededRandom(seed, index, "cuda")  # the CPU's own draws are others
        random._device = decoder.pair.target.device
        return random

    batch, rows, happened, waits = decoder.new_batch(), [], [], []
    for prompt, options in zip(PROMPTS, each, strict=False):
        temperature = 0.0 if options["verify_strategy"] == "greedy_match" else 1.0
        params = SamplingParams(
            max_tokens=5, seed=3, temperature=temperature, ignore_eos=True, **more.get("params", {})
        )
        request = Request(
            prompt,
            params,
            num_draft_tokens=more.get("k", 2),
            drafter=more.get("drafter", "model"),
            **options,
        )
        rows += decoder.prepare(request, random=draws).rows
        batch.admit(rows[-1:])
    while not all(row.ended for row in rows):
        waited.clear()
        records = batch.step([row for row in rows if not row.ended])
        waits.append(list(waited))
        happened.append(
            [(row.output_token_ids, record.outcome.num_accepted) for row, record in records.items()]
        )
    return happened, waits


@pytest.mark.parametrize(
    ("executor", "drafter"),
    [
        *(("torch", name) for name in ("model", "head", "suffix", "suffix+head")),
        ("transformers", "head"),
    ],
)
def test_rows_of_every_verifier_get_the_cpu_s_tokens_with_one_wait_a_step(
    decoders_of, monkeypatch, executor, drafter
):
    decoders = decoders_of(executor)
    captured = []
    capture = PretendDevice.capture
    monkeypatch.setattr(
        PretendDevice, "capture", lambda self, compute: captured.append(1) or capture(self, compute)
    )
    happened, waits = steps_of(decoders["cuda"], MIXED, drafter=drafter)
    assert happened == steps_of(decoders["cpu"], MIXED, drafter=drafter)[0]
    assert list(map(len, waits)) == [1] * len(waits), waits
    assert bool(captured) == (
        executor == "torch" or drafter == "head"
    )  # a head of any target is captured


@pytest.mark.parametrize(("executor", "drafter"), [("torch", "head"), ("transformers", "model")])
def test_trees_get_the_cpu_s_tokens(decoders_of, executor, drafter):
    """The host reads every depth of a tree, so that a step waits more often."""
    decoders, each = (
        decoders_of(executor),
        [options | {"tree": "2x2"} for options in (GREEDY, MIXED[1])],
    )
    happened = steps_of(decoders["cuda"], each, drafter=drafter)[0]
    assert happened == steps_of(decoders["cpu"], each, drafter=drafter)[0]


def test_an_adaptive_window_waits_once_more_for_each_token_that_it_drafts(decoders_of):
    """Whether to go on is decided on the host."""
    happened, waits = steps_of(decoders_of("torch")["cuda"], [GREEDY], drafter="head", k="auto")
    assert list(map(len, waits)) == [2, 2, 2, 2, 1], (
        waits,
        happened,
    )  # of one token; nothing is left to draft at the end


def test_a_bias_moves_to_the_device_once(decoders_of):
    decoders, params = decoders_of("torch"), {"logit_bias": {3: 2.0}}
    happened, waits = steps_of(decoders["cuda"], MIXED[:2], params=params, drafter="suffix")
    assert happened == steps_of(decoders["cpu"], MIXED[:2], params=params, drafter="suffix")[0]
    assert list(map(len, waits)) == [3] + [1] * (len(waits) - 1), waits


def test_a_forgotten_device_fails(decoders_of, monkeypatch):
    monkeypatch.setattr(proposal, "on_device", lambda values, *_: torch.tensor(values))
    with pytest.raises(RuntimeError, match="same device"):
        steps_of(decoders_of("torch")["cuda"], [GREEDY], drafter="suffix")


def test_an_added_item_is_counted_and_located(decoders_of, monkeypatch):
    step = batches.step
    monkeypatch.setattr(
        batches, "step", lambda *given: (found := step(*given), found.next_token_ids[0].item())[0]
    )
    _, waits = steps_of(decoders_of("torch")["cuda"], [GREEDY], k=0)
    assert all(len(step) == 2 and "test_pretend_device.py" in step[0] for step in waits), waits


def test_it_counts_what_cuda_waits_for(device):
    x = torch.arange(3.0, device="cuda")
    for act, number in (
        (lambda x: x[0].item(), 1),
        (lambda x: bool((x > 1).any()), 1),
        (lambda x: x[[0, 2]], 1),
        (lambda x: x[x > 1], 1),
        (lambda x: x[x[1].long()], 1),
        (lambda x: x.nonzero(), 1),
        (lambda x: torch.tensor([1.0], device="cuda"), 1),
        (lambda x: torch.ones(3).to("cuda", non_blocking=True), 1),  # of memory that is not pinned
        (lambda x: to_lists(x, x), 1),
        (lambda x: x[on_device([0, 2], x.device)], 0),
        (lambda x: x.masked_fill_(x > 1, 0.0), 0),
        (lambda x: x.__setitem__(0, 2.0), 0),
        (lambda x: x * torch.tensor(2.0), 0),
    ):
        device.waits.clear()
        with torch.inference_mode():
            act(x.clone())
        assert len(device.waits) == number, (act.__code__.co_firstlineno, device.waits)


def test_it_refuses_what_is_elsewhere_and_a_copy_to_the_host_is_not_there_before_a_wait(device):
    x = torch.arange(3.0, device="cuda")
    for act in (
        lambda x: x + torch.ones(3),
        lambda x: torch.stack([x[0], torch.tensor(1.0)]),
        lambda x: torch.ones(3)[x.long()],
        lambda x: x.exponential_(generator=torch.Generator()),
    ):
        with pytest.raises(RuntimeError, match="device"):
            act(x)
    copy = x.to("cpu", non_blocking=True)
    assert copy.tolist() == [0, 0, 0]
    torch.cuda.current_stream(x.device).synchronize()
    assert copy.tolist() == [0, 1, 2]
