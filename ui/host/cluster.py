"""Engines on a Ray cluster instead of in this process."""

import sys

from naive_speculate.known import KNOWN
from naive_speculate.serving import Engine
from ui.host.configuration import Configuration, PairChoice, read_configuration

OF_REPLICAS = ("pairs", "device", "dtype", "max_prompt_tokens", "concurrency")
"""Settings of the replicas; the page cannot change them while these run."""


def cluster_engines(configuration: Configuration, address: str | None) -> dict[str, Engine]:
    """An engine for every pair of a cluster, by name.

    The address is `host:port` or "auto"; None for RAY_ADDRESS, or this machine's cluster, or a new one. If a cluster runs, its
    applications determine the pairs. If none runs and no address was given, one is started on this machine with the operator's
    pairs, and it ends with the page. Raises ValueError if there is no such cluster, nothing on it decodes, or Ray is missing.
    """
    try:
        from naive_speculate.serving.ray import cluster as ray_cluster
        from naive_speculate.serving.ray.app import DecoderArgs
        from naive_speculate.serving.ray.engine import RayEngine
    except ModuleNotFoundError as error:
        raise ValueError(f"--engine ray needs Ray ({error.name} is missing): pip install -r requirements-cluster.txt") from None

    def application(pair: PairChoice) -> DecoderArgs:
        return DecoderArgs(
            target=pair.target,
            draft=pair.draft,
            head=pair.head,
            device=configuration.device,
            dtype=configuration.dtype,
            max_rows=configuration.concurrency,
            max_prompt_tokens=configuration.max_prompt_tokens,
            **ray_cluster.local_share(len(pairs)),
        )

    if not ray_cluster.connect(address):
        say("no Ray cluster is running here: starting one")
        pairs = [pair for pair in configuration.pairs if not pair.later or is_found(pair)]
        ray_cluster.start({pair.name: application(pair) for pair in pairs})
    elif decided := [name for name in OF_REPLICAS if getattr(configuration, name) != getattr(read_configuration({}, {}), name)]:
        raise ValueError(f"the cluster's applications decide on {', '.join(decided)}; leave them out of the page's settings")
    names = ray_cluster.names()
    if not names:
        raise ValueError("no Serve application on this cluster decodes: deploy one with `serve deploy deploy/serve.yaml`")
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
