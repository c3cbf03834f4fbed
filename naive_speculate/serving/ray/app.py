"""The Ray Serve application: replicas that each hold one pair and decode many requests at once.

`serve deploy deploy/serve.yaml` calls `build`. `RayEngine` is the client.
"""

import asyncio
import os
import threading
from collections.abc import AsyncIterator
from dataclasses import replace

import ray
import torch
from pydantic import BaseModel, ConfigDict, Field
from ray import serve
from ray.serve import Application
from ray.serve.config import AutoscalingConfig

from naive_speculate.events import Event
from naive_speculate.models import load_pair
from naive_speculate.models.memory import settle_memory
from naive_speculate.models.threads import THREADS_VARIABLE, leave_cores_to
from naive_speculate.serving.delivery import Inbox
from naive_speculate.serving.local import LocalEngine
from naive_speculate.serving.protocol import About, Load, Reader, Request, Unavailable
from naive_speculate.serving.requests import MAX_ROWS
from naive_speculate.speculate.decoder import SpeculativeDecoder

# name of the deployment; applications that have it are pairs that the page can offer
DEPLOYMENT = "Decoder"

# Up to so many runs per replica get a list of events that often; of more, each gets longer lists
# less often, since a list costs more than its events.
FEW_RUNS, LIST_SECONDS = 4, 0.05

Refusal = tuple[str, str]
"""Why a request was not accepted ("refused" if invalid, or "unavailable"), and the message. Sent
as data, since Ray would wrap an exception and add the replica's stack to its message."""


class DecoderArgs(BaseModel):
    """The `args` of the application in a Serve config file."""

    model_config = ConfigDict(extra="forbid")

    target: str | None = None  # Hub ids or local folders; without a target the bundled pair
    draft: str | None = None
    head: str | None = None
    device: str = "auto"  # a GPU if the replica has one; these four are as for `load_pair`
    dtype: str = "auto"
    weights: str = "float32"
    device_map: str | None = None
    max_rows: int = Field(default=MAX_ROWS, ge=1, le=1024)  # sequences of a replica's steps
    max_prompt_tokens: int | None = Field(default=None, ge=1)  # None: the model's limit
    min_replicas: int = Field(default=1, ge=1)
    max_replicas: int = Field(default=1, ge=1)
    cpus: float = Field(default=1.0, ge=0)  # of a replica; it uses one thread per core
    gpus: float = Field(default=0.0, ge=0)
    drain_seconds: float = Field(default=600.0, ge=0)  # most time for runs of one that is stopped
    idle_seconds: float = Field(default=300.0, ge=0)  # least time of surplus before that


class Decoder:
    """One replica: a pair and the engine that decodes its requests as one batch."""

    def __init__(self, args: DecoderArgs) -> None:
        mine = ray.get_runtime_context().get_assigned_resources()
        threads = max(1, int(mine.get("CPU", 1)))
        os.environ[THREADS_VARIABLE] = str(threads)
        torch.set_num_threads(threads)
        device = "cpu" if args.device == "auto" and not mine.get("GPU") else args.device
        how = args.model_dump(include={"dtype", "weights", "device_map"})
        pair = load_pair(args.target, args.draft, args.head, device=device, **how)
        leave_cores_to(pair.target)
        decoder = SpeculativeDecoder(pair)
        most = args.max_prompt_tokens
        self._engine = LocalEngine(decoder, max_rows=args.max_rows, max_prompt_tokens=most)
        settle_memory()
        self._max_rows = args.max_rows
        capacity = args.max_rows * max(args.min_replicas, args.max_replicas)
        self._about = replace(self._engine.about, capacity=capacity)

    async def decode(
        self, request: Request, address: str, session: str
    ) -> AsyncIterator[list[Event] | Refusal]:
        """Yields lists of events, or one `Refusal`."""
        inbox, cancel, reader = Inbox(), threading.Event(), Reader(address, session)
        sent = False
        try:
            # In a thread, since tokenizing a long prompt takes time.
            await asyncio.to_thread(self._engine.start, request, cancel, inbox.deliver, reader)
            async for events in inbox.lists(self._pause):
                if events:
                    sent = True
                    yield events
        except ValueError as error:
            yield "refused", str(error)
        except Unavailable as error:
            if sent:
                raise
            yield "unavailable", str(error)
        finally:
            cancel.set()  # also if Serve cancels this because the reader left

    def _pause(self) -> float:
        return LIST_SECONDS * max(1, self._engine.load().running / FEW_RUNS)

    async def about(self) -> tuple[About, int]:
        """Of all replicas together, and the rows of one replica."""
        return self._about, self._max_rows

    async def state(self) -> tuple[int, Load]:
        """Process id and load."""
        return os.getpid(), self._engine.load()

    async def check_health(self) -> None:
        """Called by Serve, which replaces a replica that fails here."""
        if not self._engine.load().ready:
            raise RuntimeError("the decoding thread has ended")


def build(args: DecoderArgs) -> Application:
    """The application, for `serve deploy` and for `start`."""
    deployment = serve.deployment(
        name=DEPLOYMENT,
        ray_actor_options={"num_cpus": args.cpus, "num_gpus": args.gpus},
        # As many requests again wait in the replica, where they take a free row at once; requests
        # that wait in the page's process are only retried now and then.
        max_ongoing_requests=2 * args.max_rows,
        autoscaling_config=AutoscalingConfig(
            min_replicas=args.min_replicas,
            max_replicas=max(args.min_replicas, args.max_replicas),
            target_ongoing_requests=max(1.0, 0.75 * args.max_rows),
            upscale_delay_s=5,
            downscale_delay_s=args.idle_seconds,
            metrics_interval_s=2,
            look_back_period_s=10,
        ),
        graceful_shutdown_wait_loop_s=0.5,
        graceful_shutdown_timeout_s=args.drain_seconds,
        health_check_period_s=5,
    )(Decoder)
    return deployment.bind(args)
