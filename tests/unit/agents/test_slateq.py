"""SlateQ: values of slates and clicks by hand and by enumeration, gradients, acting, strategies, resume, refusals."""

import itertools

import gymnasium as gym
import numpy as np
import pytest

from rlframe.agents.callbacks import DefaultCallbacks
from rlframe.agents.slateq import SlateQTorchPolicy, SlateQTrainer
from rlframe.agents.slateq.slate_layout import SlateCategorical, SlateLayout
from rlframe.agents.slateq.slateq import ALL_SLATEQ_STRATEGIES, SlateQConfig
from rlframe.agents.slateq.slateq_policy import of_places, postprocess_slates, slate_values
from rlframe.data.sample_batch import SampleBatch
from rlframe.examples.env.recommender_systems import InterestEvolutionRecSimEnv, LongTermSatisfactionRecSimEnv
from rlframe.utils.errors import ConfigError, UnsupportedSpaceException
from tests.contract.test_policies import make
from tests.helpers.frameworks import both_frameworks, needs_tf
from tests.helpers.slates import FLAT, SLATES, C, Oracle, S, flatten, preprocessed, slate_batch, spaces

SMALL = {"hiddens": [8], "seed": 0, "learning_starts": 60, "rollout_fragment_length": 20, "log_sys_usage": False,
         "timesteps_per_iteration": 200}  # fmt: skip


def made(strategy="QL", framework="torch", **more):
    return make(framework, "SlateQ", {"slateq_strategy": strategy, "grad_clip": None}, **more)


def away_from_zero(policy):
    """Gives a policy weights of which none is 0, and a target network other ones; returns these."""
    rng = np.random.default_rng(0)
    shapes = {name: np.shape(array) for name, array in policy.get_weights().items()}
    target, online = ({name: rng.normal(0, 0.5, shape) for name, shape in shapes.items()} for _ in "12")
    policy.set_weights(target)
    policy.update_target()
    policy.set_weights(online)
    return target


# --- values and clicks ------------------------------------------------------------------------------------------


@both_frameworks
def test_values_of_slates_by_hand(framework):
    """Scores 2, 4 and 1 beside 1 for no click; documents are worth 7, 14 and 21 when clicked, no click is worth 3.5."""
    policy = made(framework=framework)
    logits, q = (policy.to_tensors(np.array([row], np.float32)) for row in (np.log([2, 4, 1, 1]), [7, 14, 21, 3.5]))
    members = np.array([[1, 1, 0], [1, 0, 1], [0, 1, 1]], np.float32)  # slates of documents 0 and 1, 0 and 2, 1 and 2
    found = policy.to_numpy(slate_values(q, logits, members))[0]
    np.testing.assert_allclose(found, [(14 + 56 + 3.5) / 7, (14 + 21 + 3.5) / 4, (56 + 21 + 3.5) / 6], rtol=1e-6)
    shown = policy.to_tensors(np.array([[[0, 0, 1], [1, 0, 0]]], np.float32))  # documents 2 and 0
    assert policy.to_numpy(of_places(q, shown)).tolist() == [[21, 7, 3.5]]


def test_probabilities_of_clicks_by_hand():
    """The user (1, 0, 2) likes documents by 1, 2, 0 and -1; β is log 2, the score of no click log 4."""
    space, slates = spaces()
    policy = SlateQTorchPolicy(preprocessed(space), slates, {**SlateQConfig.defaults(), "hiddens": [4]})
    policy.set_weights({**policy.get_weights(), "beta": np.log(2), "score_no_click": np.log(4)})
    docs = [[1, 0, 0], [0, 0, 1], [0, 7, 0], [1, 0, -1]]
    pairs = policy.layout.pairs(policy.to_tensors(flatten(space, [1, 0, 2], docs)[None]))
    logits = policy.model.choice_logits(pairs)
    np.testing.assert_allclose(np.exp(logits.detach().numpy()), [[2, 4, 1, 0.5, 4]], rtol=1e-5)
    shown = policy.to_tensors(np.array([[[0, 1, 0, 0], [0, 0, 0, 1]]], np.float32))  # documents 1 and 3
    chances = of_places(logits, shown).softmax(-1).detach().numpy()
    np.testing.assert_allclose(chances, [[4 / 8.5, 0.5 / 8.5, 4 / 8.5]], rtol=1e-5)


@both_frameworks
@pytest.mark.parametrize("user", [3, 2], ids=["even", "uneven"])
def test_slates_are_valued_as_by_enumerating_them(framework, user):
    space, slates = spaces(user=user)
    policy = made(framework=framework, obs_space=preprocessed(space), action_space=slates)
    away_from_zero(policy)
    batch, _ = slate_batch(6, user=user)
    oracle = Oracle(policy.get_weights(), user=user)
    wanted = [oracle.slate_values(obs) for obs in batch["obs"]]
    for found in (policy.forward(batch["obs"])[0], policy.forward_in_framework({"obs": batch["obs"]}, False)[0]):
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)
    best = [list(itertools.combinations(range(C), S))[np.argmax(row)] for row in wanted]
    np.testing.assert_array_equal(policy.compute_actions(batch["obs"], explore=False)[0], best)


# --- learning ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("strategy", ["QL", "SARSA", "MYOP"])
@pytest.mark.parametrize("user", [3, 2], ids=["even", "uneven"])
def test_losses_and_their_gradient_are_those_of_the_enumeration(strategy, user):
    space, slates = spaces(user=user)
    policy = made(strategy, obs_space=preprocessed(space), action_space=slates)
    target = away_from_zero(policy)
    batch, clicked = slate_batch(8, user=user)
    batch["next_actions"][2] = -1  # cut off: the best slate stands for the next
    weights = {name: array.astype(np.float64) for name, array in policy.get_weights().items()}
    gradients, told = policy.compute_gradients(batch)
    wanted = Oracle(weights, target, user).losses(batch, clicked, strategy)
    stats = told["learner_stats"]
    assert (stats["q_loss"], stats["choice_loss"]) == pytest.approx(wanted, rel=1e-4)
    for (name, array), gradient in zip(weights.items(), gradients, strict=True):
        of_choices = not name.startswith("q.")
        for place in list(np.ndindex(array.shape))[:6]:
            ends = []
            for step in (1e-5, -1e-5):
                moved = array.copy()
                moved[place] += step
                ends.append(Oracle({**weights, name: moved}, target, user).losses(batch, clicked, strategy)[of_choices])
            slope = (ends[0] - ends[1]) / 2e-5
            assert float(np.asarray(gradient)[place]) == pytest.approx(slope, rel=1e-3, abs=1e-4), (name, place)


@needs_tf
@pytest.mark.parametrize("strategy", ["QL", "SARSA"])
def test_both_frameworks_learn_the_same(strategy):
    one, other = (made(strategy, framework) for framework in ("torch", "tf"))
    away_from_zero(one)
    other.set_weights(one.get_weights())
    for policy in (one, other):
        policy.update_target()
    for seed in range(4):
        told = [policy.learn_on_batch(slate_batch(seed=seed)[0]) for policy in (one, other)]
        for name, value in told[0]["learner_stats"].items():
            np.testing.assert_allclose(told[1]["learner_stats"][name], value, rtol=2e-3, atol=1e-5, err_msg=name)
    for name, weights in one.get_weights().items():
        np.testing.assert_allclose(other.get_weights()[name], weights, rtol=1e-3, atol=1e-4, err_msg=name)


def test_choices_are_learned_from_what_was_clicked():
    """Users who click what they like, twice as often per unit, and nothing as often as a document of no appeal."""
    policy, rng, rows = made(lr_choice_model=0.05), np.random.default_rng(0), 512
    batch, _ = slate_batch(rows)
    batch["weights"] = np.zeros(rows, np.float32)
    space = spaces()[0]
    oracle = Oracle({**policy.get_weights(), "beta": np.log(2), "score_no_click": 0.0})
    for row in range(rows):
        chances = oracle.chances(batch["obs"][row], batch["actions"][row])
        batch["new_obs"][row] = flatten(space, np.zeros(3), np.zeros((C, 3)), rng.choice(S + 1, p=chances))
    for _ in range(150):
        policy.learn_on_batch(batch)
    weights = policy.get_weights()
    assert weights["beta"] == pytest.approx(np.log(2), abs=0.12)
    assert weights["score_no_click"] == pytest.approx(0.0, abs=0.25)


def test_sarsa_learns_from_the_slate_shown_next_in_the_same_episode():
    policy = made("SARSA", gamma=0.9)
    rows = SampleBatch(
        {
            "actions": np.array([[0, 1], [1, 2], [2, 3], [0, 3], [1, 3]]),
            "rewards": np.ones(5, np.float32),
            "eps_id": np.array([7, 7, 7, 8, 8]),
            "t": np.array([0, 1, 2, 0, 1]),
            "terminateds": np.array([0, 0, 1, 0, 0], bool),
            "truncateds": np.array([0, 0, 0, 0, 1], bool),
            "dones": np.array([0, 0, 1, 0, 1], bool),
        }
    )
    done = postprocess_slates(policy, rows)
    assert done["next_actions"].tolist() == [[1, 2], [2, 3], [-1, -1], [1, 3], [-1, -1]]
    np.testing.assert_allclose(done["discounts"], [0.9, 0.9, 0.0, 0.9, 0.9], rtol=1e-6)
    alone = SampleBatch({key: rows[key] for key in ("actions", "rewards", "dones")})
    assert "next_actions" not in postprocess_slates(made("QL"), alone)


def test_sarsa_replays_the_slates_shown_next():
    seen = []

    class Watch(DefaultCallbacks):
        def on_learn_on_batch(self, *, policy, train_batch, result, **kwargs):
            seen.append(train_batch["next_actions"].copy())

    config = {**SMALL, "slateq_strategy": "SARSA", "callbacks": Watch}
    trainer = SlateQTrainer(config, env=InterestEvolutionRecSimEnv)
    trainer.train()
    trainer.stop()
    slates = np.concatenate(seen)
    assert slates.shape[1] == 2
    assert 0 < (slates[:, 0] < 0).mean() < 0.1  # an episode in 80 steps ends
    assert (slates[slates[:, 0] >= 0, 0] < slates[slates[:, 0] >= 0, 1]).all()


# --- acting -----------------------------------------------------------------------------------------------------


def test_exploring_shows_every_slate_and_no_candidate_twice():
    policy = made(exploration_config={"type": "EpsilonGreedy", "initial_epsilon": 1.0, "final_epsilon": 1.0})
    obs = slate_batch(400)[0]["obs"]
    actions, _, told = policy.compute_actions(obs, explore=True)
    assert {tuple(slate) for slate in actions} == set(itertools.combinations(range(C), S))
    np.testing.assert_allclose(told["action_prob"], 1 / 6, rtol=1e-5)
    greedy = policy.compute_actions(obs, explore=False)[0]
    assert all(SLATES.contains(slate) for slate in greedy)
    drawn = made(exploration_config={"type": "StochasticSampling"})
    actions, _, told = drawn.compute_actions(obs, explore=True)
    np.testing.assert_allclose(told["action_logp"], drawn.compute_log_likelihoods(actions, obs), rtol=1e-5)
    np.testing.assert_allclose(told["action_logp"], drawn.compute_log_likelihoods(actions[:, ::-1], obs), rtol=1e-5)


@pytest.mark.parametrize("explore", [True, False])
def test_random_slates_are_any_whether_or_not_they_explore(explore):
    policy = made("RANDOM")
    actions = policy.compute_actions(np.zeros((600, *FLAT.shape), np.float32), explore=explore)[0]
    _, counts = np.unique(actions, axis=0, return_counts=True)
    assert len(counts) == 6
    assert counts.min() > 60


def test_candidates_are_in_the_order_of_their_numbers():
    """Flat observations are in that of the sorted keys, "10" before "2"."""
    space, slates = spaces(count=12, size=1)
    layout = SlateLayout(preprocessed(space), slates)
    flat = flatten(space, [9, 9, 9], [[place] * 3 for place in range(12)])
    assert layout.pairs(flat[None], np.concatenate)[0, :, 3].tolist() == [*range(12), 0]


def test_slates_of_one_place_and_of_all_candidates():
    assert SlateLayout(*spaces(size=1)).slates.tolist() == [[0], [1], [2], [3]]
    assert SlateLayout(*spaces(size=4)).slates.tolist() == [[0, 1, 2, 3]]
    values = np.array([[0.0, np.log(3.0)]], np.float32)
    drawn = SlateCategorical(values, np.random.default_rng(0), slates=np.array([[0, 1], [0, 2]]))
    np.testing.assert_allclose(np.exp(drawn.logp([[2, 0]])), [0.75], rtol=1e-6)


# --- trainers ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("strategy", ALL_SLATEQ_STRATEGIES)
def test_runs_go_on_bit_for_bit(strategy, tmp_path):
    trainer, again = (
        SlateQTrainer({**SMALL, "slateq_strategy": strategy}, env=InterestEvolutionRecSimEnv) for _ in "12"
    )
    trainer.train()
    again.restore(trainer.save(str(tmp_path)))
    wanted, found = trainer.train(), again.train()
    assert found["hist_stats"]["episode_reward"] == wanted["hist_stats"]["episode_reward"]
    np.testing.assert_equal(found["info"]["learner"], wanted["info"]["learner"])
    np.testing.assert_equal(again.get_weights(), trainer.get_weights())
    assert bool(wanted["info"]["learner"]) == (strategy != "RANDOM")
    assert np.isfinite(trainer.evaluate()["evaluation"]["episode_reward_mean"])
    trainer.stop(), again.stop()


@pytest.mark.ray
@pytest.mark.slow
def test_remote_workers_show_the_slates_that_the_driver_would(ray_runtime):
    made = []
    for workers in (0, 1):
        trainer = SlateQTrainer({**SMALL, "num_workers": workers}, env=InterestEvolutionRecSimEnv)
        results = [trainer.train() for _ in range(2)]
        made.append([result["hist_stats"]["episode_reward"] for result in results])
        trainer.stop()
    assert made[0] == made[1]


@needs_tf
@pytest.mark.slow
def test_tensorflow_goes_on_bit_for_bit(tmp_path):
    config = {**SMALL, "framework": "tf", "slateq_strategy": "SARSA"}
    trainer, again = (SlateQTrainer(config, env=InterestEvolutionRecSimEnv) for _ in "12")
    trainer.train()
    again.restore(trainer.save(str(tmp_path)))
    np.testing.assert_equal(again.train()["info"]["learner"], trainer.train()["info"]["learner"])
    np.testing.assert_equal(again.get_weights(), trainer.get_weights())
    trainer.stop(), again.stop()


def test_users_who_show_nothing_are_served():
    trainer = SlateQTrainer({**SMALL, "env_config": {"slate_size": 1}}, env=LongTermSatisfactionRecSimEnv)
    assert np.isfinite(trainer.train()["info"]["learner"]["default_policy"]["learner_stats"]["q_loss"])
    trainer.stop()


def test_rows_are_drawn_by_their_errors():
    config = {**SMALL, "prioritized_replay": True, "worker_side_prioritization": True}
    trainer = SlateQTrainer(config, env=InterestEvolutionRecSimEnv)
    assert trainer.train()["info"]["learner"]["default_policy"]["td_error"].shape == (32,)
    trainer.stop()


def test_rllibs_defaults():
    config = SlateQConfig.defaults()
    wanted = {
        "hiddens": [256, 64, 16], "batch_mode": "complete_episodes", "learning_starts": 1000, "grad_clip": 40,
        "rollout_fragment_length": 1000, "train_batch_size": 32, "lr_choice_model": 1e-2, "lr_q_model": 1e-2,
        "adam_epsilon": 1e-8, "slateq_strategy": "QL", "recsim_embedding_size": 20, "num_workers": 0,
        "worker_side_prioritization": False, "training_intensity": None, "timesteps_per_iteration": 1000,
        "replay_sequence_length": 1, "compress_observations": False,
    }  # fmt: skip
    assert {key: config[key] for key in wanted} == wanted
    assert config["exploration_config"]["epsilon_timesteps"] == 10_000
    assert config["replay_buffer_config"]["capacity"] == 50_000


# --- bad input --------------------------------------------------------------------------------------------------


def without(key):
    space, slates = spaces()
    return gym.spaces.Dict({name: part for name, part in space.spaces.items() if name != key}), slates


MIXED = gym.spaces.Dict({"0": spaces()[0]["user"], "1": gym.spaces.Discrete(3)})
UNEVEN = gym.spaces.Dict({**spaces()[0].spaces, "doc": MIXED})


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        (without("doc"), 'got the observation space .*wanted a Dict of "user", "doc"'),
        (without("response"), 'got the observation space .*"response" .a Tuple with a Dict for each place'),
        ((gym.spaces.Box(-1, 1, (4,)), SLATES), 'got the observation space .*wanted a Dict of "user"'),
        ((UNEVEN, SLATES), "got the observation space .*the same space for each candidate"),
        ((spaces()[0], gym.spaces.Box(-1, 1, (2,))), r"got the action space Box.*wanted MultiDiscrete\(\[4\] \* 2\)"),
        ((spaces()[0], gym.spaces.MultiDiscrete([4, 5])), r"got the action space .*wanted MultiDiscrete\(\[4\] \* 2\)"),
        ((spaces()[0], gym.spaces.MultiDiscrete([4] * 3)), "for 4 candidates and 2 responses"),
        (spaces(count=2, size=3), "got 3 places for 2 candidates, 0 slates in all; .*at most 2 places"),
        (spaces(count=100, size=5), "got 5 places for 100 candidates, 75287520 slates in all; wanted 1 to 671088,"),
    ],
)
def test_spaces_that_are_no_recommenders_are_refused(given, sentence):
    with pytest.raises(UnsupportedSpaceException, match=f"^SlateQ.*{sentence}"):
        SlateQTorchPolicy(preprocessed(given[0]), given[1], SlateQConfig.defaults())


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        (
            {"slateq_strategy": "GREEDY"},
            "slateq_strategy: got 'GREEDY' .str., wanted one of 'RANDOM', 'MYOP', 'SARSA', 'QL'",
        ),
        ({"slateq_strategy": "SARSA", "batch_mode": "truncate_episodes"}, "set 'complete_episodes'"),
        ({"observation_filter": "MeanStdFilter"}, "would change the clicks"),
        ({"replay_sequence_length": 2}, "replay_sequence_length"),
        ({"model": {"use_lstm": True}}, "set hiddens"),
        ({"_disable_preprocessor_api": True}, "_disable_preprocessor_api: got True; wanted False"),
    ],
)
def test_configs_that_cannot_be_are_refused(wrong, sentence):
    with pytest.raises(ConfigError, match=sentence):
        SlateQTrainer({**SMALL, **wrong}, env=InterestEvolutionRecSimEnv)


@pytest.mark.parametrize(
    ("unread", "sentence"),
    [
        ({"lr": 1.0}, "set lr_q_model and lr_choice_model"),
        ({"recsim_embedding_size": 5}, "recsim_embedding_size has no effect here"),
    ],
)
def test_keys_without_effect_are_named(unread, sentence):
    with pytest.warns(UserWarning, match=sentence):
        SlateQTrainer({**SMALL, **unread}, env=InterestEvolutionRecSimEnv).stop()
