"""Servers and clients of policies, killed in the middle: no row is lost that a client keeps, and none counts twice."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

pytestmark = [pytest.mark.fault, pytest.mark.slow]
PROGRAMS = str(Path(__file__).parents[1] / "helpers" / "external_programs.py")
DEADLINE_S = 60.0


class Programs:
    """A server and clients in processes of their own."""

    def __init__(self, directory):
        self.directory, self.running = directory, []
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]

    def start(self, *arguments):
        made = subprocess.Popen([sys.executable, PROGRAMS, *map(str, arguments)])
        self.running.append(made)
        return made

    def server(self):
        return self.start("server", self.directory, self.port)

    def client(self, mode, number):
        return self.start("client", f"http://localhost:{self.port}", mode, number, self.log(number))

    def log(self, number):
        return self.directory / f"client_{number}"

    def told(self, number):
        """Returns the rows that a client was through with, and what it was refused."""
        lines = self.log(number).read_text().splitlines() if self.log(number).exists() else []
        values = [json.loads(line) for line in lines]
        return [value for value in values if isinstance(value, int)], [v for v in values if isinstance(v, str)]

    def wait_until(self, holds):
        end = time.monotonic() + DEADLINE_S
        while not holds():
            assert time.monotonic() < end, "nothing happened for too long"
            time.sleep(0.02)

    def saved(self):
        pointer = self.directory / "newest"
        return pointer.read_text() if pointer.exists() else None

    def wait_for_saves(self, count):
        for _ in range(count):
            before = self.saved()
            self.wait_until(lambda before=before: self.saved() != before)

    def finish(self, server, *clients):
        """Ends clients, then the server; returns the observations `[n, 2]` of all rows that it has stored."""
        (self.directory / "stop").touch()
        self.wait_until((self.directory / "stopped").exists)  # an iteration waits for steps
        for number, client in clients:
            (self.directory / f"client_{number}.stop").touch()
            assert client.wait(DEADLINE_S) == 0
        (self.directory / "over").touch()
        assert server.wait(DEADLINE_S) == 0
        return np.load(self.directory / "stored.npy")


@pytest.fixture
def programs(tmp_path):
    made = Programs(tmp_path)
    yield made
    for each in made.running:
        if each.poll() is None:
            os.kill(each.pid, signal.SIGKILL)
        each.wait()


def kill(process):
    os.kill(process.pid, signal.SIGKILL)
    process.wait()


def rows_of(stored, number):
    """Returns the numbers of a client's stored rows, in order."""
    return sorted(int(count) for client, count in stored if int(client) == number)


def test_local_clients_of_a_server_that_is_killed_lose_no_row(programs):
    server, clients = programs.server(), [(number, programs.client("local", number)) for number in (1, 2)]
    for _ in range(3):
        programs.wait_for_saves(3)
        time.sleep(float(np.random.default_rng().uniform(0.0, 0.2)))
        kill(server)
        server = programs.server()
    programs.wait_for_saves(2)
    stored = programs.finish(server, *clients)
    for number, _ in clients:
        told, refused = programs.told(number)
        assert not refused
        assert rows_of(stored, number) == told


def test_a_local_client_that_is_killed_doubles_nothing_and_takes_no_others_rows_with_it(programs):
    server, stays, goes = programs.server(), programs.client("local", 1), programs.client("local", 2)
    programs.wait_for_saves(3)
    kill(goes)
    comes = programs.client("local", 3)
    programs.wait_until(lambda: len(programs.told(3)[0]) > 40)
    stored = programs.finish(server, (1, stays), (3, comes))
    for number in (1, 3):
        assert rows_of(stored, number) == programs.told(number)[0]
    sent, told = rows_of(stored, 2), programs.told(2)[0]
    assert sent == list(range(1, len(sent) + 1))
    assert len(told) - 2 * 4 <= len(sent) <= len(told) + 1  # fragments of four: what was in its own memory


def test_a_remote_client_that_is_killed_loses_no_row_that_it_told(programs):
    server, stays, goes = programs.server(), programs.client("remote", 1), programs.client("remote", 2)
    programs.wait_until(lambda: len(programs.told(2)[0]) > 40)
    kill(goes)
    programs.wait_for_saves(2)
    time.sleep(1.5)  # until its episode is given up
    stored = programs.finish(server, (1, stays))
    for number in (1, 2):
        sent, told = rows_of(stored, number), programs.told(number)[0]
        assert sent in (told, [*told, len(told) + 1])  # it may have been killed before it noted the last one


def test_a_server_that_is_killed_doubles_no_row_of_remote_clients(programs):
    server, client = programs.server(), programs.client("remote", 1)
    for _ in range(2):
        programs.wait_for_saves(3)
        kill(server)
        server = programs.server()
    programs.wait_for_saves(2)
    stored = programs.finish(server, (1, client))
    sent, (told, refused) = rows_of(stored, 1), programs.told(1)
    assert 1 <= len(refused) <= 2  # a kill between two episodes, which is rare, refuses none
    assert all("this episode is not known" in text for text in refused)
    assert len(set(sent)) == len(sent)
    assert len(set(sent) - set(told)) <= 2  # at each kill one may be stored of which the client did not hear
    # What lies behind a checkpoint was in the server's memory alone; all that comes after the last kill is there.
    assert told[-10:] == sent[-10:]
