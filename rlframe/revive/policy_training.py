"""Policies for a node of a decision graph, trained in learned environments by the trainers that there are.

The node of the policy sees its scaled inputs, and acts in the learned space of its columns, within [-1, 1].
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from rlframe.report.statistics import Interval, mean, stratified_bootstrap
from rlframe.revive.configuration import Configuration
from rlframe.revive.data import GraphData
from rlframe.revive.graph import DecisionGraph
from rlframe.revive.policy_model import Head, PolicyModel, PolicyNetwork, policy_inputs, scaled_inputs
from rlframe.revive.score import logged_score, score_per_step
from rlframe.revive.workspace import HALVES
from rlframe.utils.errors import ConfigError
from rlframe.utils.seeding import derive_seed, make_rng

HEADS: Mapping[str, Head] = {
    "ppo": "gaussian", "sac": "squashed", "td3": "deterministic", "shooting": "deterministic",
}  # fmt: skip
#: How often a policy is judged while it is trained; the best is kept.
_CHECKS = 20
_ids = itertools.count()

MakeEnv = Callable[[str, int, int, float, int], Any]
"""`fn(half, num_envs, horizon, penalty, seed)` returns a `gymnasium.vector.VectorEnv` of the learned space."""


class Progress(NamedTuple):
    """Where the training of a policy is.

    Attributes:
        half: In whose environment it is trained.
        done: Share of the training that is done.
        score: Its score in the environment of the other half, or of its own where there is no other.
        best: The best score so far.
        model: The policy now, if it is the best so far.
    """

    half: str
    done: float
    score: float
    best: float
    model: PolicyModel | None


@dataclass
class PolicyResult:
    """What training policies came to.

    Attributes:
        models: The best policy by the half that it was trained in.
        scores: Mean score with its interval, by policy and environment: `("train", "val")` is the policy of the
            training half in the environment of the other.
        data: What the log of each half scores; see `logged_score`.
        rows: Rows of each half.
        curves: By the same pairs, `(share done, score)`.
        cloning_error: Mean squared error of the cloned behaviour, by half.
        stopped: Whether it was ended before its time.
    """

    models: dict[str, PolicyModel] = field(default_factory=dict)
    scores: dict[tuple[str, str], Interval] = field(default_factory=dict)
    data: dict[str, float] = field(default_factory=dict)
    rows: dict[str, int] = field(default_factory=dict)
    curves: dict[tuple[str, str], list[tuple[float, float]]] = field(default_factory=dict)
    cloning_error: dict[str, float] = field(default_factory=dict)
    stopped: bool = False

    @property
    def metric(self) -> float:
        """The score of the first policy in the environment of the other half."""
        return self.scores["train", "val"].value

    def to_dict(self) -> dict[str, Any]:
        """Returns what JSON can hold."""
        return {
            "scores": {f"{policy} policy, {env} env": list(one) for (policy, env), one in self.scores.items()},
            "data": self.data,
            "curves": {f"{policy} policy, {env} env": points for (policy, env), points in self.curves.items()},
            "cloning_error": self.cloning_error,
            "stopped": self.stopped,
        }


class PolicyTraining:
    """Trains a policy in the first half's environment, and one in the other's, and judges each in both.

    Args:
        make_env: Makes environments.
        data: Of both halves, "train" and "val"; their graphs have ranges.
        reward: The user's reward.
        node: Which node the policy decides.
        config: Parameters.
        known: Policies of the node by half, of an earlier training; they stay where training finds none better.
    """

    def __init__(
        self, make_env: MakeEnv, data: Mapping[str, GraphData], reward: Any, node: str, config: Configuration,
        known: Mapping[str, PolicyModel] | None = None,
    ) -> None:  # fmt: skip
        check_trainable(config, data["train"], reward, node)
        self.make_env, self.data, self.reward, self.node, self.config = make_env, data, reward, node, config
        self.known = dict(known or {})
        self.result = PolicyResult(
            data={
                half: logged_score(data[half], reward, config.base.test_horizon, config.base.test_gamma)
                for half in HALVES
            },
            rows={half: len(data[half]) for half in HALVES},
        )

    def run(self, callback: Callable[[Progress], bool] | None = None) -> PolicyResult:
        """Returns what it comes to.

        Args:
            callback: Called whenever a policy was judged; false ends the training, with the best so far.
        """
        for half in HALVES if self.config.base.policy_double_validation else HALVES[:1]:
            if not self._train_half(half, callback):
                self.result.stopped = True
                break
        for half, model in self.result.models.items():
            for env in HALVES:
                scores = judge(self.make_env, env, model.network, self.config)
                interval = stratified_bootstrap([scores], mean, seed=self.config.base.global_seed)
                self.result.scores[half, env] = interval
        return self.result

    def _train_half(self, half: str, callback: Callable[[Progress], bool] | None) -> bool:
        """Trains the policy of a half; returns whether the training goes on."""
        result, other, best = self.result, "val" if half == "train" else "train", -np.inf
        if half in self.known:
            result.models[half] = self.known[half]
            best = float(judge(self.make_env, other, self.known[half].network, self.config).mean())
        for done, network, error in _learned(self, half):
            scores = {env: float(judge(self.make_env, env, network, self.config).mean()) for env in HALVES}
            score, result.cloning_error[half] = scores[other], error
            for env, one in scores.items():
                result.curves.setdefault((half, env), []).append((done, one))
            improved = score > best or half not in result.models
            if improved:
                best = max(score, best)
                about = {"half": half, "algorithm": self.config.base.policy_algo, "score": score}
                result.models[half] = PolicyModel(self.data[half].graph, self.node, network, about)
            told = Progress(half, done, score, best, result.models[half] if improved else None)
            if callback is not None and not callback(told):
                return False
        return True


def check_trainable(config: Configuration, data: GraphData, reward: Any, node: str) -> None:
    """Looks whether the chosen algorithm can train a node's policy.

    Raises:
        ConfigError: The policy would see what a deployed one cannot, there is no behaviour to stay near, or gradients
            do not flow where they must.
    """
    policy_inputs(data.graph, node)
    check_behaviour(config, data, node)
    if config.base.policy_algo == "shooting":
        from rlframe.revive.shooting_torch import check_smooth

        check_smooth(data.graph, data, reward, node)


def check_behaviour(config: Configuration, data: GraphData, node: str) -> None:
    """Looks whether there is a behaviour for policies to stay near, where they shall.

    Raises:
        ConfigError: None is cloned, or none is in the data.
    """
    if config.policy.w_kl <= 0:
        return
    if config.policy.policy_bc_epoch == 0:
        raise ConfigError(
            f"w_kl is {config.policy.w_kl:g}, which keeps policies near the cloned behaviour, but policy_bc_epoch is "
            "0, so none is cloned; wanted epochs, or w_kl 0"
        )
    if not len(logged_decisions(data.graph, data, node)[0]):
        raise ConfigError(
            f"w_kl is {config.policy.w_kl:g}, which keeps policies near the logged behaviour, but the data have no "
            f"row with node {node!r} and its inputs; wanted w_kl 0, or data with it"
        )


def judge(make_env: MakeEnv, half: str, network: PolicyNetwork, config: Configuration) -> NDArray[np.float64]:
    """Returns the scores of a policy over rollouts in a half's environment: `score_per_step`. Float64 `[B]`."""
    base = config.base
    env = make_env(half, base.test_rollouts, base.test_horizon, 0.0, derive_seed(base.global_seed, "judge", half))
    rng = make_rng(base.global_seed, "judge", half, "actions")
    obs, _ = env.reset(seed=derive_seed(base.global_seed, "judge", half))
    count = base.test_rollouts
    sums, steps = np.zeros(count), np.zeros(count, np.int64)
    alive, ended = np.ones(count, bool), np.zeros(count, bool)
    for step in range(base.test_horizon):
        rows = np.asarray(obs, np.float32)
        actions = network.means(rows) if base.deterministic_test else network.samples(rows, rng)
        obs, rewards, terminated, truncated, _ = env.step(np.clip(actions, -1.0, 1.0))
        sums += alive * base.test_gamma**step * rewards
        steps += alive
        ended |= alive & terminated
        alive &= ~(terminated | truncated)
        if not alive.any():
            break
    env.close()
    return score_per_step(sums, steps, ended, base.test_horizon, base.test_gamma)


def _learned(training: PolicyTraining, half: str) -> Iterator[tuple[float, PolicyNetwork, float]]:
    """Yields the share done, the policy's network, and the error of the cloned behaviour, while it is trained."""
    config = training.config
    seed = derive_seed(config.base.global_seed, "policy", half)
    with _trainer_of(training, half, config, seed) as trainer:
        yield from _rounds(trainer, training, half)


@contextlib.contextmanager
def _trainer_of(training: PolicyTraining, half: str, config: Configuration, seed: int) -> Iterator[Any]:
    """A context with the trainer of a half's policy, which is stopped behind it."""
    with contextlib.ExitStack() as stack:
        if config.base.policy_algo == "shooting":
            from rlframe.revive.shooting import ShootingTrainer, shooting_config

            penalty = config.policy.reward_uncertainty_weight
            env = training.make_env(half, 1, _horizon(config), penalty, derive_seed(seed, "env"))
            made = ShootingTrainer(shooting_config(env, config.policy, seed), logger_creator=lambda _: _Silent())
        else:
            made = _make_trainer(stack.enter_context(_Registered(training, half, seed)), config, seed)
        stack.callback(made.stop)
        yield made


def _rounds(trainer: Any, training: PolicyTraining, half: str) -> Iterator[tuple[float, PolicyNetwork, float]]:
    policy, config = trainer.get_policy(), training.config
    head = HEADS[config.base.policy_algo]
    begin = policy.get_weights()
    error = clone(policy, training, half)
    if config.policy.w_kl > 0:
        policy.set_behaviour(network_of(policy, head), error)
        if not config.base.behavioral_policy_init:  # the clone is what it stays near, not what it begins with
            policy.set_weights(begin)
    trainer.workers.weights_changed()
    rounds = config.policy.ppo_epoch if config.base.policy_algo == "ppo" else config.policy.epoch
    yield 0.0, network_of(policy, head), error
    for done in range(1, rounds + 1):
        trainer.train()
        if done in checks(rounds):
            yield done / rounds, network_of(policy, head), error


def checks(rounds: int) -> set[int]:
    """Returns behind which rounds of a training the policy is judged."""
    return {max(1, round(rounds * (1 + check) / _CHECKS)) for check in range(_CHECKS)} | {rounds}


def clone(policy: Any, training: PolicyTraining, half: str) -> float:
    """Starts a policy as a clone of what is in the data, where that is wanted; returns the error that is left."""
    from rlframe.revive.cloning_torch import clone_behaviour

    config, data = training.config, training.data[half]
    obs, actions = logged_decisions(data.graph, data, training.node)
    if not len(obs):
        return 1.0
    wanted = config.base.behavioral_policy_init or config.policy.w_kl > 0
    epochs = config.policy.policy_bc_epoch if wanted else 0
    rng = make_rng(config.base.global_seed, "cloning", half)
    return clone_behaviour(policy, obs, actions, HEADS[config.base.policy_algo], epochs, rng)


def logged_decisions(
    graph: DecisionGraph, data: GraphData, node: str
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Returns what the policy of a node saw and did in the data, scaled; rows with values that were not logged aside.

    Where the data have no such node, both are empty.
    """
    names = (*policy_inputs(graph, node), node)
    width = sum(graph.scalers[name].width for name in names[:-1])
    if any(name not in data.arrays for name in names):
        return np.zeros((0, width), np.float32), np.zeros((0, graph.scalers[node].width), np.float32)
    whole = np.all([data.mask[name].all(-1) for name in names], axis=0)
    arrays = {name: data.arrays[name][whole] for name in names}
    return scaled_inputs(graph, node, arrays), np.clip(graph.scalers[node].scale(arrays[node]), -1.0, 1.0)


def network_of(policy: Any, head: Head) -> PolicyNetwork:
    """Returns a copy of a policy's acting network."""
    spec = policy.numpy_spec()
    layers = {layer["name"] for layer in spec["outputs"]}
    weights = {
        name: np.array(array, np.float32)
        for name, array in policy.live_weights().items()
        if name.rpartition(".")[0] in layers
    }
    return PolicyNetwork({"outputs": spec["outputs"], "values": None, "shared": 0}, weights, head)


# --- trainers -----------------------------------------------------------------------------------------------------


class _Registered:
    """A context in which a half's environment has a name that trainers find it by."""

    def __init__(self, training: PolicyTraining, half: str, seed: int) -> None:
        self.env_id = f"revive-half-{next(_ids)}-v0"
        self._training, self._half, self._seed, self._made = training, half, seed, itertools.count()

    def _make(self, num_envs: int) -> Any:
        config, seed = self._training.config, derive_seed(self._seed, "env", next(self._made))
        penalty = config.policy.reward_uncertainty_weight
        return self._training.make_env(self._half, num_envs, _horizon(config), penalty, seed)

    def __enter__(self) -> str:
        register: Any = gym.register
        register(
            self.env_id,
            entry_point=lambda: OneSlot(self._make(1)),
            # No method: Gymnasium copies what it calls, and an object behind it; functions stay themselves.
            vector_entry_point=lambda num_envs: self._make(num_envs),
            disable_env_checker=True,
            order_enforce=False,
        )
        return self.env_id

    def __exit__(self, *_: object) -> None:
        gym.registry.pop(self.env_id)


def _horizon(config: Configuration) -> int:
    chosen = config.policy
    return int(chosen.ppo_rollout_horizon if config.base.policy_algo == "ppo" else chosen.rollout_horizon)


class OneSlot(gym.Env[Any, Any]):
    """One slot of a vectorised environment, as an environment of its own.

    Args:
        vector_env: With one slot.
    """

    def __init__(self, vector_env: Any) -> None:
        self.vector_env = vector_env
        self.observation_space = vector_env.single_observation_space
        self.action_space = vector_env.single_action_space

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begins an episode."""
        obs, _ = self.vector_env.reset(seed=seed, options=options)
        return obs[0], {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Does a step."""
        obs, rewards, terminated, truncated, _ = self.vector_env.step(np.asarray(action)[None])
        return obs[0], float(rewards[0]), bool(terminated[0]), bool(truncated[0]), {}


def _make_trainer(env_id: str, config: Configuration, seed: int) -> Any:
    from rlframe.revive import regularized

    chosen, algorithm = config.policy, config.base.policy_algo
    hiddens = [chosen.policy_hidden_features] * chosen.policy_hidden_layers
    made = {
        "env": env_id, "seed": seed, "framework": "torch", "num_workers": 0, "vectorized_env": True,
        "min_iter_time_s": 0, "log_level": "ERROR", **({"w_kl": chosen.w_kl} if chosen.w_kl > 0 else {}),
        **{"ppo": _ppo, "sac": _sac, "td3": _td3}[algorithm](chosen, hiddens),
    }  # fmt: skip
    trainers = regularized.NEAR if chosen.w_kl > 0 else regularized.PLAIN
    return trainers[algorithm](made, logger_creator=lambda _: _Silent())


def _ppo(chosen: Any, hiddens: list[int]) -> dict[str, Any]:
    rows = chosen.ppo_batch_size * chosen.ppo_rollout_horizon
    return {
        "num_envs_per_worker": chosen.ppo_batch_size,
        "rollout_fragment_length": chosen.ppo_rollout_horizon,
        "train_batch_size": rows, "sgd_minibatch_size": min(512, rows), "num_sgd_iter": chosen.ppo_runs,
        "gamma": chosen.gae_gamma, "lambda": chosen.gae_lambda, "clip_param": chosen.epsilon, "lr": chosen.g_lr,
        "vf_clip_param": float("inf"), "entropy_coeff": chosen.w_ent, "kl_coeff": 0.0, "grad_clip": 0.5,
        "model": {"fcnet_hiddens": hiddens, "fcnet_activation": "tanh", "vf_share_layers": False, "free_log_std": True},
    }  # fmt: skip


def _off_policy(chosen: Any) -> dict[str, Any]:
    return {
        "num_envs_per_worker": chosen.num_envs, "rollout_fragment_length": 1, "gamma": chosen.gamma,
        "train_batch_size": chosen.batch_size, "training_intensity": float(chosen.batch_size),
        "timesteps_per_iteration": chosen.steps_per_epoch, "tau": 1.0 - chosen.polyak,
        "replay_buffer_config": {"capacity": chosen.buffer_size}, "learning_starts": chosen.steps_per_epoch,
    }  # fmt: skip


def _sac(chosen: Any, hiddens: list[int]) -> dict[str, Any]:
    network = {"fcnet_hiddens": hiddens, "fcnet_activation": "relu"}
    rates = dict.fromkeys(("actor_learning_rate", "critic_learning_rate", "entropy_learning_rate"), chosen.g_lr)
    return {
        **_off_policy(chosen), "policy_model": network, "Q_model": network, "initial_alpha": chosen.alpha,
        "n_critics": chosen.num_q_net, "twin_q": chosen.num_q_net > 1, "optimization": rates,
        "target_network_update_freq": 0,
    }  # fmt: skip


def _td3(chosen: Any, hiddens: list[int]) -> dict[str, Any]:
    noise = {
        "type": "GaussianNoise", "random_timesteps": 0, "stddev": chosen.explore_noise, "initial_scale": 1.0,
        "final_scale": 1.0, "scale_timesteps": 1,
    }  # fmt: skip
    return {
        **_off_policy(chosen), "actor_hiddens": hiddens, "critic_hiddens": hiddens, "actor_lr": chosen.g_lr,
        "critic_lr": chosen.g_lr, "exploration_config": noise, "target_network_update_freq": 0,
    }  # fmt: skip


class _Silent:
    """A logger that keeps nothing: what a run has to say is in its workspace."""

    logdir = None

    def on_result(self, result: Mapping[str, Any]) -> None:
        """Takes a result, and keeps nothing of it."""

    def flush(self) -> None:
        """Has nothing to write."""

    def close(self) -> None:
        """Has nothing to close."""
