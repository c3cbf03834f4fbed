"""Token trees: the output is that of plain decoding, greedy token by token, sampled in
distribution, by exact enumeration."""

from dataclasses import replace
from itertools import permutations, product

import pytest
import torch

from naive_speculate import EventKind, ModelPair, SamplingParams, SpeculativeDecoder
from naive_speculate.events.trace import Trace
from naive_speculate.sampling.pipeline import LogitsPipeline
from naive_speculate.speculate.tree import MAX_NODES, choose, parse_tree, without
from naive_speculate.tools.proofs.toys import pair_with_head
from tests.models.llama.llamas import made
from tests.speculate.rows import same_as_plain
from tests.speculate.toys import ToyModel, check_lossless
from tests.tiny import noisy_pair

PARAMS = {
    "plain": SamplingParams(max_tokens=2),
    "warped": SamplingParams(max_tokens=3, temperature=0.7, top_p=0.9),
    "by history": SamplingParams(max_tokens=3, temperature=1.6, top_k=2, presence_penalty=0.7),
    "greedy": SamplingParams(max_tokens=6, temperature=0),
}


def two_models(size, seed):
    """A target and a draft model that enumeration can follow; both compute trees."""
    return ModelPair(pair_with_head(size, seed).target, pair_with_head(size, seed + 1).target)


@pytest.mark.parametrize(
    ("drafter", "name", "tree", "draft_sampling"),
    [
        *(("head", name, "2x1", "sampled") for name in ("by history", "greedy")),
        *(("model", name, "3", "sampled") for name in ("plain", "warped")),
        ("model", "warped", "2x2", "argmax"),
    ],
)
def test_the_output_distribution_is_the_target_s(drafter, name, tree, draft_sampling):
    """Enumerated over all draft tokens, verdicts and next tokens. The head has two of three
    tokens."""
    pair = pair_with_head(3, 3) if drafter == "head" else two_models(3, 3)
    check_lossless(pair, PARAMS[name], tree=tree, drafter=drafter, draft_sampling=draft_sampling)


@pytest.mark.parametrize("temperature", [0, 1])
@pytest.mark.parametrize("value", [torch.nan, torch.inf, -torch.inf])
def test_a_tree_ends_where_the_target_has_no_distribution_as_plain_decoding_does(
    temperature, value
):
    """Outputs that end in an error end with -1, and say the same."""

    def processor(history, logits):
        lost = len(history) == 1 and history[-1] == 2
        return torch.full_like(logits, value) if lost else logits

    pair, values = two_models(3, 3), {"max_tokens": 3, "logits_processors": [processor]}
    params = SamplingParams(temperature=temperature, ignore_eos=True, **values)
    check_lossless(
        pair, replace(params, logit_bias={2: 9 * (not temperature)}), tree="2x1", within=1e-6
    )
    decoder, biased = SpeculativeDecoder(pair), replace(params, logit_bias={2: 50})
    plain = decoder.generate([1, 2], biased, num_draft_tokens=0)
    found = decoder.generate([1, 2], biased, tree="2x1")
    assert (plain.finish_reason, plain.token_ids) == ("error", [2])
    assert (found.finish_reason, found.token_ids) == ("error", [2])
    assert found.trace.finished.message == plain.trace.finished.message


@pytest.mark.parametrize(
    ("way", "tree"),
    [("torch", "1"), ("torch", "2x1x1x2"), ("onnx", "3"), ("transformers", "4x2x1")],
)
def test_greedy_text_is_that_of_plain_decoding(way, tree):
    decoder = SpeculativeDecoder(noisy_pair(lambda model: made(model, way)))
    params = SamplingParams(max_tokens=24, temperature=0)
    prompts, detail = [[5, 9, 3], [8, 8]], "none" if tree == "3" else "probs"
    plain = decoder.generate(prompts, params, num_draft_tokens=0)
    for found, wanted in zip(
        decoder.generate(prompts, params, tree=tree, detail=detail), plain, strict=True
    ):
        assert found.token_ids == wanted.token_ids
        accepted = {event.num_accepted for event in found.trace if event.kind == EventKind.STEP}
        assert 0 in accepted
        assert max(accepted) >= min(2, len(parse_tree(tree)))


def test_where_nodes_run_out_the_likelier_path_is_continued(monkeypatch):
    """Which node gets children depends on tokens that were drawn, but never on the children, so
    the output is still right."""
    monkeypatch.setattr("naive_speculate.speculate.tree.MAX_NODES", 3)
    params = SamplingParams(max_tokens=3, top_k=2)
    check_lossless(two_models(3, 5), params, tree="2x2", drafter="model")


TEXT = "Once upon a time"


@pytest.mark.parametrize(
    ("drafter", "params"),
    [
        ("head", {"max_tokens": 24, "stop": ["e. ", ", "]}),
        ("model", {"max_tokens": 16, "repetition_penalty": 1.3, "bad_words": ["little"]}),
        (
            "head",
            {
                "max_tokens": 24,
                "guided_decoding": {"regex": "(A|The) [a-z]+ (cat|dog|sun) [a-z ]{4,12}[.]"},
            },
        ),
    ],
    ids=["stop strings", "by history", "grammar"],
)
def test_a_trained_pair_writes_what_it_writes_plainly(
    bundled_decoder, small_decoder, drafter, params
):
    decoder, params = (
        bundled_decoder if drafter == "head" else small_decoder,
        SamplingParams(temperature=0, **params),
    )
    plain = decoder.generate(TEXT, params, num_draft_tokens=0)
    found = decoder.generate(TEXT, params, tree="4x2x1", drafter=drafter)
    assert (found.token_ids, found.text) == (plain.token_ids, plain.text)
    assert (found.finish_reason, found.trace.finished.stop_reason) == (
        plain.finish_reason,
        plain.trace.finished.stop_reason,
    )
    assert found.metrics.num_spec_steps < plain.metrics.num_spec_steps


def test_a_text_ends_at_its_end_token_inside_a_tree():
    """The end is drafted, and nothing is drafted after it."""
    target, drafted = noisy_pair().target, 0
    # every step accepts three tokens and adds a fourth
    decoder = SpeculativeDecoder(ModelPair(target, target))
    tokens = decoder.generate(
        [5, 9], SamplingParams(temperature=0, max_tokens=20), num_draft_tokens=0
    ).token_ids
    end = next(
        token
        for place, token in enumerate(tokens)
        if place > 4 and place % 4 < 2 and tokens.index(token) == place
    )
    params = SamplingParams(temperature=0, max_tokens=20, stop_token_ids=[end])
    for step in (
        event for event in same_as_plain(decoder, [5, 9], params, tree="3x2x1").trace if event.tree
    ):
        ends = {index for index, node in enumerate(step.tree) if node.token_id == end}
        assert not any(node.parent in ends for node in step.tree)
        drafted += len(ends)
    assert drafted


def test_a_step_counts_its_whole_tree_and_a_loaded_tree_must_be_one(
    bundled_decoder,
):
    result = bundled_decoder.generate(
        TEXT, SamplingParams(max_tokens=20, seed=1), tree="4x2x1", drafter="head"
    )
    settings = result.trace.settings
    assert (settings["tree"], settings["num_draft_tokens"]) == ("4x2x1", 3)
    steps = [event for event in result.trace if event.kind == EventKind.STEP and event.tree]
    assert any(len(step.tree) == MAX_NODES for step in steps)
    assert result.metrics.num_draft_tokens == sum(len(step.tree) for step in steps)
    saved = result.trace.to_jsonl()
    assert Trace.from_jsonl(saved).events == result.trace.events
    with pytest.raises(
        ValueError, match="node 4 of the tree has the parent 14, which must be lower"
    ):
        Trace.from_jsonl(saved.replace('"parent":0', '"parent":14'))


BOTH, ALONE = ModelPair(ToyModel(3, 1), ToyModel(3, 2)), ModelPair(ToyModel(3, 1))
DRAFTER = "tree='2' needs the drafter 'head', or 'model' with the target's tokens, got"


def test_a_bad_tree_and_what_it_does_not_go_with_is_named():
    for pair, tree, options, message in (
        (BOTH, "", {}, "tree must be numbers of children by depth, such as '4x2x1', got ''"),
        (BOTH, "4×2", {}, "tree must be .*, got '4×2'"),
        (BOTH, "2x0", {}, "tree must be .*, got '2x0'"),
        (BOTH, 4, {}, "tree must be .*, got 4"),
        (BOTH, "17", {}, "tree may have 16 nodes, got '17' with 17 at the first depth"),
        (
            BOTH,
            "4x4x2",
            {},
            "tree may have 16 nodes, got '4x4x2', whose last depth would have none",
        ),
        (BOTH, "2", {"drafter": "suffix"}, f"{DRAFTER} 'suffix'"),
        (ALONE, "2", {}, DRAFTER),
        (
            BOTH,
            "2",
            {"verify_strategy": "block_verification"},
            "needs verify_strategy 'speculative_sampling', got 'block_ver",
        ),
        (BOTH, "2", {"draft_confidence": 0.5}, "tree='2' needs draft_confidence None, got 0.5"),
        (
            BOTH,
            "2",
            {},
            "tree='2' needs a model that computes a tree in one pass, ToyModel does not",
        ),
    ):
        with pytest.raises(ValueError, match=message):
            pytest.fail(
                f"{tree} gives {SpeculativeDecoder(pair).generate([1, 2], tree=tree, **options)}"
            )


def test_a_tree_replaces_the_number_of_draft_tokens_but_for_none():
    decoder, params = SpeculativeDecoder(noisy_pair()), SamplingParams(max_tokens=6, temperature=0)
    for given, used in ((5, 2), ("auto", 2), (0, 0)):
        result = decoder.generate([5, 9], params, tree="2x1", num_draft_tokens=given)
        assert (result.trace[0].settings["num_draft_tokens"], result.trace[0].cost_table) == (
            used,
            None,
        )
        assert (result.metrics.num_draft_tokens > 0) == (given != 0)


def test_near_a_model_s_last_position_windows_are_drafted():
    decoder, params = (
        SpeculativeDecoder(noisy_pair()),
        SamplingParams(max_tokens=None, temperature=0),
    )
    prompt = [number % 90 for number in range(170)]
    found = same_as_plain(decoder, prompt, params, tree="4x2x1")
    assert found.trace[-2].tree is None
    assert any(event.tree for event in found.trace)


@pytest.mark.parametrize("temperature", [0, 1])
def test_a_drafter_equal_to_the_target_is_always_accepted(temperature):
    """So its cache holds the accepted path, whichever nodes that was."""
    target = noisy_pair().target
    params = SamplingParams(max_tokens=20, temperature=temperature, seed=1, ignore_eos=True)
    steps = [
        e
        for e in SpeculativeDecoder(ModelPair(target, target))
        .generate([5, 9], params, tree="3x2x1")
        .trace
        if e.tree
    ]
    assert [step.num_accepted for step in steps] == [3] * 5
    assert all(
        node.accept_prob == pytest.approx(1, abs=1e-4)
        for step in steps
        for node in step.tree
        if node.kind == "accepted"
    )


@pytest.mark.parametrize(("temperature", "draft_sampling"), [(0, "sampled"), (1, "argmax")])
def test_where_the_drafter_lacks_every_allowed_token_the_text_goes_on(temperature, draft_sampling):
    """The head has tokens 0 and 1 of three."""
    decoder, options = (
        SpeculativeDecoder(pair_with_head(3, 3)),
        {"tree": "2x1", "draft_sampling": draft_sampling},
    )
    free = SamplingParams(max_tokens=8, ignore_eos=True, seed=5, temperature=temperature)
    assert (
        decoder.generate(
            [1, 0], replace(free, allowed_token_ids=[2]), drafter="head", **options
        ).token_ids
        == [2] * 8
    )
    found = decoder.generate([1, 0], free, drafter="head", **options)
    assert found.metrics.num_accepted_draft_tokens > 0
    assert (
        temperature
        or found.token_ids == decoder.generate([1, 0], free, num_draft_tokens=0).token_ids
    )


def test_text_that_a_guide_forces_is_drafted_without_the_drafter(small_decoder):
    schema = {
        "type": "object",
        "properties": {"first_name": {"enum": ["Ann", "Bob"]}},
        "required": ["first_name"],
    }
    params = SamplingParams(
        max_tokens=40,
        temperature=0,
        guided_decoding={"json": schema, "disable_any_whitespace": True},
    )
    found = same_as_plain(small_decoder, TEXT, params, tree="4x2x1", drafter="model")
    assert any(event.forced == "text" for event in found.trace if event.kind == EventKind.ACCEPTED)


# The rule: recursive rejection sampling


RULE_PARAMS = {
    "plain": SamplingParams(),
    "warped": SamplingParams(temperature=0.7, top_p=0.9),
    "greedy": SamplingParams(temperature=0),
}


def distributions(name, size, seed):
    """The target's and the draft's; some tokens are impossible for one of them. Greedy is the
    limit of low temperatures."""
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(2, size, generator=generator, dtype=torch.float64) * 2
    if seed % 2:
        logits[0, 1], logits[1, 0] = -torch.inf, -torch.inf
    probs = LogitsPipeline(RULE_PARAMS[name], [], size).probabilities(logits)
    return (
        torch.nn.functional.one_hot(probs.argmax(dim=-1), size).double()
        if name == "greedy"
        else probs
    )


def output(p, candidates, dists):
    """The distribution of the output, given the candidates, over all draws of `choose`."""
    found, reached = torch.zeros_like(p), 1.0
    for index, token in enumerate(candidates):
        # the one at `index` is accepted, if it can be
        draws = iter([1.0] * index + [0.0] + [1.0] * len(candidates))
        accept_prob = choose(p, candidates, dists, lambda draws=draws: next(draws)).verdicts[index][
            0
        ]
        found[token] += reached * accept_prob
        reached *= 1 - accept_prob
    last = choose(p, candidates, dists, lambda: 1.0)
    assert last.accepted is None
    return found + reached * last.next_probs


@pytest.mark.parametrize("name", RULE_PARAMS)
def test_candidates_drawn_without_replacement_leave_the_target_s_distribution(name):
    for seed, count in product(range(4), range(1, 5)):
        p, q = distributions(name, 4, seed)
        total, mass = torch.zeros_like(p), 0.0
        drawn = min(count, int((q > 0).sum()))  # then no other is possible
        for candidates in permutations(range(4), drawn):
            probability, dists, left = 1.0, [], q
            for token in candidates:
                dists.append(left)
                probability *= 0.0 if left is None else float(left[token])
                left = None if left is None else without(left, token)
            if probability:
                total += probability * output(p, candidates, dists)
                mass += probability
        assert mass == pytest.approx(1)
        assert (total - p).abs().max() < 1e-12
        # certain candidates, those of draft_sampling="argmax", leave it too
        best = q.topk(3).indices.tolist()
        points = [torch.nn.functional.one_hot(torch.tensor(token), 4).double() for token in best]
        assert (output(p, best, points) - p).abs().max() < 1e-12
