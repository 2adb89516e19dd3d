"""Policies that adapt to tasks: the loss, the steps on each task and the gradient through them; for both frameworks."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rlframe.data.columns import (
    ACTION_DIST_INPUTS,
    ACTION_LOGP,
    ACTIONS,
    ADVANTAGES,
    DONES,
    ENV_ID,
    EPS_ID,
    NEXT_OBS,
    OBS,
    VALUE_TARGETS,
    VF_PREDS,
)
from rlframe.data.sample_batch import SampleBatch
from rlframe.evaluation.postprocessing import compute_gae_for_sample_batch
from rlframe.losses.masking import valid_mean
from rlframe.losses.policy_gradients import clipped_surrogate, clipped_value_loss
from rlframe.policy.coefficients import schedules_of
from rlframe.policy.learning_policy import LearningPolicy
from rlframe.policy.parts import WHOLE_MODEL, AdamSpec, LossOutput
from rlframe.policy.policy import Component
from rlframe.policy.value_network import value_of_step
from rlframe.tensor import ops
from rlframe.utils.threads import blas_in_one_thread

if TYPE_CHECKING:
    from rlframe.agents.families.meta_learning import MetaLearningConfig

Vector = NDArray[np.float32]


def maml_loss(policy: Any, model: Any, dist_class: Any, train_batch: SampleBatch) -> LossOutput:
    """Returns the loss of one task's batch, and its statistics.

        w_s mean[ −min(ρA, clip(ρ, 1 ± ε) A) + c_v max((V − R)², (V_clip − R)²) − c_e H(π) ] + w_k mean KL(π_old‖π)

    Steps of adaptation have ε = ∞; see `MetaPolicy`.
    """
    config, mean = policy.config, valid_mean(train_batch)
    dist_inputs, _ = model(train_batch)
    dist = dist_class(dist_inputs, model)
    surrogate = clipped_surrogate(
        dist.logp(train_batch[ACTIONS]), train_batch[ACTION_LOGP], train_batch[ADVANTAGES], policy.clip
    )
    policy_loss, entropy = -mean(surrogate), mean(dist.entropy())
    kl = mean(dist_class(train_batch[ACTION_DIST_INPUTS], model).kl(dist))
    total, vf_loss = policy_loss - policy.entropy_coeff * entropy, ops.zeros_like(kl)
    if config.use_critic:
        errors = clipped_value_loss(
            model.value_function(), train_batch[VF_PREDS], train_batch[VALUE_TARGETS], config.vf_clip_param
        )
        vf_loss = mean(errors)
        total = total + config.vf_loss_coeff * vf_loss
    stats = {"total_loss": total, "policy_loss": policy_loss, "vf_loss": vf_loss, "kl_loss": kl, "entropy": entropy}
    return LossOutput({"loss": policy.surrogate_weight * total + policy.kl_weight * kl}, stats)


class Divergences(Component):
    """The weight of each task's divergence in each step of adaptation, which grows while that is large; its state.

    The policy has them as `kl_coeff_val`, and what they aim at as `kl_target`.

    Args:
        policy: The policy.
    """

    def __init__(self, policy: Any) -> None:
        config, self._policy = policy.config, policy
        policy.kl_coeff_val = [float(config.kl_coeff)] * (config.inner_adaptation_steps * policy.num_tasks)
        policy.kl_target = float(config.kl_target)

    def update(self, sampled: Sequence[float]) -> list[float]:
        """Takes the divergences of an update, in nats, in the weights' order; returns the new weights."""
        target, weights = self._policy.kl_target, self._policy.kl_coeff_val
        for index, kl in enumerate(sampled):
            weights[index] *= 2.0 if kl > 1.5 * target else 0.5 if kl < target / 1.5 else 1.0
        return list(weights)

    def get_state(self) -> dict[str, Any]:
        """Returns the weights."""
        return {"kl_coeffs": np.asarray(self._policy.kl_coeff_val, np.float64)}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Takes what `get_state` returned."""
        self._policy.kl_coeff_val = [float(weight) for weight in state["kl_coeffs"]]


class Path(NamedTuple):
    """What adapting to a task went through.

    Attributes:
        weights: Before each step, and behind the last. `[K + 1]` of float32 `[P]`.
        divergences: Of each step's batch, from the policy that sampled it, in nats. `[K]`.
    """

    weights: list[Vector]
    divergences: list[float]


class MetaPolicy(LearningPolicy):
    """An actor and a critic whose weights θ are such that K gradient steps adapt them to a task.

        θ_0 = θ,   θ_k+1 = θ_k − α ∇L(θ_k; D_k)                                          on batches D_k of a task
        J(θ) = mean over tasks [ L_clip(θ_K; D_K) + 1/K Σ_k β_k KL(π_old‖π_θk; D_k) ]    is what Adam minimises

    Its gradient goes through the steps: with v = ∇L_clip(θ_K), from the last step to the first,
    v ← v − α ∇²L(θ_k; D_k) v + β_k/K ∇KL_k(θ_k). Matrices of second derivatives are never made.

    Sources: Finn et al. 2017, "Model-Agnostic Meta-Learning", eq. 1 and algorithm 3; Rothfuss et al. 2019, "ProMP",
    eq. 11.
    """

    config: MetaLearningConfig

    wants_values = True
    train_columns = (ACTION_DIST_INPUTS, ACTION_LOGP, NEXT_OBS, DONES, ENV_ID, EPS_ID)
    learn_columns = (OBS, ACTIONS, ACTION_DIST_INPUTS, ACTION_LOGP, VF_PREDS, ADVANTAGES, VALUE_TARGETS)
    learn_scalars = ("cur_lr", "entropy_coeff", "clip", "surrogate_weight", "kl_weight")
    kl_coeff_val: list[float]
    kl_target: float
    cur_lr: float
    entropy_coeff: float
    _value = value_of_step
    postprocess_trajectory = compute_gae_for_sample_batch

    def prepare(self) -> None:
        """Makes the schedules and the weights of divergences; the loss is that of a step of adaptation."""
        self.clip, self.surrogate_weight, self.kl_weight = math.inf, 1.0, 0.0
        self.components.update(kl=Divergences(self), **schedules_of(self, self.config))

    @property
    def num_tasks(self) -> int:
        """Tasks of an update: each worker has one."""
        return max(self.config.num_workers, 1)

    def optimizers(self) -> Mapping[str, AdamSpec]:
        """Returns Adam with `lr`, clipped to `grad_clip`, for the weights that all tasks begin with."""
        return {"loss": AdamSpec(WHOLE_MODEL, self.config.lr, grad_clip=self.config.grad_clip)}

    def make_components(self) -> dict[str, Component]:
        """Makes what gives first and second derivatives."""
        self._problem = self.second_order("loss")
        return super().make_components()

    def loss(self, model: Any, dist_class: Any, train_batch: SampleBatch) -> LossOutput:
        """Returns the loss of one task's batch; see `maml_loss`."""
        return maml_loss(self, model, dist_class, train_batch)

    def extra_grad_info(self, train_batch: SampleBatch) -> dict[str, Any]:
        """Returns what the loss reports, rate and weight."""
        del train_batch
        return {"cur_lr": self.cur_lr, "entropy_coeff": self.entropy_coeff, **self._loss_outputs}

    def update_kls(self, sampled_kls: Sequence[float]) -> list[float]:
        """Takes the divergences of an update, and returns their new weights; see `Divergences`."""
        made: list[float] = self.components["kl"].update(sampled_kls)  # type: ignore[attr-defined]
        return made

    def adapted_weights(self, rows: SampleBatch, weights: Mapping[str, Any]) -> dict[str, NDArray[Any]]:
        """Returns the weights one step on a task's rows leads to from others; the policy's own stay what they are."""
        with self._policy_lock:
            own = self.get_weights()
            self.set_weights(weights)
            begun = self._problem.get_flat()
            self._problem.set_flat(begun - np.float32(self.config.inner_lr) * self._gradient(rows, begun))
            made = self.get_weights()
            self.set_weights(own)
            return made

    def learn_on_rounds(self, rounds: Sequence[Sequence[SampleBatch]]) -> dict[str, Any]:
        """Does the steps of Adam of one iteration, and adapts the weights of divergences.

        Args:
            rounds: D_0 to D_K, each with a batch of each task.

        Returns:
            `{"learner_stats": ..., "model": ..., "custom_metrics": ...}` of the last step.

        Raises:
            NonFiniteError: If a loss is NaN or infinite; the message names what was first to be so.
        """
        every = SampleBatch.concat_samples([batch for batches in rounds for batch in batches])
        tasks = list(zip(*rounds, strict=True))
        with self._policy_lock, blas_in_one_thread():
            custom = self._before_learning(every)
            for _ in range(self.config.maml_optimizer_steps):
                begun = self._problem.get_flat()
                gradient, stats = self._gradient_through_steps(begun, tasks)
                self._problem.set_flat(begun)
                self.apply_gradients(self._problem.gradients_of(self._clipped(gradient)))
                self.num_updates += 1
            by_step = {"inner_kl": stats.pop("inner_kl"), "cur_kl_coeff": np.array(self.kl_coeff_val)}
            self.update_kls(by_step["inner_kl"])
            stats |= {"cur_lr": self.cur_lr, "entropy_coeff": self.entropy_coeff}
            info = self._learn_result(stats, {}, custom)
            info["learner_stats"] |= by_step  # arrays, of one task and step, too
            return self._after_learning(every, info)

    def _gradient_through_steps(
        self, begun: Vector, tasks: Sequence[Sequence[SampleBatch]]
    ) -> tuple[Vector, dict[str, Any]]:
        """Returns the gradient of J by the weights that tasks begin with, and statistics, means over the tasks."""
        config, total, told = self.config, np.zeros_like(begun), []
        rate, steps = np.float32(config.inner_lr), config.inner_adaptation_steps
        # Fewer tasks than there were: `ignore_worker_failures` goes on without workers that died.
        weights = np.reshape(self.kl_coeff_val[: len(tasks) * steps], (len(tasks), steps))
        divergences = []
        for rows, coefficients in zip(tasks, weights, strict=True):
            path = self._adapt(begun, rows[:-1])
            gradient = self._gradient(rows[-1], path.weights[-1], clip=config.clip_param)
            told.append(self._told())
            for step in reversed(range(steps)):
                here = path.weights[step]
                if coefficients[step]:
                    beside = self._gradient(
                        rows[step], here, surrogate_weight=0.0, kl_weight=coefficients[step] / steps
                    )
                else:
                    beside = np.zeros_like(here)
                gradient = gradient - rate * self._curved(rows[step], here, gradient) + beside
            total += gradient / np.float32(len(tasks))
            divergences += path.divergences
        stats: dict[str, Any] = {name: np.mean([task[name] for task in told]) for name in told[0]}
        stats["inner_kl"] = np.array(divergences)
        stats["total_loss"] += float((weights.ravel() * stats["inner_kl"]).mean())
        return total, stats

    def _adapt(self, begun: Vector, batches: Sequence[SampleBatch]) -> Path:
        path = Path([begun], [])
        for rows in batches:
            step = np.float32(self.config.inner_lr) * self._gradient(rows, path.weights[-1])
            path.divergences.append(self._told()["kl_loss"])
            path.weights.append(path.weights[-1] - step)
        return path

    def _told(self) -> dict[str, float]:
        """Returns the statistics of the loss that was computed last."""
        return {name: float(self._number(value)) for name, value in self._loss_outputs.items()}

    def _gradient(
        self,
        rows: SampleBatch,
        weights: Vector,
        *,
        clip: float = math.inf,
        surrogate_weight: float = 1.0,
        kl_weight: float = 0.0,
    ) -> Vector:
        """Returns the gradient of the loss of some rows, at some weights. Float32 `[P]`."""
        self.clip, self.surrogate_weight, self.kl_weight = clip, surrogate_weight, float(kl_weight)
        self._problem.set_flat(weights)
        self._problem.begin(rows)
        return self._problem.loss_and_gradient()[1]

    def _curved(self, rows: SampleBatch, weights: Vector, vector: Vector) -> Vector:
        """Returns ∇²L v, of the loss of a step of adaptation. Float32 `[P]`."""
        self.clip, self.surrogate_weight, self.kl_weight = math.inf, 1.0, 0.0
        self._problem.set_flat(weights)
        self._problem.begin(rows)
        return self._problem.loss_product(vector)

    def _clipped(self, gradient: Vector) -> Vector:
        limit, norm = self.config.grad_clip, float(np.linalg.norm(gradient))
        return gradient * np.float32(limit / norm) if limit and norm > limit else gradient
