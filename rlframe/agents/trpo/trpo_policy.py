"""TRPO: the losses, the divergence and the policy, for both frameworks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from rlframe.agents.trpo.natural_gradient import TrustRegion
from rlframe.data.columns import (
    ACTION_DIST_INPUTS,
    ACTION_LOGP,
    ACTIONS,
    ADVANTAGES,
    DONES,
    ENV_ID,
    NEXT_OBS,
    OBS,
    SEQ_LENS,
    VALUE_TARGETS,
)
from rlframe.data.sample_batch import SampleBatch
from rlframe.data.sequences import padded_sequences
from rlframe.evaluation.postprocessing import compute_gae_for_sample_batch
from rlframe.execution.train_ops import pass_of_minibatches
from rlframe.losses.masking import valid_mean, valid_rows
from rlframe.losses.policy_gradients import explained_variance, importance_surrogate
from rlframe.policy.backends import lazy_policies
from rlframe.policy.coefficients import schedules_of
from rlframe.policy.learning_policy import LearningPolicy
from rlframe.policy.parts import (
    MODEL_OUTPUTS,
    MODEL_VALUES,
    AdamSpec,
    Component,
    FusedGradients,
    LossOutput,
    RandomStream,
)
from rlframe.policy.popart import LayerPopArt
from rlframe.policy.value_network import value_of_step
from rlframe.tensor import ops
from rlframe.tensor.ops import Tensor
from rlframe.utils.errors import ConfigError
from rlframe.utils.metrics.learner_info import DEFAULT_POLICY_ID, LEARNER_STATS_KEY, LearnerInfoBuilder
from rlframe.utils.seeding import make_rng
from rlframe.utils.threads import blas_in_one_thread

if TYPE_CHECKING:
    from rlframe.agents.trpo.trpo import TRPOConfig


def trpo_loss(policy: Any, model: Any, dist_class: Any, train_batch: SampleBatch) -> LossOutput:
    """Returns the losses of one batch that are due, and their statistics.

        policy: −mean[ρ A] − c_e mean H(π),    values: mean (V − R)² / σ²

    σ is the deviation that values are normalised by, see `LayerPopArt`; 1 without `normalize_values`.

    A step of the policy asks for the first alone, steps of the values for the second: see `policy.due`. Padding rows of
    recurrent batches do not count.

    Source: Schulman et al. 2015, "Trust Region Policy Optimization", eq. 14.
    """
    dist_inputs, _ = model(train_batch)
    mean, valid = valid_mean(train_batch), valid_rows(train_batch)
    losses: dict[str, Tensor] = {}
    stats: dict[str, Tensor] = {}
    if policy.due("policy"):
        dist = dist_class(dist_inputs, model)
        surrogate = importance_surrogate(
            dist.logp(train_batch[ACTIONS]), train_batch[ACTION_LOGP], train_batch[ADVANTAGES]
        )
        stats["entropy"] = mean(dist.entropy())
        losses["policy"] = -mean(surrogate) - policy.entropy_coeff * stats["entropy"]
    if policy.due("values") and policy.config.use_critic:
        targets, values = train_batch[VALUE_TARGETS], model.value_function()
        losses["values"] = stats["vf_loss"] = mean(ops.square(values - targets)) / policy.value_std**2
        stats["vf_explained_var"] = explained_variance(valid(targets), valid(ops.stop_gradient(values)))
    return LossOutput(losses, stats)


class TRPOPolicy(LearningPolicy):
    """An actor that moves by natural gradient steps within a trust region, and a critic that follows by Adam.

    Layers that actor and critic share are the actor's: only its steps move them, so none of the critic's leads out of
    the region.
    """

    config: TRPOConfig
    defaults_from = "rlframe.agents.trpo.trpo:DEFAULT_CONFIG"

    wants_values = True
    train_columns = (ACTION_LOGP, NEXT_OBS, DONES, ENV_ID)
    learn_columns = (OBS, ACTIONS, ACTION_LOGP, ADVANTAGES, VALUE_TARGETS)
    own_steps = {"policy": MODEL_OUTPUTS}  # noqa: RUF012 - as the base declares it
    fused_gradients = FusedGradients({"torch": "rlframe.agents.families.dense_values_torch:DenseValueGradients"})
    fused_curvature = FusedGradients(
        {"torch": "rlframe.agents.families.dense_fisher_torch:DenseFisher"}, methods=("divergence",)
    )
    cur_lr: float
    entropy_coeff: float
    value_std: float
    _value = value_of_step
    postprocess_trajectory = compute_gae_for_sample_batch

    def prepare(self) -> None:
        """Makes the schedules, PopArt, and the stream that orders minibatches."""
        self.popart = LayerPopArt(self, normalizes=self.config.normalize_values)
        self._orders = RandomStream(make_rng(self._policy_seed, "minibatches", *self._agent_stream))
        self.components.update(orders=self._orders, popart=self.popart, **schedules_of(self, self.config))

    def optimizers(self) -> Mapping[str, AdamSpec]:
        """Returns the critic's Adam with `lr`, clipped to `grad_clip`."""
        return {"values": AdamSpec(MODEL_VALUES, self.config.lr, grad_clip=self.config.grad_clip)}

    def model_options(self) -> dict[str, Any]:
        """Returns the `model` section of the config, with PopArt's layer where values are normalised."""
        return self.popart.model_options(super().model_options())

    def make_components(self) -> dict[str, Component]:
        """Makes the step's parts; checks that the distribution has a divergence, and the critic weights."""
        config = self.config
        self.popart.check_model()
        self._check_divergence()
        if config.use_critic and not self.weights_of(MODEL_VALUES):
            raise ConfigError(
                f"TRPO: got {type(self.model).__name__}, of whose weights none is there for values alone; wanted a "
                "value_function() with a layer of its own, or use_critic=False, use_gae=False and "
                "batch_mode='complete_episodes'"
            )
        self._problem = self.second_order("policy")
        self._region = TrustRegion(
            config.max_kl,
            config.cg_iters,
            config.cg_damping,
            config.cg_residual_tolerance,
            config.line_search_steps,
            config.line_search_shrink,
        )
        return super().make_components()

    def _check_divergence(self) -> None:
        inputs = self.to_tensors(np.zeros((2, int(self.model.num_outputs)), np.float32))
        try:
            self.dist_class(inputs, self.model).kl(self.dist_class(inputs, self.model))
        except (NotImplementedError, ValueError) as error:
            raise ConfigError(
                f"TRPO: got actions from {getattr(self.dist_class, 'func', self.dist_class).__name__}, which has no "
                "divergence (kl) to bound a step by; wanted a distribution with kl(other): leave "
                "model.custom_action_dist out, or define kl in it"
            ) from error

    def loss(self, model: Any, dist_class: Any, train_batch: SampleBatch) -> LossOutput:
        """Returns the losses of one batch that are due; see `trpo_loss`."""
        return trpo_loss(self, model, dist_class, train_batch)

    def divergence(self, model: Any, dist_class: Any, train_batch: SampleBatch) -> Tensor:
        """Returns mean KL(π_old‖π) over the rows, in nats; π_old has the batch's `action_dist_inputs`."""
        old = dist_class(train_batch[ACTION_DIST_INPUTS], model)
        kl: Tensor = valid_mean(train_batch)(old.kl(dist_class(model(train_batch)[0], model)))
        return kl

    def learn_on_batch(self, postprocessed_batch: SampleBatch) -> dict[str, Any]:
        """Does one step of the policy on the whole batch, then passes of minibatches for the values.

        `on_learn_on_batch` is called once, with the whole batch.

        Returns:
            `{"learner_stats": ..., "model": ..., "custom_metrics": ...}`; statistics of the values are means over
            minibatches.

        Raises:
            NonFiniteError: If a loss is NaN or infinite; the message names what was first to be so.
        """
        with self._policy_lock:
            samples, custom = postprocessed_batch, self._before_learning(postprocessed_batch)
            with blas_in_one_thread():
                self._problem.begin(samples, self._curvature_rows(samples))
                stepped = {**self._region.step(self._problem), **self._loss_outputs}
            self.popart.update_from(samples)
            fitted = LearnerInfoBuilder()
            for rows in self._value_minibatches(samples):
                fitted.add_learn_on_batch_results(self._learn_result(*self._update(rows), custom))
            info = fitted.finalize().get(DEFAULT_POLICY_ID) or self._learn_result(
                self.extra_grad_info(samples), {}, custom
            )
            info[LEARNER_STATS_KEY].update(self._learn_result(stepped, {}, custom)[LEARNER_STATS_KEY])
            return self._after_learning(samples, {**info, "custom_metrics": custom})

    def _curvature_rows(self, samples: SampleBatch) -> SampleBatch:
        """Returns what Fisher-vector products are made of: every `fvp_sub_sampling`-th row, or sequence."""
        every = self.config.fvp_sub_sampling
        if every == 1 or samples.zero_padded:
            return samples
        if SEQ_LENS in samples:
            return padded_sequences(samples, chosen=np.arange(0, len(samples[SEQ_LENS]), every))
        return samples.take(np.arange(0, samples.count, every))

    def _value_minibatches(self, samples: SampleBatch) -> Iterator[SampleBatch]:
        config = self.config
        size = 0 if samples.zero_padded else config.vf_sgd_minibatch_size
        if self.learn_columns is not None and not self._loss_reads_all and SEQ_LENS not in samples:
            kept = set(self._wanted()) - {ACTION_LOGP, ADVANTAGES}  # to take rows of the others would be in vain
            samples = samples._like({name: column for name, column in samples.items() if name in kept})
        for _ in range(config.vf_num_sgd_iter if config.use_critic else 0):
            yield from pass_of_minibatches(samples, size, lambda: self._orders.generator)

    def extra_grad_info(self, train_batch: SampleBatch) -> dict[str, Any]:
        """Returns the loss and the explained variance of values, rates and weights."""
        del train_batch
        return {"cur_lr": self.cur_lr, "entropy_coeff": self.entropy_coeff, **self._loss_outputs}


__getattr__ = lazy_policies(__name__, TRPOPolicy, TRPOTorchPolicy="torch", TRPOTFPolicy="tf")
