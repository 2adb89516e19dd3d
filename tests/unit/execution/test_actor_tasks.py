"""Tasks that actors work on, with a stand-in for Ray."""

import platform
from types import SimpleNamespace

import pytest
import ray

from rlframe.utils.actors import TaskPool, create_colocated, drop_colocated


@pytest.fixture
def done(monkeypatch):
    """Returns the set of references that are done."""
    finished, waited = set(), []

    def wait(refs, num_returns, timeout):
        waited.append(timeout)
        if timeout:
            finished.add(refs[0])
        ready = [ref for ref in refs if ref in finished][:num_returns]
        return ready, [ref for ref in refs if ref not in ready]

    monkeypatch.setattr(ray, "wait", wait)
    monkeypatch.setattr(ray, "get", lambda refs: refs)
    return finished


def test_tasks_come_when_they_are_done(done):
    pool = TaskPool()
    pool.add("worker 1", "ref a")
    pool.add("worker 2", ["ref b", "ref c"])
    assert list(pool.completed()) == []
    done.add("ref b")
    assert list(pool.completed()) == [("worker 2", ["ref b", "ref c"])]
    assert pool.count == 1
    assert list(pool.completed(blocking_wait=True)) == [("worker 1", "ref a")]
    assert list(pool.completed(blocking_wait=True)) == []


def test_tasks_wait_to_be_fetched_and_go_with_their_workers(done):
    pool = TaskPool()
    for number in range(4):
        pool.add(f"worker {number % 2}", f"ref {number}")
    done.update(f"ref {number}" for number in range(3))
    assert list(pool.completed_prefetch(max_yield=1)) == [("worker 0", "ref 0")]
    pool.reset_workers(["worker 0"])
    assert list(pool.completed_prefetch()) == [("worker 0", "ref 2")]
    assert pool.count == 0


class Actor:
    """Is on one of two machines by turns."""

    made = 0

    def __init__(self):
        self.host = platform.node() if Actor.made % 2 else "elsewhere"
        self.ended = False
        self.get_host = SimpleNamespace(remote=lambda: self.host)
        self.__ray_terminate__ = SimpleNamespace(remote=lambda: setattr(self, "ended", True))

    @classmethod
    def remote(cls):
        Actor.made += 1
        return cls()


@pytest.mark.usefixtures("done")
def test_actors_are_made_on_this_machine():
    here = create_colocated(Actor, (), 3)
    assert [(actor.host, actor.ended) for actor in here] == [(platform.node(), False)] * 3
    assert drop_colocated(here) == []
    assert all(actor.ended for actor in here)
    elsewhere = SimpleNamespace(host="elsewhere", get_host=SimpleNamespace(remote=lambda: "elsewhere"))
    elsewhere.__ray_terminate__ = SimpleNamespace(remote=lambda: None)
    with pytest.raises(RuntimeError, match=r"Got 0 actors on .*; wanted 1"):
        create_colocated(SimpleNamespace(remote=lambda: elsewhere), (), 1)
