"""The exact α of drafts: the events report what the models give, and luck agrees with the enumerated paths."""

import io
from pathlib import Path as File

import pytest
import torch
from rich.console import Console

from naive_speculate import ModelPair, SamplingParams, SpeculativeDecoder, Trace, VerifyStrategy, watch
from naive_speculate.events import Event, EventKind
from naive_speculate.events.expected import expected_acceptance
from naive_speculate.speculate.batch import Batch
from naive_speculate.speculate.samplers import RejectionSampler
from naive_speculate.speculate.verify import VERIFIERS
from naive_speculate.terminal import TerminalView
from naive_speculate.testing import ToyModel
from naive_speculate.testing.paths import Path
from tests.speculate.rows import admitted
from tests.tiny import tiny_llama

OLD = File(__file__).parent / "traces" / "version-0.1.0.jsonl"
PROMPT = [1, 2, 1, 2]
TARGET, DRAFT = ToyModel(24, 1, temper=1.5), ToyModel(24, 2, temper=1.5)
TEMPERATURE = 0.8
JUDGED = (EventKind.ACCEPTED, EventKind.REJECTED)


def decoded(strategy="speculative_sampling", drafter="model", seed=0, prompt=PROMPT, **options) -> Trace:
    params = SamplingParams(max_tokens=12, temperature=options.pop("temperature", TEMPERATURE), seed=seed, ignore_eos=True)
    options = {"num_draft_tokens": 3, "verify_strategy": strategy, "drafter": drafter} | options
    return SpeculativeDecoder(ModelPair(TARGET, DRAFT)).generate(prompt, params, **options).trace


def distributions(trace: Trace, step: int, place: int, temperature: float = TEMPERATURE) -> tuple[torch.Tensor, torch.Tensor]:
    """Both models' own at a drafted place, computed from the tokens before it."""
    before = [e.token_id for e in trace if e.kind in ("accepted", "resampled", "bonus") and e.step < step]
    drafts = [e.token_id for e in trace if e.kind == "proposed" and e.step == step]
    history = (*PROMPT, *before, *drafts[:place])
    return tuple(torch.softmax(model.logits(history) / temperature, -1) for model in (TARGET, DRAFT))


@pytest.mark.parametrize("strategy", ["speculative_sampling", "block_verification"])
def test_the_exact_acceptance_is_the_overlap_over_the_whole_vocabulary(strategy):
    for seed in range(4):
        trace = decoded(strategy, seed=seed)
        for event in trace:
            if event.kind == EventKind.PROPOSED or event.kind in JUDGED:
                p, q = distributions(trace, event.step, event.index)
                assert event.expected_accept == pytest.approx(torch.minimum(p, q).sum().item(), abs=1e-9)


def test_it_is_0_or_1_where_nothing_is_drawn_and_what_passes_the_threshold_under_typical_acceptance():
    for options in ({"strategy": "greedy_match"}, {"temperature": 0}):
        trace = decoded(**options)
        for event in trace:
            if event.kind == EventKind.PROPOSED:
                p, q = distributions(trace, event.step, event.index)
                assert event.expected_accept == float(p.argmax() == q.argmax())
    trace = decoded("typical_acceptance")
    for event in trace:
        if event.kind in JUDGED:
            p, q = distributions(trace, event.step, event.index)
            assert event.expected_accept == pytest.approx(q[p > event.threshold].sum().item(), abs=1e-9)


@pytest.mark.parametrize("drafter", ["prompt_lookup", "suffix"])
def test_of_a_copied_draft_it_is_what_the_target_gives_the_token(drafter):
    trace = decoded(drafter=drafter)
    told = [(event.expected_accept, event.target_prob) for event in trace if event.kind == EventKind.PROPOSED]
    assert told
    assert all(alpha == p for alpha, p in told)


def test_both_probabilities_of_both_lists_are_reported_and_the_rest_is_what_closes_the_sum():
    trace = decoded(seed=2)
    judged = [event for event in trace if event.kind in JUDGED]
    assert {event.kind for event in judged} == set(JUDGED)
    for event in judged:
        p, q = distributions(trace, event.step, event.index)
        assert event.draft_top_target == pytest.approx([p[entry.token_id].item() for entry in event.draft_top])
        assert event.target_top_draft == pytest.approx([q[entry.token_id].item() for entry in event.target_top])
        union = {entry.token_id for entry in [*event.draft_top, *event.target_top]}
        rest = [token for token in range(24) if token not in union]
        shared = sum(min(p[token], q[token]) for token in union).item()
        assert event.expected_accept - shared == pytest.approx(torch.minimum(p[rest], q[rest]).sum().item(), abs=1e-9)


def test_rows_of_a_batch_have_what_they_have_alone_and_the_same_numbers_in_little():
    strategies = [*VerifyStrategy]
    decoder = SpeculativeDecoder(ModelPair(TARGET, DRAFT))
    rows = decoder.generate([PROMPT] * 2, SamplingParams(max_tokens=9, seed=4), num_draft_tokens=2, detail="probs")
    for result in rows:
        alone = decoder.generate(PROMPT, SamplingParams(max_tokens=9, seed=result.trace.started.seed), num_draft_tokens=2)
        assert result.trace.expected_acceptance == alone.trace.expected_acceptance is not None
    assert len({decoded(name).expected_acceptance.expected for name in strategies}) > 2


def test_without_detail_nothing_is_computed(monkeypatch):
    def refuse(*_):
        raise AssertionError("asked for")

    for name in VERIFIERS:
        monkeypatch.setattr(type(VERIFIERS[name]), "expected_accept", refuse)
        assert decoded(name, detail="none").expected_acceptance is None
    with pytest.raises(AssertionError, match="asked for"):
        decoded(detail="probs")


class Silent(RejectionSampler):
    """A rule that states no expectation."""

    def expected_accept(self, target_probs, draft_probs, verdict):
        return None


def test_a_rule_that_says_nothing_leaves_it_out(monkeypatch):
    monkeypatch.setitem(VERIFIERS, "silent", Silent())
    trace = decoded("silent")
    assert all(event.expected_accept is None for event in trace)
    assert trace.expected_acceptance is None
    assert trace.metrics.alpha is not None


def every_path(pair: ModelPair, params: SamplingParams, **options):
    decoder, waiting = SpeculativeDecoder(pair), [[]]
    while waiting:
        path = waiting.pop()
        run = Path(decoder, path, PROMPT, params, **options)
        for place in range(len(path), len(run.taken)):
            stated, before = run.stated[place], run.taken[:place]
            if isinstance(stated, list):
                waiting += [[*before, other] for other in range(1, len(stated))]
            elif stated is not None and 0 < stated < 1:
                waiting.append([*before, stated])
        yield run.probability, Trace(run._events)


@pytest.mark.parametrize("strategy", ["speculative_sampling", "typical_acceptance"])
def test_over_all_paths_kept_is_expected_and_varies_as_stated(strategy):
    pair = ModelPair(ToyModel(3, 1), ToyModel(3, 2))
    total = surplus = squared = variance = 0.0
    for probability, trace in every_path(
        pair, SamplingParams(max_tokens=3), num_draft_tokens=2, verify_strategy=strategy, detail="probs"
    ):
        total += probability
        figures = trace.expected_acceptance
        if figures is not None:
            surplus += probability * (figures.kept - figures.expected)
            squared += probability * (figures.kept - figures.expected) ** 2
            variance += probability * figures.variance
    assert total == pytest.approx(1, abs=1e-9)
    assert surplus == pytest.approx(0, abs=1e-9)
    assert squared == pytest.approx(variance, abs=1e-9)
    assert variance > 0.01


def step(number: int, *alphas: float, kept: int, row: int = 0) -> list[Event]:
    proposed = [Event(EventKind.PROPOSED, row, step=number, index=i, expected_accept=a) for i, a in enumerate(alphas)]
    return [*proposed, Event(EventKind.STEP, row, step=number, num_draft=len(alphas), num_accepted=kept)]


def test_the_figures_are_these():
    figures = expected_acceptance([*step(0, 0.5, 1.0, 0.9, kept=1), *step(1, 0.8, kept=1), *step(2, kept=0)])
    assert (figures.judged, figures.kept, figures.by_place) == (
        3,
        2,
        (0.65, 1.0),
    )  # what followed the rejected token is discarded
    assert figures.alpha == pytest.approx(2.3 / 3)
    assert figures.deviation == pytest.approx((0.25 + 0.16) ** 0.5 / 3)
    assert figures.luck == pytest.approx((2 - 2.3) / 0.41**0.5)
    assert figures.expected_tokens(2) == pytest.approx(1 + 2.3 / 3 + (2.3 / 3) ** 2)
    assert str(figures) == "this draft's α is 0.77 ± 0.21; observed 0.67"
    both = [*step(0, 0.5, kept=1), *step(0, 0.1, kept=0, row=1)]
    assert Trace(both).row(1).expected_acceptance.expected == pytest.approx(0.1)
    assert expected_acceptance(both).judged == 2


def test_what_says_nothing_has_no_figures_and_nonsense_stays_within_bounds():
    assert Trace.load(OLD).expected_acceptance is None
    old = decoded()
    for event in old:
        event.expected_accept = event.draft_top_target = event.target_top_draft = None
    assert Trace.from_jsonl(old.to_jsonl()).metrics.alpha is not None
    assert Trace.from_jsonl(old.to_jsonl()).expected_acceptance is None
    assert expected_acceptance([]) is None
    assert expected_acceptance(step(0, 7.0, -3.0, kept=1)).alpha == 0.5


def test_block_verification_is_said_to_judge_windows_and_greedy_decoding_to_leave_nothing_to_luck():
    block = decoded("block_verification").expected_acceptance
    assert not block.one_by_one
    assert block.luck is None
    assert "judged as a whole" in str(block)
    greedy = decoded("block_verification", temperature=0).expected_acceptance
    assert greedy.one_by_one
    assert greedy.alpha == greedy.observed
    assert "with nothing random" in str(greedy)


def test_the_terminal_separates_luck_from_skill():
    trace, out = decoded(), io.StringIO()
    view = TerminalView(Console(file=out, force_terminal=True, soft_wrap=True))
    for event in trace:
        view.show(event)
    assert str(trace.expected_acceptance) in out.getvalue()


def test_of_transformers_own_run_it_is_what_its_own_models_say():
    target, draft = tiny_llama(2, 0), tiny_llama(2, 0)
    with torch.no_grad():
        for weight in draft.parameters():
            weight += 0.03 * torch.randn(weight.shape, generator=torch.Generator().manual_seed(1))
    options = {"max_new_tokens": 16, "pad_token_id": 0, "top_k": 0, "temperature": 1.0}
    trace = watch(target, draft, PROMPT, do_sample=True, **options)
    judged = [event for event in trace if event.kind in JUDGED]
    for event in judged:
        step = [e for e in trace if e.kind == "proposed" and e.step == event.step]
        before = [e.token_id for e in trace if e.kind in ("accepted", "resampled", "bonus") and e.step < event.step]
        history = torch.tensor([[*PROMPT, *before, *[e.token_id for e in step[: event.index]]]])
        p, q = (torch.softmax(model(history).logits[0, -1].double(), -1) for model in (target, draft))
        assert event.expected_accept == pytest.approx(torch.minimum(p, q).sum().item(), abs=1e-4)
        assert event.target_top_draft == pytest.approx([q[e.token_id].item() for e in event.target_top], abs=1e-4)
    greedy = watch(target, draft, PROMPT, do_sample=False, **options).expected_acceptance
    assert greedy.alpha == greedy.observed


def test_a_row_with_a_shorter_window_has_a_list_for_each_of_its_drafts_and_no_more():
    decoder = SpeculativeDecoder(ModelPair(TARGET, DRAFT))
    batch, params = Batch(decoder.pair, decoder.admission.vocabulary), SamplingParams(max_tokens=12, seed=1, ignore_eos=True)
    rows = [admitted(decoder, batch, PROMPT, params, num_draft_tokens=k) for k in (1, 4)]
    while any(row.num_steps == 0 for row in rows):
        done = batch.step(rows)
    for row in rows:
        outcome = done[row].outcome
        counts = (
            len(outcome.draft_token_ids),
            len(outcome.values["target_top_draft"]),
            len(outcome.values["draft_top_target"]),
        )
        assert counts == (row.window.limit,) * 3
