"""Connects to a Ray cluster by address, or starts one on this machine; every error is one line."""

import contextlib
import logging
import os
import secrets
import socket
import threading
import time
from collections.abc import Callable, Iterable
from typing import Any

# Ray reads these when it is imported.
os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
# otherwise a thread of Serve that outlives `ray.shutdown` restarts Ray
os.environ.setdefault("RAY_ENABLE_AUTO_CONNECT", "0")
# the default of half a second is longer than many runs
os.environ.setdefault("RAY_SERVE_ROUTER_RETRY_MAX_BACKOFF_S", "0.1")

import ray
import torch
from ray import serve
from ray._raylet import GcsClient  # type: ignore[attr-defined]
from ray.serve.schema import ApplicationStatus, LoggingConfig

from naive_speculate.models.threads import available_cores
from naive_speculate.serving.ray.app import DEPLOYMENT, DecoderArgs, build
from naive_speculate.text import one_line

CONNECT_SECONDS = 5.0
READY_SECONDS = 900.0  # most time for replicas to load their models
QUIET: dict[str, Any] = {"logging_level": "ERROR", "log_to_driver": False}
_GONE = (ApplicationStatus.DEPLOY_FAILED, ApplicationStatus.DELETING)


# Serve warns for every request of a dead replica; its readers get an error anyway.
logging.getLogger("ray.serve").setLevel(logging.ERROR)


class ClusterError(ValueError):
    """The cluster cannot be used; the message is one line."""


def connect(address: str | None = None) -> bool:
    """Join a running cluster by `host:port`, or "auto" for the one of this machine; None for
    RAY_ADDRESS or this machine's, if there is one. False if no address was given and no cluster
    runs. Raises `ClusterError` if it cannot be joined.

    Ray leaves the cluster, or ends one that was started here, when the process ends or
    `ray.shutdown` is called."""
    where = address or os.environ.get("RAY_ADDRESS") or "auto"
    if where != "auto":
        _check_reachable(where)
    try:
        ray.init(address=where, ignore_reinit_error=True, **QUIET)
    except ConnectionError as error:
        if where == "auto" and address is None:
            return False
        why = f"this machine must be a node of it (`ray start --address={where}`)"
        words = f"Ray at {where} cannot be joined: {why}: {one_line(error)}"
        if where == "auto":
            words = "no Ray cluster runs on this machine: start one with `ray start --head`"
        raise ClusterError(words) from None
    except Exception as error:  # such as other versions of Ray or Python
        why = f"{type(error).__name__}: {one_line(error)}"
        raise ClusterError(f"Ray at {where} cannot be joined: {why}") from None
    return True


def start(applications: dict[str, DecoderArgs], **options: Any) -> None:
    """Start Ray on this machine for the life of this process, without dashboard, and deploy
    applications by name.

    `options` are for `ray.init`. Raises `ClusterError` if the machine lacks the resources, or an
    application cannot be deployed.
    """
    # Otherwise Ray writes a token to the home folder, which all later clusters would require.
    os.environ.setdefault("RAY_AUTH_TOKEN", secrets.token_hex(32))
    # Replicas import this package, whatever the working directory.
    here = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    paths = os.pathsep.join(filter(None, (here, os.environ.get("PYTHONPATH"))))
    environment = {"env_vars": {"PYTHONPATH": paths}}
    try:
        own = {"include_dashboard": False, "runtime_env": environment}
        ray.init(address="local", **QUIET | own | options)
    except Exception as error:
        why = f"{type(error).__name__}: {one_line(error)}"
        raise ClusterError(f"Ray does not start here: {why}") from None
    for name, args in applications.items():
        deploy(name, args)


def deploy(name: str, args: DecoderArgs) -> None:
    """Or update; returns at once. A `ClusterError` if the cluster has no resources for one
    replica."""
    has = ray.cluster_resources()
    for kind, amount in (("CPU", args.cpus), ("GPU", args.gpus)):
        if amount > (most := has.get(kind, 0)):
            needs = f"needs {amount:g} {kind}, the whole cluster has {most:g}"
            raise ClusterError(f"a replica of {name!r} {needs}")
    serve.start(proxy_location="Disabled", logging_config=LoggingConfig(log_level="WARNING"))
    target = serve.RunTarget(build(args), name=name, route_prefix=None)
    serve.run_many([target], wait_for_applications_running=False)


def local_share(pairs: int) -> dict[str, Any]:
    """Resources and number of replicas per pair, when `pairs` pairs share this machine."""
    if gpus := torch.cuda.device_count():
        return {"gpus": 1.0, "cpus": 1.0, "max_replicas": max(1, gpus // pairs)}
    return {"cpus": 1.0, "max_replicas": max(1, available_cores() // 2 // pairs)}


def names() -> list[str]:
    """The names of the cluster's decoding applications."""
    return [
        name
        for name, app in serve.status().applications.items()
        if DEPLOYMENT in app.deployments or not app.deployments
    ]


def wait_until_ready(
    name: str, seconds: float = READY_SECONDS, say: Callable[[str], None] | None = None
) -> None:
    """Wait until an application has a replica; `say` is called once if that takes over ten
    seconds. Raises `ClusterError` if it is missing, has failed, lacks resources, or takes too
    long."""
    began = time.monotonic()
    while True:
        app = serve.status().applications.get(name)
        if app is None:
            how = "deploy it with `serve deploy deploy/serve.yaml`"
            raise ClusterError(f"no Serve application {name!r} on this cluster: {how}")
        if replicas_of(name):
            return
        messages = [app.message, *(deployment.message for deployment in app.deployments.values())]
        words = ""
        if app.status in (*_GONE, ApplicationStatus.UNHEALTHY):
            words = f"is {app.status.value}: {_last_line(messages)}"
        elif stuck := next((one for one in messages if "to be scheduled" in one), ""):
            words = f"waits for resources that the cluster lacks: {_resources(stuck)}"
        elif time.monotonic() - began > seconds:
            words = f"has no replica after {seconds:.0f} s: {_last_line(messages)}"
        if words:
            raise ClusterError(f"application {name!r} {words}")
        if say is not None and time.monotonic() - began > 10:
            say(f"waiting for the first replica of {name!r} …")
            say = None
        time.sleep(0.2)


def replicas_of(name: str) -> int | None:
    """Those that run; None if the application is gone."""
    app = serve.status().applications.get(name)
    if app is None or app.status in _GONE:
        return None
    deployment = app.deployments.get(DEPLOYMENT)
    return 0 if deployment is None else int(deployment.replica_states.get("RUNNING", 0))


def _check_reachable(address: str) -> None:
    """A `ClusterError` at once if nothing answers, or not Ray; Ray itself would retry for
    minutes."""
    host, _, port = address.rpartition(":")
    if "://" in address or not host or not port.isdigit() or not 0 < int(port) < 65536:
        what = "'auto' or host:port, such as 10.0.0.1:6379"
        raise ClusterError(f"the Ray address must be {what}, got {address!r:.200}")
    try:
        socket.create_connection((host.strip("[]"), int(port)), CONNECT_SECONDS).close()
    except OSError as error:
        words = f"nothing answers at the Ray address {address}: {one_line(error)}"
        raise ClusterError(words) from None

    def query() -> None:
        with contextlib.suppress(Exception):  # ray.init has better messages
            client = GcsClient(address=address)
            client.internal_kv_exists(b"any", namespace=b"any", timeout=CONNECT_SECONDS)

    asking = threading.Thread(target=query, daemon=True)
    asking.start()
    asking.join(2 * CONNECT_SECONDS)
    if asking.is_alive():
        words = "is not a Ray cluster (the default port is 6379)"
        raise ClusterError(f"the server at {address} {words}")


def _last_line(messages: Iterable[str]) -> str:
    lines = [line.strip() for message in messages for line in message.splitlines() if line.strip()]
    return (lines[-1] if lines else "Serve reports no reason")[:300]


def _resources(message: str) -> str:
    text = " ".join(message.split())[:300]
    _, marker, rest = text.partition("Resources required for each replica: ")
    required = rest.partition(". Use")[0].replace("total resources available", "free are")
    return f"a replica needs {required}" if marker else text
