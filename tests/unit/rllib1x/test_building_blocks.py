"""Building blocks at RLlib's paths, against numbers worked by hand and seen in RLlib 1.9.2."""

from __future__ import annotations

import base64
import pickle
import random
import zlib
from collections import namedtuple

import gymnasium as gym
import numpy as np
import pytest

from rlframe.config.common import CommonConfig
from rlframe.evaluation.rollout_worker import RolloutWorker
from rlframe.evaluation.sample_batch_builder import MultiAgentSampleBatchBuilder
from rlframe.evaluation.sampler import _get_or_raise
from rlframe.execution.segment_tree import MinSegmentTree, SegmentTree, SumSegmentTree
from rlframe.policy.sample_batch import MultiAgentBatch, SampleBatch
from rlframe.utils import compression, multi_agent, sgd
from rlframe.utils.debug import summarize, update_global_seed_if_necessary
from rlframe.utils.from_config import from_file, lookup_type
from rlframe.utils.schedules import LinearSchedule, Schedule
from rlframe.utils.spaces.space_utils import convert_element_to_space_type, flatten_space
from rlframe.utils.threading import with_lock
from rlframe.utils.tracking_dict import UsageTrackingDict
from tests.helpers.envs import Counting

VALUES = [1.0, 0.0, 3.0, 2.0, 5.0, 0.0, 1.0, 4.0]


def filled(tree):
    for index, value in enumerate(VALUES):
        tree[index] = value
    return tree


def test_a_sum_tree_sums_and_finds_prefixes():
    tree = filled(SumSegmentTree(8))
    assert (tree.sum(), tree.sum(2, 5), tree.sum(3), tree.sum(1, -2), tree.sum(4, 4)) == (16, 10, 12, 10, 0)
    found = [tree.find_prefixsum_idx(mass) for mass in (0, 0.5, 1, 3.99, 4, 6, 10.5, 11.2, 12, 15.9)]
    assert found == [0, 0, 2, 2, 3, 4, 4, 6, 7, 7]
    assert tree[4] == 5
    with pytest.raises(ValueError, match=r"prefixsum=16.1; wanted one between 0 and the sum of all, 16.0"):
        tree.find_prefixsum_idx(16.1)


def test_a_min_tree_and_one_of_another_operation_keep_the_order():
    tree = filled(MinSegmentTree(8))
    assert (tree.min(), tree.min(2, 5), tree.min(6), tree.min(3, 3)) == (0, 2, 1, np.inf)
    words = SegmentTree(4, lambda left, right: left + right, "")
    for index, letter in enumerate("abcd"):
        words[index] = letter
    assert [words.reduce(*run) for run in ((), (1,), (1, 3), (0, -1))] == ["abcd", "bcd", "bc", "abc"]
    again = SegmentTree(4, lambda left, right: left + right, "")
    again.set_state(words.get_state())
    assert again.reduce() == "abcd"


def test_trees_refuse_what_they_are_not():
    with pytest.raises(ValueError, match="capacity=6; wanted a power of two"):
        SumSegmentTree(6)
    with pytest.raises(ValueError, match="without its neutral_element"):
        SegmentTree(4, pow)
    with pytest.raises(IndexError, match="value 8; wanted one of 0 to 7"):
        SumSegmentTree(8)[8]
    with pytest.raises(ValueError, match="Got 8 values; wanted the 4"):
        MinSegmentTree(4).set_state(filled(MinSegmentTree(8)).get_state())


def test_minibatches_hold_each_row_once():
    update_global_seed_if_necessary(seed=0)
    seen = [part["obs"] for part in sgd.minibatches(SampleBatch(obs=np.arange(10)), 4)]
    assert sorted(map(len, seen)) == [2, 4, 4]
    assert sorted(np.concatenate(seen)) == list(range(10))
    assert np.concatenate(seen).tolist() != list(range(10))
    batch = SampleBatch(obs=np.arange(7), seq_lens=np.array([3, 1, 3]), state_in_0=np.arange(3)[:, None])
    parts = list(sgd.minibatches(batch, 4, shuffle=False))
    assert [part["obs"].tolist() for part in parts] == [[0, 1, 2, 3], [4, 5, 6]]
    assert [part["state_in_0"][:, 0].tolist() for part in parts] == [[0, 1], [2]]
    assert list(sgd.minibatches(batch, 0)) == [batch]
    with pytest.raises(ValueError, match="Got a MultiAgentBatch"):
        next(sgd.minibatches(batch.as_multi_agent(), 4))


def test_minibatch_sgd_standardises_and_reports_means():
    class Worker:
        def __init__(self):
            self.rows = []

        def learn_on_batch(self, samples):
            (part,) = samples.policy_batches.values()
            self.rows.append(part.count)
            return {"default_policy": {"learner_stats": {"n": float(part.count)}, "td_error": part["adv"]}}

    worker, batch = Worker(), SampleBatch(adv=np.array([1.0, 2.0, 3.0, 4.0, 5.0]))
    infos = sgd.do_minibatch_sgd(batch, {"default_policy": None, "absent": None}, worker, 2, 2, ["adv"])
    assert sorted(worker.rows) == [1, 1, 2, 2, 2, 2]
    assert infos["default_policy"]["learner_stats"]["n"] == pytest.approx(10 / 6)
    np.testing.assert_allclose(sorted(batch["adv"]), [-(2**0.5), -(0.5**0.5), 0, 0.5**0.5, 2**0.5])
    assert "absent" not in infos
    assert sgd.averaged({"a": [1.0, 3.0]}) == {"a": 2.0}


class Scaling:
    """A policy that only postprocesses: what it saw, and a column."""

    exploration = None

    def __init__(self, number):
        self.number, self.seen = number, []

    def postprocess_trajectory(self, batch, others=None, episode=None):
        self.seen.append((sorted(others), episode))
        batch["total"] = np.full(batch.count, batch["rewards"].sum() + 100 * self.number)
        return batch


def test_rows_of_several_agents_become_postprocessed_batches_by_policy():
    policies, told = {"p": Scaling(1), "q": Scaling(2)}, []

    def hear(info):
        told.append((info["agent_id"], info["post_batch"]["total"][0], info["pre_batch"][1]["rewards"].tolist()))

    builder = MultiAgentSampleBatchBuilder(policies, True, {"on_postprocess_traj": hear})
    for step in range(3):
        for agent, policy in (("b", "p"), ("a", "q"), ("c", "p")):
            builder.add_values(agent, policy, rewards=(2.0 if agent != "a" else -2.0) * step, dones=step == 2, eps_id=7)
        builder.count += 1
    assert (builder.total(), builder.has_pending_agent_data()) == (9, True)
    builder.check_missing_dones()
    batch = builder.build_and_reset("the episode")
    assert (batch.count, builder.count, builder.total()) == (3, 0, 0)
    assert batch.policy_batches["p"]["total"].tolist() == [102.0] * 6
    assert batch.policy_batches["q"]["rewards"].tolist() == [0, -1, -1]
    assert batch.policy_batches["p"]["agent_id"].tolist() == list("bbbccc")
    assert policies["p"].seen == [(["a", "c"], "the episode"), (["a", "b"], "the episode")]
    assert told == [("a", 198, [0, -1, -1]), ("b", 102, [0, 1, 1]), ("c", 102, [0, 1, 1])]


def test_rows_are_postprocessed_by_any_object_that_does_it():
    class Doubling:
        def postprocess_trajectory(self, batch, others=None, episode=None):
            batch["rewards"] = 2 * batch["rewards"]
            return batch

    builder = MultiAgentSampleBatchBuilder({"p": Doubling()}, False, None)
    builder.add_values("a", "p", rewards=1.5, dones=True, eps_id=1)
    assert builder.build_and_reset().policy_batches["p"]["rewards"].tolist() == [3.0]


def test_rows_of_several_trajectories_and_missing_ends_are_refused():
    builder = MultiAgentSampleBatchBuilder({"p": Scaling(1)}, False, None)
    for episode in (1, 2):
        builder.add_values("a", "p", rewards=1.0, dones=False, eps_id=episode)
    with pytest.raises(ValueError, match=r"last row of agent 'a' \(policy 'p'\) has done False"):
        builder.check_missing_dones()
    with pytest.raises(ValueError, match="several trajectories of agent 'a'"):
        builder.postprocess_batch_so_far()


@pytest.mark.parametrize("array", [np.arange(12, dtype=np.uint8).reshape(3, 4), np.zeros((0, 2), np.float32)])
def test_packed_arrays_come_back(array):
    packed = compression.pack(array)
    assert isinstance(packed, str)
    again = compression.unpack_if_needed(packed)
    np.testing.assert_array_equal(again, array)
    assert again.dtype == array.dtype
    assert compression.unpack_if_needed(array) is array
    assert compression.pack_if_needed("text") == "text"


@pytest.mark.parametrize("bulk", [False, True])
def test_compressed_columns_are_known_as_such(bulk):
    obs = np.arange(12, dtype=np.float32).reshape(3, 4)
    batch = SampleBatch({"obs": obs}).compress(bulk=bulk)
    pieces = [batch["obs"]] if bulk else list(batch["obs"])
    assert all(compression.is_compressed(piece) for piece in pieces)
    np.testing.assert_array_equal(np.reshape([compression.unpack_if_needed(piece) for piece in pieces], (3, 4)), obs)
    assert not compression.is_compressed(obs)


def test_what_could_run_code_is_not_unpacked():
    with pytest.raises(ValueError, match="text that holds no packed array"):
        compression.unpack(base64.b64encode(zlib.compress(pickle.dumps(np.arange(3)))))
    with pytest.raises(ValueError, match="wanted an array of numbers"):
        compression.pack({"a": 1})


def test_structures_are_summarised():
    Pair = namedtuple("Pair", "left right")
    batch = MultiAgentBatch({"p": SampleBatch(obs=np.arange(3.0))}, 2)
    text = summarize({"pair": Pair(1, np.zeros((0, 2))), "batch": batch, "words": np.array(["x", "y"])})
    assert "np.ndarray((3,), dtype=float64, min=0.0, max=2.0, mean=1.0)" in text
    assert "'type': 'MultiAgentBatch'" in text
    assert "'right': np.ndarray((0, 2), dtype=float64)" in text
    assert "np.ndarray((2,), dtype=<U1, head=x)" in text


def test_global_generators_are_seeded():
    update_global_seed_if_necessary("torch", 3)
    first = (random.random(), np.random.permutation(9).tolist())  # noqa: NPY002 - the generator that is seeded
    update_global_seed_if_necessary(None, 3)
    assert (random.random(), np.random.permutation(9).tolist()) == first  # noqa: NPY002


def test_configs_tell_their_policies():
    config = {"multiagent": {"policies": {"b", "a"}}}
    policies, several = multi_agent.check_multi_agent(config)
    assert (list(policies), several) == (["a", "b"], True)
    assert config["multiagent"]["policies"] is policies
    assert multi_agent.check_multi_agent({"multiagent": {}})[1] is False


def test_objects_come_from_files(tmp_path):
    (tmp_path / "linear.yaml").write_text("type: LinearSchedule\nschedule_timesteps: 10\nfinal_p: 0.5\n")
    made = from_file(Schedule, str(tmp_path / "linear.yaml"), initial_p=1.0)
    assert isinstance(made, LinearSchedule)
    assert made.value(5) == pytest.approx(0.75)
    with pytest.raises(ValueError, match="every argument of the constructor by its name"):
        from_file(Schedule, "linear.yaml", 1.0)

    class Registered:
        __type_registry__ = {"mytype": int}  # noqa: RUF012

    assert (lookup_type(Registered, "My-Type"), lookup_type(Registered, "other"), lookup_type(int, "x")) == (
        int,
        None,
        None,
    )


def test_spaces_are_flattened_and_elements_converted():
    box, choice = gym.spaces.Box(0, 1, (2,), np.float32), gym.spaces.Discrete(3)
    space = gym.spaces.Dict({"a": gym.spaces.Tuple([choice, box]), "b": box})
    assert flatten_space(space) == [choice, box, box]
    element = {"a": (2.0, np.ones(2)), "b": np.zeros(2)}
    made = convert_element_to_space_type(element, {"a": (1, np.ones(2, np.float32)), "b": np.ones(2, np.float32)})
    assert isinstance(made["a"][0], int)
    assert made["a"][1].dtype == np.float32
    with pytest.raises(ValueError, match="Got a float"):
        convert_element_to_space_type(1.0, np.zeros(1))


def test_locked_methods_need_a_lock():
    class Counter:
        @with_lock
        def count(self):
            return 1

    with pytest.raises(AttributeError, match=r"Counter has no _lock: set self\._lock"):
        Counter().count()


def test_images_are_resized_and_grey(tmp_path):
    cv2 = pytest.importorskip("cv2")
    from rlframe.utils.images import imread, resize, rgb2gray

    image = np.zeros((4, 4, 3), np.uint8)
    image[:2, :, 0] = 200
    assert resize(image, 2, 2)[:, :, 0].tolist() == [[200, 200], [0, 0]]
    assert rgb2gray(image)[:, 0].tolist() == [60, 60, 0, 0]
    cv2.imwrite(str(tmp_path / "image.png"), image)
    assert imread(tmp_path / "image.png").dtype == np.float32
    with pytest.raises(FileNotFoundError, match="wanted a file of an image"):
        imread(tmp_path / "none.png")


def test_environments_of_names_and_with_noisy_rewards():
    from rlframe.env.utils import gym_env_creator
    from rlframe.env.wrappers.uncertainty_wrappers import add_RewardUncertaintyEnvClassWrapper

    assert gym_env_creator({"render_mode": None}, "CartPole-v1").spec.id == "CartPole-v1"

    class Pair:
        def step(self, action):
            return {}, {"a": 1.0, "b": 2.0}, {"__all__": False}, {}

    obs, rewards, dones, infos = add_RewardUncertaintyEnvClassWrapper(Pair, 0.0, 0.5)().step({})
    assert rewards == {"a": 1.5, "b": 2.5}
    assert (obs, dones, infos) == ({}, {"__all__": False}, {})


def test_frames_are_squeezed_and_scaled():
    from rlframe.env.wrappers.atari_wrappers import FrameStackTrajectoryView, ScaledFloatFrame

    class Frames(gym.Env):
        observation_space = gym.spaces.Box(0, 255, (2, 3, 1), np.uint8)
        action_space = gym.spaces.Discrete(2)

        def reset(self, *, seed=None, options=None):
            return np.full((2, 3, 1), 51, np.uint8), {}

    plain, scaled = FrameStackTrajectoryView(Frames()), ScaledFloatFrame(Frames())
    assert plain.observation_space.contains(plain.reset()[0])
    assert plain.observation_space.shape == (2, 3)
    assert scaled.observation_space.contains(scaled.reset()[0])
    np.testing.assert_allclose(scaled.reset()[0], 0.2, rtol=1e-6)
    with pytest.raises(ValueError, match=r"shape \(2, 3\); wanted grey frames"):
        FrameStackTrajectoryView(plain)


def test_wrappers_hand_seeds_on():
    from types import SimpleNamespace

    from rlframe.env import MultiAgentEnv, ParallelPettingZooEnv

    seeds = []

    def reset(seed, options):
        seeds.append(seed)
        return {}, {}

    env = ParallelPettingZooEnv(SimpleNamespace(possible_agents=[], reset=reset))
    env.seed(5)
    for given in (None, None, 7):
        env.reset(seed=given)
    assert seeds == [5, None, 7]

    class Older(MultiAgentEnv):
        def seed(self, seed):
            return [seed]

    box = gym.spaces.Tuple([gym.spaces.Discrete(2)])
    grouped = Older().with_agent_groups({"team": ["one"]}, obs_space=box, act_space=box)
    assert grouped.seed(3) == [3]


def test_names_of_older_versions():
    torch = pytest.importorskip("torch")
    from rlframe.policy.sample_batch import concat_samples, convert_ma_batch_to_sample_batch
    from rlframe.utils.explained_variance import explained_variance
    from rlframe.utils.tuple_actions import TupleActions

    actions = TupleActions([1, 2])
    assert (actions, actions.batches) == ((1, 2), [1, 2])
    targets = torch.tensor([1.0, 2.0, 3.0])
    assert float(explained_variance(targets, targets / 2, framework="torch")) == pytest.approx(0.75)
    batch = concat_samples([SampleBatch(obs=np.arange(2)), SampleBatch(obs=np.arange(3))])
    assert convert_ma_batch_to_sample_batch(batch.as_multi_agent()) is batch is convert_ma_batch_to_sample_batch(batch)
    with pytest.raises(ValueError, match=r"policies \['p'\]; wanted default_policy alone"):
        convert_ma_batch_to_sample_batch(MultiAgentBatch({"p": batch}, 5))


def test_a_tracking_dict_converts_what_is_read_once_and_notes_it():
    converted = []
    batch = UsageTrackingDict({"obs": 1, "rewards": 2})
    batch.set_get_interceptor(lambda value: converted.append(value) or -value)
    assert (batch["obs"], batch["obs"], converted, batch.accessed_keys) == (-1, -1, [1], {"obs"})
    batch["obs"] = 5
    assert batch["obs"] == 5
    assert batch.copy()["rewards"] == -2


def test_workers_tell_what_readers_are_told_and_what_they_were_made_with(tmp_path):
    worker = RolloutWorker(env_creator=Counting, policy_config=CommonConfig.defaults(), log_dir=str(tmp_path))
    told = worker.io_context
    assert (told.log_dir, told.worker_index, told.worker) == (str(tmp_path), 0, worker)
    assert worker._original_kwargs["log_dir"] == str(tmp_path)


def test_a_table_of_policies_says_which_are_there():
    assert _get_or_raise({"a": 1}, "a") == 1
    with pytest.raises(ValueError, match=r"got the policy id 'b'; wanted one of \['a'\]"):
        _get_or_raise({"a": 1}, "b")


def test_n_step_transitions_of_rllib_08_are_made_in_place():
    from rlframe.agents.dqn.dqn_tf_policy import _adjust_nstep

    rewards, new_obs, dones = np.ones(4), np.arange(1.0, 5.0), np.array([False, False, False, True])
    _adjust_nstep(3, 0.5, None, None, rewards, new_obs, dones)
    np.testing.assert_allclose(rewards, [1.75, 1.75, 1.5, 1.0])
    assert (new_obs.tolist(), dones.tolist()) == ([3, 4, 4, 4], [False, True, True, True])
    with pytest.raises(ValueError, match="end before the last row of 4; pass one episode"):
        _adjust_nstep(3, 0.5, None, None, rewards, new_obs, dones)


def test_rllib_08s_seeds_make_draws_repeat():
    from rlframe.utils.seed import seed

    drawn = []
    for _ in range(2):
        seed(np_seed=1, random_seed=2, tf_seed=3)
        drawn.append((np.random.rand(), random.random()))  # noqa: NPY002 - what is seeded
    assert drawn[0] == drawn[1]


def test_towers_are_refused_when_they_are_made_not_when_they_are_imported():
    from rlframe.execution.multi_gpu_impl import LocalSyncParallelOptimizer  # as copies of RLlib's train_ops do

    with pytest.raises(NotImplementedError, match="use TrainOneStep"):
        LocalSyncParallelOptimizer(None, [])
