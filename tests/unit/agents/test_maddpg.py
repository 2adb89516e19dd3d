"""MADDPG: who its agents are, what they share, what environments get, and going on exactly, in one process."""

from __future__ import annotations

import copy
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from rlframe.agents.maddpg import DEFAULT_CONFIG, MADDPGTrainer
from rlframe.agents.maddpg.joint_steps import JOINT_ACTIONS, JOINT_NEXT_OBS, JOINT_OBS, ShareJointSteps
from rlframe.agents.registry import get_trainer_class
from rlframe.env.multi_agent_env import MultiAgentEnv
from rlframe.examples.env.two_step_game import TwoStepGame
from rlframe.models.bounded_distributions import RelaxedOneHot, Tanh
from rlframe.policy.policy import PolicySpec
from rlframe.utils.errors import ConfigError, UnsupportedSpaceException
from rlframe.utils.spaces.simplex import Simplex
from tests.helpers.frameworks import TORCH_FIRST

torch_first = pytest.mark.parametrize("framework", TORCH_FIRST)


class Meeting(MultiAgentEnv):
    """Three agents of different kinds: one chooses, one moves in two dimensions, one shares out.

    An agent sees the time and its own number. Over after `length` steps, by the task or by a time limit.
    """

    def __init__(self, config: Any = None) -> None:
        config = config or {}
        self.length, self.ends_by = config.get("length", 5), config.get("ends_by", "terminated")
        self.possible_agents = ["chooser", "mover", "sharer"]
        self.observation_spaces = {
            agent: gym.spaces.Box(-100.0, 100.0, (2 + index,), np.float32)
            for index, agent in enumerate(self.possible_agents)
        }
        self.action_spaces = {
            "chooser": gym.spaces.Discrete(3, start=config.get("start", 0)),
            "mover": gym.spaces.Box(np.array([-2.0, 0.0], np.float32), np.array([2.0, 10.0], np.float32)),
            "sharer": Simplex((4,)),
        }
        self.seen: list[dict[str, Any]] = []

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self.time = 0
        return self._obs(), {}

    def step(self, action_dict: dict[str, Any]) -> Any:
        for agent, action in action_dict.items():
            assert self.action_spaces[agent].contains(action), (agent, action)
        self.seen.append(action_dict)
        self.time += 1
        over = self.time == self.length
        rewards = {agent: float(index) for index, agent in enumerate(self.possible_agents)}
        flags = {"__all__": over and self.ends_by == "terminated"}, {"__all__": over and self.ends_by == "truncated"}
        return self._obs(), rewards, *flags, {}

    def _obs(self) -> dict[str, Any]:
        return {
            agent: np.array([self.time, index, *[0.5] * index], np.float32)
            for index, agent in enumerate(self.possible_agents)
        }


#: Agents are not numbered in the order of the table.
TABLE = {
    "sharer": PolicySpec(config={"agent_id": 2}),
    "chooser": PolicySpec(config={"agent_id": 0}),
    "mover": PolicySpec(config={"agent_id": 1}),
}
SMALL = {
    "seed": 5, "num_workers": 0, "learning_starts": 20, "rollout_fragment_length": 10, "train_batch_size": 16,
    "actor_hiddens": [8], "critic_hiddens": [8], "log_sys_usage": False, "replay_buffer_config": {"capacity": 1000},
}  # fmt: skip
MEETING = {**SMALL, "multiagent": {"policies": TABLE, "policy_mapping_fn": lambda agent: agent}}
GAME = {
    **SMALL,
    "multiagent": {
        "policies": {"pol1": PolicySpec(config={"agent_id": 0}), "pol2": PolicySpec(config={"agent_id": 1})},
        "policy_mapping_fn": lambda agent: f"pol{agent + 1}",
    },
}


def make(env: Any = Meeting, cls: Any = MADDPGTrainer, **overrides: Any) -> Any:
    return cls({**copy.deepcopy(GAME if env is TwoStepGame else MEETING), **overrides}, env=env)


# --- what is wrong ------------------------------------------------------------------------------------------------


def table(*agent_ids: Any) -> dict[str, Any]:
    policies = {f"p{index}": PolicySpec(config={"agent_id": agent}) for index, agent in enumerate(agent_ids)}
    return {"multiagent": {"policies": policies, "policy_mapping_fn": lambda agent: f"p{agent}"}}


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"multiagent": {}}, r"multiagent.policies=\{\}: wanted a policy for each agent, numbered from 0"),
        ({"multiagent": {"policies": {"a", "b"}}}, "multiagent.policies=.* wanted a policy for each agent"),
        (table(0, 0), r"multiagent.policies have agent_id \{'p0': 0, 'p1': 0\}, wanted"),
        (table(1, 2), r"have agent_id \{'p0': 1, 'p1': 2\}"),
        (table(0, None), r"have agent_id \{'p0': 0, 'p1': None\}"),
        (table(False, True), "have agent_id"),
        ({"agent_id": 0}, "agent_id=0 belongs in the config of a policy"),
        ({"use_state_preprocessor": True}, "use_state_preprocessor=True is not available; set actor_hiddens"),
        ({"good_policy": "ddpg"}, "good_policy='ddpg': .* set use_local_critic=True"),
        ({"adv_policy": "ddpg"}, "adv_policy='ddpg': .* set use_local_critic=True"),
        ({"lr": 1e-3}, "lr=0.001 is not MADDPG's; set actor_lr and critic_lr"),
        ({"model": {"fcnet_hiddens": [8]}}, r"model.fcnet_hiddens=\[8\] is not MADDPG's; set actor_hiddens"),
        ({"exploration_config": {"type": "ParameterNoise"}}, "'ParameterNoise' is for Q-learning"),
        ({"tau": 1.5}, "tau: got 1.5"),
        ({"actor_hidden_activation": "relux"}, "actor_hidden_activation: got 'relux'"),
    ],
)  # fmt: skip
def test_config_faults_are_named(overrides: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make(TwoStepGame, **overrides)


def test_independent_replay_is_refused() -> None:
    given = copy.deepcopy(GAME["multiagent"])
    with pytest.raises(
        ConfigError, match=r"replay_mode=.independent.: the critics need the steps of all agents together"
    ):
        make(TwoStepGame, multiagent={**given, "replay_mode": "independent"})


def test_policies_with_several_agents_or_none_are_found_at_the_start() -> None:
    given = {**GAME["multiagent"], "policy_mapping_fn": lambda agent: "pol1"}
    with pytest.raises(ConfigError) as error:
        make(TwoStepGame, multiagent=given)
    assert "policy 'pol1' acts for [0, 1] of the agents [0, 1], wanted one" in str(error.value)
    assert "policy 'pol2' acts for none of the agents [0, 1]" in str(error.value)


@pytest.mark.parametrize(
    "space",
    [gym.spaces.MultiDiscrete([2, 2]), gym.spaces.Box(-np.inf, np.inf, (2,)), gym.spaces.Box(0, 5, (2,), np.int64)],
    ids=["several", "unbounded", "integers"],
)
def test_action_spaces_that_cannot_be_are_named_with_their_agent(space: Any) -> None:
    policies = {**GAME["multiagent"]["policies"], "pol2": PolicySpec(None, None, space, {"agent_id": 1})}
    with pytest.raises(UnsupportedSpaceException, match=r"agent 1 has the action space .* bounded everywhere"):
        make(TwoStepGame, multiagent={**GAME["multiagent"], "policies": policies})


def test_images_are_refused() -> None:
    image = gym.spaces.Box(0, 255, (42, 42, 3), np.uint8)
    policies = {**GAME["multiagent"]["policies"], "pol2": PolicySpec(None, image, None, {"agent_id": 1})}
    with pytest.raises(ConfigError, match=r"agent 1 has observations of shape \(42, 42, 3\).* wanted vectors"):
        make(TwoStepGame, multiagent={**GAME["multiagent"], "policies": policies})


def test_actions_in_the_environments_range_are_refused() -> None:
    with pytest.raises(ConfigError, match="normalize_actions: got False"):
        make(normalize_actions=False)


def test_batches_that_are_not_joint_are_refused() -> None:
    trainer = make(TwoStepGame)
    policy = trainer.get_policy("pol1")
    with pytest.raises(ValueError, match="put ShareJointSteps before TrainOneStep"):
        policy.learn_on_batch(trainer.workers.local_worker().sample().policy_batches["pol1"])


# --- what agents do -----------------------------------------------------------------------------------------------


def test_relaxed_choices_are_points_whose_largest_component_is_a_categorical_draw() -> None:
    logits = np.log(np.array([[0.1, 0.6, 0.3]], np.float32)).repeat(20_000, axis=0)
    dist = RelaxedOneHot(logits, np.random.default_rng(0))
    drawn = dist.sample()
    assert drawn.dtype == np.float32
    np.testing.assert_allclose(drawn.sum(axis=1), 1.0, atol=1e-6)
    np.testing.assert_allclose(np.bincount(drawn.argmax(axis=1)) / len(drawn), [0.1, 0.6, 0.3], atol=0.015)
    np.testing.assert_allclose(dist.deterministic_sample()[0], [0.1, 0.6, 0.3], atol=1e-6)
    np.testing.assert_allclose(dist.logp(np.full(20_000, 1)), np.log(0.6), atol=1e-6)
    np.testing.assert_allclose(dist.logp(drawn), logits[0][drawn.argmax(axis=1)], atol=1e-6)


def test_actions_of_a_box_keep_its_shape() -> None:
    dist = Tanh(np.array([[0.0, 1.0, -1.0, 9.0]], np.float32), shape=(2, 2))
    np.testing.assert_allclose(dist.sample(), np.tanh([[[0.0, 1.0], [-1.0, 9.0]]]), atol=1e-6)
    assert dist.logp(dist.sample()).shape == (1,)


@torch_first
def test_every_kind_of_action_reaches_its_environment_and_is_learned_from(framework: str) -> None:
    trainer = make(framework=framework, env_config={"start": 4})
    for _ in range(2):
        result = trainer.train()
    assert set(result["info"]["learner"]) == {"chooser", "mover", "sharer"}
    for info in result["info"]["learner"].values():
        stats = info["learner_stats"]
        assert list(stats) == [
            *("allreduce_latency", "actor_gnorm", "critic_gnorm", "actor_loss", "critic_loss"),
            *("mean_q", "min_q", "max_q"),
            *(["mean_td_error"] if framework == "tf" else []),  # as all that replay tell it there
        ]
        assert all(np.isfinite(value) for value in stats.values())
        assert info["td_error"].shape == (16,)
    rows = trainer.local_replay_buffer.replay().policy_batches
    assert rows["chooser"]["actions"].shape == (16, 3)
    assert rows["mover"]["actions"].shape == (16, 2)
    assert np.abs(rows["mover"]["actions"]).max() <= 1.0
    assert rows["sharer"]["actions"].shape == (16, 4)
    spaces = trainer.workers.local_worker().action_space
    obs = {agent: space.sample() for agent, space in trainer.workers.local_worker().observation_space.items()}
    for agent in TABLE:
        for explore in (True, False):
            action = trainer.compute_single_action(obs[agent], policy_id=agent, explore=explore)
            assert spaces[agent].contains(action), (agent, action)


def test_what_is_stored_is_what_the_environment_was_told() -> None:
    trainer = make(TwoStepGame, env_config={"actions_are_logits": True})
    worker = trainer.workers.local_worker()
    env, told = worker.env, []
    step = env.step
    env.step = lambda actions: told.append(actions) or step(actions)
    batch = worker.sample()
    for agent, pid in enumerate(("pol1", "pol2")):
        stored = batch.policy_batches[pid]["actions"]
        np.testing.assert_array_equal(stored, [actions[agent] for actions in told][: len(stored)])
        assert stored.shape[1] == 2


def test_vectors_and_numbers_for_the_environment_give_the_same_run() -> None:
    one, other = make(TwoStepGame), make(TwoStepGame, env_config={"actions_are_logits": True})
    for _ in range(3):
        a, b = one.train(), other.train()
        assert a["hist_stats"] == b["hist_stats"]
    for name, array in one.get_policy("pol1").get_weights().items():
        np.testing.assert_array_equal(array, other.get_policy("pol1").get_weights()[name])


def test_agents_explore_independently_and_begin_with_weights_of_their_own() -> None:
    trainer = make(TwoStepGame)
    first, second = trainer.get_policy("pol1"), trainer.get_policy("pol2")
    assert not np.array_equal(
        first.get_weights()["actor.hidden_0.weight"], second.get_weights()["actor.hidden_0.weight"]
    )
    obs = np.zeros((50, 6), np.float32)
    assert not np.array_equal(
        first.to_env_actions(first.compute_actions(obs)[0]), second.to_env_actions(second.compute_actions(obs)[0])
    )


@pytest.mark.parametrize("kind", ["EpsilonGreedy", "Random", "SoftQ"])
def test_explorations_that_choose_numbers_store_corners_of_the_simplex(kind: str) -> None:
    trainer = make(TwoStepGame, exploration_config={"type": kind})
    batch = trainer.workers.local_worker().sample().policy_batches["pol1"]
    assert set(map(tuple, batch["actions"].tolist())) <= {(0.0, 1.0), (1.0, 0.0)}
    trainer.train()


def test_deterministic_actors_get_noise_unless_told_otherwise() -> None:
    trainer = make()
    assert type(trainer.get_policy("mover").exploration).__name__ == "GaussianNoise"
    assert type(trainer.get_policy("chooser").exploration).__name__ == "StochasticSampling"
    named = {"exploration_config": {"type": "OrnsteinUhlenbeckNoise"}, "agent_id": 1}
    policies = {**TABLE, "mover": PolicySpec(config=named)}
    trainer = make(multiagent={**MEETING["multiagent"], "policies": policies})
    assert type(trainer.get_policy("mover").exploration).__name__ == "OrnsteinUhlenbeckNoise"


# --- what they share ----------------------------------------------------------------------------------------------


def test_shared_rows_hold_all_agents_by_number_at_the_same_time() -> None:
    trainer = make()
    trainer.train()
    drawn = trainer.local_replay_buffer.replay()
    shared = ShareJointSteps(trainer.workers)(drawn)
    assert shared.count == drawn.count == 16
    rows = shared.policy_batches["sharer"]
    # obs: time and number, of agents 0, 1 and 2 with 2, 3 and 4 numbers
    obs, new_obs = rows[JOINT_OBS], rows[JOINT_NEXT_OBS]
    assert obs.shape == (16, 9)
    np.testing.assert_array_equal(obs[:, [1, 3, 6]], np.tile([0.0, 1.0, 2.0], (16, 1)))
    np.testing.assert_array_equal(obs[:, 0], obs[:, 2])
    np.testing.assert_array_equal(obs[:, 0], obs[:, 5])
    np.testing.assert_array_equal(new_obs[:, [0, 2, 5]], obs[:, [0, 2, 5]] + 1)
    assert rows[JOINT_ACTIONS].shape == rows["joint_new_actions"].shape == (16, 9)
    np.testing.assert_array_equal(rows[JOINT_ACTIONS][:, 5:], drawn.policy_batches["sharer"]["actions"])
    np.testing.assert_array_equal(rows["obs"], obs[:, trainer.get_policy("sharer").joint.own_obs])
    chooser, mover = (trainer.get_policy(name) for name in ("chooser", "mover"))
    assert chooser._learned_columns(shared.policy_batches["chooser"])["relaxation_noise"].shape == (16, 3)
    assert "relaxation_noise" not in mover._learned_columns(shared.policy_batches["mover"])


@pytest.mark.parametrize(("ends_by", "expected"), [("terminated", 0.0), ("truncated", 0.95)])
def test_only_a_terminated_episode_ends_the_bootstrap(ends_by: str, expected: float) -> None:
    batch = make(env_config={"ends_by": ends_by}).workers.local_worker().sample()
    for rows in batch.policy_batches.values():
        last = rows["obs"][:, 0] == 4
        assert last.sum() == 2
        np.testing.assert_allclose(rows["discounts"][last], expected)
        np.testing.assert_allclose(rows["discounts"][~last], 0.95)


def test_n_step_rewards_are_summed_for_each_agent() -> None:
    trainer = make(n_step=3, rollout_fragment_length=2)
    assert trainer.workers.local_worker().policy_config["rollout_fragment_length"] == 3
    assert trainer.config["rollout_fragment_length"] == 2, "what was asked for is not written over"
    trainer = make(n_step=3, rollout_fragment_length=5)
    rows = trainer.workers.local_worker().sample().policy_batches["sharer"]
    np.testing.assert_allclose(rows["rewards"], [2 * (1 + 0.95 + 0.95**2)] * 3 + [2 * 1.95, 2.0], rtol=1e-6)
    np.testing.assert_array_equal(rows["new_obs"][:, 0], [3, 4, 5, 5, 5])
    np.testing.assert_allclose(rows["discounts"], [0.95**3, 0.95**3, 0, 0, 0], rtol=1e-6)


@torch_first
def test_targets_move_by_tau_with_each_update(framework: str) -> None:
    trainer = make(TwoStepGame, framework=framework, tau=0.25, learning_starts=0)
    policy = trainer.get_policy("pol1")
    before = policy.target_network.get_weights()
    result = trainer.train()
    assert result["info"]["num_target_updates"] == 1
    online, after = policy.get_weights(), policy.target_network.get_weights()
    for name in before:
        np.testing.assert_allclose(after[name], 0.75 * before[name] + 0.25 * online[name], atol=1e-6)


def test_a_local_critic_sees_its_own_agent_only() -> None:
    trainer = make(use_local_critic=True)
    assert trainer.get_policy("mover").get_weights()["critic.hidden_0.weight"].shape == (8, 3 + 2)
    assert make().get_policy("mover").get_weights()["critic.hidden_0.weight"].shape == (8, 9 + 9)
    trainer.train()


def test_networks_and_rates_may_differ_between_policies() -> None:
    own = {"agent_id": 1, "actor_hiddens": [3, 3], "actor_lr": 0.5, "use_local_critic": True}
    trainer = make(multiagent={**MEETING["multiagent"], "policies": {**TABLE, "mover": PolicySpec(config=own)}})
    mover = trainer.get_policy("mover")
    assert mover.get_weights()["actor.hidden_1.weight"].shape == (3, 3)
    assert [optimizer.param_groups[0]["lr"] for optimizer in mover._optimizers] == [0.5, 0.01]
    trainer.train()


def test_policies_that_are_not_trained_stay_and_are_still_seen() -> None:
    trainer = make(multiagent={**MEETING["multiagent"], "policies_to_train": ["mover"]})
    before = trainer.get_policy("chooser").get_weights()
    result = trainer.train()
    assert set(result["info"]["learner"]) == {"mover"}
    for name, array in trainer.get_policy("chooser").get_weights().items():
        np.testing.assert_array_equal(array, before[name])


# --- going on -----------------------------------------------------------------------------------------------------


@torch_first
def test_restored_trainer_goes_on_bit_for_bit(framework: str, tmp_path: Any) -> None:
    one = make(framework=framework)
    for _ in range(2):
        one.train()
    path = one.save(str(tmp_path))
    two = make(framework=framework, seed=77)
    two.restore(path)
    for _ in range(3):
        a, b = one.train(), two.train()
        assert a["hist_stats"] == b["hist_stats"]
        for pid, info in a["info"]["learner"].items():
            assert info["learner_stats"] == b["info"]["learner"][pid]["learner_stats"]
            np.testing.assert_array_equal(info["td_error"], b["info"]["learner"][pid]["td_error"])
    for pid, weights in one.get_weights(list(TABLE)).items():
        for name, array in weights.items():
            np.testing.assert_array_equal(array, two.get_weights(list(TABLE))[pid][name], err_msg=name)


@torch_first
def test_same_seed_same_run(framework: str) -> None:
    one, other = make(framework=framework), make(framework=framework)
    for _ in range(3):
        a, b = one.train(), other.train()
        assert a["hist_stats"] == b["hist_stats"]
        assert a["info"]["learner"]["mover"]["learner_stats"] == b["info"]["learner"]["mover"]["learner_stats"]


def test_evaluation_acts_without_learning() -> None:
    trainer = make(TwoStepGame, evaluation_interval=1, evaluation_num_episodes=4, evaluation_config={"explore": False})
    assert trainer.train()["evaluation"]["episodes_this_iter"] >= 4


def test_with_updates_and_rllibs_path_and_names() -> None:
    from rlframe.contrib.maddpg import DEFAULT_CONFIG as CONTRIB_CONFIG
    from rlframe.contrib.maddpg import MADDPGTrainer as ContribTrainer

    assert ContribTrainer is MADDPGTrainer is get_trainer_class("MADDPG") is get_trainer_class("contrib/MADDPG")
    assert CONTRIB_CONFIG is DEFAULT_CONFIG
    derived = MADDPGTrainer.with_updates(name="Mine", default_config={**DEFAULT_CONFIG, "tau": 0.5})
    trainer = make(TwoStepGame, cls=derived)
    assert trainer.config["tau"] == 0.5
    trainer.train()


def test_defaults_are_rllibs() -> None:
    wanted = {
        "agent_id": None, "use_local_critic": False, "use_state_preprocessor": False, "actor_hiddens": [64, 64],
        "actor_hidden_activation": "relu", "critic_hiddens": [64, 64], "critic_hidden_activation": "relu",
        "n_step": 1, "good_policy": "maddpg", "adv_policy": "maddpg", "critic_lr": 1e-2, "actor_lr": 1e-2,
        "target_network_update_freq": 0, "tau": 0.01, "actor_feature_reg": 0.001, "grad_norm_clipping": 0.5,
        "learning_starts": 1024 * 25, "rollout_fragment_length": 100, "train_batch_size": 1024, "num_workers": 1,
        "gamma": 0.95, "training_intensity": None, "timesteps_per_iteration": 0, "min_iter_time_s": 0,
    }  # fmt: skip
    assert {key: DEFAULT_CONFIG[key] for key in wanted} == wanted
    assert DEFAULT_CONFIG["replay_buffer_config"]["capacity"] == 1_000_000
    assert DEFAULT_CONFIG["multiagent"]["replay_mode"] == "lockstep"


def test_buffer_size_is_the_old_name_of_the_capacity() -> None:
    with pytest.warns(FutureWarning, match="replay_buffer_config.capacity"):
        trainer = make(TwoStepGame, buffer_size=123, replay_buffer_config={})
    assert trainer.local_replay_buffer.capacity == 123


def test_one_agent_alone_is_ddpg() -> None:
    table = {"policies": {"only": PolicySpec(config={"agent_id": 0})}, "policy_mapping_fn": lambda agent: "only"}
    trainer = make("Pendulum-v1", multiagent=table)
    assert np.isfinite(trainer.train()["info"]["learner"]["only"]["learner_stats"]["critic_loss"])


def test_policies_of_other_algorithms_are_refused_at_the_start():
    from rlframe.agents.ppo import PPOTorchPolicy

    policies = {"a": PolicySpec(config={"agent_id": 0}), "b": PolicySpec(PPOTorchPolicy, config={"agent_id": 1})}
    multiagent = {"policies": policies, "policy_mapping_fn": lambda agent_id: "ab"[agent_id]}
    with pytest.raises(ConfigError, match="wanted MADDPG's policies alone"):
        MADDPGTrainer({"num_workers": 0, "multiagent": multiagent}, env=TwoStepGame)


def test_who_expects_vectors_of_a_number_is_told():
    policies = {name: PolicySpec(config={"agent_id": agent}) for agent, name in enumerate("ab")}
    multiagent = {"policies": policies, "policy_mapping_fn": lambda agent_id: "ab"[agent_id]}
    config = {"num_workers": 0, "multiagent": multiagent, "env_config": {"actions_are_logits": True}}
    with pytest.warns(UserWarning, match="gets the number of the chosen action for 'a', 'b', whose space is Discrete"):
        MADDPGTrainer(config, env=lambda _: TwoStepGame()).stop()


def test_paths_of_rllib():
    from rlframe.contrib.maddpg.maddpg import DEFAULT_CONFIG
    from rlframe.contrib.maddpg.maddpg_policy import MADDPGTorchPolicy

    assert DEFAULT_CONFIG["actor_lr"] == 1e-2
    assert MADDPGTorchPolicy.framework == "torch"


def test_policies_neither_come_nor_go() -> None:
    trainer = make()
    for call in (trainer.add_policy, trainer.remove_policy):
        with pytest.raises(ValueError, match="policy_id='late': MADDPG's critics are built for"):
            call("late")
