"""RLlib's policies, put together again from its functions under their old names: what programs derive from.

Each learns, and where its parts are those of the built-in policy, it learns the same.
"""

from __future__ import annotations

import importlib
from types import SimpleNamespace

import gymnasium as gym
import numpy as np
import pytest

from rlframe.agents.registry import get_trainer_class
from rlframe.policy.policy_template import build_policy_class
from tests.helpers.frameworks import TORCH_FIRST

COMMON = {
    "num_workers": 0, "rollout_fragment_length": 20, "min_iter_time_s": 0, "timesteps_per_iteration": 0, "seed": 3,
    "log_sys_usage": False, "model": {"fcnet_hiddens": [8]},
}  # fmt: skip
CONFIGS = {
    "PPO": {"train_batch_size": 40, "sgd_minibatch_size": 20, "num_sgd_iter": 2, "normalize_values": False, "lr": 1e-3},
    "A2C": {"train_batch_size": 40},
    "DQN": {"learning_starts": 20, "train_batch_size": 16, "n_step": 2, "target_network_update_freq": 40},
    "SimpleQ": {"learning_starts": 20, "train_batch_size": 16},
    "IMPALA": {"train_batch_size": 40, "grad_clip": 40.0, "num_sgd_iter": 2},
    "APPO": {"train_batch_size": 40, "grad_clip": 40.0, "num_sgd_iter": 2, "normalize_values": False},
}


def module(path, framework):
    return importlib.import_module(f"rlframe.agents.{path}_{framework}_policy")


def schedules(framework):
    found = importlib.import_module(f"rlframe.policy.{framework}_policy")
    return [found.LearningRateSchedule, found.EntropyCoeffSchedule]


def ppo_parts(framework):
    """The call that RLlib's PPO policies were made by."""
    ppo = module("ppo/ppo".replace("/", "."), framework)
    from rlframe.evaluation.postprocessing import compute_gae_for_sample_batch

    parts = {
        "loss_fn": ppo.ppo_surrogate_loss,
        "stats_fn": ppo.kl_and_loss_stats,
        "extra_action_out_fn": ppo.vf_preds_fetches,
        "postprocess_fn": compute_gae_for_sample_batch,
        "before_init": ppo.setup_config,
        "before_loss_init": ppo.setup_mixins,
        "mixins": [*schedules(framework), ppo.KLCoeffMixin, ppo.ValueNetworkMixin],
    }
    if framework == "torch":
        return {**parts, "extra_grad_process_fn": ppo.apply_grad_clipping}
    return {**parts, "gradients_fn": ppo.compute_and_clip_gradients}


def a3c_parts(framework):
    a3c = module("a3c.a3c", framework)
    parts = {
        "loss_fn": a3c.actor_critic_loss,
        "stats_fn": a3c.stats,
        "before_loss_init": a3c.setup_mixins,
        "postprocess_fn": a3c.postprocess_advantages,
        "mixins": [*schedules(framework), a3c.ValueNetworkMixin],
    }
    if framework == "torch":
        grads = {"extra_grad_process_fn": a3c.apply_grad_clipping, "optimizer_fn": a3c.torch_optimizer}
        return {**parts, **grads, "extra_action_out_fn": a3c.vf_preds_fetches}
    grads = {"gradients_fn": a3c.clip_gradients, "grad_stats_fn": a3c.grad_stats}
    return {**parts, **grads, "extra_action_out_fn": a3c.add_value_function_fetch}


def dqn_parts(framework):
    dqn = module("dqn.dqn", framework)
    parts = {
        "loss_fn": dqn.build_q_losses,
        "stats_fn": dqn.build_q_stats,
        "postprocess_fn": dqn.postprocess_nstep_and_prio,
        "optimizer_fn": dqn.adam_optimizer,
        "action_distribution_fn": dqn.get_distribution_inputs_and_class,
        "mixins": [dqn.TargetNetworkMixin, dqn.ComputeTDErrorMixin, schedules(framework)[0]],
    }
    if framework == "torch":
        return {
            **parts,
            "make_model_and_action_dist": dqn.build_q_model_and_distribution,
            "extra_grad_process_fn": dqn.grad_process_and_td_error_fn,
            "extra_learn_fetches_fn": dqn.concat_multi_gpu_td_errors,
            "extra_action_out_fn": dqn.extra_action_out_fn,
            "before_init": dqn.setup_early_mixins,
            "before_loss_init": dqn.before_loss_init,
        }
    return {
        **parts,
        "make_model": dqn.build_q_model,
        "gradients_fn": dqn.clip_gradients,
        "extra_action_out_fn": lambda policy: {"q_values": policy.q_values},
        "extra_learn_fetches_fn": lambda policy: {"td_error": policy._loss_outputs["td_error"]},
        "before_loss_init": dqn.setup_mid_mixins,
        "after_init": dqn.setup_late_mixins,
    }


def simple_q_parts(framework):
    simple_q = module("dqn.simple_q", framework)
    parts = {
        "loss_fn": simple_q.build_q_losses,
        "action_distribution_fn": simple_q.get_distribution_inputs_and_class,
        "after_init": simple_q.setup_late_mixins,
        "mixins": [simple_q.TargetNetworkMixin],
    }
    if framework == "torch":
        more = {"stats_fn": simple_q.stats_fn, "extra_action_out_fn": simple_q.extra_action_out_fn}
        return {**parts, **more, "make_model_and_action_dist": simple_q.build_q_model_and_distribution}
    return {**parts, "make_model": simple_q.build_q_models}


def impala_parts(framework):
    impala = module("impala.vtrace", framework)
    parts = {
        "loss_fn": impala.build_vtrace_loss,
        "stats_fn": impala.stats,
        "optimizer_fn": impala.choose_optimizer,
        "before_init": impala.setup_mixins,
        "mixins": schedules(framework),
        "get_batch_divisibility_req": lambda policy: policy.config["rollout_fragment_length"],
    }
    return parts if framework == "torch" else {**parts, "gradients_fn": impala.clip_gradients}


def appo_parts(framework):
    appo, impala = module("ppo.appo", framework), module("impala.vtrace", framework)
    return {
        "loss_fn": appo.appo_surrogate_loss,
        "stats_fn": appo.stats,
        "postprocess_fn": appo.postprocess_trajectory,
        "extra_action_out_fn": appo.add_values,
        "optimizer_fn": impala.choose_optimizer,
        "before_init": impala.setup_mixins,
        "before_loss_init": appo.setup_late_mixins,
        "make_model": appo.make_appo_model,
        "mixins": [*schedules(framework), appo.KLCoeffMixin, appo.TargetNetworkMixin, appo.ValueNetworkMixin],
    }


PARTS = {
    "PPO": ppo_parts,
    "A2C": a3c_parts,
    "DQN": dqn_parts,
    "SimpleQ": simple_q_parts,
    "IMPALA": impala_parts,
    "APPO": appo_parts,
}


def make_trainer(name, framework, *, derived):
    trainer_class, defaults = get_trainer_class(name, return_config=True)
    if derived:
        hooks = {"get_default_config": lambda: defaults, **PARTS[name](framework)}
        policy = build_policy_class(f"My{name}", framework=framework, **hooks)
        trainer_class = trainer_class.with_updates(name=f"My{name}", default_policy=policy)
    return trainer_class({**COMMON, **CONFIGS[name], "framework": framework}, env="CartPole-v1")


def train(trainer, iterations=3):
    for _ in range(iterations):
        infos = trainer.train()["info"]["learner"]
    return infos["default_policy"]["learner_stats"]


@pytest.mark.parametrize("framework", TORCH_FIRST)
@pytest.mark.parametrize("name", PARTS)
def test_a_policy_of_rllibs_functions_learns(name, framework):
    trainer = make_trainer(name, framework, derived=True)
    before = trainer.get_weights()["default_policy"]
    stats = train(trainer)
    after = trainer.get_weights()["default_policy"]
    assert any(np.abs(after[key] - before[key]).max() > 1e-6 for key in before)
    assert all(np.isfinite(value) for value in stats.values())
    if name in {"PPO", "A2C", "DQN"}:  # no part is RLlib's alone: the numbers are the built-in policy's
        built_in = make_trainer(name, framework, derived=False)
        expected = train(built_in)
        expected.pop("var_gnorm", None)  # which RLlib's functions for A2C tell in TensorFlow alone
        assert set(expected) <= set(stats)
        assert {key: stats[key] for key in expected} == pytest.approx(expected, rel=1e-3, abs=1e-5)
        built_in.stop()
    trainer.stop()


def test_the_loss_of_rllib_08_is_an_object_of_the_same_numbers():
    ppo = module("ppo.ppo", "torch")

    def loss(policy, model, dist_class, train_batch):
        dist = dist_class(model.from_batch(train_batch)[0], model)
        columns = ("value_targets", "advantages", "actions", "behaviour_logits", "action_logp", "vf_preds")
        policy.loss_obj = ppo.PPOLoss(
            dist_class, model, *(train_batch[name] for name in columns), dist, model.value_function(), policy.kl_coeff,
            valid_mask=train_batch["advantages"] == train_batch["advantages"],
            entropy_coeff=policy.entropy_coeff, clip_param=policy.config["clip_param"],
            vf_clip_param=policy.config["vf_clip_param"], vf_loss_coeff=policy.config["vf_loss_coeff"],
        )  # fmt: skip
        return policy.loss_obj.loss

    base = get_trainer_class("PPO")
    made = ppo.PPOTorchPolicy.with_updates(name="Own", loss_fn=loss)
    told = []
    for trainer_class in (base, base.with_updates(default_policy=made)):
        trainer = trainer_class({**COMMON, **CONFIGS["PPO"], "entropy_coeff": 0.01}, env="CartPole-v1")
        told.append(train(trainer))
        trainer.stop()
    assert {"kl", "policy_loss", "vf_loss", "entropy", "total_loss"} <= told[1].keys() <= told[0].keys()
    assert {name: told[0][name] for name in told[1]} == pytest.approx(told[1], rel=1e-4, abs=1e-6)


class Kept:
    """What a loss for RLlib 0.8 left on its policy."""

    def __init__(self, kl):
        self.mean_kl, self.loss = kl, kl * 0.0


@pytest.mark.parametrize("framework", TORCH_FIRST)
@pytest.mark.parametrize("place", ["loss_obj", "_mean_kl", "tower_stats"])
def test_a_loss_of_the_users_own_is_told_of_and_its_penalty_adapts(framework, place):
    ppo, trainer = module("ppo.ppo", framework), get_trainer_class("PPO")

    def loss(policy, model, dist_class, train_batch):
        logits, _ = model.from_batch(train_batch)
        before = dist_class(train_batch["behaviour_logits"], model)  # RLlib 0.8's name
        kl = before.kl(dist_class(logits, model))
        kl = kl.mean() if framework == "torch" else importlib.import_module("tensorflow").reduce_mean(kl)
        if place == "tower_stats":
            model.tower_stats["mean_kl_loss"] = kl
        else:
            setattr(policy, place, Kept(kl) if place == "loss_obj" else kl)
        return kl

    def postprocess(policy, batch, other_agent_batches=None, episode=None):
        batch["before"] = batch["prev_actions"] * 1.0
        return ppo.compute_gae_for_sample_batch(policy, batch, other_agent_batches, episode)

    parts = {"loss_fn": loss, "postprocess_fn": postprocess}
    made = build_policy_class("Own", framework, **{**ppo_parts(framework), **parts})
    config = {"framework": framework, "num_workers": 0, "train_batch_size": 128, "num_sgd_iter": 1}
    running = trainer.with_updates(default_policy=made, get_policy_class=None)(config, env="CartPole-v1")
    stats = running.train()["info"]["learner"]["default_policy"]["learner_stats"]
    assert stats["kl"] == pytest.approx(0, abs=1e-5)
    assert running.get_policy().kl_coeff == pytest.approx(0.1)  # halved
    running.stop()


@pytest.mark.parametrize("place", ["tower_stats", "policy", "policy.loss"])
def test_losses_of_the_users_own_tell_by_what_they_keep(place):
    import torch

    names = ("pi_err", "value_err", "entropy", "pi_loss", "vf_loss", "mean_entropy", "mean_kl")
    kept = {name: torch.tensor(float(number)) for number, name in enumerate(names)}

    def loss(policy, model, dist_class, train_batch):
        logits, _ = model(train_batch)
        if place == "tower_stats":
            model.tower_stats.update(kept)
        elif place == "policy":  # as up to RLlib 1.4
            vars(policy).update(kept, _entropy=lambda batch: 7)  # a method of the program's is no statistic
        else:
            policy.loss = SimpleNamespace(**kept)
        return logits.mean()

    expected = {
        "A2C": {"policy_loss": 0.0, "vf_loss": 1.0, "policy_entropy": 2.0},
        "IMPALA": {"policy_loss": 3.0, "vf_loss": 4.0, "entropy": 5.0, "kl": 6.0},
    }
    for name, stats in expected.items():
        base = get_trainer_class(name)
        policy_class = base({"num_workers": 0}, env="CartPole-v1").get_policy().__class__
        made = policy_class.with_updates(name="Own", loss_fn=loss)
        trainer = base.with_updates(default_policy=made)({**COMMON, **CONFIGS[name]}, env="CartPole-v1")
        assert stats.items() <= train(trainer).items()
        trainer.stop()


def test_statistics_by_rllib_113s_name_are_told_of_and_go_on_above():
    base = module("ppo.ppo", "torch").PPOTorchPolicy

    class Told(base):
        def stats_fn(self, train_batch):
            return {**super().stats_fn(train_batch), "mine": 3.0}

    class Again(Told):
        def extra_grad_info(self, train_batch):
            return {**super().extra_grad_info(train_batch), "more": 4.0}

    trainer = get_trainer_class("PPO").with_updates(name="Told", default_policy=Again)(
        {**COMMON, **CONFIGS["PPO"], "framework": "torch"}, env="CartPole-v1"
    )
    stats = trainer.train()["info"]["learner"]["default_policy"]["learner_stats"]
    assert (stats["mine"], stats["more"]) == (3.0, 4.0)
    assert "policy_loss" in stats
    trainer.stop()


@pytest.mark.parametrize("place", ["before", "behind"])
def test_schedules_work_before_and_behind_the_policy(place):
    learning_rate, entropy = schedules("torch")
    torch_policy = importlib.import_module("rlframe.policy.torch_policy").TorchPolicy
    bases = (torch_policy, learning_rate, entropy) if place == "behind" else (learning_rate, entropy, torch_policy)

    class Scheduled(*bases):
        def __init__(self, observation_space, action_space, config):
            torch_policy.__init__(self, observation_space, action_space, config)
            learning_rate.__init__(self, 0.5, [[0, 0.5], [100, 0.0]])
            entropy.__init__(self, 1.0, [[0, 1.0], [100, 0.0]])

    box = gym.spaces.Box(-1.0, 1.0, (2,), np.float32)
    policy = Scheduled(box, gym.spaces.Discrete(2), {"framework": "torch", "lr": 0.5, "model": {"fcnet_hiddens": [4]}})
    policy.on_global_var_update({"timestep": 50})
    assert (policy.cur_lr, policy.entropy_coeff, policy.global_timestep) == (0.25, 0.5, 50)
    assert {group["lr"] for optimizer in policy._optimizers for group in optimizer.param_groups} == {0.25}


@pytest.mark.parametrize("framework", TORCH_FIRST)
def test_what_dqns_loss_computed_is_kept_as_an_attribute(framework):
    dqn = module("dqn.dqn", framework)
    base = getattr(dqn, "DQNTorchPolicy" if framework == "torch" else "DQNTFPolicy")
    derived = base.with_updates(
        name="Read", loss_fn=dqn.build_q_losses, stats_fn=lambda policy, batch: {"mine": policy.q_loss.loss}
    )
    config = {**COMMON, **CONFIGS["DQN"], "framework": framework}
    trainer = get_trainer_class("DQN").with_updates(name="Read", default_policy=derived)(config, env="CartPole-v1")
    while not (learned := trainer.train()["info"]["learner"]):
        pass
    assert np.isfinite(learned["default_policy"]["learner_stats"]["mine"])
    trainer.stop()


@pytest.mark.parametrize(
    ("name", "path", "loss_name", "kept", "told"),
    [
        ("PG", "pg.pg", "pg_torch_loss", "policy.model.tower_stats['policy_loss']", "policy_loss"),
        ("PG", "pg.pg", "pg_torch_loss", "policy.pi_err", "policy_loss"),
        ("MARWIL", "marwil.marwil", "marwil_loss", "policy.p_loss", "policy_loss"),
        ("MARWIL", "marwil.marwil", "marwil_loss", "policy.v_loss", "vf_loss"),
        ("MARWIL", "marwil.marwil", "marwil_loss", "policy.explained_variance", "vf_explained_var"),
        ("R2D2", "dqn.r2d2", "r2d2_loss", "policy.model.tower_stats['mean_td_error']", "mean_td_error"),
    ],
)
def test_losses_of_rllibs_keep_their_parts_under_its_names(name, path, loss_name, kept, told):
    found, base, read = module(path, "torch"), get_trainer_class(name), {}

    def stats(policy, train_batch):
        read["kept"] = float(eval(kept, {"policy": policy}))
        return {"mine": read["kept"]}

    policy_class = getattr(found, f"{name}TorchPolicy")
    derived = policy_class.with_updates(name="Read", loss_fn=getattr(found, loss_name), stats_fn=stats)
    config = {**COMMON, "train_batch_size": 40}
    if name == "R2D2":
        config |= {"learning_starts": 20, "model": {"use_lstm": True, "lstm_cell_size": 4, "fcnet_hiddens": [4]}}
    trainer = base.with_updates(name="Read", default_policy=derived)(config, env="CartPole-v1")
    while not (learned := trainer.train()["info"]["learner"]):
        pass
    stats = learned["default_policy"]["learner_stats"]
    assert stats["mine"] == pytest.approx(read["kept"])
    assert np.isfinite(stats["mine"])
    assert stats.get(told, stats["mine"]) == pytest.approx(stats["mine"])
    trainer.stop()


@pytest.mark.parametrize("framework", TORCH_FIRST)
def test_networks_of_dqn_have_the_names_of_rllib_10_to_18(framework):
    dqn = module("dqn.dqn", framework)
    base = getattr(dqn, "DQNTorchPolicy" if framework == "torch" else "DQNTFPolicy")
    seen = {}

    def optimizer(policy, config):
        seen.update(rate=policy.cur_lr, count=len(policy.q_func_vars))
        return base.optimizer(policy)

    derived = base.with_updates(name="Named", optimizer_fn=optimizer)
    box = gym.spaces.Box(-1.0, 1.0, (2,), np.float32)
    policy = derived(box, gym.spaces.Discrete(2), {"framework": framework, "lr": 0.25, "hiddens": [4]})
    assert policy.q_model is policy.model
    assert policy.target_q_model is policy.target_model
    assert seen == {"rate": 0.25, "count": len(policy.target_q_func_vars)}
    policy.q_func_vars = []  # copies of its functions set it
    assert policy.q_func_vars == []


def test_a_target_that_is_built_as_in_rllib_10_to_18_is_updated():
    torch = pytest.importorskip("torch")
    simple_q = importlib.import_module("rlframe.agents.dqn.simple_q_torch_policy")
    categorical = importlib.import_module("rlframe.models.torch.torch_action_dist").TorchCategorical
    catalog = importlib.import_module("rlframe.models").ModelCatalog

    def build(policy, obs_space, action_space, config):
        policy.q_model, policy.target_q_model = (
            catalog.get_model_v2(obs_space, action_space, action_space.n, config["model"], "torch", name=name)
            for name in ("q_func", "target_q_func")
        )
        return policy.q_model, categorical

    def loss(policy, model, dist_class, batch):
        return policy.target_q_model({"obs": batch["obs"]})[0].mean() - policy.q_model({"obs": batch["obs"]})[0].mean()

    derived = simple_q.SimpleQTorchPolicy.with_updates(name="Built", make_model_and_action_dist=build, loss_fn=loss)
    box = gym.spaces.Box(-1.0, 1.0, (2,), np.float32)
    policy = derived(box, gym.spaces.Discrete(2), {"framework": "torch", "model": {"fcnet_hiddens": [4]}})
    made = policy.target_q_model
    with torch.no_grad():
        for weights in policy.q_model.parameters():
            weights.fill_(0.5)
    policy.update_target()
    assert policy.target_q_model is made is policy.target_model
    assert all((weights == 0.5).all() for weights in made.parameters())


@pytest.mark.parametrize("place", ["policy.td_error", "policy.q_loss", "model.tower_stats"])
@pytest.mark.parametrize("name", ["DQN", "SAC", "DDPG"])
def test_rows_are_prioritised_by_the_errors_that_a_loss_of_the_users_own_leaves(name, place):
    torch = pytest.importorskip("torch")

    def loss(policy, model, dist_class, batch):
        error = batch["rewards"] * (1 - batch["dones"].float()) + 0 * sum(w.sum() for w in model.parameters())
        if place == "policy.td_error":
            policy.td_error = error
        elif place == "policy.q_loss":
            policy.q_loss = SimpleNamespace(td_error=error)
        else:
            model.tower_stats["td_error"] = error
        return [error.mean()] * len(policy._optimizers)

    path = {"DQN": "dqn.dqn", "SAC": "sac.sac", "DDPG": "ddpg.ddpg"}[name]
    base = getattr(importlib.import_module(f"rlframe.agents.{path}_torch_policy"), f"{name}TorchPolicy")
    derived = base.with_updates(name="Left", loss_fn=loss)
    box = gym.spaces.Box(-1.0, 1.0, (2,), np.float32)
    actions = gym.spaces.Discrete(2) if name == "DQN" else box
    policy = derived(box, actions, {"framework": "torch", "seed": 1})
    obs, acted = np.zeros((3, 2), np.float32), np.stack([actions.sample() for _ in range(3)])
    errors = policy.compute_td_error(obs, acted, np.float32([1, 2, 3]), obs, np.array([False, False, True]))
    np.testing.assert_allclose(errors, [1, 2, 0])
    assert torch.is_tensor(policy.extra_compute_grad_fetches()["td_error"])


LEFT = {"actor_loss": 1.0, "critic_loss": [2.0, 4.0], "alpha_loss": 5.0, "policy_t": [6.0, 8.0], "q_t": [1.0, 2.0, 6.0]}
"""What losses that are copies of RLlib's leave: by name a number, a list of losses, or rows."""
OF_Q_T = {"mean_q": 3.0, "max_q": 6.0, "min_q": 1.0}
TOLD = {
    "PG": ({"policy_loss": 3.0}, {"policy_loss": 3.0}),
    "DDPG": (LEFT, {"actor_loss": 1.0, "critic_loss": 3.0, **OF_Q_T}),
    "SAC": (LEFT, {"actor_loss": 1.0, "critic_loss": 3.0, "alpha_loss": 5.0, "policy_t": 7.0, **OF_Q_T,
                   "alpha_value": 1.0, "log_alpha_value": 0.0, "target_entropy": -2.0}),
    "CQL": ({**LEFT, "cql_loss": [1.0, 2.0]}, {"critic_loss": 3.0, "cql_loss": 1.5, "alpha_value": 1.0, **OF_Q_T}),
    "DQN": ({"q_loss": SimpleNamespace(stats={"mean_q": 2.0, "mine": 7.0})}, {"mean_q": 2.0, "mine": 7.0}),
    "MARWIL": ({"p_loss": 1.0, "v_loss": 2.0, "total_loss": 3.0, "explained_variance": 0.5},
               {"policy_loss": 1.0, "vf_loss": 2.0, "total_loss": 3.0, "vf_explained_var": 0.5}),
}  # fmt: skip
"""By algorithm, what its loss leaves, and what is told of it."""


@pytest.mark.parametrize("framework", TORCH_FIRST)
@pytest.mark.parametrize("place", ["model.tower_stats", "policy"])
@pytest.mark.parametrize("name", TOLD)
def test_losses_of_the_users_own_for_rllibs_other_policies_tell_by_what_they_keep(name, place, framework):
    left, told = TOLD[name]
    pytest.importorskip({"torch": "torch", "tf": "tensorflow"}[framework])

    def loss(policy, model, dist_class, train_batch):
        rows = (policy.to_tensors(np.float32(value)) if isinstance(value, list) else value for value in left.values())
        kept = dict(zip(left, rows, strict=True))
        if "critic_loss" in left:
            kept["critic_loss"] = [policy.to_tensors(np.float32(value)) for value in left["critic_loss"]]
        (model.tower_stats if place == "model.tower_stats" else vars(policy)).update(kept)
        zero = 0.0 * sum((weights * weights).sum() if framework == "torch" else tf.reduce_sum(weights * weights)
                         for weights in model.trainable_variables())  # fmt: skip
        return [zero] * len(policy._optimizers)

    if framework == "tf":
        import tensorflow as tf
    suffix = {"torch": "Torch", "tf": "TF"}[framework]
    place_of = {"CQL": "agents.cql"}.get(name, f"agents.{name.lower()}.{name.lower()}_{framework}_policy")
    base = getattr(importlib.import_module(f"rlframe.{place_of}"), f"{name}{suffix}Policy")
    box = gym.spaces.Box(-1.0, 1.0, (2,), np.float32)
    actions = gym.spaces.Discrete(2) if name in {"PG", "DQN", "MARWIL"} else box
    config = {"framework": framework, "seed": 1, "lr": 0.5, "prioritized_replay": False}
    known = {
        key: value for key, value in config.items() if key != "prioritized_replay" or name in {"DDPG", "DQN", "SAC"}
    }
    policy = base.with_updates(name="Copied", loss_fn=loss)(box, actions, known)
    samples = importlib.import_module("rlframe.policy.sample_batch").SampleBatch
    acted = np.stack([actions.sample() for _ in range(4)])
    rows = {
        "obs": np.ones((4, 2), np.float32),
        "new_obs": np.ones((4, 2), np.float32),
        "rewards": np.ones(4, np.float32),
    }
    ends = {"advantages": np.ones(4, np.float32), "dones": np.zeros(4, bool)}
    stats = policy.learn_on_batch(samples({**rows, **ends, "actions": acted}))["learner_stats"]
    assert {key: stats[key] for key in told} == pytest.approx(told)


@pytest.mark.parametrize("form", ["built-in", "of observations", "of a dict"])
def test_copies_of_rllibs_acting_find_what_makes_distribution_inputs(form):
    torch = pytest.importorskip("torch")
    dqn, ppo = module("dqn.dqn", "torch").DQNTorchPolicy, module("ppo.ppo", "torch").PPOTorchPolicy
    box, actions = gym.spaces.Box(-1.0, 1.0, (2,), np.float32), gym.spaces.Discrete(3)

    def of_observations(policy, model, obs_batch, *, explore, is_training, **kwargs):
        return 0.0 * obs_batch.sum(1, keepdim=True) + torch.arange(3.0), policy.dist_class, []

    def of_a_dict(policy, model, *, input_dict, state_batches, seq_lens, explore, timestep, is_training):
        return of_observations(policy, model, input_dict["obs"], explore=explore, is_training=is_training)

    given = {"built-in": None, "of observations": of_observations, "of a dict": of_a_dict}[form]
    made = dqn.with_updates(name="Own", action_distribution_fn=given) if given else dqn
    policy = made(box, actions, {"framework": "torch", "seed": 1})
    obs = np.ones((4, 2), np.float32)
    rows = policy._lazy_tensor_dict({"obs": obs})  # as copies of `compute_log_likelihoods` have them
    before = policy.action_distribution_fn(
        policy=policy, model=policy.model, obs_batch=rows["obs"], explore=False, is_training=False
    )
    since = policy.action_distribution_fn(policy, policy.model, input_dict=rows, state_batches=[], seq_lens=None,
                                          explore=False, timestep=3, is_training=False)  # fmt: skip
    acted = policy.compute_actions(obs, explore=False)[2]["action_dist_inputs"]
    for inputs, dist_class, state in (before, since):
        np.testing.assert_allclose(inputs.detach(), acted, rtol=1e-6)
        assert (dist_class, state) == (policy.dist_class, [])
    assert policy.action_sampler_fn is None
    assert ppo(box, actions, {"framework": "torch"}).action_distribution_fn is None, "the model's outputs are these"
    policy.action_distribution_fn = of_a_dict
    policy.action_sampler_fn = of_observations
    assert (policy._action_distribution_fn, policy._action_sampler_fn) == (of_a_dict, of_observations)


@pytest.mark.parametrize("name", ["SAC", "DDPG"])
def test_copies_of_rllibs_losses_in_tensorflow_return_the_sum_of_those_that_they_leave(name):
    tf = pytest.importorskip("tensorflow")

    def loss(policy, model, dist_class, batch):
        assert policy._get_is_training_placeholder() is True
        assert len(policy.target_model.variables()) == len(policy.target_model.variables(as_dict=True)) > 0
        policy.actor_loss = 0.0 * tf.add_n([tf.reduce_sum(w) for w in model.policy_variables()])
        critic = tf.reduce_mean(model.get_q_values(model({"obs": batch["obs"]})[0], batch["actions"]))
        policy.critic_loss = [critic, 0.0 * critic] if name == "SAC" else critic
        policy.alpha_loss = -model.alpha if name == "SAC" else 0.0
        return policy.actor_loss + critic + policy.alpha_loss

    base = module(f"{name.lower()}.{name.lower()}", "tf")
    derived = getattr(base, f"{name}TFPolicy").with_updates(name="Copied", loss_fn=loss)
    box = gym.spaces.Box(-1.0, 1.0, (2,), np.float32)
    policy = derived(box, box, {"framework": "tf2", "seed": 1, "prioritized_replay": False})
    batch = {"obs": np.ones((4, 2)), "new_obs": np.ones((4, 2)), "actions": np.zeros((4, 2)), "rewards": np.ones(4)}
    samples = importlib.import_module("rlframe.policy.sample_batch").SampleBatch
    before = policy.get_weights()
    policy.learn_on_batch(
        samples({**{key: np.float32(rows) for key, rows in batch.items()}, "dones": np.zeros(4, bool)})
    )
    moved = {key.partition(".")[0] for key, rows in policy.get_weights().items() if (rows != before[key]).any()}
    assert moved >= ({"q", "log_alpha"} if name == "SAC" else {"q"})
    assert "actor" not in moved


def test_appo_with_functions_of_the_users_own_has_values_and_what_followed():
    appo = importlib.import_module("rlframe.agents.ppo.appo_torch_policy")
    fetches = importlib.import_module("rlframe.agents.ppo.ppo_torch_policy").vf_preds_fetches
    env = importlib.import_module("rlframe.evaluation.rollout_worker").RolloutWorker
    requirement = importlib.import_module("rlframe.policy.view_requirement").ViewRequirement

    def loss(policy, model, dist_class, batch):
        return model.from_batch(batch)[0].mean()

    derived = appo.AsyncPPOTorchPolicy.with_updates(
        name="Own", loss_fn=loss, postprocess_fn=lambda policy, batch, *others: batch, extra_action_out_fn=fetches
    )
    worker = env(
        env_creator=lambda context: gym.make("CartPole-v1"),
        policy=derived,
        policy_config={"framework": "torch", "vtrace": True, "rollout_fragment_length": 8, "seed": 1},
    )
    policy = worker.get_policy()
    policy.view_requirements["new_obs"] = requirement("obs", shift=1)
    batch = worker.sample()
    np.testing.assert_array_equal(batch["new_obs"][:-1], batch["obs"][1:])
    assert batch["vf_preds"].shape == (8,)
    assert policy._value(obs=batch["obs"][:1]) == pytest.approx(batch["vf_preds"][0], abs=1e-5)
    worker.stop()


@pytest.mark.parametrize("framework", TORCH_FIRST)
@pytest.mark.parametrize("given", [7, lambda policy: policy.config["rollout_fragment_length"] // 2])
def test_a_policy_derived_with_updates_has_what_batches_should_be_a_multiple_of(framework, given):
    built_in = module("pg.pg", framework)
    base = getattr(built_in, "PGTorchPolicy" if framework == "torch" else "PGTFPolicy")
    policy_class = base.with_updates(name="Mine", get_batch_divisibility_req=given)
    space = gym.spaces.Box(-1.0, 1.0, (3,), np.float32)
    config = {**get_trainer_class("PG").get_default_config(), **COMMON, "framework": framework}
    policy = policy_class(space, gym.spaces.Discrete(2), config)
    assert policy.batch_divisibility_req == (10 if callable(given) else given)
