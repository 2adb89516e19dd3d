"""Methods of RLlib's policies, workers and episodes that programs call."""

from __future__ import annotations

import copy
import os
import pickle
from types import SimpleNamespace
from typing import ClassVar

import gymnasium as gym
import numpy as np
import pytest

from rlframe.agents.callbacks import DefaultCallbacks
from rlframe.agents.pg import DEFAULT_CONFIG, PGTorchPolicy, PGTrainer
from rlframe.env.base_env import _DUMMY_AGENT_ID
from rlframe.env.multi_agent_env import MultiAgentEnv, make_multi_agent
from rlframe.evaluation.episode import Episode
from rlframe.evaluation.rollout_worker import PolicyMap, RolloutWorker
from rlframe.evaluation.worker_set import WorkerSet
from rlframe.execution.rollout_ops import ParallelRollouts
from rlframe.policy.policy import Policy
from rlframe.policy.sample_batch import MultiAgentBatch, SampleBatch
from rlframe.policy.view_requirement import ViewRequirement
from tests.helpers.frameworks import needs_tf
from tests.helpers.workers import make_worker

OBS, CHOICES = gym.spaces.Box(-1, 1, (2,), np.float32), gym.spaces.Discrete(2)


class Recording(Policy):
    """Learns nothing, and notes what it was given."""

    def __init__(self, *args):
        super().__init__(*args)
        self.learned = []

    def learn_on_batch(self, samples):
        self.learned.append(samples["obs"].tolist())
        return {"learner_stats": {}}


def test_a_loaded_batch_is_learned_from_in_parts():
    policy = Recording(OBS, CHOICES, {"sgd_minibatch_size": 2})
    assert policy.get_num_samples_loaded_into_buffer() == 0
    with pytest.raises(
        ValueError, match=r"offset=0 of buffer 0, which has 0 rows.*load_batch_into_buffer\(\) comes first"
    ):
        policy.learn_on_loaded_batch()
    assert policy.load_batch_into_buffer(SampleBatch(obs=np.arange(5)), buffer_index=1) == 5
    for offset in (0, 2, 4):
        policy.learn_on_loaded_batch(offset, buffer_index=1)
    assert policy.learned == [[0, 1], [2, 3], [4]]


def test_old_mixins_make_tensors_of_numbers_arrays_and_tensors():
    policy = PGTorchPolicy(OBS, CHOICES, {**DEFAULT_CONFIG, "framework": "torch"})
    made = policy._convert_to_tensor([np.array([0.5, 1.0])])
    assert (made.tolist(), str(made.dtype)) == ([[0.5, 1.0]], "torch.float32")
    assert str(policy._convert_to_tensor([1]).dtype) == "torch.int64"
    assert policy._convert_to_tensor(made).tolist() == made.tolist()


def test_policies_say_what_they_lack():
    policy = Recording(OBS, CHOICES, {})
    assert policy.get_session() is None
    assert policy.get_exploration_info() == {}
    with pytest.raises(NotImplementedError, match="has no network of PyTorch or TensorFlow"):
        policy.export_model("anywhere")
    with pytest.raises(NotImplementedError, match=r"no import_from_h5\(file\): write one"):
        policy.import_model_from_h5("weights.h5")
    with pytest.raises(NotImplementedError, match="Recording has no loss"):
        policy.loss(None, None, None)


@pytest.fixture(scope="module")
def worker():
    return make_worker(lambda _: gym.make("CartPole-v1"), rollout_fragment_length=6)


def test_a_worker_is_told_of_policies_and_how_it_was_made(worker):
    made = worker.creation_args()
    assert (made["worker_index"], made["policy_config"]["hiddens"]) == (0, [16])
    added = worker.add_policy(policy_id="new", policy_cls=Recording, policies_to_train=["new"])
    assert worker.policy_map["new"] is added
    assert worker.policies_to_train == ["new"]
    with pytest.raises(ValueError, match="policy_id='new': there is one already"):
        worker.add_policy(policy_id="new", policy_cls=Recording)
    worker.remove_policy(policy_id="new", policies_to_train=["default_policy"])
    assert worker.policies_to_train == list(worker.policy_map) == ["default_policy"]


def test_a_worker_exports_its_policies(worker, tmp_path):
    pytest.importorskip("torch")
    worker.export_policy_checkpoint(str(tmp_path), "mine")
    assert (tmp_path / "mine").is_dir()
    worker.policy_map["default_policy"].model.import_from_h5 = lambda file: (tmp_path / "loaded").write_text(file)
    worker.import_policy_model_from_h5("weights.h5")
    assert (tmp_path / "loaded").read_text() == "weights.h5"


def test_a_worker_samples_and_learns(worker):
    before = worker.get_weights()["default_policy"]
    infos, rows = worker.sample_and_learn(6, 2, 3, ["rewards"])
    assert rows == 6
    assert set(infos) == {"default_policy"}
    after = worker.get_weights()["default_policy"]
    assert any(not np.array_equal(before[name], after[name]) for name in before)
    with pytest.raises(ValueError, match="Sampled 6 rows; wanted 7"):
        worker.sample_and_learn(7, 1, 0, [])
    sampler = worker.sampler
    assert sampler.get_data().count == sampler.next().count == 6
    assert sampler.get_extra_batches() == []
    assert isinstance(sampler.get_metrics(), list)


def test_two_learners_average_their_gradients(worker):
    torch = pytest.importorskip("torch")
    policy = worker.policy_map["default_policy"]
    worker.setup_torch_data_parallel(f"tcp://127.0.0.1:{worker.find_free_port()}", 0, 1, "gloo")
    try:
        assert policy.distributed_world_size == torch.distributed.get_world_size() == 1
        assert policy.learn_on_batch(worker.sample())["learner_stats"]["allreduce_latency"] > 0
    finally:
        torch.distributed.destroy_process_group()
        policy.distributed_world_size = None
    policy.framework = "tf"
    with pytest.raises(ValueError, match="are none of PyTorch"):
        worker.setup_torch_data_parallel("tcp://127.0.0.1:1", 0, 1, "gloo")
    del policy.framework


def test_an_episode_shows_what_it_keeps_of_agents():
    episode = Episode({}, lambda agent, _: f"policy of {agent}", episode_id=1, env_id=0)
    for reward in (1.0, 2.0, -3.0):
        episode._record_step(int(reward), {"action_logp": -reward}, "left")
        episode._record_outcome(raw_obs=reward, obs=2 * reward, reward=reward, done=False, info={}, agent_id="left")
    assert episode._agent_reward_history == {"left": [1, 2, -3]}
    assert (episode.last_reward_for("left"), episode.prev_reward_for("left")) == (-3, 2)
    assert (episode.last_reward_for("right"), episode.prev_reward_for("right")) == (0, 0)
    assert episode._agent_to_last_obs == {"left": -6}
    assert episode._agent_to_last_raw_obs == {"left": -3}
    assert (episode._agent_to_last_action, episode._agent_to_prev_action) == ({"left": -3}, {"left": 2})
    assert episode._agent_to_policy == {"left": "policy of left"}
    assert episode.last_pi_info_for("left") == {"action_logp": 3.0}
    assert episode._agent_index("left") == 0
    assert episode.policy_for("right") == "policy of right"
    assert episode._agent_to_index == {"left": 0, "right": 1}
    assert Episode({}, "one", episode_id=1, env_id=0).get_agents() == [_DUMMY_AGENT_ID] == ["agent0"]


def test_callbacks_read_the_last_done_of_an_episodes_builder():
    episode = Episode({}, lambda agent, _: "p" if agent == "left" else "q", episode_id=1, env_id=0)
    for agent, done in (("left", False), ("right", False), ("left", True)):
        episode._record_outcome(raw_obs=0, reward=0.5, done=done, info={}, agent_id=agent)
    collectors = episode.batch_builder.policy_collectors
    assert collectors["p"].batches[-1]["dones"].tolist() == [False, True]
    assert collectors["p"].buffers == {"rewards": [0.5, 0.5], "dones": [False, True]}
    assert not collectors["q"].batches[-1]["dones"][-1]


def test_a_program_makes_an_episode_of_its_own():
    episode = Episode({"p": None, "q": None}, lambda agent_id, **kwargs: "q", lambda: ["rows"], None, 3)
    other = Episode({"p": None}, lambda agent_id: "p")
    assert (episode.policy_for("a"), other.policy_for("a")) == ("q", "p")
    assert (episode.env_id, episode.batch_builder, episode.get_agents()) == (3, ["rows"], ["a"])
    assert episode.episode_id != other.episode_id


def test_a_map_makes_its_policies(tmp_path):
    table = PolicyMap(worker_index=1, num_workers=2, capacity=1, path=str(tmp_path))
    for number in range(2):
        table.create_policy(f"p{number}", Recording, OBS, CHOICES, {}, {"sgd_minibatch_size": number})
    assert table.in_memory == ["p1"]
    assert list(tmp_path.iterdir())
    assert table.get(key="p0").config["sgd_minibatch_size"] == 0
    table.close()


@needs_tf
def test_tensorflow_policies_answer_for_graphs():
    import tensorflow as tf

    from rlframe.policy.tf.rllib_names import NoSession, RLlibTFPolicyNames
    from rlframe.policy.tf_policy import TFPolicy

    session = NoSession()
    assert not session
    with pytest.raises(AttributeError, match=r"Got session\.graph, but there are no sessions: .*model"):
        session.graph  # noqa: B018 - asked for
    names = RLlibTFPolicyNames()
    assert names._sess is names.get_session()
    assert session.run([tf.Variable(2.0), {"a": tf.constant(3)}, None]) == [2.0, {"a": 3}, None]
    assert session.run({"lr": 5e-4, "entropy": np.float32(0.5), "assigned": "op"}) == {
        "lr": 5e-4, "entropy": 0.5, "assigned": None,
    }  # fmt: skip
    with pytest.raises(NotImplementedError, match=r"session\.run\(feed_dict=\{obs\}\), but only tf1\.placeholders"):
        session.run(tf.constant(3), feed_dict={"obs": 1})
    with pytest.raises(NotImplementedError, match=r"no placeholders: .*train_batch\['obs'\]"):
        names.get_placeholder("obs")
    with pytest.raises(NotImplementedError, match="num_gpus above 1"):
        names.copy({})
    given = SampleBatch(obs={"a": np.zeros(2)}, actions=np.arange(2), infos=np.array([{}, {}]), dones=[True, False])
    made = names._lazy_tensor_dict(given)
    assert [made["obs"]["a"].dtype.name, made["actions"].dtype.name, made["dones"].dtype.name] == [
        "float32", "int64", "bool",
    ]  # fmt: skip
    assert made["infos"] is given["infos"]
    with pytest.raises(TypeError, match=r"Mine\.extra_compute_action_fetches would never be called.*extra_action_out"):
        type("Mine", (TFPolicy,), {"extra_compute_action_fetches": lambda self: {}})


@needs_tf
def test_functions_of_tensorflow_policies():
    import tensorflow as tf

    from rlframe.policy.dynamic_tf_policy import average_gradients, make_divisible_by
    from rlframe.policy.eager_tf_policy import OptimizerWrapper, convert_eager_inputs, convert_eager_outputs
    from rlframe.utils.tf_utils import convert_to_non_tf_type

    first, second = tf.Variable([1.0]), tf.Variable([2.0])
    towers = [[(tf.constant([1.0]), first), (None, second)], [(tf.constant([3.0]), first), (None, second)]]
    ((gradient, variable),) = average_gradients(towers)
    assert (float(gradient[0]), variable is first) == (2.0, True)

    @convert_eager_outputs
    @convert_eager_inputs
    def double(batch, scale=None, **kwargs):
        assert tf.is_tensor(batch["obs"])
        assert "infos" not in batch
        assert kwargs.keys() == {"timestep"}
        assert kwargs["timestep"].dtype == tf.int64
        return {"twice": [2 * batch["obs"]], "scale": scale}

    made = double(SampleBatch(obs=np.ones(2, np.float32), infos=[{}, {}]), scale=[1, 2], timestep=3, episodes=[1])
    np.testing.assert_array_equal(made["twice"][0], [2, 2])
    assert made["scale"].tolist() == [1, 2]
    assert convert_to_non_tf_type((tf.constant(1), "x")) == (1, "x")
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(first * 3.0)
    ((gradient, _),) = OptimizerWrapper(tape).compute_gradients(loss, [first])
    assert float(gradient[0]) == 3.0
    assert make_divisible_by(17, 5) == 15


class Seeing(Policy):
    """Acts on whose rows it is given, and wants columns that RLlib's policies might want."""

    def __init__(self, *args):
        super().__init__(*args)
        self.seen, self.rows = [], []
        self.view_requirements = {
            **self._get_default_view_requirements(),
            "eps_id": ViewRequirement(),
            "actions": ViewRequirement(space=self.action_space),
            "following": ViewRequirement("obs", shift=1),
            "next_actions": ViewRequirement("actions", shift=1),
        }

    def compute_actions_from_input_dict(self, input_dict, explore=None, timestep=None, episodes=None, **kwargs):
        self.seen.append({name: input_dict[name].tolist() for name in ("eps_id", "env_id", "agent_index", "t")})
        return np.arange(len(input_dict["obs"])) % 2, [], {}

    def postprocess_trajectory(self, sample_batch, other_agent_batches=None, episode=None):
        self.rows.append({name: np.asarray(column) for name, column in sample_batch.items()})
        return sample_batch


def test_a_policy_is_told_whose_rows_it_acts_on_and_has_the_steps_around_its_own():
    worker = make_worker(lambda _: gym.make("CartPole-v1"), policy=Seeing, num_envs_per_worker=2)
    worker.sample()
    policy, batch = worker.policy_map["default_policy"], worker.sample()
    first, second = policy.seen[:2]
    assert (first["env_id"], first["agent_index"], first["t"], second["t"]) == ([0, 1], [0, 0], [0, 0], [1, 1])
    assert first["eps_id"] == second["eps_id"]
    assert first["eps_id"][0] != first["eps_id"][1]
    rows = policy.rows[1]  # of the second slot, whose action is always 1
    assert (rows["next_actions"][:-1] == 1).all()
    np.testing.assert_array_equal(rows["following"], rows["new_obs"])
    assert rows["prev_actions"].tolist() == [0] + [1] * (len(rows["obs"]) - 1)
    assert rows["prev_rewards"].tolist() == [0] + [1] * (len(rows["obs"]) - 1)
    assert {"prev_actions", "prev_rewards", "next_actions"} <= batch.keys()


def test_a_worker_takes_what_rllibs_constructor_took(monkeypatch):
    monkeypatch.delenv("RLFRAME_TEST_OF_WORKERS", raising=False)
    written = []
    made = RolloutWorker(
        env_creator=lambda _: make_multi_agent("CartPole-v1")({"num_agents": 2}),
        policy={"left": (Seeing, None, None, {}), "right": (Seeing, None, None, {})},
        policy_mapping_fn=lambda agent, *args, **kwargs: ("left", "right")[agent],
        policies_to_train=["right"],
        observation_fn=None,
        count_steps_by="agent_steps",
        rollout_fragment_length=6,
        num_envs=2,
        model_config=None,
        env_config=None,
        log_level=None,
        tf_session_creator=None,
        monitor_path=None,
        input_creator=lambda context: context.default_sampler_input(),
        output_creator=lambda context: SimpleNamespace(write=written.append),
        extra_python_environs={"RLFRAME_TEST_OF_WORKERS": "there"},
    )
    batch = made.sample()
    assert batch.agent_steps() == 12
    assert set(batch.policy_batches) == {"left", "right"}
    assert made.policies_to_train == ["right"]
    assert written == [batch]
    assert os.environ.pop("RLFRAME_TEST_OF_WORKERS") == "there"
    assert (made.rollout_fragment_length, made.num_envs, made.batch_mode) == (12, 2, "truncate_episodes")
    assert (made.count_steps_by, made.observation_filter) == ("agent_steps", "NoFilter")
    assert not made.compress_observations | made.fake_sampler
    assert isinstance(made.env_creator(None), MultiAgentEnv)
    with pytest.raises(TypeError, match=r"\['left', 'right'\] has no column 'obs'; wanted batch.policy_batches"):
        batch["obs"]


def test_a_multi_agent_batch_of_the_default_policy_has_the_methods_of_its_batch():
    rows = SampleBatch({"obs": np.arange(4.0), "eps_id": np.array([1, 1, 2, 2])})
    batch = MultiAgentBatch({"default_policy": rows}, env_steps=2)
    batch["more"] = np.zeros(4)
    assert "more" in batch
    assert list(batch.keys()) == ["obs", "eps_id", "more"]
    assert batch.get("less") is None
    assert [part.count for part in batch.split_by_episode()] == [2, 2]
    assert (batch.count, copy.copy(batch).env_steps(), pickle.loads(pickle.dumps(batch)).count) == (2, 2, 2)
    with pytest.raises(AttributeError, match=r"\['left'\] has no attribute 'rows'; wanted batch.policy_batches"):
        MultiAgentBatch({"left": rows}, env_steps=2).rows()


def test_a_set_is_made_of_a_programs_own_workers(worker):
    workers = WorkerSet._from_existing(worker)
    assert workers.local_worker() is worker
    assert workers.remote_workers() == []
    workers.sync_weights()
    assert workers.foreach_worker(lambda each: each.worker_index) == [0]
    assert next(ParallelRollouts(workers, mode="bulk_sync")).count == 6


def test_copies_of_an_environment_get_what_their_constructor_takes():
    env = make_multi_agent("CartPole-v1")({"num_agents": 2, "mine": 3, "sutton_barto_reward": True})
    env.reset()
    assert env.step({0: 0, 1: 1})[1] == {0: 0.0, 1: 0.0}


class Reading(DefaultCallbacks):
    """Notes what an episode has of agents at its start, and RLlib's name for the environments."""

    noted: ClassVar = []

    def on_episode_start(self, *, base_env, episode, **kwargs):
        histories = [episode._agent_to_last_info, episode._agent_to_last_done, episode._agent_reward_history]
        Reading.noted.append((*histories, episode._agent_reward_history["nobody"], base_env.vector_env.envs))


def test_an_episode_has_nothing_of_agents_that_have_seen_nothing():
    make_worker(lambda _: gym.make("CartPole-v1"), callbacks=Reading).sample()
    *histories, envs = Reading.noted[0]
    assert histories == [{}, {}, {}, []]
    assert [env.spec.id for env in envs] == ["CartPole-v1"]


def test_a_trainer_evaluates_by_rllibs_names():
    class Watching(PGTrainer):
        evaluations = 0

        def _before_evaluate(self):
            self.evaluations += 1
            self._sync_weights_to_workers(worker_set=self.evaluation_workers)
            self._sync_filters_if_needed(self.evaluation_workers)

    trainer = Watching(
        {
            "num_workers": 0, "evaluation_interval": 1, "evaluation_num_episodes": 1, "train_batch_size": 8,
            "rollout_fragment_length": 8, "observation_filter": "MeanStdFilter", "model": {"fcnet_hiddens": [4]},
        },
        env="CartPole-v1",
    )  # fmt: skip
    assert trainer.evaluation_metrics == {}
    result = trainer.train()
    assert (
        trainer.evaluation_metrics["evaluation"]["episode_reward_mean"] == result["evaluation"]["episode_reward_mean"]
    )
    assert trainer.evaluations == 1
    assert trainer._evaluate().keys() == {"evaluation"}
    worker = trainer.workers.local_worker()
    assert (worker.multiagent, worker.preprocessing_enabled) == (False, True)


def test_hooks_of_older_releases_are_found_by_their_names():
    from rlframe.agents.a3c.a3c import execution_plan, make_async_optimizer
    from rlframe.agents.dqn.dqn_torch_policy import after_init, before_loss_init

    assert make_async_optimizer is execution_plan
    assert after_init is before_loss_init
