"""Traffic of several cars: PPO with a second value network for the neighbours' rewards, and a plan of its own.

Uses RLlib as decisionforce/CoPO does (copo_code/copo/algo_copo/copo.py): `PPOTFPolicy.with_updates` with nearly every hook
(`make_model`, `loss_fn`, `stats_fn`, `gradients_fn`, `optimizer_fn`, `extra_action_fetches_fn`, `postprocess_fn`,
`before_loss_init`, `after_init`, `mixins`), `optimizer.compute_gradients`, and an execution plan that standardises two
advantages, steps, adds to the shared metrics and sets every environment by `foreach_worker` and `foreach_env`.
"""

import numpy as np
import ray
from gym import spaces
from rlframe.agents.ppo.ppo import DEFAULT_CONFIG, PPOTrainer, UpdateKL, warn_about_bad_reward_scales
from rlframe.agents.ppo.ppo_tf_policy import PPOTFPolicy
from rlframe.env.multi_agent_env import MultiAgentEnv
from rlframe.evaluation.postprocessing import Postprocessing, compute_advantages
from rlframe.execution.common import _get_shared_metrics
from rlframe.execution.metric_ops import StandardMetricsReporting
from rlframe.execution.rollout_ops import ConcatBatches, ParallelRollouts, SelectExperiences
from rlframe.execution.train_ops import TrainOneStep
from rlframe.models import ModelCatalog
from rlframe.models.tf.misc import normc_initializer
from rlframe.models.tf.tf_modelv2 import TFModelV2
from rlframe.policy.sample_batch import DEFAULT_POLICY_ID, MultiAgentBatch, SampleBatch
from rlframe.policy.tf_policy import EntropyCoeffSchedule, LearningRateSchedule
from rlframe.agents.ppo.ppo_tf_policy import KLCoeffMixin
from rlframe.utils.framework import try_import_tf
from rlframe.utils.sgd import standardized
from rlframe.utils.tf_ops import explained_variance, make_tf_callable

tf1, tf, tfv = try_import_tf()
NEI_REWARDS, NEI_VALUES, NEI_ADVANTAGE, NEI_TARGET = "nei_rewards", "nei_values", "nei_advantage", "nei_target"


class Cars(MultiAgentEnv):
    observation_space, action_space = spaces.Box(-1, 1, (3,), np.float32), spaces.Box(-1, 1, (1,), np.float32)

    def __init__(self, config=None):
        super().__init__()
        self.svo = 0.0

    def set_force_svo(self, svo):
        self.svo = svo

    def observe(self):
        return {f"agent{i}": np.array([self.at[i], self.at[1 - i], self.svo], np.float32) for i in range(2)}

    def reset(self):
        self.t, self.at = 0, np.random.uniform(-1, 1, 2)
        return self.observe()

    def step(self, actions):
        self.t += 1
        self.at = np.clip(self.at + 0.1 * np.array([float(actions[f"agent{i}"][0]) for i in range(2)]), -1, 1)
        rewards = {f"agent{i}": float(self.at[i]) for i in range(2)}
        infos = {f"agent{i}": {NEI_REWARDS: float(self.at[1 - i])} for i in range(2)}
        return self.observe(), rewards, {"__all__": self.t >= 20}, infos


class TwoValues(TFModelV2):
    def __init__(self, obs_space, action_space, num_outputs, model_config, name):
        super().__init__(obs_space, action_space, num_outputs, model_config, name)
        inputs = tf.keras.layers.Input(shape=(int(np.prod(obs_space.shape)),), name="observations")

        def tower(size, scope):
            hidden = tf.keras.layers.Dense(8, activation="tanh", name=scope + "_1", kernel_initializer=normc_initializer(1.0))
            return tf.keras.layers.Dense(size, name=scope, kernel_initializer=normc_initializer(0.01))(hidden(inputs))

        self.base_model = tf.keras.Model(inputs, [tower(num_outputs, "pi"), tower(1, "value_out"), tower(1, "nei_out")])
        self.register_variables(self.base_model.variables)

    def forward(self, input_dict, state, seq_lens):
        out, self._value_out, self._nei_value = self.base_model(input_dict["obs_flat"])
        return out, state

    def value_function(self):
        return tf.reshape(self._value_out, [-1])

    def get_nei_value(self):
        return tf.reshape(self._nei_value, [-1])


class NeiValueNetworkMixin:
    def __init__(self, obs_space, action_space, config):
        @make_tf_callable(self.get_session())
        def value(ob):
            self.model({"obs": tf.convert_to_tensor(ob[None]), "is_training": False})
            return self.model.value_function()[0], self.model.get_nei_value()[0]

        self.get_values = value


def post_process_fn(policy, sample_batch, other_agent_batches=None, episode=None):
    infos = sample_batch.get(SampleBatch.INFOS)
    real = infos is not None and isinstance(infos[0], dict) and NEI_REWARDS in infos[0]
    nei = [info[NEI_REWARDS] for info in infos] if real else np.zeros(len(sample_batch["rewards"]))
    sample_batch[NEI_REWARDS] = np.asarray(nei, np.float32)
    last, nei_last = (0.0, 0.0) if sample_batch["dones"][-1] else policy.get_values(sample_batch["new_obs"][-1])
    rows = compute_advantages(sample_batch, float(last), policy.config["gamma"], policy.config["lambda"])
    second = SampleBatch({"rewards": rows[NEI_REWARDS], "vf_preds": rows[NEI_VALUES]})
    second = compute_advantages(second, float(nei_last), policy.config["gamma"], policy.config["lambda"])
    rows[NEI_ADVANTAGE], rows[NEI_TARGET] = second["advantages"], second["value_targets"]
    rows["normalized_advantages"] = np.zeros_like(rows["advantages"])  # the plan fills it in
    return rows


def loss(policy, model, dist_class, train_batch):
    logits, state = model.from_batch(train_batch)
    curr, prev = dist_class(logits, model), dist_class(train_batch[SampleBatch.ACTION_DIST_INPUTS], model)
    ratio = tf.exp(curr.logp(train_batch["actions"]) - train_batch[SampleBatch.ACTION_LOGP])
    advantage = train_batch["normalized_advantages"]
    clip = policy.config["clip_param"]
    surrogate = tf.minimum(advantage * ratio, advantage * tf.clip_by_value(ratio, 1 - clip, 1 + clip))
    policy._mean_kl, policy._mean_entropy = tf.reduce_mean(prev.kl(curr)), tf.reduce_mean(curr.entropy())
    policy._mean_vf_loss = tf.reduce_mean(tf.square(model.value_function() - train_batch[Postprocessing.VALUE_TARGETS]))
    policy._mean_nei_value_loss = tf.reduce_mean(tf.square(model.get_nei_value() - train_batch[NEI_TARGET]))
    policy._adv = tf.reduce_mean(train_batch["advantages"])
    policy._adv_nei = tf.reduce_mean(train_batch[NEI_ADVANTAGE])
    policy._total_loss = (
        -tf.reduce_mean(surrogate) + policy.kl_coeff * policy._mean_kl - policy.entropy_coeff * policy._mean_entropy
        + policy.config["vf_loss_coeff"] * (policy._mean_vf_loss + policy._mean_nei_value_loss)
    )
    return policy._total_loss


def new_stats(policy, batch):
    return {
        "cur_kl_coeff": tf.cast(policy.kl_coeff, tf.float64),
        "cur_lr": tf.cast(policy.cur_lr, tf.float64),
        "total_loss": policy._total_loss, "vf_loss": policy._mean_vf_loss, "kl": policy._mean_kl,
        "adv": policy._adv, "adv_nei": policy._adv_nei,
        "nei_value_loss": policy._mean_nei_value_loss, "entropy": policy._mean_entropy,
        "vf_explained_var": explained_variance(batch["value_targets"], policy.model.value_function()),
    }


def gradient_fn(policy, optimizer, loss):
    variables = policy.model.trainable_variables()
    assert len([v for v in variables if "penalty_param" in v.name]) == 0
    grads_and_vars = optimizer.compute_gradients(loss, variables)
    if policy.config["grad_clip"] is not None:
        policy.grads, _ = tf.clip_by_global_norm([g for (g, v) in grads_and_vars], policy.config["grad_clip"])
        return list(zip(policy.grads, variables))
    return grads_and_vars


def vf_preds_fetches(policy):
    return {SampleBatch.VF_PREDS: policy.model.value_function(), NEI_VALUES: policy.model.get_nei_value()}


def make_model(policy, obs_space, action_space, config):
    dist_class, logit_dim = ModelCatalog.get_action_dist(action_space, config["model"])
    arguments = {"obs_space": obs_space, "action_space": action_space, "num_outputs": logit_dim, "framework": "tf"}
    policy._old_model = ModelCatalog.get_model_v2(model_config=config["model"], name="copo_old_model", **arguments)
    return ModelCatalog.get_model_v2(model_config=config["model"], **arguments)


def setup_mixins(policy, obs_space, action_space, config):
    KLCoeffMixin.__init__(policy, config)
    EntropyCoeffSchedule.__init__(policy, config["entropy_coeff"], config["entropy_coeff_schedule"])
    LearningRateSchedule.__init__(policy, config["lr"], config["lr_schedule"])
    NeiValueNetworkMixin.__init__(policy, obs_space, action_space, config)


class StandardizeFields:
    def __call__(self, samples):
        if isinstance(samples, SampleBatch):
            samples = MultiAgentBatch({DEFAULT_POLICY_ID: samples}, samples.count)
        for batch in samples.policy_batches.values():
            batch["normalized_advantages"] = standardized(batch["advantages"] + batch[NEI_ADVANTAGE])
        return samples


class UpdateSvo:
    def __init__(self, workers):
        self.workers, self.svo = workers, 0.0

    def __call__(self, data):
        batch, fetches = data
        self.svo += 0.25
        svo = self.svo
        _get_shared_metrics().info["current_svo"] = svo
        self.workers.foreach_worker(lambda w: w.foreach_env(lambda e: e.set_force_svo(svo)))
        return batch, fetches


def execution_plan(workers, config):
    rollouts = ParallelRollouts(workers, mode="bulk_sync")
    rollouts = rollouts.for_each(SelectExperiences(workers.trainable_policies()))
    rollouts = rollouts.combine(ConcatBatches(min_batch_size=config["train_batch_size"]))
    rollouts = rollouts.for_each(StandardizeFields())
    train_op = rollouts.for_each(
        TrainOneStep(workers, num_sgd_iter=config["num_sgd_iter"], sgd_minibatch_size=config["sgd_minibatch_size"])
    )
    train_op = train_op.for_each(UpdateSvo(workers)).for_each(lambda t: t[1]).for_each(UpdateKL(workers))
    return StandardMetricsReporting(train_op, workers, config).for_each(
        lambda result: warn_about_bad_reward_scales(config, result)
    )


def after_init(policy, obs_space, action_space, config):
    policy.initialized = True


CoPOPolicy = PPOTFPolicy.with_updates(
    name="CoPOPolicy", postprocess_fn=post_process_fn, loss_fn=loss, gradients_fn=gradient_fn, stats_fn=new_stats,
    optimizer_fn=lambda policy, config: tf1.train.AdamOptimizer(learning_rate=config["lr"]), make_model=make_model,
    before_loss_init=setup_mixins, extra_action_fetches_fn=vf_preds_fetches, after_init=after_init,
    mixins=[LearningRateSchedule, EntropyCoeffSchedule, KLCoeffMixin, NeiValueNetworkMixin],
)
CoPO = PPOTrainer.with_updates(
    name="CoPO", default_policy=CoPOPolicy, get_policy_class=lambda _: CoPOPolicy, execution_plan=execution_plan,
    default_config={**DEFAULT_CONFIG, "svo_lr": 1e-4}, allow_unknown_configs=True,
)


def main():
    ModelCatalog.register_custom_model("two_values", TwoValues)
    ray.init(num_cpus=2)
    policies = {"default": (None, Cars.observation_space, Cars.action_space, {})}
    trainer = CoPO(
        env=Cars,
        config={
            "framework": "tf", "num_workers": 0, "train_batch_size": 80, "sgd_minibatch_size": 40, "num_sgd_iter": 2,
            "grad_clip": 1.0, "model": {"custom_model": "two_values"}, "simple_optimizer": True,
            "multiagent": {"policies": policies, "policy_mapping_fn": lambda agent_id: "default"},
        },
    )
    before = trainer.get_policy("default").get_weights()
    for _ in range(2):
        result = trainer.train()
    learner = result["info"]["learner"]["default"]
    stats = learner.get("learner_stats", learner)
    assert {"nei_value_loss", "vf_explained_var", "cur_lr"} <= stats.keys(), stats.keys()
    assert result["info"]["current_svo"] == 0.5
    policy = trainer.get_policy("default")
    assert policy.initialized and policy._old_model is not policy.model
    assert any((v != before[k]).any() for k, v in policy.get_weights().items())
    assert trainer.workers.local_worker().foreach_env(lambda e: e.svo) == [0.5]
    ray.shutdown()
    print("ok program_neighbour_values")


if __name__ == "__main__":
    main()
