"""Drafting with a head: what it proposes is what its definition says over the committed text, in every executor and life."""

import threading
from functools import cache
from itertools import pairwise

import pytest
import torch

from naive_speculate import EventKind, ModelPair, SamplingParams, SpeculativeDecoder
from naive_speculate.events import FinishReason
from naive_speculate.infer import TransformersLanguageModel
from naive_speculate.infer.head.checkpoint import load_head
from naive_speculate.infer.llama.model import LlamaLanguageModel
from naive_speculate.speculate.batch import PartialStepError
from naive_speculate.speculate.draft import DRAFTERS
from naive_speculate.speculate.request import Request
from tests.heads import eager_window, head_config, head_tensors, save_head
from tests.infer.llamas import made
from tests.speculate.rows import admitted
from tests.speculate.toys import ToyModel
from tests.tiny import tiny_llama

WAYS = {
    "transformers": (TransformersLanguageModel, "torch"),
    "onnx": (lambda model: LlamaLanguageModel.from_transformers(model, "onnx"), "onnx"),
    "torch": (lambda model: LlamaLanguageModel.from_transformers(model, "torch"), "torch"),
    "graphs": (lambda model: made(model, "graphs"), "torch"),
}
PROMPTS = ([5, 17, 80, 3], [9] * 11 + [4, 33], [61], [2, 90, 14, 14, 2, 90], [7, 8])
DEPTH = 4
LAYERS = (1, 2, 4)
CONFIG = head_config()
TENSORS = head_tensors(CONFIG)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return save_head(
        tmp_path_factory.mktemp("head"), "speculators", CONFIG, TENSORS, eagle_aux_hidden_state_layer_ids=list(LAYERS)
    )


def pair_of(folder, way):
    wrap, executor = WAYS[way]
    target = wrap(tiny_llama(DEPTH, seed=0))
    return ModelPair(target, head=load_head(folder, target, target.device, torch.float32, executor))


@pytest.fixture(scope="module", params=WAYS)
def decoder(request, folder):
    return SpeculativeDecoder(pair_of(folder, request.param))


@pytest.fixture(scope="module")
def one(folder):
    """A decoder in one executor, for what does not depend on it."""
    return SpeculativeDecoder(pair_of(folder, "torch"))


@cache
def source():
    """The target in transformers."""
    return tiny_llama(DEPTH, seed=0)


def check(events, prompt, count=3):
    """Every window was drawn from what the head's definition gives for the committed tokens; there were some windows."""
    reference = source()
    tokens, windows = list(prompt), 0
    committed = (EventKind.ACCEPTED, EventKind.RESAMPLED, EventKind.BONUS)
    steps: dict[int, list] = {}
    for event in events:
        if event.step is not None:
            steps.setdefault(event.step, []).append(event)
    every = features_of(reference, prompt + [e.token_id for step in sorted(steps) for e in steps[step] if e.kind in committed])
    for step in sorted(steps):
        proposed = [event for event in steps[step] if event.kind == EventKind.PROPOSED]
        if proposed:
            windows += 1
            features = every[: len(tokens) - 1]
            drafts = [event.token_id for event in proposed]
            logits = eager_window(TENSORS, CONFIG, reference.model.embed_tokens.weight.detach(), tokens, features, drafts)
            expected = logits.softmax(-1)[torch.arange(len(drafts)), drafts]
            assert [event.draft_prob for event in proposed] == pytest.approx(expected.tolist(), rel=5e-3, abs=1e-5)
        tokens += [e.token_id for e in steps[step] if e.kind in committed]
    assert windows >= count


def features_of(reference, tokens):
    """The hidden states that the head reads, a row for each token; each depends on the tokens up to its own."""
    kept = []
    hook = reference.model.layers[-1].register_forward_hook(lambda _module, _input, output: kept.append(output))
    with torch.no_grad():
        states = reference(torch.tensor([tokens]), output_hidden_states=True).hidden_states
    hook.remove()
    last = kept[0][0] if isinstance(kept[0], tuple) else kept[0]
    found = [last if layer == DEPTH else states[layer] for layer in LAYERS]
    return torch.cat([one.reshape(-1, one.shape[-1]) for one in found], dim=-1)


def params(**more):
    return SamplingParams(**{"max_tokens": 18, "seed": 3, "ignore_eos": True} | more)


def test_a_batch_s_rows_are_what_they_are_alone_drawn_from_what_the_head_says_of_the_committed_text(decoder):
    settings = [params(seed=number, max_tokens=10 + 2 * number) for number in range(4)]
    together = decoder.generate(list(PROMPTS[:4]), settings, drafter="head", num_draft_tokens=3, detail="probs")
    assert sum(result.metrics.num_accepted_draft_tokens for result in together) > 0
    for prompt, one, result in zip(PROMPTS[:4], settings, together, strict=True):
        check(result.trace.events, prompt, count=2)
        alone = decoder.generate(prompt, one, drafter="head", num_draft_tokens=3)
        assert result.token_ids == alone.token_ids


GREEDY = params(temperature=0, max_tokens=20)


def test_greedy_output_is_that_of_plain_decoding(decoder):
    plain = [result.token_ids for result in decoder.generate(list(PROMPTS), GREEDY, num_draft_tokens=0)]
    for k in (8, "auto"):
        drafted = decoder.generate(list(PROMPTS), GREEDY, drafter="head", num_draft_tokens=k, detail="none")
        assert [result.token_ids for result in drafted] == plain


@pytest.mark.parametrize(("size", "prompt"), [(1, PROMPTS[1]), (5, PROMPTS[1]), (5, [11, 12, 13, 14, 15])])
def test_prompts_are_taken_in_chunk_by_chunk(one, monkeypatch, size, prompt):
    monkeypatch.setattr("naive_speculate.infer.slots.PREFILL_CHUNK", size)
    result = one.generate(prompt, params(), drafter="head", num_draft_tokens=3, detail="probs")
    check(result.trace.events, prompt)


@pytest.mark.parametrize("prompt_logprobs", [None, 2])
def test_siblings_share_a_prompt_taken_in_by_chunks_and_go_their_own_ways(decoder, monkeypatch, prompt_logprobs):
    monkeypatch.setattr("naive_speculate.infer.slots.PREFILL_CHUNK", 4)
    several = params(n=2, prompt_logprobs=prompt_logprobs, max_tokens=12)
    result = decoder.generate(PROMPTS[1], several, drafter="head", num_draft_tokens=3, detail="probs")
    assert len({tuple(output.token_ids) for output in result.outputs}) == 2
    for output in result.outputs:
        check(output.trace.events, PROMPTS[1])


def test_a_sibling_that_is_left_behind_drafts_on(one):
    """Its source has stepped alone, so that the state to begin from is gone: its first step is a plain one."""
    batch = one.new_batch()
    run = one.prepare(Request(PROMPTS[1], params(n=2), drafter="head", num_draft_tokens=3, detail="probs"))
    batch.admit(run.rows)
    events = []
    for _ in range(3):
        events += run.events(batch.step(run.rows[:1]))
    while not run.over:
        events += run.events(batch.step(run.rows))
    for row in run.rows:
        check([event for event in events if event.row == row.row], PROMPTS[1])


def test_rows_join_and_leave_between_steps(one):
    batch, cancel = one.new_batch(), threading.Event()
    options = {"drafter": "head", "num_draft_tokens": 4}
    first = admitted(one, batch, PROMPTS[0], params(max_tokens=24), **options)
    second = admitted(one, batch, PROMPTS[1], params(seed=4, max_tokens=24), cancel, **options)
    plain = admitted(one, batch, PROMPTS[3], params(seed=6, max_tokens=24), num_draft_tokens=0)
    for _ in range(4):
        batch.step([first, second, plain])
    cancel.set()
    third = admitted(one, batch, PROMPTS[4], params(seed=5, max_tokens=24), **options)
    while not (first.ended and third.ended and plain.ended):
        batch.step([first, second, third, plain])
    assert second.finish_reason == FinishReason.CANCELLED
    batch.release([first, second, third, plain])
    for row, prompt in ((first, PROMPTS[0]), (third, PROMPTS[4])):
        assert row.output_token_ids == one.generate(prompt, row.params, **options).token_ids


@pytest.mark.parametrize("fails", ["score", "propose", "commit"])
def test_a_step_that_failed_is_made_again_as_if_it_had_not(one, monkeypatch, fails):
    """Whether memory gave out in the target, in the head, or after some rows were committed."""
    options = {"drafter": "head", "num_draft_tokens": 3, "detail": "probs"}
    batch = one.new_batch()
    runs = [one.prepare(Request(prompt, params(), **options)) for prompt in (PROMPTS[1], PROMPTS[3])]
    rows = [row for run in runs for row in run.rows]
    for run in runs:
        batch.admit(run.rows)
    events = [[], []]
    for number in range(40):
        going_on = [row for row in rows if not row.ended]
        if not going_on:
            break
        if number in (1, 4, 5):
            saved = [row.save() for row in going_on]
            with monkeypatch.context() as patch:
                patched(patch, batch, fails, going_on[-1])
                with pytest.raises((MemoryError, PartialStepError)) as failed:
                    batch.step(going_on)
            partial = isinstance(failed.value, PartialStepError)
            assert partial == (fails == "commit" and len(going_on) > 1)
            records = failed.value.records if partial else {}
            assert list(records) == going_on[:-1] * partial
            batch.rewind(going_on)
            for row, state in zip(going_on, saved, strict=True):
                row.restore(state)
            for run, told in zip(runs, events, strict=True):
                told += run.events(records)
            continue
        records = batch.step(going_on)
        for run, told in zip(runs, events, strict=True):
            told += run.events(records)
    for run, told, prompt in zip(runs, events, (PROMPTS[1], PROMPTS[3]), strict=True):
        assert run.over
        assert run.rows[0].output_token_ids == one.generate(prompt, params(), **options).token_ids
        check(told, prompt)


def patched(patch, batch, fails, row):
    def fail(*_args, **_options):
        raise MemoryError

    head, calls = batch.pair.head, []
    forward, commit = head.forward, type(row).commit
    if fails == "score":
        patch.setattr(batch.target, "compute", fail)
    elif fails == "propose":
        patch.setattr(head, "forward", lambda *args: fail() if len(calls) == 2 else (calls.append(1), forward(*args))[1])
    else:
        patch.setattr(type(row), "commit", lambda self, outcome: fail() if self is row else commit(self, outcome))


def test_the_cache_of_the_head_holds_no_token_that_is_not_committed(one):
    batch = one.new_batch()
    rows = [admitted(one, batch, prompt, params(max_tokens=30), drafter="head", num_draft_tokens=5) for prompt in PROMPTS[:3]]
    drafter = batch.drafters["head"]
    while not all(row.ended for row in rows):
        batch.step(rows)
        for row in rows:
            if not row.ended:
                history = drafter.histories[row]
                assert history.slot.num_tokens == history.start
                assert history.end == len(row.token_ids) - 1
    batch.release(rows)
    assert drafter.histories == {}


@pytest.mark.parametrize("num_draft_tokens", [4, "auto"])
def test_windows_end_where_the_sequence_does(one, num_draft_tokens):
    limit = one.pair.target.max_positions
    prompt = [3 + number % 90 for number in range(limit - 6)]
    result = one.generate(prompt, params(max_tokens=50), drafter="head", num_draft_tokens=num_draft_tokens)
    assert len(result.token_ids) == 6


def test_a_target_without_hidden_states_and_a_pair_without_a_head_are_refused_in_words(one, folder):
    with pytest.raises(ValueError, match=r"^drafter is 'head', but this pair has no draft head$"):
        SpeculativeDecoder(ModelPair(one.pair.target)).generate([1, 2], drafter="head")
    with pytest.raises(ValueError, match="but ToyModel returns no hidden states, which a head reads"):
        SpeculativeDecoder(ModelPair(ToyModel(97, 1), head=one.pair.head)).generate([1, 2], drafter="head")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"hidden_size": 64}, "is for a target with hidden_size 32, this one's is 64"),
        ({"vocab_size": 99}, "is for a target with vocab_size 97, this one's is 99"),
        ({"num_hidden_layers": 3}, "reads layer 4 of its target, this one has 3"),
    ],
)
def test_a_head_for_another_target_is_refused_in_words(one, changes, message):
    from transformers import LlamaConfig, LlamaForCausalLM

    config = tiny_llama(DEPTH, seed=0).config.to_dict() | changes
    config.pop("head_dim")
    other = TransformersLanguageModel(LlamaForCausalLM(LlamaConfig(**config)))
    with pytest.raises(ValueError, match=f"^head '.*' {message}$"):
        ModelPair(other, head=one.pair.head)
    with pytest.raises(ValueError, match=r"^head must be a DraftHead, which load_pair loads, got 3"):
        ModelPair(other, head=3)


def test_prompts_come_to_every_drafter_that_wants_to_see_them(one, monkeypatch):
    """Registered from outside, with layers of its own, in a batch with the head."""
    monkeypatch.setattr("naive_speculate.infer.slots.PREFILL_CHUNK", 4)
    seen = []

    class Watching(DRAFTERS["prompt_lookup"]):
        layers = (2, 0)

        def observe(self, rows, starts, features):
            for row, start, states in zip(rows, starts, features, strict=True):
                seen.append((row.row, start, states))

    monkeypatch.setitem(DRAFTERS, "watching", Watching)
    batch = one.new_batch()
    watched = admitted(one, batch, PROMPTS[1], params(), drafter="watching")
    beside = admitted(one, batch, PROMPTS[1], params(), drafter="head")
    while not (watched.ended and beside.ended):
        batch.step([watched, beside])
    with torch.no_grad():
        states = source()(torch.tensor([PROMPTS[1]]), output_hidden_states=True).hidden_states
    expected = torch.cat([states[2][0], states[0][0]], dim=-1)[:-1]
    assert [start for _, start, _ in seen] == [0, 4, 8]
    assert all(start + len(part) == following for (_, start, part), (_, following, _) in pairwise(seen))
    torch.testing.assert_close(torch.cat([states for _, _, states in seen]), expected, atol=2e-4, rtol=2e-4)
