"""What an engine on Ray must do that needs no Ray running."""

import pickle

import pytest

from naive_speculate import SamplingParams, Trace
from tests.programs import refusal


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["--engine", "ray", "--ray-address", "nonsense"], "host:port"),
        (["--ray-address", "10.0.0.1:6379"], "--engine ray"),
        (["--engine", "spark"], "invalid choice"),
    ],
)
def test_a_wrong_engine_is_one_line_and_status_2(given, said):
    assert said in refusal("app", given)


def test_events_travel_light_and_unchanged(saved_decoder):
    events = list(saved_decoder.stream([1, 2, 3], SamplingParams(max_tokens=30, seed=1)))
    data = pickle.dumps(events)
    assert [event.to_dict() for event in pickle.loads(data)] == [event.to_dict() for event in events]
    assert len(data) < 0.5 * len(Trace(events).to_jsonl())
