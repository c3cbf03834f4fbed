"""The decoder on random models: batches, caches, limits, stops, what results carry."""

import json
import threading

import numpy as np
import pytest
import torch
from transformers import LlamaForCausalLM

from naive_speculate import (
    EventKind,
    ModelPair,
    SamplingParams,
    SpeculativeDecoder,
    Trace,
    VerifyStrategy,
)
from naive_speculate.events import FinishReason
from naive_speculate.infer import TransformersLanguageModel
from naive_speculate.speculate.batch import Batch, PartialStepError
from naive_speculate.speculate.draft import DRAFTERS
from naive_speculate.speculate.request import Request
from tests.speculate.rows import admitted, same_alone, same_as_plain
from tests.speculate.toys import ToyModel
from tests.tiny import noisy_pair, tiny_llama

STRATEGIES = list(VerifyStrategy)
PROMPTS = [[5, 6, 7], [1], list(range(17)), [9, 8, 7, 6, 5, 4, 3, 2, 1], list(range(40, 70))]


@pytest.fixture(
    scope="module", params=[None, TransformersLanguageModel], ids=["torch", "transformers"]
)
def decoder(request) -> SpeculativeDecoder:
    """The tiny decoder, and one that computes with transformers' own forward."""
    return SpeculativeDecoder(noisy_pair(request.param))


@pytest.fixture(scope="module")
def source() -> LlamaForCausalLM:
    """The target in transformers."""
    return tiny_llama(1, seed=0)


@pytest.fixture(scope="module")
def greedy_outputs(source) -> list[list[int]]:
    """What transformers generates after the first prompts."""
    outputs = []
    for prompt in PROMPTS[:3]:
        query = torch.tensor([prompt])
        output = source.generate(
            query,
            attention_mask=torch.ones_like(query),
            do_sample=False,
            max_new_tokens=16,
            pad_token_id=0,
        )
        outputs.append(output[0, len(prompt) :].tolist())
    return outputs


@pytest.mark.parametrize(
    ("k", "strategy"),
    [(0, STRATEGIES[0]), *zip((1, 3, "auto", "auto", 8, 8, 8), STRATEGIES * 2, strict=False)],
)
def test_greedy_output_is_the_targets_whatever_drafts_and_strategy(
    tiny_decoder, greedy_outputs, k, strategy
):
    """Greedy match ignores the temperature."""
    params = SamplingParams(
        temperature=5.0 if strategy == VerifyStrategy.GREEDY_MATCH else 0, max_tokens=16
    )
    found = tiny_decoder.generate(
        PROMPTS[:3], params, num_draft_tokens=k, verify_strategy=strategy, detail="none"
    )
    assert [result.token_ids for result in found] == greedy_outputs


def test_sequences_join_and_leave_between_steps(decoder):
    params = [SamplingParams(max_tokens=n, seed=n) for n in (12, 4, 8)]
    alone = [
        decoder.generate(p, q, detail="none").token_ids
        for p, q in zip(PROMPTS, params, strict=False)
    ]
    batch, rows, waiting = decoder.new_batch(), [], list(zip(PROMPTS, params, strict=False))
    while waiting or not all(row.ended for row in rows):
        if waiting:
            rows.append(admitted(decoder, batch, *waiting.pop(0)))
        for _ in range(2):
            batch.step(row for row in rows if not row.ended)
        batch.release(row for row in rows if row.ended)
    assert [row.output_token_ids for row in rows] == alone


def test_after_a_step_no_cache_holds_an_uncommitted_token(decoder):
    """A row of each strategy."""
    batch, accepted = decoder.new_batch(), set()
    rows = [
        admitted(
            decoder,
            batch,
            prompt,
            SamplingParams(max_tokens=12, seed=2),
            num_draft_tokens=3,
            verify_strategy=strategy,
        )
        for prompt, strategy in zip(PROMPTS, STRATEGIES, strict=False)
    ]
    while not all(row.ended for row in rows):
        accepted |= {record.outcome.num_accepted for record in batch.step(rows).values()}
        for row in rows:
            places = (batch.slots[row], batch.drafters["model"].slots[row])
            for slot, model in zip(places, (decoder.pair.target, decoder.pair.draft), strict=True):
                assert slot.num_tokens < len(row.token_ids)
                fresh = model.new_cache(1)
                model.forward(torch.tensor([row.token_ids[: slot.num_tokens]]), fresh)
                for layer, expected in zip(
                    slot.cache.rows([slot.row]).get_kv_states(), fresh.get_kv_states(), strict=True
                ):
                    torch.testing.assert_close(layer.keys, expected.keys, atol=1e-4, rtol=1e-4)
    assert {0, 3} <= accepted


class Plain:
    """A user's model: the reference's two members and nothing else."""

    def __init__(self, model):
        self._model = TransformersLanguageModel(model)

    @property
    def eos_token_id(self) -> int:
        raise ValueError("the configuration has no eos_token_id")

    def forward(self, query_token_ids, kv_cache):
        return self._model.forward(query_token_ids, kv_cache)


def test_a_plain_language_model_gives_the_same_as_a_batched_one(tiny_decoder):
    plain = SpeculativeDecoder(noisy_pair(Plain))
    params = [SamplingParams(max_tokens=9, seed=3), SamplingParams(max_tokens=6, temperature=0)]
    pairs = (
        decoder.generate(PROMPTS[:2], params, detail="none") for decoder in (plain, tiny_decoder)
    )
    for ours, theirs in zip(*pairs, strict=True):
        assert ours.token_ids == theirs.token_ids
    several = SamplingParams(n=3, seed=1, max_tokens=4)
    assert [o.token_ids for o in plain.generate(PROMPTS[2], several).outputs] == [
        o.token_ids for o in tiny_decoder.generate(PROMPTS[2], several).outputs
    ]


@pytest.mark.parametrize("k", [3, "auto"])
def test_a_drawn_seed_is_reported_and_repeats_the_run_and_a_top_k_of_0_keeps_all(tiny_decoder, k):
    first = tiny_decoder.generate(PROMPTS[0], SamplingParams(max_tokens=20), num_draft_tokens=3)
    seed = first.trace.started.seed
    both = [SamplingParams(max_tokens=20, seed=seed, top_k=top_k) for top_k in (-1, 0)]
    outputs = [tiny_decoder.generate(PROMPTS[0], params, num_draft_tokens=k) for params in both]
    other = tiny_decoder.generate(
        PROMPTS[0], SamplingParams(max_tokens=20, seed=seed ^ 1), num_draft_tokens=k
    )
    assert outputs[0].token_ids == outputs[1].token_ids != other.token_ids
    assert k == "auto" or outputs[0].token_ids == first.token_ids


def test_the_auto_windows_costs_stand_in_the_started_event(tiny_decoder):
    without_draft = SpeculativeDecoder(ModelPair(tiny_decoder.pair.target))
    paid, free = (
        one.generate(PROMPTS[0], num_draft_tokens="auto").trace.started
        for one in (tiny_decoder, without_draft)
    )
    assert free.cost_table["draft"] == 0 < paid.cost_table["draft"]
    assert paid.cost_table["verify"][0] == 1.0
    assert tiny_decoder.generate(PROMPTS[0]).trace.started.cost_table is None


@pytest.mark.parametrize("alone", [False, True])
def test_a_request_that_names_no_drafter_gets_the_pair_s_own(tiny_decoder, alone):
    decoder = SpeculativeDecoder(ModelPair(tiny_decoder.pair.target)) if alone else tiny_decoder
    prompt, name = [5, 6, 7, 8, 5, 6, 7], decoder.pair.default_drafter
    found = same_as_plain(decoder, prompt, SamplingParams(max_tokens=12, temperature=0))
    assert found.trace.started.settings["drafter"] == name
    assert (name != "model") == alone
    assert DRAFTERS[name].obstacle(decoder.pair) is None
    for drafter in (None, "model", "prompt_lookup"):  # plain decoding needs none
        plain = decoder.generate(
            prompt, SamplingParams(max_tokens=12, seed=3), num_draft_tokens=0, drafter=drafter
        )
        assert (len(plain.token_ids), plain.metrics.num_draft_tokens) == (12, 0)
    if alone:
        with pytest.raises(ValueError, match="no draft model; use 'prompt_lookup'"):
            decoder.generate(prompt, drafter="model")


@pytest.mark.parametrize(("logprobs", "prompt_logprobs"), [(3, 2), (-1, -1)])
def test_logprobs_agree_with_a_plain_forward(tiny_decoder, source, logprobs, prompt_logprobs):
    """-1 stands for the whole distribution. What truncates and warps it does not count."""
    values = {"logprobs": logprobs, "prompt_logprobs": prompt_logprobs, "truncate_prompt_tokens": 6}
    params = SamplingParams(max_tokens=12, seed=2, temperature=0.7, top_k=5, **values)
    result, prompt = tiny_decoder.generate(PROMPTS[3], params), PROMPTS[3][-6:]
    assert result.trace.started.prompt_token_ids == prompt
    whole = prompt + result.token_ids
    with torch.no_grad():
        raw = torch.log_softmax(source(torch.tensor([whole])).logits[0], -1)
    assert result.prompt_logprobs[0] is None
    for place, entry in enumerate(result.prompt_logprobs[1:] + result.logprobs, start=1):
        count, token = (prompt_logprobs, logprobs)[place >= len(prompt)], whole[place]
        assert len(entry) in ((97,) if count == -1 else (count, count + 1))
        assert entry[token].rank == (raw[place - 1] > raw[place - 1, token]).sum() + 1
        expected = [raw[place - 1, other].item() for other in entry]
        assert [found.logprob for found in entry.values()] == pytest.approx(expected, abs=1e-4)
    assert len(whole) == place + 1


@pytest.mark.parametrize(("max_tokens", "k"), [(50, 4), (None, 0), (None, "auto")])
def test_a_run_ends_with_length_at_the_models_last_position(max_tokens, k):
    pair = ModelPair(
        *(TransformersLanguageModel(tiny_llama(n, seed=3, positions=20)) for n in (2, 1))
    )
    decoder, prompts = SpeculativeDecoder(pair), [list(range(size)) for size in (5, 19, 20)]
    params = SamplingParams(max_tokens=max_tokens, seed=1)
    for prompt, result in zip(
        prompts, same_alone(decoder, prompts, params, num_draft_tokens=k), strict=True
    ):
        assert (len(prompt) + len(result.token_ids), result.finish_reason) == (20, "length")
        assert result.trace.started.settings["max_tokens"] == max_tokens
    with pytest.raises(ValueError, match=r"prompt has 27 tokens, 7 more than the 20"):
        decoder.generate(list(range(27)))


def test_a_draft_with_fewer_positions_stops_drafting_but_not_decoding():
    target, draft = (
        TransformersLanguageModel(tiny_llama(1, seed=3, positions=p)) for p in (60, 16)
    )
    decoder = SpeculativeDecoder(ModelPair(target, draft))
    params = SamplingParams(max_tokens=40, temperature=0)
    assert len(same_as_plain(decoder, PROMPTS[0], params).token_ids) == 40


def test_cancelling_ends_the_run_with_its_tokens_so_far(tiny_decoder):
    cancel = threading.Event()
    seen = []
    for event in tiny_decoder.stream(
        PROMPTS[0], SamplingParams(max_tokens=150, seed=1), cancel=cancel
    ):
        seen.append(event)
        if event.kind == EventKind.STEP and event.step == 2:
            cancel.set()
    assert seen[-1].finish_reason == "cancelled"
    assert 3 <= len(Trace(seen).token_ids) < 150
    assert [e.step for e in seen if e.kind == EventKind.STEP] == [0, 1, 2]


def test_a_failing_step_ends_the_trace_with_error_and_is_raised(tiny_decoder):
    def fail(output_token_ids, logits):
        if len(output_token_ids) >= 3:
            raise RuntimeError("no more")
        return logits

    seen = []
    with pytest.raises(RuntimeError, match="no more"):
        seen.extend(
            tiny_decoder.stream(PROMPTS[0], SamplingParams(logits_processors=[fail], seed=1))
        )
    assert seen[-1].kind == EventKind.FINISHED
    assert seen[-1].finish_reason == "error"
    assert "no more" in seen[-1].message


UNSURE = (-0.1, 1.5, True, "high", float("nan"))


def test_token_ids_may_be_numbers_or_arrays_of_numpy_or_tensors(tiny_decoder):
    params = SamplingParams(max_tokens=4, temperature=0)
    wanted = tiny_decoder.generate([5, 17], params).token_ids
    array, tensor = np.array([5, 17]), torch.tensor([5, 17])
    for prompt in (array, list(array), tuple(array.astype(np.uint8)), tensor, list(tensor)):
        result = tiny_decoder.generate(prompt, params)
        assert result.token_ids == wanted
        assert json.loads(result.trace.to_jsonl().split("\n")[0])["prompt_token_ids"] == [5, 17]
        assert list(tiny_decoder.stream(prompt, params))[-1].metrics["num_generated_tokens"] == 4
    for prompts in (np.array([[5, 17]] * 2), [array, tensor], [list(array), [5, 17]]):
        assert [each.token_ids for each in tiny_decoder.generate(prompts, params)] == [wanted] * 2
    for prompt in (np.array([5.0]), np.array([True]), [np.float32(5)], b"ab"):
        with pytest.raises(ValueError, match=r"^prompt (holds|must be)"):
            tiny_decoder.generate(prompt, params)


BAD = (
    ({"prompt": ""}, "prompt is empty"),
    ({"prompt": []}, "prompt is an empty list"),
    ({"prompt": [[]]}, "prompt is empty"),
    ({"prompt": [97]}, "prompt holds 97, expected token ids from 0 to 96"),
    ({"prompt": [1, "x"]}, "prompt must be text, .* or a list of those; this list mixes them"),
    ({"prompt": 3}, "prompt must be text, token ids"),
    ({"prompt": "words"}, "prompt must be a list of token ids: this pair has no tokenizer"),
    (
        {"prompt": [1], "num_draft_tokens": -1},
        "num_draft_tokens must be 'auto' or from 0 to 64, got -1",
    ),
    ({"prompt": [1], "num_draft_tokens": 10**6}, "num_draft_tokens must be .* got 1000000"),
    ({"prompt": [1], "num_draft_tokens": 1.5}, "num_draft_tokens must be .* got 1.5"),
    (
        {"prompt": [1], "verify_strategy": "luck"},
        "verify_strategy must be one of greedy_match, .* got 'luck'",
    ),
    (
        {"prompt": [1], "drafter": "oracle"},
        "drafter must be one of model, head, block, mtp, .*, got 'oracle'",
    ),
    *(({"prompt": [1], "drafter": name}, "drafter must be one of") for name in ("", 3, ["model"])),
    (
        {"prompt": [1], "draft_sampling": "best"},
        "draft_sampling must be 'sampled' or 'argmax', got 'best'",
    ),
    (
        {"prompt": [1], "draft_sampling": torch.ones(2)},
        "draft_sampling must be 'sampled' or 'argmax'",
    ),
    *(
        (
            {"prompt": [1], "draft_confidence": value},
            "draft_confidence must be None or from 0 to 1, got",
        )
        for value in UNSURE
    ),
    ({"prompt": [1], "detail": "some"}, "detail must be 'full', 'probs' or 'none', got 'some'"),
    (
        {"prompt": [[1], [2]], "params": [SamplingParams()]},
        "params has 1 entries for 2 prompts",
    ),
    ({"prompt": [1], "params": {"n": 1}}, "params must be SamplingParams"),
    (
        {"prompt": [1], "params": SamplingParams(allowed_token_ids=[200])},
        "allowed_token_ids holds token 200",
    ),
    (
        {"prompt": [1], "params": SamplingParams(logit_bias={98: 1.0})},
        "logit_bias holds token 98",
    ),
    (
        {"prompt": [1], "params": SamplingParams(bad_words=["x"])},
        r"bad_words=\['x'\] needs a tokenizer",
    ),
    (
        {"prompt": [1], "params": SamplingParams(filter_words="classroom")},
        "filter_words='classroom' needs a tokenizer",
    ),
)
"""Arguments of `generate`, and what the error says."""


def test_bad_input_is_refused_by_name_before_any_model_runs(tiny_decoder):
    for arguments, message in BAD:
        with pytest.raises(ValueError, match=message):
            pytest.fail(f"{arguments} gives {tiny_decoder.generate(**arguments)}")
    with pytest.raises(
        ValueError,
        match=r"max_tokens is None, but this model has no limit of its own \(max_positions\)",
    ):
        SpeculativeDecoder(ModelPair(ToyModel(5, 1))).generate(
            [1, 2], SamplingParams(max_tokens=None)
        )
    with pytest.raises(ValueError, match="n must be 1 to stream, got n=2"):
        tiny_decoder.stream([1], SamplingParams(n=2))


def test_a_row_of_another_batch_is_refused(tiny_decoder):
    rows = tiny_decoder.prepare(Request([1])).rows
    tiny_decoder.new_batch().admit(rows)
    with pytest.raises(ValueError, match="admitted to this batch"):
        tiny_decoder.new_batch().step(rows)


def test_where_the_draft_finds_no_place_the_target_s_is_given_back(tiny_decoder, monkeypatch):
    batch = tiny_decoder.new_batch()
    (first,), (second,) = (tiny_decoder.prepare(Request(prompt)).rows for prompt in PROMPTS[:2])
    batch.admit([first])
    target, draft = batch.slots, batch.drafters["model"]

    def no_room():
        raise MemoryError

    with monkeypatch.context() as patched:
        patched.setattr(draft.pool, "allocate", no_room)
        with pytest.raises(MemoryError):
            batch.admit([second])
    batch.admit([second])
    assert (target[second].row, draft.slots[second].row) == (1, 1)


@pytest.mark.parametrize("best_of", [3, 4])
def test_sequences_of_one_prompt_are_ranked_and_can_be_written_as_json(tiny_decoder, best_of):
    params = SamplingParams(n=3, best_of=best_of, max_tokens=4, seed=2, logprobs=1)
    result = tiny_decoder.generate([3, 4], params)
    assert len({tuple(output.token_ids) for output in result.outputs}) == 3
    assert result.outputs[0].token_ids == result.token_ids
    scores = [output.cumulative_logprob for output in result.outputs]
    assert scores == sorted(scores, reverse=True)
    told = json.loads(json.dumps(result.to_dict()))
    assert [output["token_ids"] for output in told["outputs"]] == [
        output.token_ids for output in result.outputs
    ]
    assert told["outputs"][0] == told | {"outputs": []}
    assert told["outputs"][1] == json.loads(json.dumps(result.outputs[1].to_dict()))
    assert (
        tiny_decoder.generate([3, 4], SamplingParams(max_tokens=4, seed=2)).to_dict()["outputs"]
        == []
    )


PROMPT = "Once upon a time there was a hen"


@pytest.fixture(scope="module")
def plain(small_decoder: SpeculativeDecoder):
    return small_decoder.generate(
        PROMPT, SamplingParams(max_tokens=24, temperature=0, ignore_eos=True)
    )


@pytest.mark.parametrize("k", [0, 1, 8])
def test_the_stop_string_or_token_that_ended_a_run_is_named(small_decoder, plain, k):
    """A stop token in a window ends the output after it."""
    stop, token, ends = (
        plain.text[20:24],
        plain.token_ids[10],
        small_decoder.admission.eos_token_ids,
    )
    own = {"logit_bias": {ends[0]: 100}, "stop_token_ids": list(ends)}
    for more, reason, why in (
        ({"stop": ["never written", stop]}, "stop", stop),
        ({"stop_token_ids": [token]}, "stop", token),
        (own, "stop", ends[0]),
        (own | {"ignore_eos": False}, "stop", None),
        ({"stop": ["never written"]}, "length", None),
        ({"max_tokens": 3}, "length", None),
    ):
        settings = SamplingParams(temperature=0, **{"max_tokens": 24, "ignore_eos": True, **more})
        trace = small_decoder.generate(PROMPT, settings, num_draft_tokens=k).trace
        finished = Trace.from_jsonl(trace.to_jsonl()).finished
        assert (finished.finish_reason, finished.stop_reason) == (reason, why)
        assert (
            why != token or trace.token_ids == plain.token_ids[: plain.token_ids.index(token) + 1]
        )


class LateFailure(Batch):
    """Fails once its caches and drafters have followed a step, as a lack of memory may."""

    def _commit(self, rows, records, features):
        super()._commit(rows, records, features)
        raise torch.OutOfMemoryError("no memory is left")


def test_rows_that_were_committed_are_reported_with_the_failure():
    decoder = SpeculativeDecoder(ModelPair(ToyModel(5, 1), ToyModel(5, 2)))
    run = decoder.prepare(
        Request([1, 2], SamplingParams(n=2, max_tokens=9, seed=1, ignore_eos=True))
    )
    batch = LateFailure(decoder.pair, decoder.new_batch().vocabulary)
    batch.admit(run.rows)
    with pytest.raises(PartialStepError, match="committed for 2 rows") as failed:
        batch.step(run.rows)
    assert set(failed.value.records) == set(run.rows)
    assert isinstance(failed.value.cause, torch.OutOfMemoryError)
    assert all(row.output_token_ids for row in run.rows)


def test_a_long_prompt_is_taken_in_with_others_and_can_be_stopped(tiny_pair, monkeypatch):
    """Chunk by chunk: those who decode meanwhile wait for one chunk a step."""
    monkeypatch.setattr("naive_speculate.infer.slots.PREFILL_CHUNK", 4)
    prompt = [3 + number % 20 for number in range(60)]
    decoder = SpeculativeDecoder(tiny_pair)
    batch, cancel = decoder.new_batch(), threading.Event()
    short = admitted(
        decoder, batch, [1, 2], SamplingParams(max_tokens=400, seed=1, ignore_eos=True)
    )
    batch.step([short])
    long = admitted(decoder, batch, prompt, SamplingParams(max_tokens=9, seed=2))
    given_up = admitted(decoder, batch, prompt, SamplingParams(max_tokens=9, seed=2), cancel)
    for number in range(25):
        batch.step([short, long, given_up])
        if number == 5:
            assert len(short.token_ids) > 7
            assert len(long.token_ids) == len(given_up.token_ids) == 60
            cancel.set()
        if number == 6:
            assert given_up.finish_reason == FinishReason.CANCELLED
    assert (
        long.token_ids[60:] == SpeculativeDecoder(tiny_pair).generate(prompt, long.params).token_ids
    )


def test_every_fourth_portion_of_prompts_begins_with_the_one_that_waits_longest(
    tiny_pair, monkeypatch
):
    """The others begin with a short one, of which one more comes before each portion."""
    monkeypatch.setattr("naive_speculate.infer.slots.PREFILL_CHUNK", 4)
    decoder, chunks = SpeculativeDecoder(tiny_pair), (3, 2)
    batch, one = decoder.new_batch(), SamplingParams(max_tokens=1, seed=1, ignore_eos=True)
    long = [admitted(decoder, batch, [3] * (4 * count + 1), one) for count in chunks]
    short = []
    for portion in range(1, 4 * sum(chunks) + 1):
        short.append(admitted(decoder, batch, [5, 6, 7], one))
        batch.step([row for row in (*long, *short) if not row.ended])
        assert sum(row.ended for row in short) == portion - portion // 4
        ready = [portion >= 4 * sum(chunks[: index + 1]) for index in range(len(chunks))]
        assert [row.ended for row in long] == ready


def test_a_row_that_stops_while_another_s_prompt_is_taken_in_changes_nothing_for_it(
    tiny_pair, monkeypatch
):
    monkeypatch.setattr("naive_speculate.infer.slots.PREFILL_CHUNK", 4)
    prompt, params = (
        [3 + number % 20 for number in range(60)],
        SamplingParams(max_tokens=9, temperature=0),
    )
    decoder, cancel = SpeculativeDecoder(tiny_pair), threading.Event()
    alone = decoder.generate(prompt, params).token_ids
    batch = decoder.new_batch()
    first = admitted(decoder, batch, [1, 2], SamplingParams(max_tokens=150, seed=3), cancel)
    batch.step([first])
    second = admitted(decoder, batch, prompt, params)
    prefill = batch.prefill.run
    monkeypatch.setattr(batch.prefill, "run", lambda *given: (prefill(*given), cancel.set()))
    while not second.ended:
        batch.step([first, second])
    assert first.finish_reason == FinishReason.CANCELLED
    assert second.output_token_ids == alone
