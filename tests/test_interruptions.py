"""The command line when it is interrupted, or cannot write: one line on standard error, whenever it happens."""

import fcntl
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from naive_speculate import Trace
from naive_speculate.pair import BUNDLED_PAIR
from tests.engine_samples import VLLM_LOG
from tests.programs import run_program

ROOT = Path(__file__).resolve().parents[1]
CTRL_C_AT_IMPORT = """
import os
import signal
import sys

class Interrupter:
    def find_spec(self, name, path=None, target=None):
        if name == {module!r}:
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Interrupter())
"""
GENERATE = [sys.executable, "-m", "naive_speculate", "generate", "Once upon a time", "--ignore-eos"]
GENERATE += ["--target", str(BUNDLED_PAIR / "draft")]  # the smaller model


@pytest.mark.parametrize("module", ["torch", "onnxruntime"])  # the last one while the models are loaded
def test_ctrl_c_while_it_loads_is_one_line_and_status_130(tmp_path, module):
    (tmp_path / "sitecustomize.py").write_text(CTRL_C_AT_IMPORT.format(module=module))
    environment = os.environ | {"PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}"}
    done = subprocess.run(GENERATE, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "naive_speculate: interrupted\n")


def test_ctrl_c_while_it_decodes_ends_the_run_in_one_line_and_status_130():
    command = [*GENERATE, "--json", "--max-tokens", "none"]  # more than a pipe holds, so that it waits for its reader
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        if hasattr(fcntl, "F_SETPIPE_SZ"):
            fcntl.fcntl(process.stdout, fcntl.F_SETPIPE_SZ, 4096)
        first = process.stdout.readline()
        process.send_signal(signal.SIGINT)
        rest, said = process.communicate()
    assert Trace.from_jsonl(first + rest).finished.finish_reason == "cancelled"
    assert (process.returncode, said) == (130, "naive_speculate: interrupted\n")


FULL = "naive_speculate: standard output: No space left on device\n"


@pytest.mark.parametrize("arguments", [["--json"], ["--logprobs", "1"], ["--help"]])
def test_a_full_disk_is_one_line_and_status_2_whatever_is_written(arguments):
    done = run_program("naive_speculate.__main__", [*GENERATE[3:], "--max-tokens", "3", *arguments], stdout=Path("/dev/full"))
    assert (done.returncode, done.stderr) == (2, FULL)


GONE = "naive_speculate: standard output: Broken pipe\n"


def test_a_closed_reader_is_one_line_and_status_2(monkeypatch):
    """Of a process: nothing is added while it ends."""
    read, write = os.pipe()
    os.close(read)
    command = [*GENERATE[:3], "doctor"]
    done = subprocess.run(command, input=VLLM_LOG, stdout=write, stderr=subprocess.PIPE, text=True)
    assert (done.returncode, done.stderr) == (2, GONE)
    monkeypatch.setenv("FORCE_COLOR", "1")  # as on a terminal
    done = run_program("naive_speculate.__main__", [*GENERATE[3:], "--max-tokens", "3"], stdout=Path(f"/dev/fd/{write}"))
    os.close(write)
    assert (done.returncode, done.stderr) == (2, GONE)
