"""`doctor --this-machine`: what this processor's kernels are, and the setting that follows."""

import json

import pytest

from naive_speculate.tools.doctor import command
from naive_speculate.tools.doctor.machine import advice, instruction_sets, show
from naive_speculate.tools.tables import Output
from tests.programs import refusal

DOCTOR = "naive_speculate.__main__"
FAST = {"float32": {1: 30.0, 4: 36.0}, "int8": {1: 15.0, 4: 24.0}}


def test_the_machine_is_measured_once_with_both_forms_of_the_weights_and_one_is_advised(capsys):
    assert command.main(["--this-machine", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["independent"] == {"float32": True, "int8": True} | found["independent"]
    times = {
        form: {int(n): ms for n, ms in of.items()} for form, of in found["milliseconds"].items()
    }
    assert [(form, list(of)) for form, of in times.items()] == [
        (form, [1, 2, 4, 8]) for form in ("float32", "int8")
    ]
    show(found | {"milliseconds": times}, Output(100))
    shown = capsys.readouterr().out
    assert "Instruction sets:" in shown
    assert shown.count("Take --weights") == 1


@pytest.mark.parametrize(
    ("same", "times", "said"),
    [
        (True, FAST, "Take --weights int8: a pass is 2.0 times as fast. One over 4 tokens takes"),
        (False, FAST, "Take --weights float32: with 8 bits this processor computes"),
        (True, FAST | {"int8": {1: 60.0, 4: 90.0}}, "8 bits take 2.0 times as long"),
    ],
)
def test_8_bits_are_advised_where_they_are_faster_and_exact(same, times, said):
    assert said in advice({"milliseconds": times, "independent": {"int8": same}})


@pytest.mark.parametrize(
    ("listed", "sets"),
    [
        ("flags\t\t: fpu avx2 fma avx512f\nflags : fpu\n", ["avx2", "fma", "avx512f"]),
        ("Features\t: fp asimd asimddp\n", ["asimddp"]),
        ("nothing of it\n", []),
    ],
)
def test_instruction_sets_are_those_that_the_system_lists(tmp_path, listed, sets):
    (tmp_path / "cpuinfo").write_text(listed)
    assert instruction_sets(tmp_path / "cpuinfo") == sets
    assert instruction_sets(tmp_path / "none") == []


def test_logs_beside_it_are_refused():
    said = refusal(DOCTOR, ["doctor", "--this-machine", "log.txt"])
    assert said.endswith("give either --this-machine or logs, got 'log.txt' too")
