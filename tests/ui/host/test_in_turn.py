"""Measurements that wait for one another take no threads from the page."""

import asyncio
import threading

from ui.host.measuring import BUSY, in_turn
from ui.run.runs import Runs
from ui.run.stage import _server_functions

WAITING = 50


def test_who_waits_for_a_measurement_takes_no_thread():
    go_on, working = threading.Event(), asyncio.Event()
    threads: set[int] = set()

    async def all_of_them() -> list[dict[str, object]]:
        loop = asyncio.get_running_loop()

        def work() -> dict[str, object]:
            threads.add(threading.get_ident())
            loop.call_soon_threadsafe(working.set)
            assert go_on.wait(60)
            return {"done": True}

        before = threading.active_count()
        asked = [asyncio.create_task(in_turn(work)) for _ in range(WAITING)]
        await working.wait()
        assert threading.active_count() <= before + 1
        go_on.set()
        return await asyncio.gather(*asked)

    assert asyncio.run(all_of_them()) == [{"done": True}] * WAITING
    assert len(threads) == 1


def test_what_does_not_begin_in_time_is_not_done(monkeypatch):
    go_on, done = threading.Event(), list[str]()

    async def both() -> tuple[dict[str, object], dict[str, object]]:
        begun, loop = asyncio.Event(), asyncio.get_running_loop()

        def first() -> dict[str, object]:
            loop.call_soon_threadsafe(begun.set)
            assert go_on.wait(60)
            return {"first": True}

        one = asyncio.create_task(in_turn(first))
        await begun.wait()
        monkeypatch.setattr("ui.host.measuring.PATIENCE_SECONDS", 0.0)  # now, as the first one must begin
        other = await in_turn(lambda: {"second": done.append("second")})
        go_on.set()
        return await one, other

    assert asyncio.run(both()) == ({"first": True}, {"reason": BUSY, "again": True})
    assert done == []


def test_the_page_s_functions_that_measure_do_not_block():
    functions = {function.__name__: function for function in _server_functions(Runs())}
    assert [name for name, function in functions.items() if asyncio.iscoroutinefunction(function)] == ["unguided", "speedup"]
