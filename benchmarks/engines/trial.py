"""Runs one adapter in an environment of its own, and compares what its engine does."""

import json
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM

from benchmarks.engines.models import CLOSE, END, VOCAB
from benchmarks.engines.serve import Answer, Ask
from naive_speculate import SamplingParams
from naive_speculate.infer.load import wrap
from naive_speculate.testing import prove_sampler

HERE = Path(__file__).parent
PROMPT, GREEDY_TEXTS, GREEDY_TOKENS, TOKENS = [3, 5, 3, 5, 3], 50, 24, 4
VARIED_PROMPT = [6, 9, 7, 9, 1, 6, 14, 11]  # a penalty that sees its last token only is found
PENALTY = "T = 1, repetition penalty 1.3"
SETTINGS: dict[str, dict[str, float]] = {
    "T = 1": {"temperature": 1.0},
    "T = 0.7, top-p 0.9": {"temperature": 0.7, "top_p": 0.9},
    PENALTY: {"temperature": 1.0, "repetition_penalty": 1.3},
}
PARTS = ("greedy", "sampled", "figures", "speed")
ERROR_RATE = 0.001
LARGE = ("torch", "transformers")  # packages that environments share
PIP = ("-m", "pip", "install", "-q", "--disable-pip-version-check", "--only-binary", ":all:")
ALONE = ("--no-deps", "--ignore-requires-python", "--no-compile")  # compiled as the adapter says
Say = Callable[[str], None]


class EngineError(Exception):
    """An engine that cannot be installed, or ended; in one line."""


def requirements(script: Path) -> dict[str, Any]:
    """What an adapter states in its first lines (PEP 723): packages, and Python's version."""
    lines = script.read_text(encoding="utf-8").split("\n")
    first, last = lines.index("# /// script"), lines.index("# ///")
    return tomllib.loads("\n".join(line[2:] for line in lines[first + 1 : last]))


def interpreter(needs: dict[str, Any]) -> str:
    """A Python of the version that an adapter needs: this one, or the named one on the path."""
    version = needs.get("requires-python", "").removeprefix(">=")
    if not version or sys.version_info >= tuple(map(int, version.split("."))):
        return sys.executable
    python = shutil.which(f"python{version}")
    if python is None or subprocess.run([python, "--version"], capture_output=True).returncode:
        raise EngineError(f"it needs Python {version}, and there is no python{version} here")
    return python


def environment(script: Path, work: Path) -> Path:
    """A Python with the adapter's requirements; made once. Raises `EngineError`."""
    folder, needs = work / "environments" / script.stem, requirements(script)
    python, made = folder / "bin" / "python", folder / "made.json"
    if made.exists() and json.loads(made.read_text(encoding="utf-8")) == needs:
        return python
    packages = needs.get("dependencies", [])
    alone = needs.get("tool", {}).get("engines", {}).get("without-dependencies", [])
    with (work / f"{script.stem}.log").open("w", encoding="utf-8") as log:
        run = partial(subprocess.run, check=True, stdout=log, stderr=log)
        try:
            made.unlink(missing_ok=True)
            run([interpreter(needs), "-m", "venv", "--clear", str(folder)])
            _share(folder, packages)
            for options, group in (([], packages), (ALONE, alone)):
                if group:
                    run([str(python), *PIP, *options, *group])
        except subprocess.CalledProcessError as error:
            names = " ".join([*packages, *alone])
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
        message: dict[str, Any] = json.loads(line)
        return message


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


def trial(
    script: Path, models: Path, work: Path, smallest: float | None, parts: Sequence[str], say: Say
) -> dict[str, Any]:
    """An engine's results, as JSON values, of all parts but "speed". `smallest`: the smallest bias
    worth finding, or None for what the adapter says."""
    with running(script, models, work) as engine:
        about = engine.about
        names = (
            "versions",
            "rule",
            "source",
            "counts",
            "skips",
            "top_p_first",
            "not_greedy",
            "not_timed",
        )
        result = {name: about[name] for name in names}
        if "sampled" in parts:
            result["sampled"] = all_sampled(
                engine, script.stem, models, smallest or about["smallest"], say
            )
    if about["ways"] and not {"greedy", "figures"}.isdisjoint(parts):
        say(f"{script.stem}: greedy texts")
        with running(script, models / CLOSE, work) as engine:
            result |= compared_with_plain(engine, parts)
    return result


def compared_with_plain(engine: Running, parts: Sequence[str]) -> dict[str, Any]:
    """An engine's greedy texts and its own figures with a draft that is often accepted."""
    result: dict[str, Any] = {}
    ways, sampling = engine.about["ways"], engine.about["not_greedy"]
    greedily = [way for way in ways if way not in sampling]
    if "greedy" in parts:
        result["greedy"] = {way: greedy(engine, way) for way in greedily}
        with_penalty = [] if PENALTY in engine.about["skips"] else greedily
        result["greedy_penalty"] = {way: greedy(engine, way, 1.3) for way in with_penalty}
    if "figures" in parts:
        result["figures"] = {way: figures(engine, way, float(way in sampling)) for way in ways}
    return result


def greedy(
    engine: Running, way: str, penalty: float = 1.0, texts: int = GREEDY_TEXTS
) -> dict[str, int]:
    """How many greedy texts are the same with and without drafts."""
    random, equal = torch.Generator().manual_seed(0), 0
    for _ in range(texts):
        prompt = torch.randint(1, VOCAB, (8,), generator=random).tolist()
        ask = Ask(prompt, max_tokens=GREEDY_TOKENS, repetition_penalty=penalty)
        equal += engine.ask(ask).token_ids == engine.ask(replace(ask, way=way)).token_ids
    return {"equal": equal, "texts": texts}


def all_sampled(
    engine: Running, name: str, models: Path, smallest: float, say: Say
) -> dict[str, dict[str, Any]]:
    """The verdicts by setting and way."""
    verdicts: dict[str, dict[str, Any]] = {}
    for setting, values in SETTINGS.items():
        if setting in engine.about["skips"]:
            continue
        for way in ["plain", *engine.about["ways"]] if engine.about["ways"] else []:
            say(f"{name}: {way}, {setting}")
            verdict = sampled(engine, way, values, models, smallest, seed=0)
            if verdict["biased"]:  # once more, with other seeds
                verdict["again"] = sampled(engine, way, values, models, smallest, seed=10**6)
            verdicts.setdefault(setting, {})[way] = verdict
    return verdicts


def sampled(
    engine: Running, way: str, settings: dict[str, float], models: Path, smallest: float, seed: int
) -> dict[str, Any]:
    """The verdict of `prove_sampler` about one way and one setting."""
    prompt = VARIED_PROMPT if "repetition_penalty" in settings else PROMPT

    def draw(number: int) -> list[int]:
        return engine.ask(Ask(prompt, way, TOKENS + 4, number, **settings)).token_ids

    params = params_of(settings, engine.about["top_p_first"])
    target = wrap(AutoModelForCausalLM.from_pretrained(models / "target", dtype=torch.float32))
    proof = prove_sampler(
        draw,
        target,
        prompt,
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


def figures(engine: Running, way: str, temperature: float) -> dict[str, Any]:
    """What the engine says of one text: its own counts, and log-probabilities; of a greedy text
    also the largest difference from those without drafts."""
    ask = Ask(PROMPT, way, max_tokens=GREEDY_TOKENS, temperature=temperature)
    answer, plain = engine.ask(ask), engine.ask(replace(ask, way="plain"))
    figures: dict[str, Any] = {"drafted": answer.drafted, "accepted": answer.accepted}
    figures |= {"tokens": len(answer.token_ids), "logprobs_missing": None}
    if answer.logprobs is None:
        return figures
    figures["logprobs_missing"] = sum(one is None for one in answer.logprobs)
    if plain.logprobs is not None and temperature == 0:
        pairs = zip(answer.logprobs, plain.logprobs, strict=False)
        gaps = [abs(a - b) for a, b in pairs if a is not None and b is not None]
        figures["logprobs_differ"] = max(gaps, default=None)
    return figures
