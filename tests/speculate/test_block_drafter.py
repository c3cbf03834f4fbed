"""Drafting with a block drafter: it is lossless, and proposes what its definition says over the committed text."""

import json

import pytest
import torch

from naive_speculate import EventKind, ModelPair, SamplingParams, SpeculativeDecoder, VerifyStrategy, load_pair
from naive_speculate.__main__ import main
from naive_speculate.infer import TransformersLanguageModel
from naive_speculate.infer.head.checkpoint import load_head
from naive_speculate.infer.llama.model import LlamaLanguageModel
from naive_speculate.speculate.draft import BlockDrafter
from naive_speculate.speculate.request import Request
from naive_speculate.testing import enumerate_outputs, prove_lossless
from naive_speculate.testing.toy_head import pair_with_head
from tests.blocks import BLOCK, CONFIG, block_tensors, eager_block, save_block
from tests.speculate.toys import ToyModel
from tests.tiny import save_model, tiny_llama

TENSORS = block_tensors(known=60)
DEPTH, LAYERS = 4, (1, 2, 4)
PROMPTS = [[5, 17, 80, 3], [9] * 11 + [4, 33], [61], [2, 90, 14, 14, 2, 90]]
WAYS = {
    "transformers": TransformersLanguageModel,
    "onnx": lambda model: LlamaLanguageModel.from_transformers(model, "onnx"),
    "torch": lambda model: LlamaLanguageModel.from_transformers(model, "torch"),
}
ENUMERATED = {
    "plain": SamplingParams(max_tokens=3, ignore_eos=True),
    "warped": SamplingParams(max_tokens=3, temperature=1.6, top_k=2, presence_penalty=0.7, ignore_eos=True),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return save_block(tmp_path_factory.mktemp("block"), TENSORS)


@pytest.fixture(scope="module", params=WAYS)
def decoder(request, folder):
    target = WAYS[request.param](tiny_llama(DEPTH, seed=0))
    return SpeculativeDecoder(ModelPair(target, head=load_head(folder, target, target.device, torch.float32)))


@pytest.fixture(scope="module")
def one(folder):
    """A decoder in one executor, for what does not depend on it."""
    target = LlamaLanguageModel.from_transformers(tiny_llama(DEPTH, seed=0), "torch")
    return SpeculativeDecoder(ModelPair(target, head=load_head(folder, target, target.device, torch.float32)))


@pytest.mark.parametrize("strategy", [VerifyStrategy.SPECULATIVE_SAMPLING, VerifyStrategy.BLOCK_VERIFICATION])
@pytest.mark.parametrize("params", ENUMERATED)
def test_the_output_distribution_is_the_target_s(params, strategy):
    """It has two of three tokens; after a prompt of one token, the first step has nothing to draft from."""
    prompt = [2] if params == "plain" else [1, 2, 1]
    pair = pair_with_head(3, 3, block=True)
    given = {"pair": pair, "prompt": prompt, "params": ENUMERATED[params], "num_draft_tokens": 2}
    proof = prove_lossless(drafter="block", verifier=strategy, **given)
    assert proof.lossless, str(proof)
    assert proof.max_difference < 1e-12
    assert proof.num_paths > 20


def test_it_can_be_proven_without_models_of_one_s_own():
    proof = prove_lossless(drafter=BlockDrafter, verifier="speculative_sampling", params=SamplingParams(max_tokens=2))
    assert proof.lossless, str(proof)


@pytest.mark.parametrize("sampling", ["sampled", "argmax"])
def test_greedy_decoding_has_one_output(sampling):
    pair, params = pair_with_head(4, 5, block=True), SamplingParams(max_tokens=8, temperature=0, ignore_eos=True)
    plain = enumerate_outputs(pair, [1, 2], params, num_draft_tokens=0)
    assert enumerate_outputs(pair, [1, 2], params, num_draft_tokens=3, drafter="block", draft_sampling=sampling) == plain


def check(events, prompt, count=2):
    """Every window was drawn from what the definition gives for the committed tokens; there were some windows."""
    committed = (EventKind.ACCEPTED, EventKind.RESAMPLED, EventKind.BONUS)
    steps: dict[int, list] = {}
    for event in events:
        if event.step is not None:
            steps.setdefault(event.step, []).append(event)
    reference, tokens, windows = TransformersLanguageModel(tiny_llama(DEPTH, seed=0)), list(prompt), 0
    for step in sorted(steps):
        proposed = [event for event in steps[step] if event.kind == EventKind.PROPOSED]
        if proposed:
            windows += 1
            query = torch.tensor([tokens])
            _, features = reference.forward(query, reference.new_cache(1).all_rows(), layers=LAYERS)
            matrices = (reference.input_embeddings, reference.output_embeddings)
            logits = eager_block(TENSORS, CONFIG, *matrices, tokens[-1], features[0, :-1])
            drafts = [event.token_id for event in proposed]
            expected = logits.softmax(-1)[torch.arange(len(drafts)), drafts]
            assert [event.draft_prob for event in proposed] == pytest.approx(expected.tolist(), rel=5e-3, abs=1e-5)
        tokens += [e.token_id for e in steps[step] if e.kind in committed]
    assert windows >= count


def params(**more):
    return SamplingParams(**{"max_tokens": 18, "seed": 3, "ignore_eos": True} | more)


def test_a_batch_s_rows_are_what_they_are_alone_drawn_from_its_definition(decoder):
    settings = [params(seed=number, max_tokens=10 + 2 * number) for number in range(4)]
    together = decoder.generate(PROMPTS, settings, drafter="block", num_draft_tokens=3, detail="probs")
    assert sum(result.metrics.num_accepted_draft_tokens for result in together) > 0
    for prompt, own, result in zip(PROMPTS, settings, together, strict=True):
        check(result.trace.events, prompt)
        alone = decoder.generate(prompt, own, drafter="block", num_draft_tokens=3)
        assert result.token_ids == alone.token_ids


def test_greedy_output_is_that_of_plain_decoding_and_windows_end_with_the_block(decoder):
    greedy = params(temperature=0, max_tokens=20)
    plain = [result.token_ids for result in decoder.generate(PROMPTS, greedy, num_draft_tokens=0)]
    for k in (9, "auto"):
        drafted = decoder.generate(PROMPTS, greedy, drafter="block", num_draft_tokens=k)
        assert [result.token_ids for result in drafted] == plain
        windows = [e.num_draft for result in drafted for e in result.trace.events if e.kind == EventKind.STEP]
        assert 0 < max(windows) <= BLOCK - 1
        assert k == "auto" or max(windows) == BLOCK - 1


def test_prompts_are_read_chunk_by_chunk_and_shared_by_siblings(one, monkeypatch):
    monkeypatch.setattr("naive_speculate.infer.slots.PREFILL_CHUNK", 4)
    result = one.generate(PROMPTS[1], params(n=2, max_tokens=12), drafter="block", num_draft_tokens=3, detail="probs")
    assert len({tuple(output.token_ids) for output in result.outputs}) == 2
    for output in result.outputs:
        check(output.trace.events, PROMPTS[1])


def test_a_step_that_failed_is_made_again_as_if_it_had_not(one, monkeypatch):
    options = {"drafter": "block", "num_draft_tokens": 3, "detail": "probs"}
    batch, run = one.new_batch(), one.prepare(Request(PROMPTS[1], params(), **options))
    batch.admit(run.rows)
    events = []
    for number in range(40):
        if run.over:
            break
        if number in (1, 3):
            saved = run.rows[0].save()
            with monkeypatch.context() as patch:
                patch.setattr(batch, "score", lambda *_: (_ for _ in ()).throw(MemoryError()))
                with pytest.raises(MemoryError):
                    batch.step(run.rows)
            batch.rewind(run.rows)
            run.rows[0].restore(saved)
        events += run.events(batch.step(run.rows))
    check(events, PROMPTS[1])
    assert run.rows[0].output_token_ids == one.generate(PROMPTS[1], params(), **options).token_ids


def test_what_a_pair_lacks_is_said_in_one_line(one, folder):
    with pytest.raises(ValueError, match=r"but this pair has no draft head$"):
        one.generate([1, 2], drafter="head")
    with pytest.raises(ValueError, match=r"but this pair has no block drafter$"):
        SpeculativeDecoder(pair_with_head(4, 5)).generate([1, 2], drafter="block")
    narrower = LlamaLanguageModel.from_transformers(tiny_llama(2, seed=0), "torch")
    with pytest.raises(ValueError, match=r"^head '.*' reads layer 4 of its target, this one has 2$"):
        ModelPair(narrower, head=one.pair.head)
    toys = ModelPair(ToyModel(97, 1), head=one.pair.head)
    with pytest.raises(ValueError, match=r"but ToyModel returns no hidden states, which a head reads$"):
        SpeculativeDecoder(toys).generate([1, 2], drafter="block")


def test_the_command_line_drafts_with_a_block_drafter(folder, tmp_path, capsys):
    """Given as the draft, it is recognised; it is the pair's own drafter."""
    save_model(tiny_llama(DEPTH, seed=0), tmp_path / "target")
    pair = load_pair(tmp_path / "target", folder, device="cpu")
    assert pair.names == {"target": "target", "block": folder.name}
    assert pair.costs("block").verify[1] == pair.costs("suffix").verify[1] + pair._share(pair.head)
    options = ["--target", str(tmp_path / "target"), "--head", str(folder), "--device", "cpu", "--max-tokens", "6", "--json"]
    assert main(["generate", "w3 w5 w8", *options]) == 0
    started, *events = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert started["settings"]["drafter"] == "block"
    assert started["models"]["block"] == folder.name
    assert started["head_layers"] == list(LAYERS)
    assert any(event["kind"] == "proposed" for event in events)
