"""The headline says what the metrics say, and nothing that was not measured."""

from naive_speculate.events import Event, EventKind, FinishReason
from tests.ui.handmade import run
from ui.run.stats import headline, sentence, title


def test_the_four_numbers_are_the_run_s():
    trace = run([(4, 4), (4, 0)])  # 6 tokens; 4 of 8 drafts; 30 ms
    shown = headline(trace, plain_rate=100)
    assert "<b>50%</b>" in shown
    assert "4 of 8 drafts kept" in shown
    assert "<b>3.00</b>" in shown
    assert "<b>200</b>" in shown
    assert "plain decoding: 100, measured on this machine" in shown
    assert "<b>2.0×</b>" in shown


def test_without_a_measured_rate_there_is_no_speedup():
    shown = headline(run([(4, 4)]))
    assert "not measured" in shown
    assert "×" not in shown


def test_the_sentence_counts_tokens_and_passes():
    assert "<strong>6 tokens in 2 passes</strong> of the target model instead of 6" in sentence(run([(4, 4), (4, 0)]))
    assert sentence(run([(4, 4)]), live=False).startswith("In this recorded run, a small draft model")


def test_plain_decoding_is_called_so():
    assert "one token a pass" in sentence(run([(0, 0), (0, 0)]))
    assert "nothing was drafted" in headline(run([(0, 0)]))


def test_a_run_that_has_not_begun_has_no_numbers():
    shown = headline(run([], finished=False))
    assert "first round drafted" in shown
    assert shown.count("<b>–</b>") == 4


def test_an_error_s_message_is_text():
    trace = run([(2, 1)], finished=False)
    trace.append(Event(EventKind.FINISHED, finish_reason=FinishReason.ERROR, message="<img src=x onerror=alert(1)>"))
    assert "<img" not in sentence(trace)
    assert "&lt;img" in sentence(trace)


def test_the_title_names_the_settings():
    assert title(run([(2, 1)], temperature=0.7)) == "speculative sampling · k = 5 · temperature 0.7 · seed 7"
