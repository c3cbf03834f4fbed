"""The exact α of drafts: the events report what the models give, and luck agrees with the
enumerated paths."""

import io
from pathlib import Path as File

import pytest
import torch
from rich.console import Console

from naive_speculate import (
    ModelPair,
    SamplingParams,
    SpeculativeDecoder,
    Trace,
    VerifyStrategy,
    watch,
)
from naive_speculate.events import OUTPUT_KINDS, Event, EventKind
from naive_speculate.speculate.batch import Batch
from naive_speculate.speculate.samplers import RejectionSampler
from naive_speculate.speculate.verify import VERIFIERS
from naive_speculate.testing import ToyModel
from naive_speculate.tools.proofs.enumeration import every_path
from naive_speculate.tools.show.expected import expected_acceptance
from naive_speculate.tools.show.terminal import TerminalView
from tests.speculate.rows import admitted
from tests.tiny import tiny_llama

OLD = File(__file__).parents[2] / "events" / "traces" / "version-0.1.0.jsonl"
PROMPT = [1, 2, 1, 2]
TARGET, DRAFT = ToyModel(24, 1, temper=1.5), ToyModel(24, 2, temper=1.5)
TEMPERATURE = 0.8
TOYS = [
    lambda history, toy=toy: torch.softmax(toy.logits(history) / TEMPERATURE, -1)
    for toy in (TARGET, DRAFT)
]
JUDGED = (EventKind.ACCEPTED, EventKind.REJECTED)


def decoded(strategy="speculative_sampling", seed=0, temperature=TEMPERATURE, **options) -> Trace:
    params = SamplingParams(max_tokens=12, temperature=temperature, seed=seed, ignore_eos=True)
    options = {"num_draft_tokens": 3, "verify_strategy": strategy, "drafter": "model"} | options
    return SpeculativeDecoder(ModelPair(TARGET, DRAFT)).generate(PROMPT, params, **options).trace


def drafts(trace: Trace, kinds=(EventKind.PROPOSED, *JUDGED), models=TOYS):
    """Events of draft tokens, each with both models' own distributions, computed from the tokens
    before it."""
    for event in trace:
        if event.kind in kinds:
            before = [e.token_id for e in trace if e.kind in OUTPUT_KINDS and e.step < event.step]
            window = [
                e.token_id for e in trace if e.kind == EventKind.PROPOSED and e.step == event.step
            ]
            yield event, *(model((*PROMPT, *before, *window[: event.index])) for model in models)


@pytest.mark.parametrize("strategy", ["speculative_sampling", "block_verification"])
def test_the_exact_acceptance_is_the_overlap_and_lists_hold_what_the_other_model_gives_their_tokens(
    strategy,
):
    for seed in range(4):
        for event, p, q in drafts(decoded(strategy, seed)):
            assert event.expected_accept == pytest.approx(
                torch.minimum(p, q).sum().item(), abs=1e-9
            )
            if event.kind in JUDGED:
                assert event.draft_top_target == pytest.approx(
                    [p[entry.token_id].item() for entry in event.draft_top]
                )
                assert event.target_top_draft == pytest.approx(
                    [q[entry.token_id].item() for entry in event.target_top]
                )


def test_it_is_what_each_rule_makes_of_the_distributions():
    for options in ({"strategy": "greedy_match"}, {"temperature": 0}):
        for event, p, q in drafts(decoded(**options), [EventKind.PROPOSED]):
            assert event.expected_accept == float(p.argmax() == q.argmax())
    for event, p, q in drafts(decoded("typical_acceptance"), JUDGED):
        assert event.expected_accept == pytest.approx(q[p > event.threshold].sum().item(), abs=1e-9)
    for drafter in ("prompt_lookup", "suffix"):  # of a copy, what the target gives the token
        copied = [event for event in decoded(drafter=drafter) if event.kind == EventKind.PROPOSED]
        assert copied
        assert all(event.expected_accept == event.target_prob for event in copied)


def test_rows_of_a_batch_have_what_they_have_alone_and_the_same_numbers_in_little():
    decoder = SpeculativeDecoder(ModelPair(TARGET, DRAFT))
    rows = decoder.generate(
        [PROMPT] * 2, SamplingParams(max_tokens=9, seed=4), num_draft_tokens=2, detail="probs"
    )
    for result in rows:
        alone = decoder.generate(
            PROMPT, SamplingParams(max_tokens=9, seed=result.trace.started.seed), num_draft_tokens=2
        )
        assert result.trace.expected_acceptance == alone.trace.expected_acceptance is not None
    assert len({decoded(name).expected_acceptance.expected for name in VerifyStrategy}) > 2


class Silent(RejectionSampler):
    """A rule that states no expectation."""

    def expected_accept(self, target_probs, draft_probs, verdict):
        return None


def test_a_rule_is_asked_only_for_detail_and_may_say_nothing(monkeypatch):
    monkeypatch.setitem(VERIFIERS, "silent", Silent())
    trace = decoded("silent")
    assert all(event.expected_accept is None for event in trace)
    assert trace.expected_acceptance is None
    assert trace.metrics.alpha is not None

    def refuse(*_):
        raise AssertionError("asked for")

    for name in VerifyStrategy:
        monkeypatch.setattr(type(VERIFIERS[name]), "expected_accept", refuse)
        assert decoded(name, detail="none").expected_acceptance is None
    with pytest.raises(AssertionError, match="asked for"):
        decoded(detail="probs")


@pytest.mark.parametrize("strategy", ["speculative_sampling", "typical_acceptance"])
def test_over_all_paths_kept_is_expected_and_varies_as_stated(strategy):
    pair, options = (
        ModelPair(ToyModel(3, 1), ToyModel(3, 2)),
        {"num_draft_tokens": 2, "verify_strategy": strategy},
    )
    total = surplus = squared = variance = 0.0
    for path in every_path(pair, PROMPT, SamplingParams(max_tokens=3), detail="probs", **options):
        total += path.probability
        figures = Trace(path.events).expected_acceptance
        if figures is not None:
            surplus += path.probability * (figures.kept - figures.expected)
            squared += path.probability * (figures.kept - figures.expected) ** 2
            variance += path.probability * figures.variance
    assert (total, surplus) == pytest.approx((1, 0), abs=1e-9)
    assert squared == pytest.approx(variance, abs=1e-9)
    assert variance > 0.01


def step(number: int, *alphas: float, kept: int, row: int = 0) -> list[Event]:
    proposed = [
        Event(EventKind.PROPOSED, row, step=number, index=i, expected_accept=a)
        for i, a in enumerate(alphas)
    ]
    return [
        *proposed,
        Event(EventKind.STEP, row, step=number, num_draft=len(alphas), num_accepted=kept),
    ]


def test_the_figures_are_these():
    figures = expected_acceptance(
        [*step(0, 0.5, 1.0, 0.9, kept=1), *step(1, 0.8, kept=1), *step(2, kept=0)]
    )
    assert (figures.judged, figures.kept, figures.by_place) == (
        3,
        2,
        (0.65, 1.0),
    )  # after a rejection all is discarded
    assert figures.alpha == pytest.approx(2.3 / 3)
    assert figures.deviation == pytest.approx((0.25 + 0.16) ** 0.5 / 3)
    assert str(figures) == "This draft's exact α is 0.77 ± 0.21; observed 0.67, as expected"
    both = [*step(0, 0.5, kept=1), *step(0, 0.1, kept=0, row=1)]
    assert Trace(both).row(1).expected_acceptance.expected == pytest.approx(0.1)
    assert expected_acceptance(both).judged == 2
    assert expected_acceptance([]) is None
    assert (
        expected_acceptance(step(0, 7.0, -3.0, kept=1)).alpha == 0.5
    )  # nonsense stays within bounds


def test_what_says_nothing_has_no_figures():
    assert Trace.load(OLD).expected_acceptance is None
    old = decoded()
    for event in old:
        event.expected_accept = event.draft_top_target = event.target_top_draft = None
    assert Trace.from_jsonl(old.to_jsonl()).metrics.alpha is not None
    assert Trace.from_jsonl(old.to_jsonl()).expected_acceptance is None


def test_luck_is_separated_from_skill_but_for_windows_judged_as_a_whole_and_greedy_decoding():
    block = decoded("block_verification").expected_acceptance
    assert not block.one_by_one
    assert "judges the window as a whole" in str(block)
    greedy = decoded("block_verification", temperature=0).expected_acceptance
    assert greedy.one_by_one
    assert greedy.alpha == greedy.observed
    assert "nothing here is random" in str(greedy)
    trace, out = decoded(), io.StringIO()
    view = TerminalView(Console(file=out, force_terminal=True, soft_wrap=True, width=120))
    for event in trace:
        view.show(event)
    assert str(trace.expected_acceptance) in out.getvalue()


def test_of_transformers_own_run_it_is_what_its_own_models_say():
    pair = tiny_llama(2, 0), tiny_llama(2, 0)
    with torch.no_grad():
        for weight in pair[1].parameters():
            weight += 0.03 * torch.randn(weight.shape, generator=torch.Generator().manual_seed(1))
    options = {"max_new_tokens": 16, "pad_token_id": 0, "top_k": 0, "temperature": 1.0}
    models = [
        lambda ids, model=each: torch.softmax(model(torch.tensor([ids])).logits[0, -1].double(), -1)
        for each in pair
    ]
    for event, p, q in drafts(watch(*pair, PROMPT, do_sample=True, **options), JUDGED, models):
        assert event.expected_accept == pytest.approx(torch.minimum(p, q).sum().item(), abs=1e-4)
        assert event.target_top_draft == pytest.approx(
            [q[e.token_id].item() for e in event.target_top], abs=1e-4
        )
    greedy = watch(*pair, PROMPT, do_sample=False, **options).expected_acceptance
    assert greedy.alpha == greedy.observed


def test_a_row_with_a_shorter_window_has_a_list_for_each_of_its_drafts_and_no_more():
    decoder = SpeculativeDecoder(ModelPair(TARGET, DRAFT))
    batch, params = (
        Batch(decoder.pair, decoder.admission.vocabulary),
        SamplingParams(max_tokens=12, seed=1, ignore_eos=True),
    )
    rows = [admitted(decoder, batch, PROMPT, params, num_draft_tokens=k) for k in (1, 4)]
    while any(row.num_steps == 0 for row in rows):
        done = batch.step(rows)
    for row in rows:
        values, drafted = done[row].outcome.values, done[row].outcome.draft_token_ids
        assert [*map(len, (drafted, values["target_top_draft"], values["draft_top_target"]))] == [
            row.window.limit
        ] * 3
