"""Runs one adapter in an environment of its own, and compares what its engine does."""

import json
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM

from benchmarks.engines.models import END, VOCAB
from benchmarks.engines.serve import Answer, Ask
from naive_speculate import SamplingParams
from naive_speculate.infer.load import wrap
from naive_speculate.testing import prove_sampler

HERE = Path(__file__).parent
PROMPT, GREEDY_TEXTS, GREEDY_TOKENS, TOKENS = [3, 5, 3, 5, 3], 50, 24, 4
SETTINGS: dict[str, dict[str, float]] = {
    "T = 1": {"temperature": 1.0},
    "T = 0.7, top-p 0.9": {"temperature": 0.7, "top_p": 0.9},
    "T = 1, repetition penalty 1.3": {"temperature": 1.0, "repetition_penalty": 1.3},
}
ERROR_RATE = 0.001
LARGE = ("torch", "transformers")  # packages that environments share
Say = Callable[[str], None]


class EngineError(Exception):
    """An engine that cannot be installed, or ended; in one line."""


class Table:
    """A `LanguageModel` whose next token depends on the last one only; see `models.tables`."""

    eos_token_id = None
    vocab_size = VOCAB

    def __init__(self, logits: list[list[float]]) -> None:
        self._logits = torch.tensor(logits, dtype=torch.float64)

    def forward(self, query_token_ids: torch.Tensor, kv_cache: Any) -> torch.Tensor:
        """Logits `[1, tokens, vocab_size]`; the cache keeps a number per token."""
        states = query_token_ids[:, None, :, None].double()
        kv_cache.update([(states, states)])
        return self._logits[query_token_ids]


def requirements(script: Path) -> dict[str, Any]:
    """What an adapter states in its first lines (PEP 723): packages, and Python's version."""
    lines = script.read_text(encoding="utf-8").split("\n")
    first, last = lines.index("# /// script"), lines.index("# ///")
    return tomllib.loads("\n".join(line[2:] for line in lines[first + 1 : last]))


def interpreter(needs: dict[str, Any]) -> str:
    """A Python of the version that an adapter needs: this one, or the named one on the path."""
    wanted = needs.get("requires-python", "").removeprefix(">=")
    if not wanted or sys.version_info >= tuple(map(int, wanted.split("."))):
        return sys.executable
    if (found := shutil.which(f"python{wanted}")) is None:
        raise EngineError(f"it needs Python {wanted}, and there is no python{wanted} here")
    return found


def environment(script: Path, work: Path) -> Path:
    """A Python with the adapter's requirements; made once. Raises `EngineError`."""
    folder, needs = work / "environments" / script.stem, requirements(script)
    python, made = folder / "bin" / "python", folder / "made.json"
    if made.exists() and json.loads(made.read_text(encoding="utf-8")) == needs:
        return python
    command = [str(python), "-m", "pip", "install", "-q", "--disable-pip-version-check"]
    try:
        made.unlink(missing_ok=True)
        subprocess.run([interpreter(needs), "-m", "venv", "--clear", str(folder)], check=True)
        packages = needs["dependencies"]
        _share(folder, packages)
        subprocess.run([*command, "--only-binary", ":all:", *packages], check=True)
    except subprocess.CalledProcessError as error:
        names = " ".join(needs["dependencies"])
        raise EngineError(
            f"{names} cannot be installed (pip ended with {error.returncode})"
        ) from None
    made.write_text(json.dumps(needs), encoding="utf-8")
    return python


def _share(folder: Path, packages: list[str]) -> None:
    """Let an environment find the large packages of another one that pins the same versions."""
    large = {one for one in packages if one.partition("==")[0] in LARGE}
    for other in sorted(folder.parent.glob("*/made.json")) if large else ():
        pinned = json.loads(other.read_text(encoding="utf-8")).get("dependencies", [])
        own, its = (next(each.glob("lib/*/site-packages"), None) for each in (folder, other.parent))
        if own and its and own.parent.name == its.parent.name and large <= set(pinned):
            (own / "shared.pth").write_text(f"{its.resolve()}\n", encoding="utf-8")
            return


class Running:
    """An adapter's process: `about` is its `Engine`, `ask` sends a request."""

    def __init__(self, process: "subprocess.Popen[str]", name: str) -> None:
        self._process, self._name = process, name
        self.about: dict[str, Any] = self._read()

    def ask(self, ask: Ask) -> Answer:
        """The answer, whose tokens end with the end token if the text ended: some engines leave
        it out, some go on. Raises `EngineError` if the process has ended."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(asdict(ask)) + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            pass  # reading reports it
        answer = Answer(**self._read())
        ids = answer.token_ids[: ask.max_tokens]
        if END in ids:
            ids = ids[: ids.index(END) + 1]
        elif len(ids) < ask.max_tokens:
            ids = [*ids, END]
        return replace(answer, token_ids=ids)

    def _read(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        if not (line := self._process.stdout.readline()):
            raise EngineError(f"{self._name} ended with status {self._process.wait()}")
        found: dict[str, Any] = json.loads(line)
        return found


@contextmanager
def running(script: Path, models: Path, work: Path) -> Iterator[Running]:
    """The adapter's process; what its engine prints goes to a file in `work`."""
    python = environment(script, work)
    with (work / f"{script.stem}.log").open("w", encoding="utf-8") as log:
        process = subprocess.Popen(
            [str(python), str(script), str(models)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            encoding="utf-8",
        )
        try:
            yield Running(process, script.stem)
        finally:
            process.kill()
            process.wait()


def trial(script: Path, models: Path, work: Path, smallest: float, say: Say) -> dict[str, Any]:
    """All of an engine's results, as JSON values."""
    with running(script, models, work) as engine:
        about = engine.about
        names = ("versions", "rule", "source", "counts", "skips", "top_p_first")
        result = {name: about[name] for name in names}
        decodes_greedily = [] if about["samples_only"] else about["ways"]
        result["greedy"] = {way: greedy(engine, way) for way in decodes_greedily}
        result["sampled"] = {}
        for name, settings in SETTINGS.items():
            if name in about["skips"]:
                continue
            for way in ["plain", *about["ways"]] if about["ways"] else []:
                say(f"{script.stem}: {way}, {name}")
                verdict = sampled(engine, way, settings, models, smallest, seed=0)
                if verdict["biased"]:  # once more, with other seeds
                    verdict["again"] = sampled(engine, way, settings, models, smallest, seed=10**6)
                result["sampled"].setdefault(name, {})[way] = verdict
        temperature = 1.0 if about["samples_only"] else 0.0
        result["figures"] = {way: figures(engine, way, temperature) for way in about["ways"]}
    return result


def greedy(engine: Running, way: str) -> dict[str, int]:
    """How many greedy texts are the same with and without drafts."""
    random, equal = torch.Generator().manual_seed(0), 0
    for _ in range(GREEDY_TEXTS):
        prompt = torch.randint(1, VOCAB, (8,), generator=random).tolist()
        ask = Ask(prompt, max_tokens=GREEDY_TOKENS)
        drafted = Ask(prompt, way, max_tokens=GREEDY_TOKENS)
        equal += engine.ask(ask).token_ids == engine.ask(drafted).token_ids
    return {"equal": equal, "texts": GREEDY_TEXTS}


def sampled(
    engine: Running, way: str, settings: dict[str, float], models: Path, smallest: float, seed: int
) -> dict[str, Any]:
    """The verdict of `prove_sampler` about one way and one setting."""

    def draw(number: int) -> list[int]:
        return engine.ask(Ask(PROMPT, way, TOKENS + 4, number, **settings)).token_ids

    params = params_of(settings, engine.about["top_p_first"])
    proof = prove_sampler(
        draw,
        target_of(engine, models),
        PROMPT,
        params,
        num_tokens=TOKENS,
        smallest=smallest,
        error_rate=ERROR_RATE,
        seed=seed,
    )
    low, high = proof.fit.interval
    return {
        "biased": proof.biased,
        "p": min(proof.p_values),
        "total_variation": round(proof.fit.bias, 4),
        "interval": [round(low, 4), round(high, 4)],
        "samples": proof.num_samples,
        "smallest": round(proof.smallest_bias, 4),
        "says": str(proof),
    }


def params_of(settings: dict[str, float], top_p_first: bool) -> SamplingParams:
    """The same settings here. Some engines apply top-p before temperature, we after it."""
    exact: dict[str, Any] = {"stop_token_ids": [END], **settings}
    if top_p_first and (top_p := exact.pop("top_p", 1.0)) < 1:
        exact["logits_processors"] = [partial(nucleus, top_p)]
    return SamplingParams(**exact)


def nucleus(top_p: float, token_ids: list[int], logits: torch.Tensor) -> torch.Tensor:
    """Logits `[vocab_size]` of the least set of most probable tokens that has this probability."""
    ordered, order = logits.softmax(-1).sort(descending=True)
    return logits.index_fill(-1, order[ordered.cumsum(-1) - ordered >= top_p], -torch.inf)


def target_of(engine: Running, models: Path) -> Any:
    """The engine's target here: the tiny Llama, or the table of a bare sampler."""
    if "tables" in engine.about["counts"]:
        return Table(json.loads((models / "tables.json").read_text(encoding="utf-8"))["target"])
    model = AutoModelForCausalLM.from_pretrained(models / "target", dtype=torch.float32)
    return wrap(model)


def figures(engine: Running, way: str, temperature: float) -> dict[str, Any]:
    """What the engine says of one text: its own counts, and log-probabilities."""
    ask = Ask(PROMPT, way, max_tokens=GREEDY_TOKENS, temperature=temperature)
    answer = engine.ask(ask)
    found = asdict(answer) | {"tokens": len(answer.token_ids)}
    logprobs = found.pop("logprobs")
    found.pop("token_ids")
    missing = None if logprobs is None else sum(one is None for one in logprobs)
    return found | {"logprobs_missing": missing}
