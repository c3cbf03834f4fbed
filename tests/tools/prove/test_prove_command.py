"""`python -m naive_speculate prove MODULE:NAME`, as a user runs it in a folder of their own."""

import sys
from pathlib import Path

import pytest

from naive_speculate.tools.proofs import proof
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
def folder(tmp_path, monkeypatch) -> Path:
    """A user's own. Two pairs of toys are enough here."""
    monkeypatch.setattr(proof, "_TOYS", proof._TOYS[:2])
    (tmp_path / "mine.py").write_text(MODULE)
    (tmp_path / "broken.py").write_text("import nowhere_to_be_found")
    (tmp_path / "leaves.py").write_text("raise SystemExit(0)")
    return tmp_path


@pytest.mark.parametrize(
    ("name", "status", "parts"),
    [
        ("mine:made", 0, ["lossless, to 1e-12, over "]),
        ("greedy_match", 1, ["at temperature 0 only"]),
        (
            "mine:Wrong",
            1,
            [
                "not lossless: at the first token the target's distribution is [",
                "step 1: ",
                " drafted (q = ",
            ],
        ),
    ],
)
def test_the_result_is_reported_in_words_and_numbers(folder, name, status, parts):
    assert not {"", str(folder)} & set(sys.path), (
        "the folder is not on the path, as for a command that a shell finds"
    )
    done = run_program("naive_speculate.__main__", ["prove", name], folder=folder)
    assert (done.returncode, done.stderr) == (status, "")
    assert all(part in done.stdout for part in parts)
    assert status or done.stdout.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nothing_here:Name"], "there is no module 'nothing_here'"),
        (["mine:NUMBER"], "'mine:NUMBER' must be a verifier"),
        (["mine:Nothing"], "module 'mine' has no 'Nothing'"),
        (
            ["broken:Name"],
            "module 'broken' cannot be imported: No module named 'nowhere_to_be_found'",
        ),
        (["leaves:Name"], "module 'leaves' cannot be imported: SystemExit"),
        ([":Name"], "cannot be imported"),
        (["nonsense"], "prove takes MODULE:NAME or one of greedy_match"),
        ([], "MODULE:NAME"),
    ],
)
def test_bad_input_is_answered_with_one_line(folder, arguments, message):
    assert message in refusal("naive_speculate.__main__", ["prove", *arguments], folder=folder)
