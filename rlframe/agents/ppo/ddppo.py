"""DD-PPO: every worker learns from its own rows, and gradients are averaged between workers; config, plan, trainer."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Literal

from rlframe.agents.ppo.ppo import PPOConfig
from rlframe.config.common import CommonConfig
from rlframe.config.options import option
from rlframe.execution.distributed_ops import LearnInWorkers, SGDSettings
from rlframe.execution.iterators import LocalIterator
from rlframe.execution.metric_ops import StandardMetricsReporting
from rlframe.trainer.template import build_trainer

if TYPE_CHECKING:
    from rlframe.evaluation.worker_set import WorkerSet


class DDPPOConfig(PPOConfig):
    """Keys of DD-PPO (Wijmans et al. 2020)."""

    # Nothing but the clip holds Gaussians here. Deviations that depend on the state, as RLlib's did, swing until
    # weights are NaN (Pendulum, after 230k steps); free ones do not. Means drift beyond the action bounds, where all
    # actions do the same, and stay there.
    new_defaults = {  # noqa: RUF012
        "rollout_fragment_length": 100,
        "num_envs_per_worker": 5,
        "sgd_minibatch_size": 50,
        "num_sgd_iter": 10,
        "kl_coeff": 0.0,
        "kl_target": 0.0,
        "action_bound_coeff": 1.0,
        "normalize_values": False,
        "model": {"free_log_std": None},
    }

    train_batch_size: int = option(
        -1, "Not used: each worker learns from rollout_fragment_length · num_envs_per_worker rows.", low=-1
    )
    keep_local_weights_in_sync: bool = option(
        True,
        "The driver's policy gets the weights after each round; False saves the time, for runs without evaluation.",
    )
    torch_distributed_backend: Literal["gloo", "nccl"] = option(
        "gloo", "Backend of torch.distributed; nccl between GPUs."
    )
    truncate_episodes: bool = option(True, "A key of RLlib's that nothing reads.", deprecated=True)

    def faults(self) -> Iterator[str]:
        """Yields cross-field faults; never rewrites a value."""
        yield from CommonConfig.faults(self)  # PPO's own speak of train_batch_size
        rows = self.rollout_fragment_length * self.num_envs_per_worker
        if self.train_batch_size not in (-1, rows):
            yield (
                f"train_batch_size={self.train_batch_size}: each worker learns from rollout_fragment_length · "
                f"num_envs_per_worker = {rows} rows; leave it at -1 and set those"
            )
        if self.sgd_minibatch_size > rows:
            yield (
                f"sgd_minibatch_size={self.sgd_minibatch_size} must be at most rollout_fragment_length · "
                f"num_envs_per_worker = {rows}"
            )
        if self.kl_coeff:
            yield f"kl_coeff={self.kl_coeff}: DD-PPO has no KL penalty: each worker would adapt its own; leave it at 0"
        if self.normalize_values is not False:
            yield (
                f"normalize_values={self.normalize_values}: DD-PPO learns values in reward units: each worker would "
                "follow targets of its own; leave it at False"
            )
        if self.recompute_advantages:
            yield "recompute_advantages=True: DD-PPO's workers learn from advantages as they were sampled; leave it out"
        if self.use_gae and not self.use_critic:
            yield "use_gae=True needs use_critic=True: the estimates are made of values"
        if self.batch_mode == "truncate_episodes" and not self.use_gae:
            yield "use_gae=False needs batch_mode='complete_episodes': returns need the ends of episodes"

    def derived(self) -> dict[str, Any]:
        """Returns that remote workers carry the framework's policy: they learn."""
        return {"sample_in_numpy": False}


def execution_plan(workers: WorkerSet, config: DDPPOConfig) -> LocalIterator[Any]:
    """Lets all workers sample and learn side by side, step by step with the mean of their gradients."""
    config = DDPPOConfig.view(config)
    settings = SGDSettings(config.num_sgd_iter, config.sgd_minibatch_size, standardize=("advantages",))
    train = LearnInWorkers(
        workers,
        settings,
        backend=config.torch_distributed_backend,
        keep_local_weights_in_sync=config.keep_local_weights_in_sync,
    )
    return StandardMetricsReporting(train, workers, config)


DEFAULT_CONFIG: dict[str, Any] = DDPPOConfig.defaults()

DDPPOTrainer = build_trainer(
    name="DDPPO",
    config_class=DDPPOConfig,
    policies={"torch": "rlframe.agents.ppo.ppo_policy:PPOTorchPolicy"},
    execution_plan=execution_plan,
)
