"""Dreamer against a slow NumPy version of itself; acting, replay, exact resume, workers, errors."""

import copy

import gymnasium as gym
import numpy as np
import pytest
import torch

from rlframe.agents.dreamer.dreamer import DEFAULT_CONFIG, DreamerConfig, DREAMERTrainer
from rlframe.agents.dreamer.dreamer_torch_model import RSSM, ActionDecoder, ConvDecoder, ConvEncoder, DreamerModel
from rlframe.agents.dreamer.dreamer_torch_policy import DreamerTorchPolicy
from rlframe.data.sample_batch import SampleBatch
from rlframe.env.wrappers.repeated_actions import RepeatedActions
from rlframe.execution.rollout_ops import ParallelRollouts
from rlframe.losses.imagination import lambda_return
from rlframe.replay.episodic import EpisodicBuffer, histories
from rlframe.utils.errors import CheckpointError, ConfigError, UnsupportedSpaceException
from tests.helpers import dreams

NETWORKS = {"deter_size": 6, "stoch_size": 3, "hidden_size": 8, "depth_size": 1}
SMALL = {
    "seed": 3,
    "prefill_timesteps": 40,
    "dreamer_train_iters": 2,
    "batch_size": 3,
    "batch_length": 6,
    "imagine_horizon": 4,
    "horizon": 20,
    "rollout_fragment_length": 20,
    "dreamer_model": NETWORKS,
    "log_sys_usage": False,
}
SEEN = gym.spaces.Box(-9, 9, (4,), np.float32)
BOX = gym.spaces.Box(-2, 2, (2,), np.float32)
PICTURES = gym.spaces.Box(0, 255, (64, 64, 3), np.uint8)


def config_of(**more):
    config = copy.deepcopy(DEFAULT_CONFIG)
    config.update(
        {**SMALL, **more, "dreamer_model": {**config["dreamer_model"], **NETWORKS, **more.get("dreamer_model", {})}}
    )
    return config


def make_policy(space=SEEN, actions=BOX, **more):
    return DreamerTorchPolicy(space, actions, config_of(**more))


def rows_of(lengths=(5,), seed=0, terminated=True, space=SEEN):
    """Returns sampled rows of some episodes."""
    rng, count = np.random.default_rng(seed), sum(lengths)
    ends = np.zeros(count, bool)
    ends[np.cumsum(lengths) - 1] = terminated
    seen = [np.stack([space.sample() for _ in range(length + 1)]) for length in lengths]
    return SampleBatch(
        {
            "obs": np.concatenate([part[:-1] for part in seen]),
            "new_obs": np.concatenate([part[1:] for part in seen]),
            "actions": rng.uniform(-1, 1, (count, 2)).astype(np.float32),
            "rewards": rng.normal(size=count).astype(np.float32),
            "terminateds": ends,
            "eps_id": np.repeat(np.arange(len(lengths)), lengths),
        }
    )


@pytest.fixture(autouse=True)
def _same_spaces():
    for space in (SEEN, PICTURES):
        space.seed(0)


# --- the maths ---------------------------------------------------------------------------------------------------


def test_lambda_returns_worked_by_hand():
    """V_1 = 2 + ½·20 = 12, V_0 = 1 + ½ (½·10 + ½·12) = 6.5."""
    column = [torch.tensor(numbers)[:, None] for numbers in ([1.0, 2.0], [9.0, 10.0], [0.5, 0.5])]
    assert lambda_return(*column, torch.tensor([20.0]), 0.5)[:, 0].tolist() == [6.5, 12.0]


@pytest.mark.parametrize("lambda_", [0.0, 0.7, 1.0])
def test_lambda_returns_are_means_of_n_step_returns(lambda_):
    rng = np.random.default_rng(1)
    reward, value, discount = rng.normal(size=7), rng.normal(size=8), rng.uniform(size=7)
    given = [torch.tensor(part)[:, None] for part in (reward, value[:-1], discount)]
    made = lambda_return(*given, torch.tensor(value[-1:]), lambda_)[:, 0]
    np.testing.assert_allclose(made, dreams.lambda_returns(reward, value, discount, lambda_), rtol=1e-12)


def test_gradients_of_lambda_returns_reach_every_reward():
    """∂V_0/∂r_t = (γλ)^t: ½, ¼ behind the first."""
    reward, ones = torch.zeros(3, 1, requires_grad=True), torch.ones(3, 1)
    lambda_return(reward, ones, ones, torch.ones(1), 0.5)[0].sum().backward()
    assert reward.grad[:, 0].tolist() == [1.0, 0.5, 0.25]


def test_divergence_worked_by_hand():
    """KL(N(1, 1) ‖ N(0, 1)) = ½, KL(N(0, 2) ‖ N(0, 1)) = −log 2 + 2 − ½."""
    one, zero = np.ones(1), np.zeros(1)
    assert dreams.divergence((one, one), (zero, one)) == pytest.approx(0.5)
    assert dreams.divergence((zero, 2 * one), (zero, one)) == pytest.approx(1.5 - np.log(2))


def test_one_step_of_the_state_space_model():
    policy, rng = make_policy(), np.random.default_rng(2)
    stoch, deter, action, obs = (rng.normal(size=size).astype(np.float32) for size in (3, 6, 2, 4))
    oracle, model, noise = dreams.Oracle(policy.get_weights()), policy.model, rng.normal(size=3).astype(np.float32)
    given = [torch.tensor(part)[None] for part in (stoch, stoch, stoch, deter)]
    with torch.no_grad():
        embed = model.encoder(torch.tensor(obs)[None])
        post, prior = model.dynamics.obs_step(given, torch.tensor(action)[None], embed, torch.tensor(noise)[None])
    (mean, std), wanted = oracle.prior(stoch, deter, action)
    for found, number in zip((prior[0], prior[1], prior[3]), (mean, std, wanted), strict=True):
        np.testing.assert_allclose(found[0], number, rtol=1e-5, atol=1e-6)
    mean, std = oracle.posterior(wanted, obs)
    for found, number in zip(post, (mean, std, mean + std * noise, wanted), strict=True):
        np.testing.assert_allclose(found[0], number, rtol=1e-5, atol=1e-6)


def test_an_imagined_rollout():
    policy, rng = make_policy(), np.random.default_rng(3)
    stoch, deter, noise = (rng.normal(size=size).astype(np.float32) for size in (3, 6, (4, 5)))
    given = [torch.tensor(part)[None] for part in (stoch, stoch, stoch, deter)]
    with torch.no_grad():
        found = policy.model.imagine_ahead(given, 4, torch.tensor(noise)[None])[:, 0]
    wanted = dreams.Oracle(policy.get_weights()).dream(stoch, deter, noise, 2)
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("ends", [False, True], ids=["endless", "terminations"])
@pytest.mark.parametrize("free_nats", [0.0, 3.0])
def test_losses_are_those_of_the_oracle(free_nats, ends):
    more = {
        "free_nats": free_nats,
        "kl_coeff": 0.7,
        "dreamer_model": {"predict_termination": ends, "action_init_std": 1.0},
    }
    policy, other, rows = make_policy(**more), make_policy(**more), rows_of()
    columns = policy._learned_columns(rows)  # with noise
    weights, config = policy.get_weights(), {**config_of(**more), "lambda": 0.95}
    stats = other.learn_on_batch(rows)["learner_stats"]
    wanted = dreams.Oracle(weights, init_std=1.0).losses({key: np.asarray(columns[key]) for key in columns}, config)
    assert {name: stats[name] for name in wanted} == pytest.approx(wanted, rel=2e-4)
    assert stats["divergence"] == 3.0 or free_nats == 0.0
    assert ("termination_loss" in stats) == ends


def test_padding_changes_no_loss():
    """Two pieces of 6 and 3 observations: padding of the second must not count."""
    policy = make_policy(free_nats=0.0)
    columns = policy._lazy_tensor_dict(policy._learned_columns(rows_of((5, 2))))
    means = policy.loss(policy.model, None, columns).stats
    separate = []
    for start in (0, 6):
        length = 6 if start == 0 else 3
        part = SampleBatch.from_columns(
            {key: columns[key][start : start + length] for key in columns if key != "seq_lens"}
        )
        part["seq_lens"] = torch.tensor([length])
        separate.append((length / 9, policy.loss(policy.model, None, part).stats))
    for name in ("image_loss", "reward_loss", "divergence", "actor_loss", "critic_loss"):
        assert float(means[name]) == pytest.approx(sum(share * float(part[name]) for share, part in separate), rel=1e-4)


def test_each_loss_moves_its_own_networks():
    policy = make_policy()
    for name, spec in policy.optimizer_specs.items():
        before = policy.get_weights()
        for optimizer in policy._optimizers:
            for group in optimizer.param_groups:
                group["lr"] = 0.0
        index = list(policy.optimizer_specs).index(name)
        for group in policy._optimizers[index].param_groups:
            group["lr"] = 1e-2
        policy.learn_on_batch(rows_of())
        moved = {
            key.partition(".")[0]
            for key, array in policy.get_weights().items()
            if not np.array_equal(array, before[key])
        }
        assert moved == set(spec.networks)


def test_the_model_learns_what_it_sees():
    policy, rows = make_policy(td_model_lr=1e-2), rows_of((5, 5))
    first = policy.learn_on_batch(rows)["learner_stats"]
    for _ in range(200):
        last = policy.learn_on_batch(rows)["learner_stats"]
    constant = 0.5 * np.log(2 * np.pi)
    assert last["reward_loss"] - constant < 0.3 * (first["reward_loss"] - constant)
    assert last["image_loss"] - 4 * constant < 0.3 * (first["image_loss"] - 4 * constant)


def test_pictures_keep_their_shape():
    """Four convolutions make 64 → 31 → 14 → 6 → 2, four others 1 → 5 → 13 → 30 → 64."""
    x = torch.rand(2, 3, 1, 64, 64)
    assert ConvEncoder(2, shape=(1, 64, 64))(x).shape == (2, 3, 64)
    said = ConvDecoder(5, 2, shape=(1, 64, 64))(torch.rand(2, 3, 5))
    assert said.mean.shape == (2, 3, 1, 64, 64)
    assert said.log_prob(x).shape == (2, 3)


def test_actors_begin_with_their_standard_deviation():
    actor = ActionDecoder(4, 2, 1, 8, init_std=5.0)
    torch.nn.init.zeros_(actor.model[-1].weight)
    mean, std = actor.moments(torch.rand(3, 4))
    assert mean.tolist() == [[0.0, 0.0]] * 3
    assert std.flatten().tolist() == pytest.approx([5.0001] * 6)
    limits = actor(torch.rand(3, 4)).log_prob(torch.tensor([[-1.0, 1.0]] * 3))
    assert torch.isfinite(limits).all()


def test_imagining_given_actions_is_what_the_prior_says():
    model = RSSM(2, 4, stoch=3, deter=6, hidden=6)
    states = model.imagine(torch.rand(5, 4, 2))
    assert [tuple(part.shape) for part in states] == [(5, 4, 3)] * 3 + [(5, 4, 6)]
    post, prior = model.observe(torch.rand(5, 4, 4), torch.rand(5, 4, 2), noise=torch.zeros(5, 4, 3))
    assert torch.equal(post[3], prior[3])
    assert torch.equal(post[2], post[0])


# --- acting ------------------------------------------------------------------------------------------------------


def test_acting_remembers_what_was_done():
    """The last state is the action with its noise, which the next posterior is given."""
    policy = make_policy(prefill_timesteps=0)
    states = [state[None] for state in policy.get_initial_state()]
    assert [state.shape[1] for state in states] == [3, 3, 3, 6, 2]
    actions, states, _ = policy.compute_actions(SEEN.sample()[None], states, explore=True)
    np.testing.assert_array_equal(states[4], actions)
    assert np.abs(actions).max() <= 1


def test_noise_is_added_to_the_actors_action():
    still, moved = (make_policy(prefill_timesteps=0, explore_noise=noise) for noise in (0.0, 0.3))
    states = [np.repeat(state[None], 500, 0) for state in still.get_initial_state()]
    obs = np.zeros((500, 4), np.float32)
    for policy in (still, moved):  # actors that always do the same
        weights = policy.get_weights()
        weights["actor.model.8.weight"][:], weights["actor.model.8.bias"][:] = 0.0, [0.0, 0.0, -99.0, -99.0]
        policy.set_weights(weights)
    assert np.abs(still.compute_actions(obs, states)[0]).max() < 1e-3
    assert moved.compute_actions(obs, states)[0].std() == pytest.approx(0.3, abs=0.02)
    assert np.abs(moved.compute_actions(obs, states, explore=False)[0]).max() < 1e-6


def test_first_actions_are_uniform():
    config = DreamerConfig.effective(config_of(prefill_timesteps=2000))
    policy = DreamerTorchPolicy(SEEN, BOX, config)
    states = [np.repeat(state[None], 999, 0) for state in policy.get_initial_state()]
    obs = np.zeros((999, 4), np.float32)
    first = policy.compute_actions(obs, states)[0]
    counts, _ = np.histogram(first, bins=4, range=(-1, 1))
    assert counts.min() > 400
    policy.compute_actions(obs[:1], [state[:1] for state in states])
    then = policy.compute_actions(obs, states)[0]
    assert (np.abs(then) == 1).mean() > 0.05  # noise beyond the bounds is cut off


def test_without_exploration_actions_are_the_same():
    policy = make_policy()
    states = [state[None] for state in policy.get_initial_state()]
    one, other = (policy.compute_actions(SEEN.sample()[None] * 0, states, explore=False) for _ in "12")
    np.testing.assert_array_equal(one[0], other[0])
    np.testing.assert_array_equal(one[1][2], one[1][0])  # the mean of the posterior


def test_bytes_and_layouts_are_one_picture():
    rng = np.random.default_rng(0)
    picture = rng.integers(0, 255, (1, 64, 64, 3), dtype=np.uint8)
    floats = gym.spaces.Box(-0.5, 0.5, (3, 64, 64), np.float32)
    of_bytes, of_floats = make_policy(PICTURES), make_policy(floats)
    states = [state[None] for state in of_bytes.get_initial_state()]
    given = (picture.transpose(0, 3, 1, 2) / 255 - 0.5).astype(np.float32)
    actions = of_bytes.compute_actions(picture, states, explore=False)[0]
    np.testing.assert_allclose(actions, of_floats.compute_actions(given, states, explore=False)[0], atol=1e-5)


def test_pictures_are_learned():
    policy = make_policy(PICTURES)
    before = policy.get_weights()
    stats = policy.learn_on_batch(rows_of((5, 3), space=PICTURES))["learner_stats"]
    assert stats["image_loss"] > 64 * 64 * 3 * 0.5 * np.log(2 * np.pi)
    moved = {
        key.partition(".")[0] for key, array in policy.get_weights().items() if not np.array_equal(array, before[key])
    }
    assert moved == {"encoder", "decoder", "reward", "dynamics", "actor", "value"}


def test_a_model_of_ones_own():
    class Larger(DreamerModel):
        def __init__(self, obs_space, action_space, num_outputs, model_config, name):
            super().__init__(obs_space, action_space, num_outputs, {**model_config, "hidden_size": 10}, name)

    policy = make_policy(dreamer_model={"custom_model": Larger})
    assert policy.get_weights()["value.model.0.weight"].shape == (10, 9)
    assert np.isfinite(policy.learn_on_batch(rows_of())["learner_stats"]["model_loss"])


def test_the_model_acts_for_programs_of_their_own():
    model = make_policy().model
    for state in (None, model.get_initial_state()):
        action, logp, state = model.policy(torch.zeros(2, 4), state, explore=False)
        assert [tuple(part.shape) for part in (action, logp, *state)] == [(2, 2), (2,), *[(2, 3)] * 3, (2, 6), (2, 2)]
    drawn, _, _ = model.policy(torch.zeros(2, 4), state)
    assert not torch.equal(drawn, action)


# --- replay ------------------------------------------------------------------------------------------------------


def test_histories_begin_with_nothing_done_and_end_with_the_last_observation():
    rows = rows_of((3, 2))
    first, second = histories(rows)
    assert [len(first["obs"]), len(second["obs"])] == [4, 3]
    np.testing.assert_array_equal(first["obs"], np.concatenate([rows["obs"][:3], rows["new_obs"][2:3]]))
    np.testing.assert_array_equal(second["prev_actions"], np.concatenate([np.zeros((1, 2)), rows["actions"][3:]]))
    np.testing.assert_array_equal(second["prev_rewards"], [0.0, *rows["rewards"][3:]])
    assert second["prev_terminateds"].tolist() == [0.0, 0.0, 1.0]


def test_pieces_are_drawn_from_anywhere_in_an_episode():
    buffer = EpisodicBuffer(length=3, seed=0)
    rows = rows_of((6,))
    rows["rewards"] = np.arange(1, 7, dtype=np.float32)
    buffer.add(rows)
    drawn = buffer.sample(500)
    assert drawn["seq_lens"].tolist() == [3] * 500
    starts, counts = np.unique(drawn["prev_rewards"][::3], return_counts=True)
    assert starts.tolist() == [0, 1, 2, 3, 4]  # of 7 observations
    assert counts.min() > 70
    assert (np.diff(drawn["prev_rewards"].reshape(-1, 3)) == 1).all()


def test_short_episodes_are_drawn_whole():
    buffer = EpisodicBuffer(length=50, seed=0)
    buffer.add(rows_of((5, 2)))
    assert set(buffer.sample(50)["seq_lens"]) == {6, 3}


def test_the_oldest_episodes_go():
    buffer = EpisodicBuffer(max_length=2, length=3)
    for length in (3, 4, 5):
        buffer.add(rows_of((length,)))
    assert [len(episode["obs"]) for episode in buffer.episodes] == [5, 6]
    assert buffer.timesteps == 12
    buffer.check_invariants()


def test_a_buffer_goes_on_bit_for_bit():
    buffer, again = EpisodicBuffer(length=4, seed=1), EpisodicBuffer(length=4, seed=2)
    buffer.add(rows_of((6, 3)))
    buffer.sample(3)
    again.set_state(buffer.get_state())
    one, other = buffer.sample(20), again.sample(20)
    for key in one:
        np.testing.assert_array_equal(one[key], other[key])
    assert again.timesteps == 9
    empty = EpisodicBuffer()
    empty.set_state(EpisodicBuffer().get_state())
    assert len(empty) == 0
    assert empty.replay() is None
    with pytest.raises(ValueError, match="there are no episodes yet"):
        empty.sample(1)
    with pytest.raises(CheckpointError, match="The saved replay buffer is a LocalReplayBuffer"):
        again.set_state({"num_added": 3})


# --- trainers ----------------------------------------------------------------------------------------------------


def test_runs_go_on_bit_for_bit(tmp_path):
    trainer, again = (DREAMERTrainer(SMALL, env="Pendulum-v1") for _ in "12")
    trainer.train()
    again.restore(trainer.save(str(tmp_path)))
    wanted, found = trainer.train(), again.train()
    assert found["hist_stats"]["episode_reward"] == wanted["hist_stats"]["episode_reward"]
    np.testing.assert_equal(found["info"]["learner"], wanted["info"]["learner"])
    np.testing.assert_equal(again.get_weights(), trainer.get_weights())
    trainer.stop(), again.stop()


def test_frames_and_actions():
    """Each of 10 actions of an episode is done twice; 40 frames of random actions are two episodes."""
    trainer = DREAMERTrainer(SMALL, env="Pendulum-v1")
    first, second = trainer.train(), trainer.train()
    assert first["episode_len_mean"] == 10
    assert (first["timesteps_total"], second["timesteps_total"]) == (20, 40)
    assert first["info"]["num_steps_trained"] == 2 * 3 * 6
    assert trainer.evaluate()["evaluation"]["episode_len_mean"] == 10
    trainer.stop()


def test_environments_of_evaluation_do_so_too():
    config = {**SMALL, "evaluation_num_episodes": 1, "evaluation_config": {"env": "Pendulum-v1"}}
    trainer = DREAMERTrainer(config, env=lambda config: RepeatedActions(gym.make("Pendulum-v1"), config["frame_skip"]))
    assert trainer.evaluate()["evaluation"]["episode_len_mean"] == 10
    trainer.stop()


def test_a_horizon_of_evaluation_counts_frames_as_the_trainers_does():
    trainer = DREAMERTrainer({**SMALL, "evaluation_config": {"horizon": 12}}, env="Pendulum-v1")
    assert trainer.evaluate()["evaluation"]["episode_len_mean"] == 6
    trainer.stop()


def test_actions_are_repeated_where_the_environment_does_not():
    config = {**SMALL, "horizon": None, "prefill_timesteps": 400, "env_config": {"frame_skip": 3}}
    trainer = DREAMERTrainer(config, env="Pendulum-v1")
    assert trainer.train()["episode_len_mean"] == 67  # of 200 frames
    trainer.stop()


def test_learner_steps_behind_each_sample():
    trainer = DREAMERTrainer(SMALL, env="Pendulum-v1")
    trainer.train(), trainer.train()
    assert trainer.get_policy().num_updates == 4
    stats = trainer.train()["info"]["learner"]["default_policy"]["learner_stats"]
    names = {
        "model_loss",
        "reward_loss",
        "image_loss",
        "divergence",
        "actor_loss",
        "critic_loss",
        "prior_ent",
        "post_ent",
    }
    assert names < set(stats)
    trainer.stop()


def test_plans_of_ones_own_have_the_buffer_and_know_the_repeats():
    """As RLlib's: the plan makes the buffer and fills it, and the worker learns."""

    def plan(workers, config):
        local, buffer = workers.local_worker(), EpisodicBuffer(length=config["batch_length"], seed=0)
        while buffer.timesteps * config["action_repeat"] < config["prefill_timesteps"]:
            buffer.add(local.sample())

        def learn(samples):
            info = local.learn_on_batch(buffer.sample(config["batch_size"]))
            buffer.add(samples)
            return {"info": {"learner": info}, "timesteps_total": buffer.timesteps * config["action_repeat"]}

        return ParallelRollouts(workers).for_each(learn)

    trainer = DREAMERTrainer.with_updates(execution_plan=plan)(SMALL, env="Pendulum-v1")
    result = trainer.train()
    assert result["timesteps_total"] == 80
    assert np.isfinite(result["info"]["learner"]["default_policy"]["learner_stats"]["model_loss"])
    trainer.stop()


@pytest.mark.ray
def test_remote_workers_act_as_the_driver_would(ray_runtime):
    made = []
    for workers in (0, 1):
        trainer = DREAMERTrainer({**SMALL, "num_workers": workers}, env="Pendulum-v1")
        results = [trainer.train() for _ in range(3)]
        made.append([result["hist_stats"]["episode_reward"] for result in results])
        trainer.stop()
    assert made[0] == made[1]


def test_rllibs_defaults():
    wanted = {
        "td_model_lr": 6e-4, "actor_lr": 8e-5, "critic_lr": 8e-5, "grad_clip": 100.0, "discount": 0.99, "lambda": 0.95,
        "clip_actions": False, "dreamer_train_iters": 100, "horizon": 1000, "batch_size": 50, "batch_length": 50,
        "imagine_horizon": 15, "free_nats": 3.0, "kl_coeff": 1.0, "num_workers": 0, "prefill_timesteps": 5000,
        "num_envs_per_worker": 1, "explore_noise": 0.3, "batch_mode": "complete_episodes",
        "env_config": {"frame_skip": 2}, "rollout_fragment_length": 200,
    }  # fmt: skip
    assert {key: DEFAULT_CONFIG[key] for key in wanted} == wanted
    networks = {"deter_size": 200, "stoch_size": 30, "depth_size": 32, "hidden_size": 400, "action_init_std": 5.0}
    assert {key: DEFAULT_CONFIG["dreamer_model"][key] for key in networks} == networks


# --- bad input ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("spaces", "sentence"),
    [
        (
            (SEEN, gym.spaces.Discrete(2)),
            r"got the action space Discrete\(2\), wanted a bounded Box with one dimension",
        ),
        ((SEEN, gym.spaces.Box(-1, 1, (2, 2))), "got the action space .*, wanted a bounded Box with one dimension"),
        ((SEEN, gym.spaces.Box(-np.inf, 1, (2,))), "got the action space .*, wanted a bounded Box with one dimension"),
        (
            (gym.spaces.Box(0, 255, (84, 84, 3), np.uint8), BOX),
            r"got observations of shape \(84, 84, 3\), wanted vectors",
        ),
        ((gym.spaces.Box(-1, 1, (3, 4)), BOX), r"got observations of shape \(3, 4\)"),
    ],
)
def test_spaces_that_cannot_be_are_refused(spaces, sentence):
    with pytest.raises(UnsupportedSpaceException, match=f"^DreamerTorchPolicy: {sentence}"):
        make_policy(*spaces)


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"framework": "tf"}, "framework='tf': Dreamer is in PyTorch alone"),
        ({"batch_mode": "truncate_episodes"}, "set 'complete_episodes'"),
        ({"clip_actions": True}, "clip_actions=True: actions are squashed"),
        ({"normalize_actions": False}, "normalize_actions=False: the policy acts in"),
        ({"num_gpus": 2}, "Dreamer learns on one GPU"),
        ({"env_config": {"frame_skip": 0}}, "env_config.frame_skip=0: wanted an integer >= 1"),
        ({"exploration_config": {"type": "Random"}}, "explore_noise and prefill_timesteps"),
        ({"model": {"use_lstm": True}}, "set dreamer_model instead"),
        ({"multiagent": {"policies": {"a": (None, None, None, {})}}}, "one policy learns"),
        ({"dreamer_model": {"deter_sise": 3}}, "deter_sise"),
        ({"imagine_horizon": 1}, "imagine_horizon"),
        (
            {"dreamer_model": {"custom_model": "rlframe.models.torch.fcnet.FullyConnectedNetwork"}},
            "derived from DreamerModel",
        ),
    ],
)
def test_configs_that_cannot_be_are_refused(wrong, sentence):
    with pytest.raises(ConfigError, match=sentence):
        DREAMERTrainer({**SMALL, **wrong}, env="Pendulum-v1")


@pytest.mark.parametrize(
    ("unread", "sentence"),
    [
        ({"gamma": 0.5}, "gamma=0.5 has no effect here; set discount"),
        ({"train_batch_size": 7}, "set batch_size and batch_length"),
        ({"lr": 1.0}, "set actor_lr and critic_lr"),
        ({"model": {"fcnet_hiddens": [3]}}, "model.fcnet_hiddens.* set dreamer_model"),
    ],
)
def test_keys_without_effect_are_named(unread, sentence):
    with pytest.warns(UserWarning, match=sentence):
        DREAMERTrainer({**SMALL, **unread}, env="Pendulum-v1").stop()
