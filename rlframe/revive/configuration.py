"""What can be set about learned environments and policies: each parameter declared once, with type, default and search.

The same declarations give the flags of the command line, read Revive's `config.json`, and are what a search varies.
Everywhere the command line goes before the file, and the file before the defaults.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple

from rlframe.config.check import Inspector, Tolerance
from rlframe.config.options import Section, option
from rlframe.revive.graph_file import LOSSES
from rlframe.utils.errors import ConfigError
from rlframe.utils.files import read_json


class Searched(NamedTuple):
    """What a search tries for a parameter.

    Attributes:
        mode: "continuous": any number between the two values, by orders of magnitude where both are above 0 and a
            factor of 100 apart; "grid" and "discrete": one of the values.
        values: The two ends, or the choices.
    """

    mode: str
    values: tuple[Any, ...]


class BaseConfig(Section):
    """What does not depend on the algorithms."""

    global_seed: int = option(42, "Seed of splits, weights, windows and rollouts.", low=0, alias="seed")
    val_split_ratio: float = option(
        0.5, "Share of the data on which the second environment is fitted, and the first one judged.", above=0,
        high=0.9, alias="vsr",
    )  # fmt: skip
    val_split_mode: str = option(
        "outside_traj", "Whether whole trajectories go to one half, or each trajectory is cut.",
        choices=("outside_traj", "inside_traj"), alias="vsm",
    )  # fmt: skip
    ignore_check: bool = option(False, "Data that a function node contradicts are a warning, no error.", alias="igc")
    # The learned environment
    venv_algo: str = option(
        "bc", "How environments are learned: bc, each node from its data; revive_p, or revive, by a contest with "
        "discriminators behind that.", choices=("bc", "revive_p", "revive"), alias="va",
    )  # fmt: skip
    venv_metric: str = option(
        "mae", "Which error of open-loop rollouts chooses the environment.", choices=("mae", "mse", "nll", "wdist"),
        alias="vm_metric",
    )  # fmt: skip
    venv_rollout_horizon: int = option(100, "Length of rollouts that judge it.", unit="steps", low=2, alias="vrh")
    num_venv_in_use: int = option(
        1, "Environments learned of each half; their disagreement is the uncertainty.", low=1, alias="nviu"
    )
    transition_mode: str = option(
        "local", "Whether transitions are predicted as shifts (local), or as they are (global).",
        choices=("global", "local"),
    )  # fmt: skip
    # The policy
    policy_algo: str = option(
        "ppo", "How policies are learned in it; shooting goes up the gradient of rollouts, where all is smooth.",
        choices=("ppo", "sac", "td3", "shooting"), alias="pa",
    )  # fmt: skip
    behavioral_policy_init: bool = option(True, "Policies begin as clones of what is in the data.", alias="bpi")
    policy_double_validation: bool = option(
        True, "A second policy is trained in the environment of the other half, and both are judged in both."
    )
    test_gamma: float = option(1.0, "Discount of the policy's score.", above=0, high=1, alias="tg")
    test_horizon: int = option(100, "Length of the rollouts that judge policies.", unit="steps", low=1, alias="th")
    test_rollouts: int = option(200, "Rollouts that judge a policy in each environment.", low=2)
    deterministic_test: bool = option(True, "Policies are judged by their mode, not by samples.", alias="dt")
    # Searches
    venv_search_algo: str = option(
        "optuna", "How a search of environments goes on.", choices=("optuna", "random", "grid")
    )
    policy_search_algo: str = option(
        "optuna", "How a search of policies goes on.", choices=("optuna", "random", "grid")
    )
    train_venv_trials: int = option(25, "Environments that a search trains.", unit="trials", low=1, alias="tvt")
    train_policy_trials: int = option(10, "Policies that a search trains.", unit="trials", low=1, alias="tpt")
    parallel_num: int | Literal["auto"] = option(
        "auto", "Trials at a time; auto is one for each CPU of the cluster.", low=1, wanted="an integer >= 1 or 'auto'"
    )
    # Parameter tuning
    parameter_tuning_algorithm: str = option(
        "evolution", "How parameters are searched.", choices=("evolution", "random"), alias="pta"
    )
    parameter_tuning_budget: int = option(10_000, "Parameters tried.", low=1, alias="ptb")
    parameter_tuning_rollout_horizon: int = option(1800, "Longest rollout that tries them.", unit="steps", low=1)


class NodeNetworksConfig(Section):
    """Networks of the nodes of a learned environment."""

    policy_hidden_features: int = option(64, "Width of networks of nodes that act.", low=1, alias="phf")
    policy_hidden_layers: int = option(2, "Their hidden layers.", low=1, alias="phl")
    policy_backbone: str = option("mlp", "Their kind.", choices=("mlp", "res"), alias="pb")
    transition_hidden_features: int = option(64, "Width of networks of transitions.", low=1, alias="thf")
    transition_hidden_layers: int = option(2, "Their hidden layers.", low=1, alias="thl")
    transition_backbone: str = option("mlp", "Their kind.", choices=("mlp", "res"), alias="tb")


class SupervisedConfig(NodeNetworksConfig):
    """Supervised learning of every node."""

    bc_batch_size: int = option(256, "Rows of a step.", unit="rows", low=1, alias="bbs")
    bc_epoch: int = option(150, "Passes over the data, or updates in their number.", unit="epochs", low=1, alias="bep")
    lr_decay: float = option(0.99, "Factor on the learning rate after each epoch.", above=0, high=1)
    weight_decay: float = option(1e-5, "Decay of weights.", low=0, log=True, alias="wd")
    loss_type: str = option("log_prob", "Loss of a node.", choices=LOSSES, alias="lt")


class VenvBCConfig(SupervisedConfig):
    """Every node is learned from its data."""

    g_lr: float = option(1e-3, "Learning rate.", above=0, log=True)


class VenvReviveConfig(SupervisedConfig):
    """Adversarial imitation of the whole graph behind a supervised start; generators learn by PPO."""

    bc_lr: float = option(1e-3, "Learning rate of the supervised start.", above=0, log=True, alias="blr")
    g_lr: float = option(4e-5, "Learning rate of generators.", above=0, log=True)
    d_lr: float = option(6e-4, "Learning rate of discriminators, and of generators' values.", above=0, log=True)
    revive_batch_size: int = option(64, "Rollouts of an epoch.", unit="trajectories", low=1, alias="rbs")
    revive_epoch: int = option(50, "Adversarial epochs behind the supervised ones.", unit="epochs", low=0, alias="rep")
    matcher_hidden_features: int = option(64, "Width of discriminators.", low=1, alias="mhf")
    matcher_hidden_layers: int = option(2, "Their hidden layers.", low=1, alias="mhl")
    matcher_loss_high: float = option(1.2, "Loss of a discriminator above which its generator waits.", low=0)
    matcher_loss_low: float = option(0.3, "Loss of a discriminator below which it waits.", low=0)
    g_steps: int = option(1, "Rollouts of an epoch that generators learn from, one behind the other.", low=1)
    d_steps: int = option(1, "Passes of discriminators over each of them.", low=1)
    ppo_runs: int = option(2, "Passes of generators over each of them.", low=1)
    ppo_epsilon: float = option(0.2, "Clipping of PPO's ratio.", above=0, high=1)
    gae_gamma: float = option(0.99, "Discount.", low=0, high=1)
    gae_lambda: float = option(0.95, "λ of advantages.", low=0, high=1)
    mae_reward_weight: float = option(0.25, "Weight in rewards of the distance from what was logged.", low=0)
    fintune: int = option(1, "Supervised passes before each rollout; 0 makes none.", low=0)
    finetune_fre: int = option(1, "Rollouts from one of them to the next.", low=1)


class PolicyConfig(Section):
    """What every policy algorithm has."""

    policy_hidden_features: int = option(64, "Width of the policy's network.", low=1, alias="phf")
    policy_hidden_layers: int = option(2, "Its hidden layers.", low=1, alias="phl")
    w_kl: float = option(
        0.0, "Weight of KL(π‖behaviour), which keeps the policy near the data.", low=0, tunable=True, alias="wkl"
    )
    reward_uncertainty_weight: float = option(
        0.0, "Penalty for steps about which environments disagree, per unit of disagreement.", low=0, alias="ruw"
    )
    policy_bc_epoch: int = option(50, "Epochs of cloning before it learns.", unit="epochs", low=0, alias="pbe")


class PPOPolicyConfig(PolicyConfig):
    """PPO in the learned environment."""

    ppo_batch_size: int = option(64, "Rollouts side by side.", unit="trajectories", low=1, alias="pbs")
    ppo_epoch: int = option(200, "Epochs, each of one rollout of all.", unit="epochs", low=1, alias="pep")
    ppo_rollout_horizon: int = option(100, "Length of rollouts.", unit="steps", low=2, alias="prh")
    ppo_runs: int = option(8, "Passes over an epoch's rollouts.", low=1)
    epsilon: float = option(0.2, "Clipping of the ratio.", above=0, high=1)
    w_ent: float = option(0.0, "Weight of the entropy.", low=0)
    gae_gamma: float = option(0.95, "Discount.", low=0, high=1)
    gae_lambda: float = option(0.5, "λ of advantages.", low=0, high=1)
    g_lr: float = option(3e-4, "Learning rate.", above=0, log=True)


class OffPolicyPolicyConfig(PolicyConfig):
    """What SAC and TD3 share."""

    batch_size: int = option(256, "Rows of an update.", unit="rows", low=1)
    epoch: int = option(100, "Epochs.", unit="epochs", low=1)
    steps_per_epoch: int = option(200, "Updates in an epoch.", low=1)
    rollout_horizon: int = option(100, "Length of rollouts.", unit="steps", low=2)
    num_envs: int = option(16, "Rollouts side by side.", low=1)
    buffer_size: int = option(1_000_000, "Steps kept.", unit="steps", low=1000)
    gamma: float = option(0.99, "Discount.", low=0, high=1)
    polyak: float = option(0.995, "Share of the old in target networks.", low=0, high=1)
    g_lr: float = option(3e-4, "Learning rate.", above=0, log=True)


class SACPolicyConfig(OffPolicyPolicyConfig):
    """SAC in the learned environment; keys as in Revive have `sac_` before them."""

    alpha: float = option(0.2, "Weight of the entropy at the beginning.", above=0)
    num_q_net: int = option(2, "Critics.", low=1)


class TD3PolicyConfig(OffPolicyPolicyConfig):
    """TD3 in the learned environment."""

    explore_noise: float = option(0.1, "Standard deviation of its exploration, actions in [-1, 1].", low=0)


class ShootingPolicyConfig(PolicyConfig):
    """Gradients of rollouts through the learned environment."""

    batch_size: int = option(64, "Rollouts of an update.", unit="trajectories", low=1)
    epoch: int = option(100, "Epochs.", unit="epochs", low=1)
    steps_per_epoch: int = option(5, "Updates in an epoch.", low=1)
    rollout_horizon: int = option(30, "Length of rollouts.", unit="steps", low=1)
    gamma: float = option(0.99, "Discount.", low=0, high=1)
    g_lr: float = option(1e-3, "Learning rate.", above=0, log=True)


VENV_ALGORITHMS: Mapping[str, type[Section]] = {
    "bc": VenvBCConfig, "revive_p": VenvReviveConfig, "revive": VenvReviveConfig,
}  # fmt: skip
#: Algorithms that have two names: the second by the first.
_ALSO: Mapping[str, str] = {"revive": "revive_p", "revive_p": "revive"}
POLICY_ALGORITHMS: Mapping[str, type[Section]] = {
    "ppo": PPOPolicyConfig, "sac": SACPolicyConfig, "td3": TD3PolicyConfig, "shooting": ShootingPolicyConfig,
}  # fmt: skip
#: Prefixes with which Revive writes keys of an algorithm: `sac_batch_size` is SAC's `batch_size`.
_PREFIXED = frozenset({"batch_size", "epoch", "steps_per_epoch", "rollout_horizon", "num_envs"})
_PREFIXES: Mapping[type[Section], str] = {
    SACPolicyConfig: "sac_", TD3PolicyConfig: "td3_", ShootingPolicyConfig: "shooting_",
}  # fmt: skip

#: What a search varies where `config.json` does not say otherwise.
SEARCHED: Mapping[type[Section], Mapping[str, Searched]] = {
    SupervisedConfig: {
        "transition_hidden_features": Searched("discrete", (32, 64, 128)),
        "policy_hidden_layers": Searched("discrete", (1, 2, 3)),
        "weight_decay": Searched("continuous", (1e-6, 1e-3)),
    },
    VenvBCConfig: {"g_lr": Searched("continuous", (3e-4, 3e-3))},
    VenvReviveConfig: {
        "g_lr": Searched("continuous", (1e-6, 1e-4)),
        "d_lr": Searched("continuous", (1e-5, 1e-3)),
        "g_steps": Searched("discrete", (1, 3, 5)),
        "d_steps": Searched("discrete", (1, 3, 5)),
    },
    PPOPolicyConfig: {"g_lr": Searched("continuous", (1e-4, 1e-3)), "w_kl": Searched("discrete", (0.0, 0.01, 0.1))},
    SACPolicyConfig: {"g_lr": Searched("continuous", (1e-4, 1e-3)), "w_kl": Searched("discrete", (0.0, 0.01, 0.1))},
    TD3PolicyConfig: {"g_lr": Searched("continuous", (1e-4, 1e-3)), "w_kl": Searched("discrete", (0.0, 0.1, 1.0))},
    ShootingPolicyConfig: {
        "g_lr": Searched("continuous", (3e-4, 3e-3)),
        "rollout_horizon": Searched("discrete", (10, 30, 100)),
        "w_kl": Searched("discrete", (0.0, 0.01, 0.1)),
    },
}  # fmt: skip

#: Names of Revive's of which there is another: that one.
RENAMED: Mapping[str, str] = {"bc_weight_decay": "weight_decay"}
#: What Revive's adversarial learning shares with learning supervised, by the name that it has there.
SUPERVISED: Mapping[str, str] = {"revive_epoch": "bc_epoch", "revive_batch_size": "bc_batch_size"}
#: Names of Revive's that have no counterpart, and what to do instead.
ELSEWHERE: Mapping[str, str] = {
    **dict.fromkeys(
        ("use_gpu", "use_fp16", "venv_gpus_per_worker", "policy_gpus_per_worker", "workers_per_trial", "data_workers"),
        "networks of this size learn on CPUs; leave it out",
    ),
    **dict.fromkeys(
        ("value_hidden_features", "value_hidden_layers"), "the value network is as large as the policy's; leave it out"
    ),
    "w_vl2": "values are normalised; leave it out",
    **dict.fromkeys(
        ("continuous_distribution_type", "discrete_distribution_type", "category_distribution_type", "mixture",
         "conditioned_std"),
        "each kind of column has one distribution; leave it out",
    ),
    **dict.fromkeys(
        ("use_time_step_embed", "time_step_embed_size", "use_traj_id_embed"),
        "step_input and traj_id of a node in the graph file say so; leave it out",
    ),
    **dict.fromkeys(
        ("rollout_plt_frequency", "plt_response_curve", "venv_save_frequency", "num_venv_store", "save_by_node",
         "save_start_epoch", "rollout_dataset_mode", "verbose"),
        "`rlframe revive report` draws everything, and the best models are always on disk; leave it out",
    ),
    **dict.fromkeys(
        ("real_env_test_frequency", "task", "fqe_test_frequency"),
        "`rlframe revive evaluate` judges policies; leave it out",
    ),
    "framework": "networks are learned with PyTorch, and run without a framework; leave it out",
    "action_steps": "give the learned environment a wrapper that repeats actions; leave it out",
    "generator_algo": "generators learn by PPO; leave it out",
    "history_matcher_num": "discriminators see single steps; leave it out",
    "bc_horizon": "supervised steps are learned from single rows; leave it out",
    "rnn_hidden_features": "give a node `ts: n` in the graph file for memory; leave it out",
    "window_size": "give a node `ts: n` in the graph file for memory; leave it out",
}  # fmt: skip


@dataclass(frozen=True)
class Configuration:
    """All parameters of a run, checked.

    Attributes:
        base: Those that no algorithm has.
        venv: Those of the algorithm `base.venv_algo`.
        policy: Those of the algorithm `base.policy_algo`.
        searched: What `config.json` says of searches, by "venv" or "policy", then by name; None leaves one out.
        remarks: What was given and has no effect.
    """

    base: Any
    venv: Any
    policy: Any
    searched: Mapping[str, Mapping[str, Searched | None]] = field(default_factory=dict)
    remarks: tuple[str, ...] = ()

    def search_space(self, stage: Literal["venv", "policy"]) -> dict[str, Searched]:
        """Returns what a search of a stage varies."""
        chosen: Any = _forms(self.base.venv_algo, self.base.policy_algo)[stage]
        space: dict[str, Searched | None] = {}
        for parent in reversed(chosen.__mro__):
            space |= SEARCHED.get(parent, {})
        space |= self.searched.get(stage, {})
        return {name: searched for name, searched in space.items() if searched is not None}

    def with_values(self, stage: Literal["venv", "policy"], values: Mapping[str, Any]) -> Configuration:
        """Returns the configuration with other values of a stage's parameters, which are checked."""
        form: Any = _forms(self.base.venv_algo, self.base.policy_algo)[stage]
        view, faults = _checked(form, {**getattr(self, stage), **values}, f"{stage} algorithm")
        if faults:
            raise ConfigError("\n".join(faults))
        parts = {"venv": self.venv, "policy": self.policy, stage: view}
        return Configuration(self.base, parts["venv"], parts["policy"], self.searched, self.remarks)

    def to_dict(self) -> dict[str, Any]:
        """Returns it as JSON can hold it; `from_dict` reads it."""
        return {
            "base": dict(self.base),
            "venv": dict(self.venv),
            "policy": dict(self.policy),
            "searched": {
                stage: {name: None if one is None else [one.mode, list(one.values)] for name, one in found.items()}
                for stage, found in self.searched.items()
            },
        }

    @classmethod
    def from_dict(cls, saved: Mapping[str, Any], source: str = "config.json") -> Configuration:
        """Reads what `to_dict` returned.

        Raises:
            ConfigError: It is not what a run writes.
        """
        base, faults = _checked(BaseConfig, saved.get("base", {}), f"{source}: base")
        forms = _forms(base["venv_algo"], base["policy_algo"])
        parts: dict[str, Any] = {}
        for stage, form in forms.items():
            parts[stage], more = _checked(form, saved.get(stage, {}), f"{source}: {stage}")
            faults += more
        if faults:
            raise ConfigError("\n".join(faults))
        searched = {
            stage: {name: None if one is None else Searched(one[0], tuple(one[1])) for name, one in found.items()}
            for stage, found in saved.get("searched", {}).items()
        }
        return cls(base, parts["venv"], parts["policy"], searched)


def read_configuration(path: str | Path | None = None, overrides: Mapping[str, Any] | None = None) -> Configuration:
    """Returns the parameters that defaults, a file and overrides give, the later ones before the earlier.

    A name that both stages have is set in both by an override; a file says which it means.

    Args:
        path: `config.json`, as Revive has it (`base_config`, `venv_algo_config`, `policy_algo_config`, lists of
            entries with `name` and `default`), or as a run writes it.
        overrides: Values by name or abbreviation; of the command line.

    Raises:
        ConfigError: Lists all unknown names, with the nearest, and all bad values.
    """
    layers = _read_file(Path(path)) if path is not None else _Layers()
    faults = list(layers.faults)
    given: dict[str, Any] = {}
    remarks: list[str] = []
    for name, value in (overrides or {}).items():
        known, plain = _resolve(name), name.lstrip("-").replace("-", "_")
        if known is None and plain in RENAMED:
            known = RENAMED[plain]
            remarks.append(f"{name} is taken for {known}, which it is called here")
        if known is None:
            faults.append(unknown_name(name))
        else:
            given[known] = value
    base, found = _checked(BaseConfig, {**layers.base, **_of(BaseConfig, given)}, "base")
    faults += found
    if base["venv_algo"] == "bc":
        order = list(given)  # of two that mean the same, the later goes
        for name, known in SUPERVISED.items():
            if name in given and (known not in given or order.index(known) < order.index(name)):
                given[known] = given.pop(name)
                remarks.append(f"{name} is taken for {known}: environments are learned supervised")
    parts: dict[str, Any] = {}
    chosen = _forms(base["venv_algo"], base["policy_algo"])
    for stage, form in chosen.items():
        algorithm = base[f"{stage}_algo"]
        parts[stage], found = _checked(form, {**layers.of(stage, algorithm), **_of(form, given)}, algorithm)
        faults += found
    used = {*_names(BaseConfig), *_names(chosen["venv"]), *_names(chosen["policy"])}
    remarks += [
        f"{name} has no effect: neither {base['venv_algo']} nor {base['policy_algo']} reads it"
        for name in given if name not in used
    ]  # fmt: skip
    if faults:
        raise ConfigError("\n".join(faults))
    return Configuration(base, parts["venv"], parts["policy"], layers.searched(base), tuple(remarks))


def every_parameter() -> Iterator[tuple[str, type[Section], str]]:
    """Yields all parameters: the name of the flag, the section that declares it, and its key there."""
    forms: list[type[Section]] = [BaseConfig, *VENV_ALGORITHMS.values(), *POLICY_ALGORITHMS.values()]
    for form in dict.fromkeys(forms):
        for name, key in _names(form).items():
            yield name, form, key


def annotation_of(name: str) -> Any:
    """Returns the declared type of a parameter by its name or abbreviation, None for names that are not known."""
    known = _resolve(RENAMED.get(name, name))
    return next((form.annotations()[key] for one, form, key in every_parameter() if one == known), None)


def unknown_name(name: str) -> str:
    """Returns what to say about a name that no parameter has."""
    if name in ELSEWHERE:
        return f"{name}: {ELSEWHERE[name]}"
    names = {one for one, _, _ in every_parameter()}
    near = difflib.get_close_matches(name, sorted(names), 2)
    return f"{name}: no such parameter" + (f"; did you mean {' or '.join(near)}?" if near else "")


def _forms(venv_algo: str, policy_algo: str) -> dict[str, type[Section]]:
    return {
        "venv": VENV_ALGORITHMS.get(venv_algo, VenvBCConfig),
        "policy": POLICY_ALGORITHMS.get(policy_algo, PPOPolicyConfig),
    }


def _names(form: type[Section]) -> dict[str, str]:
    """Returns the keys of a section by the names they have on the command line."""
    prefix = _PREFIXES.get(form, "")
    shared = set(PolicyConfig.options()) | {
        "gamma",
        "polyak",
        "g_lr",
        "alpha",
        "num_q_net",
        "explore_noise",
        "buffer_size",
    }
    return {key if key in shared else prefix + key: key for key in form.options()}


def _of(form: type[Section], given: Mapping[str, Any]) -> dict[str, Any]:
    return {key: given[name] for name, key in _names(form).items() if name in given}


def _resolve(name: str) -> str | None:
    """Returns a parameter's name for the name, or the abbreviation, that was given."""
    wanted = name.lstrip("-").replace("-", "_")
    for known, form, key in every_parameter():
        if wanted == known or wanted == form.trait(key, "alias"):
            return known
    return None


def _checked(form: type[Section], values: Mapping[str, Any], where: str) -> tuple[Any, list[str]]:
    """Returns a typed view of values, and a sentence for each fault."""
    inspector = Inspector(form, Tolerance())
    inspector.inspect(dict(values))
    return form.view({**form.defaults(), **inspector.config}) if not inspector.faults else inspector.view, [
        f"{where}: {fault}" for fault in inspector.faults
    ]


class _Layers:
    """What a file says, by part."""

    def __init__(self) -> None:
        self.base: dict[str, Any] = {}
        self.algorithms: dict[tuple[str, str], dict[str, Any]] = {}
        self.searches: dict[tuple[str, str], dict[str, Searched | None]] = {}
        self.faults: list[str] = []

    def of(self, stage: str, algorithm: str) -> dict[str, Any]:
        """Returns what the file says of a stage's algorithm."""
        return self.algorithms.get(self._key(stage, algorithm), {})

    def _key(self, stage: str, algorithm: str) -> tuple[str, str]:
        """Returns the name that the file has an algorithm under."""
        written, also = (stage, algorithm), (stage, _ALSO.get(algorithm, algorithm))
        return also if written not in self.algorithms and also in self.algorithms else written

    def searched(self, base: Mapping[str, Any]) -> dict[str, dict[str, Searched | None]]:
        """Returns what the file says of the searches of the chosen algorithms."""
        keys = {stage: self._key(stage, base[f"{stage}_algo"]) for stage in ("venv", "policy")}
        return {stage: self.searches[key] for stage, key in keys.items() if key in self.searches}


def _read_file(path: Path) -> _Layers:
    try:
        said = read_json(path)
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path} cannot be read: {error}") from error
    layers = _Layers()
    if not isinstance(said, Mapping):
        raise ConfigError(f"{path}: got a {type(said).__name__}; wanted an object with base_config")
    if "base" in said:
        saved = Configuration.from_dict(said, str(path))
        layers.base = dict(saved.base)
        for stage, part in (("venv", saved.venv), ("policy", saved.policy)):
            key = stage, saved.base[f"{stage}_algo"]
            layers.algorithms[key], layers.searches[key] = dict(part), dict(saved.searched.get(stage, {}))
        return layers
    unknown = sorted(set(said) - {"base_config", "venv_algo_config", "policy_algo_config"})
    layers.faults += [f"{path}: no such part {name!r}; wanted base_config, venv_algo_config, policy_algo_config"
                      for name in unknown]  # fmt: skip
    values, searches = _entries(said.get("base_config", []), BaseConfig, f"{path}: base_config", layers.faults)
    layers.base = values
    layers.faults += [f"{path}: base_config: {name} is nothing that a search varies" for name in searches]
    for stage, forms in (("venv", VENV_ALGORITHMS), ("policy", POLICY_ALGORITHMS)):
        for algorithm, entries in _mapping(
            said.get(f"{stage}_algo_config", {}), f"{path}: {stage}_algo_config"
        ).items():
            where = f"{path}: {stage}_algo_config: {algorithm}"
            if algorithm not in forms:
                layers.faults.append(f"{where}: no such algorithm; there are {', '.join(forms)}")
                continue
            key = stage, algorithm
            layers.algorithms[key], layers.searches[key] = _entries(entries, forms[algorithm], where, layers.faults)
    return layers


def _mapping(value: Any, where: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise ConfigError(f"{where}: got a {type(value).__name__}; wanted an object")
    return value


def _entries(
    entries: Any, form: type[Section], where: str, faults: list[str]
) -> tuple[dict[str, Any], dict[str, Searched | None]]:
    """Returns values and searches of a list of Revive's entries; what is wrong goes to `faults`."""
    values: dict[str, Any] = {}
    searches: dict[str, Searched | None] = {}
    if not isinstance(entries, Sequence) or isinstance(entries, str):
        raise ConfigError(f"{where}: got {type(entries).__name__}; wanted a list of entries with name and default")
    names, seen = _names(form), set[str]()
    for entry in entries:
        name = entry.get("name") if isinstance(entry, Mapping) else None
        key = names.get(str(name), str(name) if name in form.options() else None)
        if name is None:
            faults.append(f"{where}: an entry without a name: {entry!r}")
        elif key is None:
            faults.append(f"{where}: {unknown_name(str(name))}")
        elif key in seen:
            faults.append(f"{where}: {name} is there twice; write it once")
        else:
            seen.add(key)
            if "default" in entry:
                values[key] = entry["default"]
            searched = _search_of(entry, f"{where}: {name}", faults)
            for value in () if searched is None else searched.values:
                faults += _checked(form, {key: value}, f"{where}: search_values")[1]
            if searched is not None or entry.get("tune") is False:
                searches[key] = searched
    return values, {key: one for key, one in searches.items() if one is not None or form is not BaseConfig}


def _search_of(entry: Mapping[str, Any], where: str, faults: list[str]) -> Searched | None:
    mode, values = entry.get("search_mode"), entry.get("search_values")
    if mode is None or entry.get("tune") is False:
        return None
    if (
        isinstance(values, list)
        and values
        and (mode in {"grid", "discrete"} or (mode == "continuous" and _ends(values)))
    ):
        return Searched(str(mode), tuple(values))
    faults.append(
        f"{where}: got search_mode {mode!r} with search_values {values!r}; wanted continuous with [low, high], or grid "
        "or discrete with a list"
    )
    return None


def parameter_lines() -> Iterable[str]:
    """Yields a line for each parameter: flag, abbreviation, default, meaning."""
    for name, form, key in every_parameter():
        declared, alias = form.options()[key], form.trait(key, "alias")
        short = f" (--{alias})" if alias else ""
        unit = f" [{declared.unit}]" if declared.unit else ""
        yield f"  --{name}{short} = {form.defaults()[key]}{unit}: {declared.description}"


def _ends(values: Sequence[Any]) -> bool:
    numbers = all(isinstance(value, (int, float)) and not isinstance(value, bool) for value in values)
    return numbers and len(values) == len(("low", "high")) and values[0] <= values[1]
