"""Policies of users' own that act by `compute_actions` or `compute_actions_from_input_dict`, as RLlib's examples do."""

import random

import gymnasium as gym
import numpy as np
import pytest
import torch

from rlframe.agents.ppo.ppo_torch_policy import PPOTorchPolicy
from rlframe.data.sample_batch import SampleBatch
from rlframe.data.view_requirements import ViewRequirement
from rlframe.models.torch.torch_action_dist import TorchCategorical
from rlframe.policy.policy import Policy
from rlframe.utils.torch_ops import convert_to_non_torch_type
from tests.helpers.envs import Counting
from tests.helpers.multi_agent_envs import TURNS, Script
from tests.helpers.workers import make_worker

OBS_SPACE = gym.spaces.Box(-1.0, 1.0, (3,), np.float32)


class Fixed(Policy):
    """Has no learning, no weights, and lists instead of arrays."""

    action = 1

    def compute_actions(self, obs_batch, state_batches=None, prev_action_batch=None, prev_reward_batch=None, **kwargs):
        return [self.action for _ in obs_batch], [], {}

    def get_weights(self):
        pass

    def set_weights(self, weights):
        pass


class StickToOne(Policy):
    """Begins each episode with a random move, and sticks with it."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.exploration = self._create_exploration()
        space = gym.spaces.Box(0, 100, shape=(), dtype=np.int32)
        self.view_requirements["state_in_0"] = ViewRequirement("state_out_0", shift=-1, space=space)
        self.draws = random.Random(3)

    def get_initial_state(self):
        return [self.draws.choice([0, 1])]

    def compute_actions(self, obs_batch, state_batches=None, prev_action_batch=None, **kwargs):
        return state_batches[0], state_batches, {}


class TwoStatesBack(Policy):
    """Sees its states of the last two steps, and gives how many steps there were; as RLlib's bare-metal example."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        space = gym.spaces.Box(-np.inf, np.inf, shape=(1,), dtype=np.float32)
        self.view_requirements["state_in_0"] = ViewRequirement("state_out_0", shift="-2:-1")
        self.view_requirements["state_out_0"] = ViewRequirement(space=space)

    def get_initial_state(self):
        return [np.zeros((1,), np.float32)]

    def compute_actions_from_input_dict(self, input_dict, explore=None, timestep=None, episodes=None, **kwargs):
        windows = input_dict["state_in_0"]
        self.seen = [*getattr(self, "seen", []), windows[0, :, 0].tolist()]
        # One row more than there are environments: RLlib took the first ones.
        return np.zeros(len(windows), np.int64), [[*(window[-1] + 1 for window in windows), windows[0][-1]]], {}


class DeclaresItsState(Policy):
    """Counts steps in a state that nothing but its views tells of."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        space = gym.spaces.Box(-1.0, 1.0, shape=(1,), dtype=np.float32)
        self.view_requirements["state_in_0"] = ViewRequirement("state_out_0", shift=-1, space=space)
        self.view_requirements["state_out_0"] = ViewRequirement(space=space)

    def compute_actions_from_input_dict(self, input_dict, explore=None, timestep=None, episodes=None, **kwargs):
        state = input_dict["state_in_0"]
        return np.zeros(len(state), np.int64), [state + 1], {}


class Looking(PPOTorchPolicy):
    """Replaces the actions of a policy that learns."""

    def compute_actions_from_input_dict(self, input_dict, explore=None, timestep=None, episodes=None, **kwargs):
        actions, states, extra = super().compute_actions_from_input_dict(input_dict, explore, timestep, **kwargs)
        return np.zeros_like(actions), states, {**extra, "seen": np.asarray(input_dict["obs"])[:, 0]}


def test_compute_actions_alone_acts_however_it_is_asked():
    policy = Fixed(OBS_SPACE, gym.spaces.Discrete(2), {})
    obs = np.zeros((4, 3), np.float32)
    assert policy.compute_single_action(obs[0])[0] == 1
    assert policy.compute_actions_from_input_dict({"obs": obs})[0].tolist() == [1] * 4
    actions, columns = policy.act_on_rows(obs)
    assert (actions.tolist(), columns) == ([1] * 4, {})
    assert policy.global_timestep == 4


def test_lists_of_nested_actions_are_taken_apart():
    class Pairs(Fixed):
        action = (1, np.float32(0.5))

    space = gym.spaces.Tuple([gym.spaces.Discrete(2), gym.spaces.Box(-1.0, 1.0, ())])
    first, second = Pairs(OBS_SPACE, space, {}).act_on_rows(np.zeros((2, 3), np.float32))[0]
    assert (first.tolist(), second.tolist()) == ([1, 1], [0.5, 0.5])


def test_initial_state_is_asked_for_in_each_episode():
    worker = make_worker(Counting, StickToOne, env_config={"length": 4}, rollout_fragment_length=80)
    actions = [set(part["actions"].tolist()) for part in worker.sample().split_by_episode()]
    assert all(len(moves) == 1 for moves in actions)
    assert set.union(*actions) == {0, 1}


def test_states_of_several_steps_are_seen_and_begin_anew_with_each_episode():
    worker = make_worker(Counting, TwoStatesBack, env_config={"length": 3}, rollout_fragment_length=5)
    worker.sample()
    assert worker.get_policy().seen == [[0, 0], [0, 1], [1, 2], [0, 0], [0, 1]]
    worker.sample()  # goes on in the middle of an episode
    assert worker.get_policy().seen[5:7] == [[1, 2], [0, 0]]


def test_a_state_that_views_declare_begins_with_zeros_and_comes_back():
    worker = make_worker(Counting, DeclaresItsState, env_config={"length": 3}, rollout_fragment_length=5)
    batch = worker.sample()
    assert batch["state_out_0"].tolist() == [[1], [2], [3], [1], [2]]
    assert batch["state_in_0"].tolist() == [[0], [0]]  # of each sequence
    assert [state.tolist() for state in worker.get_policy().get_initial_state()] == [[0]]


def test_sequences_of_a_policy_of_ones_own_are_as_long_as_the_models_config_says():
    worker = make_worker(
        Counting, DeclaresItsState, env_config={"length": 9}, rollout_fragment_length=5, model={"max_seq_len": 2}
    )
    batch = worker.sample()
    assert batch["seq_lens"].tolist() == [2, 2, 1]
    assert batch["state_in_0"].tolist() == [[0], [2], [4]]


def test_sampling_acts_by_the_users_method():
    from tests.unit.policy.test_users_code import ppo_worker

    worker = ppo_worker(Looking)
    policy, batch = worker.get_policy(), worker.sample()
    assert not batch["actions"].any()
    np.testing.assert_array_equal(batch["seen"], batch["obs"][:, 0])
    assert policy.global_timestep == len(batch)
    assert policy.acting_recipe() is None
    worker.learn_on_batch(batch)


class Exploring(PPOTorchPolicy):
    """Acts as RLlib's policies did, in tensors."""

    def compute_actions_from_input_dict(self, input_dict, explore=None, timestep=None, episodes=None, **kwargs):
        batch = self._lazy_tensor_dict(SampleBatch(input_dict))
        inputs, state = self.model(batch, [], None)
        actions, logp = self.exploration.get_exploration_action(
            action_distribution=self.dist_class(inputs, self.model), timestep=timestep, explore=explore
        )
        fetches = {"action_logp": logp, "action_prob": torch.exp(logp.float()), "vf_preds": self.model.value_function()}
        return convert_to_non_torch_type((actions, state, {**fetches, "action_dist_inputs": inputs}))


def test_explorations_give_users_ways_of_acting_tensors():
    from tests.unit.policy.test_users_code import ppo_worker

    worker = ppo_worker(Exploring)
    batch = worker.sample()
    np.testing.assert_allclose(np.exp(batch["action_logp"]), batch["action_prob"], rtol=1e-6)
    worker.learn_on_batch(batch)


class StatesInAnArray(Fixed):
    def compute_actions(self, obs_batch, state_batches=None, **kwargs):
        return [self.action for _ in obs_batch], np.array([]), {}


def test_no_states_may_be_an_empty_array():
    assert make_worker(Counting, StatesInAnArray).sample()["actions"].all()
    policy = StatesInAnArray(OBS_SPACE, gym.spaces.Discrete(2), {})
    assert policy.compute_actions_from_input_dict({"obs": np.zeros((1, 3))})[1] == []


class ExploringAlone(Fixed):
    """Has networks of its own, straight below Policy, and lets the exploration choose among their outputs."""

    def compute_actions(self, obs_batch, state_batches=None, explore=None, timestep=None, **kwargs):
        actions, logp = self.exploration.get_exploration_action(
            action_distribution=TorchCategorical(torch.tensor([[0.0, 9.0]]).repeat(len(obs_batch), 1)),
            timestep=timestep, explore=explore,
        )  # fmt: skip
        return actions.view(-1).cpu().numpy(), [], {"action_logp": logp.float().numpy()}


def test_explorations_give_tensors_to_a_policy_without_a_framework():
    config = {"exploration_config": {"type": "EpsilonGreedy", "epsilon_schedule": 0.0}}
    assert make_worker(Counting, ExploringAlone, **config).sample()["actions"].all()


class Alternating(Fixed):
    """Acts by the action before, and keeps what it is told."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.told = []

    def compute_actions(self, obs_batch, state_batches=None, prev_action_batch=None, prev_reward_batch=None,
                        info_batch=None, episodes=None, **kwargs):  # fmt: skip
        lengths = [episode.length for episode in episodes]
        self.told.append((prev_action_batch.tolist(), prev_reward_batch.tolist(), list(info_batch), lengths))
        return [1 - action for action in prev_action_batch], [], {}


def test_users_ways_of_acting_are_told_what_came_before_and_of_the_episodes():
    worker = make_worker(
        Counting, Alternating, env_config={"length": 2}, num_envs_per_worker=1, rollout_fragment_length=3
    )
    assert worker.sample()["actions"].tolist() == [1, 0, 1]
    first = ([0], [0.0], [0], [0])  # no info either: programs ask `if info_batch[0] != 0`
    assert worker.get_policy().told == [first, ([1], [1.0], [{"action": 1}], [1]), first]


class WhereToldBefore(Fixed):
    """Asks whether there are actions before as of a list, which RLlib gave until 1.1."""

    def compute_actions(self, obs_batch, state_batches=None, prev_action_batch=None, prev_reward_batch=None, **kwargs):
        if prev_action_batch and prev_reward_batch:
            return (np.asarray(prev_action_batch) == 0).astype(int), [], {}
        return [7 for _ in obs_batch], [], {}


def test_a_policy_may_ask_as_of_lists_whether_there_are_actions_before():
    worker = make_worker(Counting, WhereToldBefore, num_envs_per_worker=2, rollout_fragment_length=4)
    assert worker.sample()["actions"].tolist() == [1, 0, 1, 0] * 2


def test_info_given_to_compute_single_action_reaches_a_programs_own_compute_actions():
    class Told(Fixed):
        def compute_actions(self, obs_batch, state_batches=None, info_batch=None, **kwargs):
            return [info["wanted"] for info in info_batch], [], {}

    policy = Told(OBS_SPACE, gym.spaces.Discrete(2), {})
    for wanted in (0, 1):
        assert policy.compute_single_action(OBS_SPACE.sample(), info={"wanted": wanted})[0] == wanted


def test_agents_in_turns_are_told_of_themselves():
    worker = make_worker(Script, Alternating, env_config={"script": TURNS}, rollout_fragment_length=4)
    worker.sample()
    told = [(actions, rewards) for actions, rewards, _, _ in worker.get_policy().told]
    # a, b, a, b: until their second observation a got 0.5 and 0.25, b 1.
    assert told[:4] == [([0], [0.0]), ([0], [0.0]), ([1], [0.75]), ([1], [1.0])]


def test_views_that_a_program_sets_before_the_constructor_stay():
    class Looks(Fixed):
        def __init__(self, *args, **kwargs):
            self.view_requirements = {"infos": ViewRequirement(data_col="infos", shift=-1)}
            super().__init__(*args, **kwargs)

    policy = Looks(OBS_SPACE, gym.spaces.Discrete(2), {})
    assert policy.view_requirements["infos"].shift == -1
    assert "prev_actions" in policy.view_requirements
    assert not policy.needs_memory()


@pytest.mark.parametrize(("space", "obs"), [(gym.spaces.Discrete(4), 2), (gym.spaces.MultiDiscrete([2, 3]), [1, 2])])
def test_a_policy_that_is_made_by_hand_for_raw_observations_gets_them(space, obs):
    class Noting(Fixed):
        def compute_actions(self, obs_batch, state_batches=None, **kwargs):
            self.seen = obs_batch
            return [1 for _ in obs_batch], [], {}

    policy = Noting(space, gym.spaces.Discrete(2), {})
    assert policy.compute_single_action(obs)[0] == 1
    assert policy.seen.tolist() == [obs]


def test_nothing_to_act_by_is_said():
    with pytest.raises(NotImplementedError, match="defines neither forward"):
        Policy(OBS_SPACE, gym.spaces.Discrete(2), {}).forward(np.zeros((1, 3)))
