"""The number of computing threads follows the machine, a container's quota and the environment."""

import pytest
import torch

from naive_speculate import SamplingParams
from naive_speculate.models import threads


@pytest.mark.parametrize(
    ("available", "alone", "shared"), [(1, 1, 1), (2, 2, 1), (3, 2, 1), (4, 3, 2), (64, 8, 32)]
)
def test_one_core_of_more_than_two_is_left_free_and_sharing_halves_them_but_the_environment_decides(
    available, alone, shared, monkeypatch
):
    monkeypatch.delenv(threads.THREADS_VARIABLE, raising=False)
    monkeypatch.setattr(threads, "available_cores", lambda: available)
    assert threads.num_threads() == alone
    monkeypatch.setenv(threads.THREADS_VARIABLE, "5")
    threads.share_cores()
    assert threads.num_threads() == 5
    monkeypatch.delenv(threads.THREADS_VARIABLE)
    threads.share_cores()
    assert threads.num_threads() == shared


@pytest.mark.parametrize("wrong", ["0", "-2", "many", ""])
def test_a_number_of_threads_that_is_none_is_refused(wrong, monkeypatch):
    monkeypatch.setenv(threads.THREADS_VARIABLE, wrong)
    with pytest.raises(ValueError, match="NAIVE_SPECULATE_THREADS must be a positive number"):
        threads.num_threads()


@pytest.mark.parametrize(
    ("text", "quota"),
    [("max 100000", None), ("200000 100000", 2), ("150000 100000", 2), ("", None)],
)
def test_a_containers_quota_counts(text, quota, tmp_path):
    (tmp_path / "cpu.max").write_text(text)
    assert threads._container_quota(tmp_path / "cpu.max") == quota
    assert threads._container_quota(tmp_path / "absent") is None


def test_a_step_computes_with_one_torch_thread_and_gives_the_others_back(small_decoder):
    """Torch's threads and ONNX Runtime's would stop each other."""
    seen = []

    def look(history, logits):
        seen.append(torch.get_num_threads())
        return logits

    before = torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        small_decoder.generate("Once", SamplingParams(max_tokens=4, logits_processors=[look]))
        assert torch.get_num_threads() == 3
    finally:
        torch.set_num_threads(before)
    assert set(seen) == {1}
