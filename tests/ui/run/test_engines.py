"""What the rules of other engines would make of a run: exact on average, and a sentence where it
cannot be known."""

from itertools import product

import pytest

from naive_speculate import SamplingParams
from naive_speculate.events import Event, EventKind
from naive_speculate.speculate.theory import expected_accepted
from ui.run.engines import GREEDY, LACKING, NO_DRAFTS, OF_TREE, RULES, accepted, position
from ui.run.figures import Figures

# The target's and the draft's distribution over two tokens, by the text so far.
P = {(): (0.7, 0.3), (0,): (0.2, 0.8), (1,): (0.9, 0.1)}
Q = {(): (0.4, 0.6), (0,): (0.5, 0.5), (1,): (0.3, 0.7)}


def drafted(window: tuple[int, ...]) -> list[Event]:
    events = []
    for index, token in enumerate(window):
        p, q = P[window[:index]], Q[window[:index]]
        numbers = {
            "target_prob": p[token],
            "draft_prob": q[token],
            "sampled_accept": sum(map(min, p, q)),
            "matched_accept": sum(a * b for a, b in zip(p, q, strict=True)),
            "argmax_accept": p[q.index(max(q))],
        }
        events.append(Event(EventKind.PROPOSED, index=index, token_id=token, **numbers))
    return events


def mean_over_drafts(rule: str) -> float:
    total = 0.0
    for window in product((0, 1), repeat=2):
        places = [position(draft, drawn=True) for draft in drafted(window)]
        weight = Q[()][window[0]] * Q[window[:1]][window[1]]
        total += weight * accepted(rule, [place.alphas[rule] for place in places], places)
    return total


@pytest.mark.parametrize(("rule", "accept"), [("ratio", min), ("match", lambda p, q: p * q)])
def test_the_expected_number_is_exact_on_average_over_the_draft_tokens(rule, accept):
    def rate(text: tuple[int, ...], token: int) -> float:
        return accept(P[text][token], Q[text][token])

    exact = sum(rate((), a) * (1 + sum(rate((a,), b) for b in (0, 1))) for a in (0, 1))
    assert mean_over_drafts(rule) == pytest.approx(exact)


def test_block_verification_gains_what_it_gains_for_the_draft_tokens():
    exact = 0.0
    for window in product((0, 1), repeat=2):
        ratios = [draft.target_prob / draft.draft_prob for draft in drafted(window)]
        weight = Q[()][window[0]] * Q[window[:1]][window[1]]
        exact += weight * expected_accepted(ratios, block=True)
    assert mean_over_drafts("block") == pytest.approx(exact)
    assert exact > mean_over_drafts("ratio")


def found(decoder, temperature: float = 1.0, **options) -> dict:
    params = SamplingParams(max_tokens=24, seed=3, temperature=temperature, ignore_eos=True)
    trace = decoder.generate("Once upon a time", params, **options).trace
    figures = Figures()
    steps = [n for n, event in enumerate(trace) if event.kind == EventKind.STEP]
    return figures.of(trace.events, steps[-1])


def test_a_run_has_all_rules_with_the_exact_alpha_of_its_own(small_decoder):
    figures = found(small_decoder)
    engines, rows = figures["engines"], figures["engines"]["rows"]
    assert list(rows) == list(RULES)
    assert engines["own"] == "ratio"
    assert rows["ratio"]["alpha"] == pytest.approx(figures["luck"]["alpha"])
    assert rows["match"]["alpha"] < rows["ratio"]["alpha"]
    assert rows["block"]["pace"] >= rows["ratio"]["pace"] > 1
    assert f"{rows['match']['pace']:.2f} tokens" in engines["sentence"]


def test_where_nothing_was_drawn_block_verification_is_unknown(small_decoder):
    engines = found(small_decoder, draft_sampling="argmax")["engines"]
    assert set(engines["rows"]) == {"ratio", "favourite", "match"}
    assert engines["own"] == "favourite"


def test_copies_are_accepted_alike_under_every_rule(small_decoder):
    rows = found(small_decoder, drafter="prompt_lookup")["engines"]["rows"]
    assert len({round(row["pace"], 9) for row in rows.values()}) == 1


@pytest.mark.parametrize(
    ("options", "needed"),
    [
        ({"temperature": 0.0}, GREEDY),
        ({"verify_strategy": "greedy_match"}, GREEDY),
        ({"tree": "2x2"}, OF_TREE),
        ({"verify_strategy": "typical_acceptance"}, LACKING),
        ({"detail": "none"}, LACKING),
        ({"num_draft_tokens": 0}, NO_DRAFTS),
    ],
)
def test_where_it_cannot_be_known_one_sentence_says_what_is_needed(small_decoder, options, needed):
    engines = found(small_decoder, **options)["engines"]
    assert engines == {"rows": {}, "sentence": needed}
    assert needed.count(". ") == 0
