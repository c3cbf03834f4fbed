"""On CUDA, the decoder does what it does on the CPU. Run with `pytest -m gpu` on a machine that
has a GPU."""

import collections
import warnings
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from naive_speculate import SamplingParams, SpeculativeDecoder, load_pair
from naive_speculate.infer.device import Stopwatch
from naive_speculate.infer.ragged_cache import RaggedKVCache
from naive_speculate.models.llama.torch import TorchLlama
from naive_speculate.speculate.request import Request
from tests.heads import save_bundled_head

pytestmark = pytest.mark.gpu

PROMPTS = [
    "Once upon a time",
    "The old king said",
    "In the forest there was",
    "She opened the door and",
]


@pytest.fixture(scope="module")
def cuda_decoder():
    return SpeculativeDecoder(load_pair(device="cuda", dtype="float32"))


@pytest.mark.parametrize("k", [0, 1, 4, 8])
def test_greedy_tokens_are_those_of_the_cpu(bundled_decoder, cuda_decoder, k):
    params = SamplingParams(temperature=0, max_tokens=48)
    ours = cuda_decoder.generate(PROMPTS, params, num_draft_tokens=k)
    theirs = bundled_decoder.generate(PROMPTS, params, num_draft_tokens=k)
    assert [r.token_ids for r in ours] == [r.token_ids for r in theirs]


@pytest.mark.parametrize("strategy", ["speculative_sampling", "block_verification"])
def test_first_tokens_are_drawn_from_the_targets_distribution(cuda_decoder, strategy):
    prompt, count = cuda_decoder.admission.encode(PROMPTS[0]), 4000
    params = SamplingParams(n=count, max_tokens=2, top_k=6, seed=3, ignore_eos=True)
    result = cuda_decoder.generate(
        prompt, params, num_draft_tokens=1, verify_strategy=strategy, detail="none"
    )
    seen = collections.Counter(output.token_ids[0] for output in result.outputs)
    model = cuda_decoder.pair.target
    logits = model.forward(torch.tensor([prompt], device=model.device), model.new_cache(1))[0, -1]
    best = logits.float().topk(6)
    expected = dict(
        zip(best.indices.tolist(), (torch.softmax(best.values, -1) * count).tolist(), strict=True)
    )
    assert seen.keys() <= expected.keys()
    statistic = sum((seen[token] - wanted) ** 2 / wanted for token, wanted in expected.items())
    assert statistic < 25  # chi-square with 5 degrees of freedom: 1.4e-4


@pytest.mark.parametrize("k", [3, "auto"])
def test_a_row_of_a_batch_gives_what_it_gives_alone(cuda_decoder, k):
    params = [SamplingParams(max_tokens=24, seed=seed, temperature=0.8) for seed in range(4)]
    batch = cuda_decoder.generate(PROMPTS, params, num_draft_tokens=k)
    for prompt, one, row in zip(PROMPTS, params, batch, strict=True):
        assert cuda_decoder.generate(prompt, one, num_draft_tokens=k).token_ids == row.token_ids


def test_captured_windows_give_the_logits_of_the_plain_forward(cuda_decoder):
    """CUDA graphs, through crops, growing buffers and two rows of different lengths."""
    model = cuda_decoder.pair.target
    lean = TorchLlama(model._forward.shape, model._forward.weights, model._forward.rotary)
    graphed, plain = model.new_cache(2), RaggedKVCache(2)
    generator = torch.Generator().manual_seed(1)
    for number, width in enumerate([300, 5, 5, 1, 1, 5, 1, 200, 5, 5, 5, 1, 1, 1, 2, 5, 2, 2]):
        query = torch.randint(0, model.vocab_size, (2, width), generator=generator).to(model.device)
        plain.require(lean.shape, lean.dtype, model.device)
        expected = lean.forward(query, plain.all_rows(), width)[0]
        plain.all_rows().advance(width)
        torch.testing.assert_close(model.forward(query, graphed), expected, rtol=0, atol=1e-3)
        for cache in (graphed, plain):
            cache.crop([number % width, (number // 2) % width])
    assert model._forward.graphs._works
    assert any(windows.captured for windows in model._forward.graphs._caches.values())


def test_several_threads_decode_with_captured_windows(cuda_decoder):
    params = [SamplingParams(max_tokens=60, seed=seed, temperature=0.8) for seed in range(4)]
    alone = [
        cuda_decoder.generate(p, one).token_ids for p, one in zip(PROMPTS, params, strict=True)
    ]
    with ThreadPoolExecutor(4) as pool:
        together = list(
            pool.map(
                lambda job: cuda_decoder.generate(*job).token_ids, zip(PROMPTS, params, strict=True)
            )
        )
    assert together == alone


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_step_waits_for_the_device_once(cuda_decoder, temperature):
    params = SamplingParams(max_tokens=100, seed=1, temperature=temperature, ignore_eos=True)
    rows = cuda_decoder.prepare(Request(PROMPTS[0], params, num_draft_tokens=4, detail="none")).rows
    batch = cuda_decoder.new_batch()
    batch.admit(rows)
    for _ in range(3):  # prompt, and what is captured
        batch.step(rows)
    torch.cuda.set_sync_debug_mode("warn")
    try:
        with warnings.catch_warnings(record=True) as waits:
            warnings.simplefilter("always")
            batch.step(rows)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert len([wait for wait in waits if "synchroniz" in str(wait.message)]) == 1


def test_steps_are_timed_on_the_devices_own_current_stream():
    """On the second GPU too, while the first is torch's current one; a machine with one GPU
    tests its side stream alone."""
    for index in reversed(range(torch.cuda.device_count())):
        device = torch.device("cuda", index)
        stream = torch.cuda.Stream(device)
        watch = Stopwatch(device)
        with torch.cuda.stream(stream):
            torch.cuda.set_device(0)
            watch.begin()
            watch.drafting = watch.now()
            numbers = torch.randn(2000, 2000, device=device)
            watch.verifying = watch.now()
            for _ in range(20):
                numbers = numbers @ numbers.T / 2000
            before = torch.cuda.Event()
            before.record(torch.cuda.current_stream(device))
            seconds = watch.stop()
        assert watch.verifying.device == device
        assert before.query()  # what was queued on the device is over once the watch has stopped
        assert 0 < seconds.verify <= seconds.total


# Heads


@pytest.fixture(scope="module")
def head(tmp_path_factory):
    return save_bundled_head(tmp_path_factory.mktemp("head"))


@pytest.mark.parametrize("k", [1, 4, "auto"])
def test_greedy_tokens_with_a_head_are_those_of_plain_decoding(head, k):
    decoder = SpeculativeDecoder(load_pair(head=head, device="cuda", dtype="float32"))
    params = SamplingParams(temperature=0, max_tokens=48)
    plain = decoder.generate(PROMPTS, params, num_draft_tokens=0)
    for _ in range(2):  # the second time with what the first has captured
        drafted = decoder.generate(PROMPTS, params, drafter="head", num_draft_tokens=k)
        assert [result.token_ids for result in drafted] == [result.token_ids for result in plain]
        decoder.generate(PROMPTS[0], params, drafter="head", num_draft_tokens=k)
    graphs = decoder.pair.head._forward.graphs
    assert graphs._works
    assert any(windows.captured for windows in graphs._caches.values())


def test_a_head_drafts_in_half_precision(head):
    decoder = SpeculativeDecoder(load_pair(head=head, device="cuda"))
    params = [SamplingParams(max_tokens=24, seed=seed) for seed in range(len(PROMPTS))]
    for _ in range(2):  # the second time with what the first has captured
        results = decoder.generate(PROMPTS, params, drafter="head", num_draft_tokens=4)
        assert all(result.metrics.num_draft_tokens > 0 for result in results)
    assert decoder.pair.head._forward.graphs._works
