"""ES and ARS: noise on weights by episode, what two searches make of returns, resuming, configs."""

import gymnasium as gym
import numpy as np
import pytest
import torch

from rlframe.agents.es import ARSTrainer, ESTrainer
from rlframe.agents.es.es_policy import ARSPolicy, ESPolicy, centered_ranks
from rlframe.agents.families.perturbed_weights import Perturbation
from rlframe.agents.registry import get_trainer_class
from rlframe.data.sample_batch import SampleBatch
from rlframe.env import MultiAgentEnv
from rlframe.models.torch.torch_modelv2 import TorchModelV2
from rlframe.utils.errors import ConfigError, NonFiniteError
from tests.helpers.frameworks import FRAMEWORKS

SMALL = {"seed": 3, "num_workers": 0, "min_iter_time_s": 0, "log_sys_usage": False, "rollout_fragment_length": 20,
         "model": {"fcnet_hiddens": [4]}}  # fmt: skip
MORE = {
    ESTrainer: {"episodes_per_batch": 6, "train_batch_size": 100},
    ARSTrainer: {"num_rollouts": 3, "rollouts_used": 2},
}
every_trainer = pytest.mark.parametrize("cls", [ESTrainer, ARSTrainer], ids=["ES", "ARS"])


def make(cls, env="CartPole-v1", **overrides):
    return cls({**SMALL, **MORE[cls], **overrides}, env=env)


def make_policy(cls, **overrides):
    trainer = ESTrainer if cls is ESPolicy else ARSTrainer
    config = {**trainer._default_config, "seed": 1, "model": {"fcnet_hiddens": []}, **overrides}
    return cls(gym.spaces.Box(-1, 1, (2,)), gym.spaces.Discrete(2), config)


def episodes(*rows):
    """A batch of one-step episodes, of (pair, sign, return)."""
    pairs, signs, rewards = (np.array(column) for column in zip(*rows, strict=True))
    ids = np.arange(len(rows))
    return SampleBatch({"eps_id": ids, "noise_pair": pairs, "noise_sign": signs, "rewards": rewards.astype(np.float32)})


def test_ranks_by_hand():
    np.testing.assert_allclose(centered_ranks(np.array([3.0, -1.0, 7.0])), [0.0, -0.5, 0.5])
    np.testing.assert_allclose(centered_ranks(np.array([2.0, 2.0, 0.0, 9.0])), [0.0, 0.0, -0.5, 0.5])
    np.testing.assert_allclose(centered_ranks(np.array([5.0])), [0.0])
    # pairs of returns are ranked together, as RLlib's compute_centered_ranks has it
    ranks = centered_ranks(x=np.array([[3.0, 1.0], [2.0, 5.0]]))
    np.testing.assert_allclose(ranks, [[1 / 6, -0.5], [-1 / 6, 0.5]])


def test_neighbouring_episodes_of_a_place_have_the_same_noise_with_both_signs():
    found = [Perturbation.of(number, 0, 0.0) for number in (8, 9, 10)]
    assert [(each.pair, each.sign) for each in found] == [(4, 1), (4, -1), (5, 1)]
    without = [Perturbation.of(number, 0, 0.3) for number in range(2000)]
    assert {(each.pair, abs(each.sign)) for each in without} == {
        (pair, abs(without[2 * pair].sign)) for pair in range(1000)
    }
    assert 0.25 < np.mean([each.sign == 0 for each in without]) < 0.35


def test_rows_say_which_noise_acted_and_it_did():
    trainer = make(ESTrainer, num_envs_per_worker=2, rollout_fragment_length=150)
    policy, rows = trainer.get_policy(), trainer.workers.local_worker().sample()
    kinds = {(pair, sign) for pair, sign in zip(rows["noise_pair"].tolist(), rows["noise_sign"].tolist(), strict=True)}
    assert {sign for _, sign in kinds} == {-1, 1}
    assert len(set(rows["eps_id"].tolist())) == len(kinds)
    flat = policy.get_flat_weights()
    moved = policy.actor_with(Perturbation(7, -1))
    expected = policy.unflattened(flat - 0.02 * policy.noise(7))
    hidden = np.tanh(rows["obs"][:5] @ expected["hidden_0.weight"].T + expected["hidden_0.bias"])
    logits = hidden @ expected["output.weight"].T + expected["output.bias"]
    np.testing.assert_allclose(moved.forward(rows["obs"][:5]), logits, atol=1e-5)


def test_es_follows_ranks_by_adam_as_worked_out_by_hand():
    policy = make_policy(ESPolicy, stepsize=0.1, l2_coeff=0.5)
    before, noise = policy.get_flat_weights(), {pair: policy.noise(pair) for pair in (3, 5)}
    stats = policy.learn_on_batch(episodes((3, 1, 10.0), (3, -1, 2.0), (5, 1, 4.0), (5, -1, 7.0), (9, 0, 50.0)))
    # Ranks of 10, 2, 4, 7: 1/2, -1/2, -1/6, 1/6.
    gradient = ((0.5 + 0.5) * noise[3] + (-1 / 6 - 1 / 6) * noise[5]) / 4
    down = 0.5 * before - gradient
    np.testing.assert_allclose(policy.get_flat_weights(), before - 0.1 * np.sign(down), atol=1e-4)  # Adam's first step
    assert stats["learner_stats"]["eval_reward_mean"] == 50.0
    assert stats["learner_stats"]["grad_gnorm"] == pytest.approx(np.linalg.norm(gradient), rel=1e-5)


def test_ars_takes_the_best_directions_as_worked_out_by_hand_and_halves_wait():
    policy = make_policy(ARSPolicy, rollouts_used=2, sgd_stepsize=0.1, offset=1.0)
    before, noise = policy.get_flat_weights(), {pair: policy.noise(pair) for pair in (1, 2, 3, 4)}
    policy.learn_on_batch(
        episodes((1, 1, 3.0), (1, -1, 9.0), (2, 1, 2.0), (2, -1, 1.0), (3, 1, 7.0), (3, -1, 5.0), (4, 1, 6.0))
    )
    kept = np.array([[3.0, 9.0], [7.0, 5.0]]) - 1.0
    step = ((3.0 - 9.0) * noise[1] + (7.0 - 5.0) * noise[3]) / (2 * kept.std())
    np.testing.assert_allclose(policy.get_flat_weights(), before + 0.1 * step, atol=1e-5)
    restored = make_policy(ARSPolicy, rollouts_used=2, sgd_stepsize=0.1, offset=1.0)
    restored.set_state(policy.get_state())
    before = policy.get_flat_weights()
    for each in (policy, restored):
        each.learn_on_batch(episodes((4, -1, 4.0)))
        np.testing.assert_allclose(
            each.get_flat_weights(), before + 0.1 * 2.0 * noise[4], atol=1e-5
        )  # σ of 6 and 4 is 1


def test_ars_takes_all_directions_where_more_are_asked_for():
    few, all_of_them = (make_policy(ARSPolicy, rollouts_used=used, sgd_stepsize=0.1) for used in (2, 32))
    for policy in (few, all_of_them):
        policy.learn_on_batch(episodes((1, 1, 3.0), (1, -1, 9.0), (2, 1, 2.0), (2, -1, 1.0)))
    np.testing.assert_array_equal(few.get_flat_weights(), all_of_them.get_flat_weights())
    assert make(ARSTrainer, rollouts_used=9).config["rollouts_used"] == 9


@every_trainer
def test_restored_trainer_goes_on_bit_for_bit(cls, tmp_path):
    one, two = make(cls, eval_prob=0.3), make(cls, eval_prob=0.3, seed=4)
    one.train()
    two.restore(one.save(str(tmp_path)))
    for _ in range(3):
        a, b = one.train(), two.train()
        assert a["hist_stats"] == b["hist_stats"]
        np.testing.assert_equal(a["info"]["learner"], b["info"]["learner"])
    np.testing.assert_array_equal(one.get_policy().get_flat_weights(), two.get_policy().get_flat_weights())
    assert a["episodes_this_iter"] >= 6


def test_one_episode_per_batch_is_a_pair_of_them_as_in_rllib():
    trainer = make(ESTrainer, episodes_per_batch=1, train_batch_size=1, eval_prob=0.0)
    before = trainer.get_policy().get_flat_weights().copy()
    assert trainer.train()["episodes_this_iter"] >= 2
    assert not np.array_equal(trainer.get_policy().get_flat_weights(), before)


def test_what_acts_outside_of_sampling_has_no_noise():
    trainer = make(ESTrainer, env="Pendulum-v1", action_noise_std=0.5, episodes_per_batch=2)
    policy, obs = trainer.get_policy(), np.zeros((3, 3), np.float32)
    assert (policy.compute_actions(obs)[0] == policy.compute_actions(obs, explore=False)[0]).all()
    rows = trainer.workers.local_worker().sample()
    outputs = policy.actor_with(Perturbation(int(rows["noise_pair"][0]), int(rows["noise_sign"][0]))).forward(
        rows["obs"]
    )
    assert 0.3 < np.std(rows["actions"] - outputs) < 0.7
    assert np.isfinite(trainer.train()["info"]["learner"]["default_policy"]["learner_stats"]["update_ratio"])


@every_trainer
def test_the_policy_is_found_by_name_and_has_the_filter_as_in_rllib(cls):
    trainer = make(cls, observation_filter="MeanStdFilter")
    obs = np.ones(4, np.float32)
    assert trainer.policy is trainer.get_policy()
    seen = trainer.policy.observation_filter(obs, update=False)
    by_hand = trainer.policy.compute_single_action(seen, explore=False)[0]
    assert by_hand == trainer.compute_single_action(obs, explore=False)
    assert trainer.policy.observation_filter is trainer.workers.local_worker().filters["default_policy"]


class Pair(MultiAgentEnv):
    """Two agents; each step is worth what they choose."""

    observation_space, action_space = gym.spaces.Box(-1, 1, (2,)), gym.spaces.Discrete(2)

    def __init__(self, config=None):
        super().__init__()
        self._agent_ids = {"a", "b"}

    def reset(self, *, seed=None, options=None):
        self.t = 0
        return dict.fromkeys("ab", np.ones(2, np.float32)), {}

    def step(self, actions):
        self.t += 1
        over = {"__all__": self.t == 5}
        return dict.fromkeys("ab", np.ones(2, np.float32)), {k: float(v) for k, v in actions.items()}, over, over, {}


def test_agents_search_for_themselves():
    agents = {"policies": {"a", "b"}, "policy_mapping_fn": lambda agent, *args, **kwargs: agent}
    trainer = make(ARSTrainer, env=Pair, multiagent=agents, noise_stdev=1.0)
    before = trainer.get_weights()
    info = trainer.train()["info"]["learner"]
    assert set(info) == {"a", "b"}
    assert all(info[each]["learner_stats"]["directions"] == 2 for each in "ab")
    assert all((trainer.get_weights()[each]["output.weight"] != before[each]["output.weight"]).any() for each in "ab")


@pytest.mark.parametrize(
    ("cls", "overrides", "message"),
    [
        (ESTrainer, {"batch_mode": "truncate_episodes"}, "returns are those of whole episodes"),
        (ESTrainer, {"model": {"use_lstm": True}}, "networks whose weights are searched have no memory"),
        (ESTrainer, {"eval_prob": 1.0}, "nothing is learned"),
        (ESTrainer, {"return_proc_mode": "standardised"}, "return_proc_mode"),
    ],
)
def test_wrong_configs_are_refused(cls, overrides, message):
    with pytest.raises(ConfigError, match=message):
        make(cls, **overrides)


class Doubled(TorchModelV2, torch.nn.Module):
    """Twice what a layer gives."""

    def __init__(self, *args, **kwargs):
        TorchModelV2.__init__(self, *args, **kwargs)
        torch.nn.Module.__init__(self)
        self.layer = torch.nn.Linear(2, self.num_outputs)
        self.same = self.layer  # one layer with two names is searched once
        self.register_buffer("factor", torch.tensor(2.0))  # no gradient would change it

    def forward(self, input_dict, state, seq_lens):
        return self.factor * self.layer(input_dict["obs"]), state


def test_noise_is_added_to_the_parameters_of_a_model_of_ones_own():
    policy = make_policy(ARSPolicy, rollouts_used=1, model={"custom_model": Doubled})
    flat, obs = policy.get_flat_weights(), np.ones((3, 2), np.float32)
    assert set(policy.get_weights()) == {"layer.weight", "layer.bias"}
    for sign in (1, -1, 0):
        noisy = policy.unflattened(flat + np.float32(0.02 * sign) * policy.noise(7))
        found = policy.actor_with(Perturbation(7, sign)).forward(obs)
        np.testing.assert_allclose(
            found, 2 * (obs @ noisy["layer.weight"].T + noisy["layer.bias"]), rtol=1e-5, atol=1e-6
        )
    one, other = policy.actor_with(Perturbation(1, 1)), policy.actor_with(Perturbation(2, 1))
    first = one.forward(obs)
    other.forward(obs)
    np.testing.assert_array_equal(one.forward(obs), first)
    np.testing.assert_array_equal(policy.model.layer.weight.detach(), policy.get_weights()["layer.weight"])
    policy.learn_on_batch(episodes((1, 1, 3.0), (1, -1, 9.0)))
    moved = policy.unflattened(policy.get_flat_weights())
    assert (policy.get_flat_weights() != flat).any()
    np.testing.assert_allclose(
        policy.forward(obs)[0], 2 * (obs @ moved["layer.weight"].T + moved["layer.bias"]), rtol=1e-5, atol=1e-6
    )


class Screens(gym.Env):
    """Images, or images beside numbers; what is chosen is worth its number."""

    action_space = gym.spaces.Discrete(2)

    def __init__(self, config=None):
        image = gym.spaces.Box(0, 255, (42, 42, 1), np.uint8)
        nested = gym.spaces.Dict({"image": image, "numbers": gym.spaces.Box(-1, 1, (2,))})
        self.observation_space = nested if (config or {}).get("nested") else image

    def reset(self, *, seed=None, options=None):
        self.t = 0
        self.observation_space.seed(seed)
        return self.observation_space.sample(), {}

    def step(self, action):
        self.t += 1
        return self.observation_space.sample(), float(action), self.t == 3, False, {}


@pytest.mark.parametrize("framework", FRAMEWORKS)
@pytest.mark.parametrize("nested", [False, True])
def test_images_are_searched_for_in_their_framework_and_go_on_exactly(framework, nested, tmp_path):
    model = {"conv_filters": [[2, [8, 8], 8], [4, [6, 6], 1]]}
    options = {
        "framework": framework,
        "env_config": {"nested": nested},
        "model": model,
        "observation_filter": "NoFilter",
    }
    one, two = (make(ESTrainer, env=Screens, episodes_per_batch=4, seed=seed, **options) for seed in (3, 4))
    before = one.get_policy().get_flat_weights()
    one.train()
    assert (one.get_policy().get_flat_weights() != before).all()
    two.restore(one.save(str(tmp_path)))
    for each in (one, two):
        each.train()
    np.testing.assert_array_equal(one.get_policy().get_flat_weights(), two.get_policy().get_flat_weights())


def test_returns_that_are_not_finite_are_refused():
    with pytest.raises(NonFiniteError, match="the return of an episode is nan"):
        make_policy(ESPolicy).learn_on_batch(episodes((1, 1, np.nan), (1, -1, 0.0)))


def test_names_and_defaults_are_rllibs():
    from rlframe.agents import ars, es
    from rlframe.agents.ars.ars_tf_policy import ARSTFPolicy
    from rlframe.agents.es.es_torch_policy import ESTorchPolicy

    assert (ars.ARSTrainer, es.ESTrainer) == (ARSTrainer, ESTrainer)
    assert (get_trainer_class("ES"), get_trainer_class("ARS")) == (ESTrainer, ARSTrainer)
    assert (ARSTFPolicy, ESTorchPolicy) == (ARSPolicy, ESPolicy)
    wanted = {"num_workers": 10, "train_batch_size": 10_000, "episodes_per_batch": 1000, "stepsize": 0.01,
              "l2_coeff": 0.005, "noise_stdev": 0.02, "eval_prob": 0.003, "action_noise_std": 0.01}  # fmt: skip
    assert {name: es.DEFAULT_CONFIG[name] for name in wanted} == wanted
    wanted = {
        "num_workers": 2,
        "num_rollouts": 32,
        "rollouts_used": 32,
        "sgd_stepsize": 0.01,
        "offset": 0,
        "eval_prob": 0.03,
    }
    assert {name: ars.DEFAULT_CONFIG[name] for name in wanted} == wanted
