"""`python -m naive_speculate prove MODULE:NAME`, as a user runs it in a folder of their own."""

import sys
from pathlib import Path

import pytest

from tests.programs import refusal, run_program

MODULE = '''
import naive_speculate.speculate.samplers as samplers
from naive_speculate.speculate.verify import BlockVerifier


class Right(BlockVerifier):
    """As it is."""


class Wrong(BlockVerifier):
    """Draws from the target after a rejection."""

    def judge(self, target_probs, draft_probs, draft_token_ids, uniforms, lengths):
        verdict = super().judge(target_probs, draft_probs, draft_token_ids, uniforms, lengths)
        return verdict._replace(next_probs=target_probs[[0], verdict.num_accepted])


made = Right()
NUMBER = 3
'''


@pytest.fixture
def folder(tmp_path) -> Path:
    """A user's own."""
    (tmp_path / "mine.py").write_text(MODULE)
    (tmp_path / "broken.py").write_text("import nowhere_to_be_found")
    (tmp_path / "leaves.py").write_text("raise SystemExit(0)")
    return tmp_path


@pytest.fixture
def prove(folder):
    """The command in that folder, which is not on the path, as for a command that a shell finds."""
    assert not {"", str(folder)} & set(sys.path)
    return lambda *arguments: run_program("naive_speculate.__main__", ["prove", *arguments], folder=folder)


def test_what_is_lossless_is_reported_in_a_line(prove):
    done = prove("mine:made")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("lossless, to 1e-12, over ")
    assert done.stdout.count("\n") == 1


def test_the_package_s_own_verifiers_have_names(prove):
    done = prove("greedy_match")
    assert (done.returncode, done.stderr) == (1, "")
    assert "at temperature 0 only" in done.stdout


def test_a_counterexample_is_reported_in_words_and_numbers(prove):
    done = prove("mine:Wrong")
    assert (done.returncode, done.stderr) == (1, "")
    assert "not lossless: at the first token the target's distribution is [" in done.stdout
    assert "step 1: " in done.stdout
    assert " drafted (q = " in done.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nothing_here:Name"], "there is no module 'nothing_here'"),
        (["mine:NUMBER"], "'mine:NUMBER' must be a verifier"),
        (["mine:Nothing"], "module 'mine' has no 'Nothing'"),
        (["broken:Name"], "module 'broken' cannot be imported: No module named 'nowhere_to_be_found'"),
        (["leaves:Name"], "module 'leaves' cannot be imported: SystemExit"),
        ([":Name"], "cannot be imported"),
        (["nonsense"], "prove takes MODULE:NAME or one of greedy_match"),
        ([], "MODULE:NAME"),
    ],
)
def test_bad_input_is_answered_with_one_line(folder, arguments, message):
    assert message in refusal("naive_speculate.__main__", ["prove", *arguments], folder=folder)
