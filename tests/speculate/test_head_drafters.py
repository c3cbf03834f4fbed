"""Drafting with a head, a block drafter, or copies and a head: lossless, and drawn from what its
definition says of a text."""

import json
import threading
from functools import cache
from itertools import pairwise

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from naive_speculate import (
    EventKind,
    ModelPair,
    SamplingParams,
    SpeculativeDecoder,
    VerifyStrategy,
    load_pair,
)
from naive_speculate.__main__ import main
from naive_speculate.events import OUTPUT_KINDS, FinishReason
from naive_speculate.infer import TransformersLanguageModel
from naive_speculate.models.heads.checkpoint import load_head
from naive_speculate.models.heads.suffix_head import MIN_MATCH
from naive_speculate.models.llama.cuda_graphs import Graphs
from naive_speculate.speculate.batch import PartialStepError
from naive_speculate.speculate.draft import DRAFTERS, HeadDrafter
from naive_speculate.speculate.draft.suffix import SuffixDrafter
from naive_speculate.speculate.request import Request
from naive_speculate.tools.proofs.toys import pair_with_head
from tests.heads import (
    BLOCK_CONFIG,
    BLOCK_SIZE,
    block_tensors,
    eager_block,
    eager_window,
    head_config,
    head_tensors,
    save_head,
    save_tensors,
)
from tests.models.llama.llamas import WAYS, compute_again, made, own_features
from tests.speculate.rows import admitted, finish, windows
from tests.speculate.toys import ToyModel, check_lossless
from tests.tiny import save_model, tiny_llama

BOTH = "suffix+head"
EXECUTED = [
    *(("head", way) for way in WAYS),
    *(("block", way) for way in WAYS[:3]),
    (BOTH, "transformers"),
]
REPEATING = [50] + [60, 61, 62] * 6
PROMPTS = ([5, 17, 80, 3], [9] * 11 + [4, 33], REPEATING, [61], [2, 90, 14, 14, 2, 90])
DEPTH, LAYERS, BLOCK_LAYERS = 2, (0, 1, 2), (1, 1, 1)
CONFIG = head_config()
TENSORS = head_tensors(CONFIG)
BLOCK_TENSORS = block_tensors(known=60)
DFLASH = BLOCK_CONFIG | {"dflash_config": {"mask_token_id": 96, "target_layer_ids": [0, 0, 0]}}
SAMPLED, BLOCK = VerifyStrategy.SPECULATIVE_SAMPLING, VerifyStrategy.BLOCK_VERIFICATION


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    layers = {"eagle_aux_hidden_state_layer_ids": list(LAYERS)}
    head = save_head(tmp_path_factory.mktemp("head"), "speculators", CONFIG, TENSORS, **layers)
    block = save_tensors(tmp_path_factory.mktemp("block"), BLOCK_TENSORS, DFLASH)
    return {"head": head, BOTH: head, "block": block}


@pytest.fixture(scope="module")
def decoder_of(folders):
    """The decoder with a drafter in an executor."""

    @cache
    def found(drafter, way="torch"):
        target = made(source(), way)
        head = load_head(
            folders[drafter],
            target,
            target.device,
            torch.float32,
            "onnx" if way == "onnx" else "torch",
        )
        if way == "graphs":
            head._forward.graphs = Graphs(head._shape, head._forward.rotary, compute_again)
        return SpeculativeDecoder(ModelPair(target, head=head))

    return found


@pytest.fixture(scope="module")
def one(decoder_of):
    """A decoder in one executor, for what does not depend on it."""
    return decoder_of("head")


@cache
def source():
    """The target in transformers."""
    return tiny_llama(DEPTH, seed=0)


def check(events, prompt, drafter="head", count=2):
    """Every window was drawn from what the definition gives for the committed tokens; there were
    some windows."""
    text = [*prompt, *(event.token_id for event in events if event.kind in OUTPUT_KINDS)]
    every = own_features(
        source(), torch.tensor([text]), BLOCK_LAYERS if drafter == "block" else LAYERS
    )[0]
    embedding, output = (
        source().model.embed_tokens.weight.detach(),
        source().lm_head.weight.detach(),
    )
    own = [
        (tokens, new)
        for tokens, window in windows(events, prompt)
        if (new := [e for e in window if e.copied_from is None])
    ]
    for tokens, proposed in own:
        features, drafts = every[: len(tokens) - 1], [event.token_id for event in proposed]
        if drafter == "block":
            logits = eager_block(BLOCK_TENSORS, DFLASH, embedding, output, tokens[-1], features)
        else:
            logits = eager_window(TENSORS, CONFIG, embedding, tokens, features, drafts)
        expected = logits.softmax(-1)[torch.arange(len(drafts)), drafts]
        assert [event.draft_prob for event in proposed] == pytest.approx(
            expected.tolist(), rel=5e-3, abs=1e-5
        )
    assert len(own) >= count


def params(**more):
    return SamplingParams(**{"max_tokens": 11, "seed": 3, "ignore_eos": True} | more)


PLAIN = SamplingParams(max_tokens=3)
# One token more, so that there is a second window, and two tokens at a time, so that paths stay
# few.
WARPED = params(max_tokens=4, temperature=1.6, top_k=2, top_p=0.95, presence_penalty=0.7)
SHORT = params(max_tokens=3, temperature=1.6, top_k=2, presence_penalty=0.7)
CHAINS = ("dspark", "gated", "rnn", "dflash2", "xpress")
GREEDY = params(max_tokens=8, temperature=0)


@pytest.mark.parametrize(
    (
        "drafter",
        "kind",
        "prompt",
        "settings",
        "strategy",
    ),  # every kind of drafter under both strategies
    [
        ("head", {}, [1, 2, 1], PLAIN, SAMPLED),
        ("head", {}, [2], WARPED, BLOCK),
        ("head", {"adds": True}, [2], PLAIN, BLOCK),
        ("head", {"adds": True}, [1, 2, 1], SHORT, SAMPLED),
        ("block", {"block": True}, [2], PLAIN, SAMPLED),
        ("block", {"block": True}, [1, 2, 1], SHORT, BLOCK),
        ("block", {"block": True, "chain": "dspark"}, [1, 2, 1], PLAIN, BLOCK),
        ("block", {"block": True, "chain": "dspark"}, [1, 2], SHORT, SAMPLED),
        ("block", {"block": True, "chain": "gated"}, [1, 2], PLAIN, SAMPLED),
        ("block", {"block": True, "chain": "rnn"}, [1, 2, 1], PLAIN, BLOCK),
        ("block", {"block": True, "chain": "dflash2"}, [1, 2, 1], PLAIN, SAMPLED),
        ("block", {"block": True, "chain": "xpress"}, [1, 2, 1], PLAIN, SAMPLED),
        ("block", {"chain": "peagle"}, [1, 2, 1], PLAIN, SAMPLED),
        ("block", {"chain": "peagle"}, [1, 2], SHORT, BLOCK),
        (BOTH, {}, [1, 2, 1, 2, 1], PLAIN, BLOCK),
        (BOTH, {}, [1, 2, 1, 2, 1], SHORT, SAMPLED),
        ("head", {}, [1, 2], GREEDY, VerifyStrategy.GREEDY_MATCH),
        ("block", {"block": True}, [1, 2], GREEDY, VerifyStrategy.TYPICAL_ACCEPTANCE),
    ],
)
def test_the_output_distribution_is_the_target_s(
    monkeypatch, drafter, kind, prompt, settings, strategy
):
    """The head has two of three tokens; after a prompt of one token, the first step has nothing
    to draft from. Greedy decoding has one output."""
    calls = []
    for each, method in ((SuffixDrafter, "proposal"), (HeadDrafter, "propose")):
        before = getattr(each, method)
        monkeypatch.setattr(
            each,
            method,
            lambda *args, before=before, each=each: (calls.append(each), before(*args))[1],
        )
    found = check_lossless(
        pair_with_head(3, 3, **kind), settings, 2, prompt, drafter=drafter, verify_strategy=strategy
    )
    assert (len(found) == 1) == settings.greedy
    assert drafter != BOTH or set(calls) == {SuffixDrafter, HeadDrafter}


@pytest.mark.parametrize(
    "kind",
    [{"chain": "peagle"}, *({"block": True, "chain": each} for each in CHAINS)],
    ids=lambda kind: kind["chain"],
)
def test_rows_of_a_batch_draft_what_they_draft_alone(kind):
    """Prompts and outputs of different lengths; two rows sample, two are greedy."""
    decoder = SpeculativeDecoder(pair_with_head(7, 3, **kind))
    prompts = [[1, 2, 5], [3] * 9, [6], [2, 4, 1, 1, 2]]
    settings = [params(seed=row, temperature=row % 2, max_tokens=6 + row) for row in range(4)]
    options = {"drafter": "block", "num_draft_tokens": 3}
    together = decoder.generate(prompts, settings, **options)
    assert sum(result.metrics.num_accepted_draft_tokens for result in together) > 0
    for prompt, setting, found in zip(prompts, settings, together, strict=True):
        alone = decoder.generate(prompt, setting, **options)
        drafts, others = (
            [(event.kind, event.token_id, event.position) for event in result.trace.events
             if event.kind == EventKind.PROPOSED] for result in (alone, found)
        )  # fmt: skip
        assert (alone.token_ids, drafts) == (found.token_ids, others)


@pytest.mark.parametrize(("drafter", "way"), EXECUTED)
def test_a_batch_s_rows_are_what_they_are_alone_and_drawn_from_the_definition(
    decoder_of, drafter, way
):
    """Two rows sample, and two are greedy, whose output is that of plain decoding."""
    settings = [
        params(seed=number, temperature=(1, 0)[number % 2], max_tokens=7 + number)
        for number in range(4)
    ]
    k = "auto" if way in ("transformers", "graphs") else {"head": 3, "block": 8}[drafter]
    decoder, options = decoder_of(drafter, way), {"drafter": drafter, "num_draft_tokens": k}
    together = decoder.generate(list(PROMPTS[:4]), settings, detail="probs", **options)
    assert sum(result.metrics.num_accepted_draft_tokens for result in together) > 0
    assert {place is None for found in together for place in copied(found)} == (
        {True, False} if drafter == BOTH else {True}
    )
    windows = [
        event.num_draft
        for result in together
        for event in result.trace
        if event.kind == EventKind.STEP
    ]
    assert k != 8 or max(windows) == BLOCK_SIZE - 1, (
        "the windows of a block drafter end with the block"
    )
    for prompt, own, result in zip(PROMPTS, settings, together, strict=False):
        check(result.trace.events, prompt, drafter, count=0 if drafter == BOTH else 2)
        alone = decoder.generate(
            prompt, own, **({"num_draft_tokens": 0} if own.greedy else options)
        )
        assert result.token_ids == alone.token_ids
        assert own.greedy or copied(result) == copied(alone)


def copied(result) -> list[int | None]:
    """Where each draft was copied from; None for the head's."""
    return [event.copied_from for event in result.trace if event.kind == EventKind.PROPOSED]


@pytest.mark.parametrize(
    ("drafter", "way", "prompt", "size", "logprobs"),
    [
        ("head", "transformers", PROMPTS[1], 1, None),
        ("head", "onnx", [11, 12, 13, 14, 15], 5, 2),
        ("block", "torch", PROMPTS[1], 4, 2),
        (BOTH, "torch", REPEATING, 4, None),
    ],
)
def test_siblings_share_a_prompt_taken_in_by_chunks_and_go_their_own_ways(
    decoder_of, monkeypatch, drafter, way, prompt, size, logprobs
):
    monkeypatch.setattr("naive_speculate.infer.slots.PREFILL_CHUNK", size)
    several = params(n=2, prompt_logprobs=logprobs, max_tokens=10)
    result = decoder_of(drafter, way).generate(
        prompt, several, drafter=drafter, num_draft_tokens=3, detail="probs"
    )
    assert len({tuple(output.token_ids) for output in result.outputs}) == 2
    for output in result.outputs:
        check(output.trace.events, prompt, drafter, count=0 if drafter == BOTH else 2)


def test_a_head_s_windows_are_captured_once_for_all_runs_that_follow(decoder_of, monkeypatch):
    decoder, captured = decoder_of("head", "graphs"), []
    monkeypatch.setattr(decoder.pair.head._forward.graphs, "_spare", [])
    monkeypatch.setattr(
        decoder.pair.head._forward.graphs,
        "_capture",
        lambda compute: captured.append(1) or compute_again(compute),
    )
    counts = []
    for _ in range(3):
        decoder.generate(PROMPTS[0], params(max_tokens=20), drafter="head", num_draft_tokens=3)
        counts.append(len(captured))
    assert counts[0] > 0
    assert counts[1] == counts[2]  # the second captures what occurred once in the first


def test_a_sibling_that_is_left_waiting_drafts_on(one):
    """Its source has stepped alone, so that the state to begin from is gone: its first step is a
    plain one."""
    batch = one.new_batch()
    run = one.prepare(
        Request(PROMPTS[1], params(n=2), drafter="head", num_draft_tokens=3, detail="probs")
    )
    batch.admit(run.rows)
    events = []
    for _ in range(3):
        events += run.events(batch.step(run.rows[:1]))
    while not run.over:
        events += run.events(batch.step(run.rows))
    for row in run.rows:
        check([event for event in events if event.row == row.row], PROMPTS[1])


def test_rows_join_and_leave_between_steps_and_the_head_s_cache_holds_committed_tokens_only(
    one,
):
    batch, cancel = one.new_batch(), threading.Event()
    options = {"drafter": "head", "num_draft_tokens": 4}
    first = admitted(one, batch, PROMPTS[0], params(max_tokens=24), **options)
    second = admitted(one, batch, PROMPTS[1], params(seed=4, max_tokens=30), cancel, **options)
    plain = admitted(one, batch, PROMPTS[3], params(seed=6, max_tokens=10), num_draft_tokens=0)
    for _ in range(4):
        batch.step([first, second, plain])
        histories = batch.drafters["head"].histories
        for row in (first, second):
            assert histories[row].slot.num_tokens == histories[row].start
            assert histories[row].end == len(row.token_ids) - 1
    cancel.set()
    third = admitted(one, batch, [7, 8], params(seed=5, max_tokens=10), **options)
    while not (first.ended and third.ended and plain.ended):
        batch.step([first, second, third, plain])
    assert second.finish_reason == FinishReason.CANCELLED
    batch.release([first, second, third, plain])
    assert histories == {}
    for row, prompt in ((first, PROMPTS[0]), (third, [7, 8])):
        assert row.output_token_ids == one.generate(prompt, row.params, **options).token_ids


@pytest.mark.parametrize(
    ("drafter", "fails"),
    [
        ("head", "score"),
        ("head", "propose"),
        ("head", "commit"),
        ("block", "score"),
        (BOTH, "score"),
    ],
)
def test_a_step_that_failed_is_made_again_as_if_it_had_not(decoder_of, monkeypatch, drafter, fails):
    """Whether memory gave out in the target, in the head, or after some rows were committed."""
    decoder, options = (
        decoder_of(drafter),
        {"drafter": drafter, "num_draft_tokens": 3, "detail": "probs"},
    )
    batch, prompts = decoder.new_batch(), (PROMPTS[1], REPEATING)
    runs = [decoder.prepare(Request(prompt, params(), **options)) for prompt in prompts]
    rows, events = [row for run in runs for row in run.rows], [[], []]
    for run in runs:
        batch.admit(run.rows)
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
        else:
            records = batch.step(going_on)
        for run, seen in zip(runs, events, strict=True):
            seen += run.events(records)
    for run, seen, prompt in zip(runs, events, prompts, strict=True):
        assert run.over
        assert (
            run.rows[0].output_token_ids == decoder.generate(prompt, params(), **options).token_ids
        )
        check(seen, prompt, drafter, count=0 if drafter == BOTH else 2)


def patched(patch, batch, fails, row):
    def fail(*_args, **_options):
        raise MemoryError

    head, calls, commit = batch.pair.head, [], type(row).commit
    if fails == "score":
        patch.setattr(batch.target, "forward", fail)
    elif fails == "propose":
        forward = head.forward
        patch.setattr(
            head,
            "forward",
            lambda *args, **more: (
                fail() if len(calls) == 2 else (calls.append(1), forward(*args, **more))[1]
            ),
        )
    else:
        patch.setattr(
            type(row),
            "commit",
            lambda self, outcome: fail() if self is row else commit(self, outcome),
        )


@pytest.mark.parametrize("num_draft_tokens", [4, "auto"])
def test_windows_end_where_the_sequence_does(one, num_draft_tokens):
    prompt = [3 + number % 90 for number in range(one.pair.target.max_positions - 6)]
    result = one.generate(
        prompt, params(max_tokens=30), drafter="head", num_draft_tokens=num_draft_tokens
    )
    assert len(result.token_ids) == 6


def test_what_a_pair_lacks_is_said_in_one_line(one, decoder_of):
    targets = ModelPair(one.pair.target), ModelPair(ToyModel(97, 1), head=one.pair.head)
    block = decoder_of("block").pair
    for pair, drafter, message in (
        (targets[0], "head", r"^drafter is 'head', but this pair has no draft head$"),
        (targets[0], BOTH, r"^drafter is 'suffix\+head', but this pair has no draft head$"),
        (block, "head", "but this pair has no draft head$"),
        (one.pair, "block", "but this pair has no block drafter$"),
        (targets[1], "head", "but ToyModel returns no hidden states, which a head reads"),
        (
            ModelPair(ToyModel(97, 1), head=block.head),
            "block",
            "but ToyModel returns no hidden states, which a head reads$",
        ),
    ):
        with pytest.raises(ValueError, match=message):
            SpeculativeDecoder(pair).generate([1, 2], drafter=drafter)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"hidden_size": 64}, "is for a target with hidden_size 32, this one's is 64"),
        ({"vocab_size": 99}, "is for a target with vocab_size 97, this one's is 99"),
        ({"num_hidden_layers": 1}, "reads layer 2 of its target, this one has 1"),
    ],
)
def test_a_head_for_another_target_is_refused_in_words(one, changes, message):
    config = source().config.to_dict() | changes
    config.pop("head_dim")
    other = TransformersLanguageModel(LlamaForCausalLM(LlamaConfig(**config)))
    with pytest.raises(ValueError, match=f"^head '.*' {message}$"):
        ModelPair(other, head=one.pair.head)
    with pytest.raises(
        ValueError, match=r"^head must be a DraftHead, which load_pair loads, got 3"
    ):
        ModelPair(other, head=3)


def test_copies_and_a_head_cost_what_the_head_costs_and_may_be_the_pair_s_fastest(one):
    pair = one.pair
    assert pair.costs(BOTH) == pair.costs("head") != pair.costs("suffix")
    assert ModelPair(pair.target, head=pair.head, fastest_drafter=BOTH).default_drafter == BOTH


def test_prompts_come_to_every_drafter_that_wants_to_see_them(one, monkeypatch):
    """Registered from outside, with layers of its own, in a batch with the head."""
    monkeypatch.setattr("naive_speculate.infer.slots.PREFILL_CHUNK", 4)
    seen = []

    class Watching(DRAFTERS["prompt_lookup"]):
        layers = (1, 0)

        def observe(self, rows, starts, features):
            seen.extend(
                (row.row, start, states)
                for row, start, states in zip(rows, starts, features, strict=True)
            )

    monkeypatch.setitem(DRAFTERS, "watching", Watching)
    batch = one.new_batch()
    watched = admitted(one, batch, PROMPTS[1], params(max_tokens=6), drafter="watching")
    other = admitted(one, batch, PROMPTS[1], params(max_tokens=6), drafter="head")
    finish(batch, [watched, other])
    expected = own_features(source(), torch.tensor([PROMPTS[1]]), (1, 0))[0, :-1]
    assert [start for _, start, _ in seen] == [0, 4, 8]
    assert all(
        start + len(part) == following for (_, start, part), (_, following, _) in pairwise(seen)
    )
    torch.testing.assert_close(
        torch.cat([states for _, _, states in seen]), expected, atol=2e-4, rtol=2e-4
    )


def test_the_command_line_drafts_with_a_block_drafter(folders, tmp_path, capsys):
    """Given as the draft, it is recognised; it is the pair's own drafter."""
    save_model(source(), tmp_path / "target")
    folder = folders["block"]
    pair = load_pair(tmp_path / "target", folder, device="cpu")
    assert pair.names == {"target": "target", "block": folder.name}
    assert pair.costs("block").verify[1] == pair.costs("suffix").verify[1] + pair._share(pair.head)
    options = [
        "--target",
        str(tmp_path / "target"),
        "--head",
        str(folder),
        "--device",
        "cpu",
        "--max-tokens",
        "6",
        "--json",
    ]
    assert main(["generate", "w3 w5 w8", *options]) == 0
    started, *events = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert started["settings"]["drafter"] == "block"
    assert started["models"]["block"] == folder.name
    assert started["head_layers"] == list(BLOCK_LAYERS)
    assert any(event["kind"] == "proposed" for event in events)


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_row_copies_after_a_long_match_and_the_head_drafts_elsewhere(one, temperature):
    result = one.generate(
        REPEATING, params(temperature=temperature, max_tokens=18), drafter=BOTH, detail="probs"
    )
    text, kinds = list(REPEATING), set()
    for event in result.trace:
        if event.kind == EventKind.PROPOSED and event.index == 0:
            assert (event.copied_from is not None) == (num_shared_end(text) >= MIN_MATCH)
            kinds.add(event.copied_from is None)
        if event.kind in OUTPUT_KINDS:
            text.append(event.token_id)
    assert kinds == {True, False}
    check(result.trace, REPEATING, BOTH, count=1)


def num_shared_end(text: list[int]) -> int:
    """The most tokens at the end of a text that occur before."""
    ends = range(1, len(text))
    return max(
        (n for n in ends if any(text[at : at + n] == text[-n:] for at in range(len(text) - n))),
        default=0,
    )


def test_the_head_is_asked_again_after_more_copies_than_a_window_of_its_own_begins_with(
    one, monkeypatch
):
    """A row that copies for long is prefilled in between; then the head's first window is what
    its definition says."""
    monkeypatch.setattr("naive_speculate.speculate.draft.head._MAX_QUERY", 6)
    batch, settings = one.new_batch(), params(temperature=0, max_tokens=30)
    row = admitted(one, batch, REPEATING, settings, drafter=BOTH, num_draft_tokens=4)
    drafter = batch.drafters[BOTH]
    while not row.ended:
        batch.step([row])
        if not row.ended:
            history = drafter.histories[row]
            assert history.end == len(row.token_ids) - 1
            assert len(history.states) <= 6 + 4 + 1
            assert drafter.suffix.indexes[row].num_tokens == len(row.token_ids)
    assert row.output_token_ids == one.generate(REPEATING, settings, num_draft_tokens=0).token_ids
    batch.release([row])
    assert not drafter.histories
    assert not drafter.suffix.indexes
