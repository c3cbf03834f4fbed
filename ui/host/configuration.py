"""The operator's settings from environment and command line: pairs, device and limits; and
engines on a Ray cluster instead of in this process."""

import re
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Annotated, Any, Literal

import torch
from pydantic import AfterValidator, BeforeValidator, Field, ValidationError
from pydantic.dataclasses import dataclass

from naive_speculate.models.known import KNOWN
from naive_speculate.serving import Engine
from naive_speculate.serving.requests import MAX_ROWS
from ui.checks import first_problem

BUNDLED = "bundled"
PREFIX = "NAIVE_SPECULATE_"
MAX_TOKENS = 2048
_LOG_SECONDS = 3.0
HOST_NAME = re.compile(r"[\w.-]+|[0-9a-fA-F:.]+", re.ASCII)
OF_REPLICAS = ("pairs", "device", "dtype", "weights", "max_prompt_tokens", "concurrency")
"""Settings of the replicas; the page cannot change them while these run."""


@dataclass(frozen=True)
class PairChoice:
    name: str  # the name that visitors see
    # target, draft: Hub ids, local folders, GGUF files or a known pair's name (`KNOWN`); None for
    # the bundled pair, and for no draft model
    target: str | None = None
    draft: str | None = None
    # a draft head for the target: a Hub id or local folder; None for none, or for the bundled
    # target's own
    head: str | None = None
    later: bool = (
        False  # whether it is loaded after the page answers; if that fails, it is left out
    )
    on_demand: bool = (
        False  # whether it is loaded when somebody first uses it, or if it becomes the default
    )


USUAL = (PairChoice("SmolLM2", "smollm2", later=True), PairChoice(BUNDLED, on_demand=True))
"""The pairs if the operator chooses none."""


def _device(name: str) -> str:
    try:
        torch.device("cpu" if name == "auto" else name)
    except RuntimeError:
        raise ValueError("must be auto, cpu, cuda, cuda:1 …") from None
    return name


def _names(listed: object) -> object:
    if not isinstance(listed, str):
        return listed
    names = tuple(listed.replace(",", " ").split())
    if not all(HOST_NAME.fullmatch(name) for name in names):
        raise ValueError("must list names such as page.example.org or 192.168.1.5")
    return names


@dataclass(frozen=True)
class Configuration:
    """The operator's settings, checked."""

    pairs: tuple[PairChoice, ...] = (
        PairChoice(BUNDLED),
    )  # what visitors may choose from; the first is the default
    # device, dtype, weights: as for `load_pair`
    device: Annotated[str, AfterValidator(_device)] = "auto"
    dtype: Literal["auto", "float32", "float16", "bfloat16"] = "auto"
    weights: Literal["float32", "int8"] = "float32"
    max_tokens: Annotated[int, Field(ge=1, le=MAX_TOKENS)] = MAX_TOKENS  # most tokens per run
    max_prompt_tokens: Annotated[int, Field(ge=16, le=10**6)] | None = (
        None  # longest prompt; None for the model's limit
    )
    queue_size: Annotated[int, Field(ge=1, le=10**5)] = (
        64  # most runs that may wait; later ones are refused with a message
    )
    concurrency: Annotated[int, Field(ge=1, le=256)] = (
        MAX_ROWS  # most runs decoded together; later ones wait
    )
    # which pairs never generate words unsuitable for a classroom; "bundled" are those that ship
    filter_words: Literal["bundled", "all", "none"] = "bundled"
    # whether a finished run is decoded again without drafts, and a guided one without its guide,
    # for comparison
    measuring: Literal["on", "off"] = "on"
    # host names of the page, in addition to this machine's and the Space's
    hosts: Annotated[tuple[str, ...], BeforeValidator(_names)] = ()
    metrics: Literal["all", "local", "off"] = "all"  # who may read `/metrics`


def read_configuration(environ: Mapping[str, str], options: Mapping[str, Any]) -> Configuration:
    """The operator's settings from environment variables, and from `target`, `draft`, `head`,
    `device`, `dtype` and `weights` of the command line. Options that are not None override the
    environment; empty values mean the default. A ValueError names the variable or option and
    what was given."""
    every = [*(field.name for field in fields(Configuration)), "target", "draft", "head"]
    names = {name: PREFIX + name.upper() for name in every}
    settings = {name: environ.get(variable, "").strip() for name, variable in names.items()}
    for name in names.keys() & options.keys():
        if options[name] is not None:
            names[name], settings[name] = f"--{name}", str(options[name])
    pairs = _pairs(
        settings.pop("pairs"), settings.pop("target"), settings.pop("draft"), settings.pop("head")
    )
    try:
        values: dict[str, Any] = {name: value for name, value in settings.items() if value}
        return Configuration(pairs=pairs, **values)
    except ValidationError as error:
        raise ValueError(first_problem(error, names)) from None


def _pairs(listed: str, target: str, draft: str, head: str) -> tuple[PairChoice, ...]:
    """Parse `Name = target + draft; Name = target + draft + head`; `bundled` is the bundled
    pair, empty means `USUAL`."""
    if not listed:
        if draft and not target:
            raise ValueError(
                f"{PREFIX}DRAFT or --draft needs a target as well, got only {draft!r:.200}"
            )
        if not target:
            return (PairChoice(BUNDLED, head=head),) if head else USUAL
        return (
            PairChoice(target.rstrip("/").rsplit("/", 1)[-1], target, draft or None, head or None),
        )
    if target or draft or head:
        raise ValueError(f"give either {PREFIX}PAIRS or a target, a draft and a head, not both")
    pairs = []
    for entry in filter(None, map(str.strip, listed.split(";"))):
        match = re.fullmatch(
            r"([^=+]+?)\s*=\s*([^=+]+?)(?:\s*\+\s*([^=+]+?))?(?:\s*\+\s*([^=+]+))?", entry
        )
        if entry == BUNDLED:
            pairs.append(PairChoice(BUNDLED))
        elif match:
            name, its_target, its_draft, its_head = match.groups()
            pairs.append(PairChoice(name, its_target, its_draft, its_head))
        else:
            raise ValueError(
                f"{PREFIX}PAIRS must list 'Name = target + draft + head' between semicolons, got"
                f" {entry!r:.200}"
            )
    names = [pair.name for pair in pairs]
    if not names or len(set(names)) < len(names):
        raise ValueError(
            f"{PREFIX}PAIRS must list at least one pair, each with a name of its own, got"
            f" {listed!r:.200}"
        )
    return tuple(pairs)


def cluster_engines(configuration: Configuration, address: str | None) -> dict[str, Engine]:
    """An engine for every pair of a cluster, by name.

    The address is `host:port` or "auto"; None for RAY_ADDRESS, or this machine's cluster, or a
    new one. If a cluster runs, its applications determine the pairs. If none runs and no address
    was given, one is started on this machine with the operator's pairs, and it ends with the
    page. Raises ValueError if there is no such cluster, nothing on it decodes, or Ray is
    missing.
    """
    try:
        from naive_speculate.serving.ray import cluster as ray_cluster
        from naive_speculate.serving.ray.app import DecoderArgs
        from naive_speculate.serving.ray.engine import RayEngine
    except ModuleNotFoundError as error:
        raise ValueError(
            f"--engine ray needs Ray ({error.name} is missing): pip install -r"
            " requirements-cluster.txt"
        ) from None

    if not ray_cluster.connect(address):
        say("no Ray cluster is running here: starting one")
        pairs = [pair for pair in configuration.pairs if not pair.later or is_found(pair)]
        shared: dict[str, Any] = {
            "device": configuration.device,
            "dtype": configuration.dtype,
            "weights": configuration.weights,
            "max_rows": configuration.concurrency,
            "max_prompt_tokens": configuration.max_prompt_tokens,
            **ray_cluster.local_share(len(pairs)),
        }
        ray_cluster.start(
            {
                p.name: DecoderArgs(target=p.target, draft=p.draft, head=p.head, **shared)
                for p in pairs
            }
        )
    elif decided := [
        name
        for name in OF_REPLICAS
        if getattr(configuration, name) != getattr(read_configuration({}, {}), name)
    ]:
        raise ValueError(
            f"the cluster's applications decide on {', '.join(decided)}; leave them out of the"
            " page's settings"
        )
    names = ray_cluster.names()
    if not names:
        raise ValueError(
            "no Serve application on this cluster decodes: deploy one with `serve deploy"
            " deploy/serve.yaml`"
        )
    engines: dict[str, Engine] = {}
    for name in names:
        ray_cluster.wait_until_ready(name, say=say)
        engines[name] = RayEngine(name, max_waiting=configuration.queue_size)
    return engines


def is_found(pair: PairChoice) -> bool:
    """Whether the replicas can load a known pair's target; prints the reason if not."""
    try:
        KNOWN[str(pair.target)].find()
    except ValueError as error:
        say(f"{pair.name} is left out: it {error}")
        return False
    return True


def say(line: str) -> None:
    """Print a line for the operator, who may have to wait."""
    print(f"app.py: {line}", file=sys.stderr, flush=True)


def log_progress(name: str) -> Callable[[float], None]:
    """Prints the progress of rounding a pair's weights, every few seconds."""
    printed = time.monotonic()

    def log(share: float) -> None:
        nonlocal printed
        if (now := time.monotonic()) - printed > _LOG_SECONDS:
            printed = now
            say(f"{name}: {share:.0%} of its weights are rounded")

    return log
