"""Gradio's queue, bounded in bytes: the calls that wait in it, in turns, and the messages that
nobody has read yet."""

import asyncio
import sys
from collections.abc import Callable
from typing import Any

import gradio as gr
from gradio.queueing import Event, Queue
from gradio.server_messages import EventMessage, ProcessCompletedMessage
from gradio.utils import LRUCache

from naive_speculate.serving.protocol import Reader
from naive_speculate.serving.turns import TOO_MANY, Job, Turns, refused
from ui.host.limits import MOST_SESSION_CHARACTERS
from ui.host.visitors import TOTAL_BYTES, VISITOR_BYTES, address_of, give_back, weight

COUNT_BYTES = 2**20  # all unread messages are counted after every so many bytes
UNREAD = (
    "Nobody read the results of this call, and the server keeps no more of them. The call was"
    " ended."
)
CROWDED = "So many calls wait that the server has no room for this one. Try again in a moment."


class Messages(asyncio.Queue[EventMessage]):
    """A visitor's unread messages; `size` is their size in bytes."""

    def __init__(self) -> None:
        super().__init__()
        self.size = 0
        self._sizes: list[int] = []

    def _put(self, item: EventMessage) -> None:
        self._sizes.append(weight([getattr(item, "output", None)]))
        self.size += self._sizes[-1]
        super()._put(item)

    def _get(self) -> EventMessage:
        self.size -= self._sizes.pop(0)
        item: EventMessage = super()._get()
        return item


class _Sessions(LRUCache[str, Messages]):
    """The messages of each session; the oldest session is dropped if there are too many."""

    def __setitem__(self, session: str, _: Any) -> None:
        super().__setitem__(session, Messages())


def open_queue(page: gr.Blocks, size: int) -> None:
    """Give a page a bounded queue for at most so many waiting calls; `Blocks.queue` always
    builds Gradio's own class."""
    page.queue(max_size=size, api_open=False)  # no call bypasses the queue
    page._queue = BoundedQueue(page, size)


class BoundedQueue(Queue):
    """Ends calls whose unread results exceed a size in bytes. If the waiting calls are too large
    or more than `size`, the newest one of the visitor with the most is refused. `visitor_bytes`
    limits one visitor's unread messages, and all waiting calls together. Visitors take turns.
    Gradio's loops poll 1,000 and 100 times a second, and each look takes the interpreter lock
    from the decoder; 50 and 20 times are enough."""

    visitor_bytes, total_bytes = VISITOR_BYTES, TOTAL_BYTES

    def __init__(self, page: gr.Blocks, size: int) -> None:
        super().__init__(
            live_updates=True,
            concurrency_count=page.max_threads,
            update_intervals=1,
            max_size=size,
            blocks=page,
        )
        self.sleep_when_free, self.progress_update_sleep_when_free = 0.02, 0.05
        self._calls = Turns[Job]()  # by name; `num_rows` is a call's size in bytes
        self._sent = 0
        self.pending_messages_per_session: Any = _Sessions(
            self.pending_messages_per_session.max_size
        )

    def compute_analytics_summary(self, records: Any) -> Any:
        """Nothing: after each call Gradio groups the last 10,000 with pandas, for a dashboard
        that this page does not have."""
        return self.cached_event_analytics_summary

    async def push(self, body: Any, request: Any, username: Any) -> Any:
        """Queue a call (see Gradio's `Queue.push`) unless it is malformed or too large."""
        try:
            self._check(body)
        except gr.Error as error:
            return False, error.message, "error"
        size = weight(
            [body.data, body.event_data]
        )  # 0.2 s for the worst body that `Guard` lets pass
        call = Job(Reader(address_of(request), body.session_hash or ""), num_rows=size)
        if not await self._make_room(call):
            return False, CROWDED, "queue_full"
        for session in (
            self.pending_event_ids_session.keys() - self.pending_messages_per_session.keys()
        ):
            del self.pending_event_ids_session[session]
        answer = await super().push(body, request, username)
        if answer[0]:
            call.work = answer[1]
            self._calls.add(call)
            self._take_turns()
        return answer

    def get_events(self) -> Any:
        """The calls whose turn it is (see Gradio's `Queue.get_events`)."""
        batch = super().get_events()
        names = {event._id for event in batch[0]} if batch else ()
        for call in [call for call in self._calls.waiting if call.work in names]:
            self._calls.begin(call)
        return batch

    async def _make_room(self, new: Job) -> bool:
        """Refuse a waiting call of the visitor with the most, if there is no room for a new one.
        Whether there is room."""
        calls, events = self._calls, self.event_ids_to_events
        calls.waiting, calls.running = (
            [call for call in some if call.work in events]
            for some in (calls.waiting, calls.running)
        )
        begun = sum(call.num_rows for call in calls.running)
        limits: list[tuple[int, Callable[[Job], int]]] = [
            (self.max_size or sys.maxsize, lambda _: 1),
            (self.visitor_bytes - begun, lambda call: call.num_rows),
        ]
        for most, size in limits:
            dropped = refused(calls.waiting, new, most, size)
            if dropped is None:
                continue
            if dropped is new:
                return False
            event = events[dropped.work]
            calls.waiting.remove(dropped)
            await self.clean_events(event_id=dropped.work)
            self.send_message(
                event, ProcessCompletedMessage(output={"error": TOO_MANY}, success=False)
            )
        return True

    def _take_turns(self) -> None:
        """Order the calls that wait for the same: one of each visitor, then the second of each."""
        for queue in self.event_queue_per_concurrency_id.values():
            events = {event._id: event for event in queue.queue}
            waiting = [call for call in self._calls.waiting if call.work in events]
            if len(waiting) == len(events):
                queue.queue[:] = [events[call.work] for call in self._calls.order(waiting)]

    def _check(self, body: Any) -> None:
        function = self.blocks.fns.get(body.fn_index)
        if function is None:
            raise gr.Error("there is no such function")
        if len(body.session_hash or "") > MOST_SESSION_CHARACTERS:
            raise gr.Error("the session's name is too long")
        if body.trigger_id is not None and body.trigger_id not in self.blocks.blocks:
            raise gr.Error("there is no such trigger")
        if not function.cancels:  # else Gradio fills in the session
            self.blocks.validate_inputs(function, body.data)

    def send_message(self, event: Event, event_message: EventMessage) -> None:
        """Keep a message until it is read, if there is room."""
        unread = self.pending_messages_per_session
        if event.session_hash not in unread:  # the visitor has left
            return
        mine = unread[event.session_hash]
        before = mine.size
        super().send_message(event, event_message)
        self._sent += mine.size - before
        if mine.size > self.visitor_bytes:
            self._drop(event.session_hash)
        if self._sent > COUNT_BYTES:
            self._sent = 0
            total = sum(messages.size for messages in unread.values())
            for session, messages in list(unread.items()):
                if total <= self.total_bytes:
                    return
                total -= messages.size
                self._drop(session)

    def _drop(self, session: str) -> None:
        messages = self.pending_messages_per_session[session]
        if not messages.size:
            return
        while not messages.empty():
            messages.get_nowait()
        for event in [
            event
            for job in self.active_jobs
            if job
            for event in job
            if event.session_hash == session
        ]:
            event.alive = False
        for name in self.pending_event_ids_session.get(session, ()):
            messages.put_nowait(
                ProcessCompletedMessage(output={"error": UNREAD}, success=False, event_id=name)
            )
        give_back(self.visitor_bytes)
