"""Random streams of environments under the names that they had before gym 0.26."""

import copy
import pickle
import subprocess
import sys

import gymnasium
import numpy as np
import pytest
from gymnasium.utils import seeding

import rlframe  # noqa: F401 - has Gymnasium make these streams
from rlframe.utils.old_streams import OldNamesGenerator


def test_streams_of_gymnasium_answer_to_the_older_names_and_draw_what_they_drew():
    stream, plain = seeding.np_random(3)[0], np.random.Generator(np.random.PCG64(np.random.SeedSequence(3)))
    assert stream.randint(5) == plain.integers(5)
    assert stream.randint(2, 9, size=3).tolist() == plain.integers(2, 9, 3).tolist()
    assert stream.rand() == plain.random()
    assert stream.rand(2, 3).tolist() == plain.random((2, 3)).tolist()
    assert stream.randn(4).tolist() == plain.standard_normal(4).tolist()
    assert stream.random_sample(2).tolist() == plain.random(2).tolist()
    assert stream.uniform(-1, 1) == plain.uniform(-1, 1)


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda stream: pickle.loads(pickle.dumps(stream))])
def test_copies_of_streams_keep_the_names_and_go_on_where_the_stream_is(copied):
    stream = OldNamesGenerator(np.random.PCG64(1))
    stream.rand()
    other = copied(stream)
    assert other.randint(1000) == stream.randint(1000)


def test_environments_draw_from_such_a_stream():
    env = gymnasium.make("CartPole-v1").unwrapped
    env.reset(seed=0)
    assert env.np_random.randint(3) in range(3)


@pytest.mark.parametrize("first", ["gym", "rlframe"])
def test_gym_makes_such_streams_in_whatever_order_it_is_imported(first):
    pytest.importorskip("gym")
    second = "gym" if first == "rlframe" else "rlframe"
    code = f"import {first}, {second}; from gym.utils.seeding import np_random; print(np_random(0)[0].randint(7))"
    told = subprocess.run([sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, check=True)
    assert int(told.stdout) in range(7)
