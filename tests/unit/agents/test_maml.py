"""MAML: the gradient through steps of adaptation against autograd's, tasks, results, resume, and what is refused."""

import gymnasium as gym
import numpy as np
import pytest

from rlframe.agents.maml import MAMLTorchPolicy, MAMLTrainer
from rlframe.examples.env.classic_variants import CartPoleMassEnv, PendulumMassEnv
from rlframe.utils.errors import ConfigError, EnvError
from tests.contract.test_policies import make, make_batch
from tests.helpers.frameworks import needs_tf

TASKS, STEPS = 2, 2
OVERRIDES = {"num_workers": TASKS, "inner_adaptation_steps": STEPS, "maml_optimizer_steps": 1, "kl_coeff": 0.3,
             "entropy_coeff": 0.01, "clip_param": 0.1}  # fmt: skip
CONFIG = {"num_workers": 2, "rollout_fragment_length": 40, "seed": 0, "model": {"fcnet_hiddens": [8]}}


def rounds_of_rows():
    """Returns a batch of each task, for each step of adaptation and for what is behind them."""
    return [[make_batch(12, seed=10 * step + task) for task in range(TASKS)] for step in range(STEPS + 1)]


def by_autograd(policy, rounds):
    """Returns J and its gradient, with the steps of adaptation within one graph."""
    import torch

    model, config = policy.model, policy.config
    columns = [[{key: torch.as_tensor(batch[key]) for key in policy.learn_columns} for batch in row] for row in rounds]

    class Both(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = model

        def forward(self, obs):
            logits, _ = model({"obs": obs, "obs_flat": obs}, [], None)
            return logits, model.value_function()

    both = Both()

    def terms(weights, rows, clip):
        by_name = {f"inner.{name}": weight for name, weight in weights.items()}
        logits, values = torch.func.functional_call(both, by_name, (rows["obs"],))
        logp = torch.log_softmax(logits, 1)
        old = torch.log_softmax(rows["action_dist_inputs"], 1)
        chosen = logp.gather(1, rows["actions"].long()[:, None])[:, 0]
        ratio = torch.exp(chosen - rows["action_logp"])
        clipped = torch.minimum(ratio * rows["advantages"], ratio.clamp(1 - clip, 1 + clip) * rows["advantages"])
        entropy = -(logp.exp() * logp).sum(1).mean()
        moved = rows["vf_preds"] + (values - rows["vf_preds"]).clamp(-config.vf_clip_param, config.vf_clip_param)
        targets = rows["value_targets"]
        errors = torch.maximum((values - targets) ** 2, (moved - targets) ** 2).mean()
        loss = -clipped.mean() + config.vf_loss_coeff * errors - config.entropy_coeff * entropy
        return loss, (old.exp() * (old - logp)).sum(1).mean()

    start = {name: weight.detach().clone().requires_grad_() for name, weight in model.named_parameters()}
    total, divergences = torch.zeros(()), []
    for task in range(TASKS):
        weights = start
        for step in range(STEPS):
            loss, kl = terms(weights, columns[step][task], np.inf)
            slopes = torch.autograd.grad(loss, list(weights.values()), create_graph=True)
            total = total + config.kl_coeff / STEPS * kl
            divergences.append(kl.item())
            weights = {
                name: weight - config.inner_lr * slope
                for (name, weight), slope in zip(weights.items(), slopes, strict=True)
            }
        total = total + terms(weights, columns[STEPS][task], config.clip_param)[0]
    total = total / TASKS
    total.backward()
    return total.item(), {name: weight.grad.numpy() for name, weight in start.items()}, divergences


def test_the_gradient_goes_through_the_steps_of_adaptation():
    policy = make("torch", "MAML", OVERRIDES)
    rounds = rounds_of_rows()
    wanted, slopes, divergences = by_autograd(policy, rounds)
    begun = policy._problem.get_flat()
    found, stats = policy._gradient_through_steps(begun, list(zip(*rounds, strict=True)))
    by_name = dict(zip(slopes, policy._problem.gradients_of(found), strict=True))
    for name, slope in slopes.items():
        np.testing.assert_allclose(by_name[name], slope, rtol=1e-3, atol=1e-5, err_msg=name)
    np.testing.assert_allclose(stats["inner_kl"], divergences, rtol=1e-4)
    # Without second derivatives it is another one: this batch tells them apart.
    first_order = sum(
        policy._gradient(rows[-1], policy._adapt(begun, rows[:-1]).weights[-1], clip=0.1)
        for rows in zip(*rounds, strict=True)
    )
    assert np.abs(first_order / TASKS - found).max() > 0.01
    assert wanted == pytest.approx(stats["total_loss"], rel=1e-4)


@needs_tf
def test_both_frameworks_learn_the_same():
    one, other = make("torch", "MAML", OVERRIDES), make("tf", "MAML", OVERRIDES)
    other.set_weights(one.get_weights())
    for _ in range(3):
        told = [policy.learn_on_rounds(rounds_of_rows())["learner_stats"] for policy in (one, other)]
        assert told[0].keys() == told[1].keys()
        for name, value in told[0].items():
            np.testing.assert_allclose(told[1][name], value, rtol=2e-3, atol=1e-5, err_msg=name)
    for name, weights in one.get_weights().items():
        np.testing.assert_allclose(other.get_weights()[name], weights, rtol=1e-3, atol=2e-5, err_msg=name)


def test_adapting_is_one_step_of_gradient_descent_that_leaves_the_policy_alone():
    policy, rows = make("torch", "MAML", {**OVERRIDES, "inner_lr": 0.5}), make_batch(12)
    before = policy.get_weights()
    gradients, _ = policy.compute_gradients(rows)
    adapted = policy.adapted_weights(rows, before)
    for (name, weights), gradient in zip(before.items(), gradients, strict=True):
        np.testing.assert_allclose(adapted[name], weights - 0.5 * gradient, rtol=1e-5, atol=1e-6, err_msg=name)
        np.testing.assert_array_equal(policy.get_weights()[name], weights)


def test_weights_of_divergences_follow_each_tasks_own():
    policy = make("torch", "MAML", {"num_workers": 3, "kl_coeff": 0.4, "kl_target": 0.01})
    assert policy.update_kls([0.02, 0.01, 0.001]) == [0.8, 0.4, 0.2]
    again = make("torch", "MAML", {"num_workers": 3})
    again.set_state(policy.get_state())
    assert again.kl_coeff_val == [0.8, 0.4, 0.2]


def test_what_is_left_of_the_tasks_is_learned_from():
    one, other = make("torch", "MAML", {**OVERRIDES, "num_workers": 3}), make("torch", "MAML", OVERRIDES)
    told = [policy.learn_on_rounds(rounds_of_rows())["learner_stats"] for policy in (one, other)]
    assert told[0]["total_loss"] == told[1]["total_loss"]
    alone = make("torch", "MAML", {**OVERRIDES, "num_workers": 1, "inner_adaptation_steps": 1})
    stats = alone.learn_on_rounds([batches[:1] for batches in rounds_of_rows()[:2]])["learner_stats"]
    assert stats["inner_kl"].shape == stats["cur_kl_coeff"].shape == (1,)
    assert len(one.kl_coeff_val) == 3 * STEPS


def test_gradients_are_clipped_as_a_whole():
    rounds = rounds_of_rows()
    free, held = (
        make("torch", "MAML", {**OVERRIDES, "lr": 1e-2}),
        make("torch", "MAML", {**OVERRIDES, "grad_clip": 0.01}),
    )
    found, _ = free._gradient_through_steps(free._problem.get_flat(), list(zip(*rounds, strict=True)))
    assert np.linalg.norm(found) > 0.01
    assert np.linalg.norm(held._clipped(found)) == pytest.approx(0.01, rel=1e-4)
    np.testing.assert_array_equal(free._clipped(found), found)


class Tasks(CartPoleMassEnv):
    """Says its task in each observation's first number, which nothing moves."""

    def __init__(self, config=None):
        super().__init__(config)
        self.observation_space = gym.spaces.Box(-np.inf, np.inf, (4,), np.float32)

    def _with_task(self, obs):
        return np.array([self.masspole, *obs[1:]], np.float32)

    def reset(self, **kwargs):
        obs, info = super().reset(**kwargs)
        return self._with_task(obs), info

    def step(self, action):
        obs, *rest = super().step(action)
        return self._with_task(obs), *rest


@pytest.mark.ray
@pytest.mark.slow
def test_each_worker_has_a_task_and_weights_of_its_own_and_resumes_exactly(tmp_path, ray_runtime):
    seen = []

    class Looks(MAMLTorchPolicy):
        def learn_on_rounds(self, rounds):
            seen.append([[batch["obs"][:, 0].copy() for batch in batches] for batches in rounds])
            return super().learn_on_rounds(rounds)

    trainer_class = MAMLTrainer.with_updates(name="MAML", get_policy_class=lambda _: Looks)
    trainer = trainer_class(CONFIG, env=Tasks)
    first = trainer.train()
    for key in ("max", "mean", "min"):
        assert first[f"episode_reward_{key}_adapt_1"] >= 8
    assert first["adaptation_delta"] == first["episode_reward_mean_adapt_1"] - first["episode_reward_mean"]
    assert first["info"]["num_steps_sampled"] == first["info"]["num_steps_trained"] > 4 * 40
    stats = first["info"]["learner"]["default_policy"]["learner_stats"]
    assert len(stats["inner_kl"]) == 2
    path = trainer.save(str(tmp_path))
    second = trainer.train()
    trainer.stop()
    for before, behind in seen:
        masses = [
            np.unique(np.concatenate([one[-40:], other[-40:]])) for one, other in zip(before, behind, strict=True)
        ]
        assert [len(mass) for mass in masses] == [1, 1]  # a task lasts for an update
        assert masses[0] != masses[1]
    again = trainer_class(CONFIG, env=Tasks)
    again.restore(path)
    resumed = again.train()
    again.stop()
    assert resumed["info"]["learner"].keys() == second["info"]["learner"].keys()
    np.testing.assert_equal(resumed["info"]["learner"], second["info"]["learner"])
    assert resumed["adaptation_delta"] == second["adaptation_delta"]


def test_without_remote_workers_the_local_one_adapts_to_a_task_for_each_update(tmp_path):
    trainer = MAMLTrainer({**CONFIG, "num_workers": 0, "inner_adaptation_steps": 2}, env=Tasks)
    first = trainer.train()
    assert first["adaptation_delta"] == first["episode_reward_mean_adapt_2"] - first["episode_reward_mean"]
    assert first["info"]["num_steps_sampled"] == first["info"]["num_steps_trained"] >= 3 * 40
    path = trainer.save(str(tmp_path))
    again = MAMLTrainer({**CONFIG, "num_workers": 0, "inner_adaptation_steps": 2}, env=Tasks)
    again.restore(path)
    wanted, found = trainer.train(), again.train()
    np.testing.assert_equal(found["info"]["learner"], wanted["info"]["learner"])
    assert found["adaptation_delta"] == wanted["adaptation_delta"]
    np.testing.assert_equal(again.get_weights(), trainer.get_weights())
    trainer.stop(), again.stop()


@pytest.mark.ray
@pytest.mark.slow
def test_environments_without_tasks_are_named(ray_runtime):
    trainer = MAMLTrainer(CONFIG, env="CartPole-v1")
    with pytest.raises(EnvError, match=r"no sample_tasks\(n\) and set_task\(task\)"):
        trainer.train()
    trainer.stop()
    trainer = MAMLTrainer({**CONFIG, "use_meta_env": False}, env="CartPole-v1")
    assert trainer.train()["episode_reward_mean"] > 0
    trainer.stop()


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"batch_mode": "truncate_episodes"}, "an episode belongs to one task"),
        ({"inner_adaptation_steps": 0}, "inner_adaptation_steps"),
        ({"create_env_on_driver": False}, "tasks are asked of an environment on the driver"),
        ({"model": {"use_lstm": True}}, "without memory"),
        ({"multiagent": {"policies": {"one"}}}, "one policy adapts"),
    ],
)
def test_configs_that_cannot_be_are_refused(wrong, sentence):
    with pytest.raises(ConfigError, match=sentence):
        MAMLTrainer({**CONFIG, **wrong}, env=PendulumMassEnv)
