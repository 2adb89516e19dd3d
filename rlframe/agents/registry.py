"""The algorithms by name: for `get_trainer_class`, the command line, and `tune.run("DQN")`."""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, overload

from rlframe.trainer import tune_registry
from rlframe.utils.errors import ConfigError


@dataclass(frozen=True)
class AlgorithmEntry:
    """Where an algorithm is found; nothing is imported before it is called.

    Attributes:
        trainer: `module:name` of the trainer class.
        config: `module:name` of its default config.
    """

    trainer: str
    config: str

    def __call__(self) -> tuple[Any, dict[str, Any]]:
        """Imports the algorithm, and returns its trainer class and default config."""
        return _resolve(self.trainer), _resolve(self.config)


ALGORITHMS: dict[str, AlgorithmEntry] = {
    "ACER": AlgorithmEntry("rlframe.agents.acer:ACERTrainer", "rlframe.agents.acer:DEFAULT_CONFIG"),
    "A2C": AlgorithmEntry("rlframe.agents.a3c:A2CTrainer", "rlframe.agents.a3c:A2C_DEFAULT_CONFIG"),
    "A3C": AlgorithmEntry("rlframe.agents.a3c:A3CTrainer", "rlframe.agents.a3c:DEFAULT_CONFIG"),
    "APEX": AlgorithmEntry("rlframe.agents.dqn:ApexTrainer", "rlframe.agents.dqn:APEX_DEFAULT_CONFIG"),
    "APEX_DDPG": AlgorithmEntry("rlframe.agents.ddpg:ApexDDPGTrainer", "rlframe.agents.ddpg:APEX_DDPG_DEFAULT_CONFIG"),
    "APPO": AlgorithmEntry("rlframe.agents.appo:APPOTrainer", "rlframe.agents.appo:DEFAULT_CONFIG"),
    "ARS": AlgorithmEntry("rlframe.agents.es:ARSTrainer", "rlframe.agents.es:ARS_DEFAULT_CONFIG"),
    "BC": AlgorithmEntry("rlframe.agents.marwil:BCTrainer", "rlframe.agents.marwil:BC_DEFAULT_CONFIG"),
    "CQL": AlgorithmEntry("rlframe.agents.sac:CQLTrainer", "rlframe.agents.sac:CQL_DEFAULT_CONFIG"),
    "DDPG": AlgorithmEntry("rlframe.agents.ddpg:DDPGTrainer", "rlframe.agents.ddpg:DEFAULT_CONFIG"),
    "DDPPO": AlgorithmEntry("rlframe.agents.ppo:DDPPOTrainer", "rlframe.agents.ppo.ddppo:DEFAULT_CONFIG"),
    "DQN": AlgorithmEntry("rlframe.agents.dqn:DQNTrainer", "rlframe.agents.dqn:DEFAULT_CONFIG"),
    "DREAMER": AlgorithmEntry("rlframe.agents.dreamer:DREAMERTrainer", "rlframe.agents.dreamer:DEFAULT_CONFIG"),
    "ES": AlgorithmEntry("rlframe.agents.es:ESTrainer", "rlframe.agents.es:DEFAULT_CONFIG"),
    "IMPALA": AlgorithmEntry("rlframe.agents.impala:ImpalaTrainer", "rlframe.agents.impala:DEFAULT_CONFIG"),
    "IQL": AlgorithmEntry("rlframe.agents.iql:IQLTrainer", "rlframe.agents.iql:DEFAULT_CONFIG"),
    "MADDPG": AlgorithmEntry("rlframe.agents.maddpg:MADDPGTrainer", "rlframe.agents.maddpg:DEFAULT_CONFIG"),
    "MAML": AlgorithmEntry("rlframe.agents.maml:MAMLTrainer", "rlframe.agents.maml:DEFAULT_CONFIG"),
    "MARWIL": AlgorithmEntry("rlframe.agents.marwil:MARWILTrainer", "rlframe.agents.marwil:DEFAULT_CONFIG"),
    "MBMPO": AlgorithmEntry("rlframe.agents.mbmpo:MBMPOTrainer", "rlframe.agents.mbmpo:DEFAULT_CONFIG"),
    "PG": AlgorithmEntry("rlframe.agents.pg:PGTrainer", "rlframe.agents.pg:DEFAULT_CONFIG"),
    "PPO": AlgorithmEntry("rlframe.agents.ppo:PPOTrainer", "rlframe.agents.ppo:DEFAULT_CONFIG"),
    "PQN": AlgorithmEntry("rlframe.agents.dqn:PQNTrainer", "rlframe.agents.dqn:PQN_DEFAULT_CONFIG"),
    "QMIX": AlgorithmEntry("rlframe.agents.qmix:QMixTrainer", "rlframe.agents.qmix:DEFAULT_CONFIG"),
    "R2D2": AlgorithmEntry("rlframe.agents.dqn:R2D2Trainer", "rlframe.agents.dqn:R2D2_DEFAULT_CONFIG"),
    "RNNSAC": AlgorithmEntry("rlframe.agents.sac:RNNSACTrainer", "rlframe.agents.sac:RNNSAC_DEFAULT_CONFIG"),
    "SAC": AlgorithmEntry("rlframe.agents.sac:SACTrainer", "rlframe.agents.sac:DEFAULT_CONFIG"),
    "SimpleQ": AlgorithmEntry("rlframe.agents.dqn:SimpleQTrainer", "rlframe.agents.dqn:SIMPLE_Q_DEFAULT_CONFIG"),
    "SlateQ": AlgorithmEntry("rlframe.agents.slateq:SlateQTrainer", "rlframe.agents.slateq:DEFAULT_CONFIG"),
    "TD3": AlgorithmEntry("rlframe.agents.ddpg:TD3Trainer", "rlframe.agents.ddpg:TD3_DEFAULT_CONFIG"),
    "TD3BC": AlgorithmEntry("rlframe.agents.ddpg:TD3BCTrainer", "rlframe.agents.ddpg:TD3_BC_DEFAULT_CONFIG"),
    "TRPO": AlgorithmEntry("rlframe.agents.trpo:TRPOTrainer", "rlframe.agents.trpo:DEFAULT_CONFIG"),
    "contrib/AlphaZero": AlgorithmEntry(
        "rlframe.agents.alpha_zero:AlphaZeroTrainer", "rlframe.agents.alpha_zero:DEFAULT_CONFIG"
    ),
    "contrib/LinTS": AlgorithmEntry("rlframe.agents.bandit:BanditLinTSTrainer", "rlframe.agents.bandit:TS_CONFIG"),
    "contrib/LinUCB": AlgorithmEntry("rlframe.agents.bandit:BanditLinUCBTrainer", "rlframe.agents.bandit:UCB_CONFIG"),
    "contrib/MADDPG": AlgorithmEntry("rlframe.agents.maddpg:MADDPGTrainer", "rlframe.agents.maddpg:DEFAULT_CONFIG"),
    "contrib/RandomAgent": AlgorithmEntry(
        "rlframe.agents.random_agent:RandomAgentTrainer", "rlframe.agents.random_agent:DEFAULT_CONFIG"
    ),
}
"""Loaders by name: `ALGORITHMS["DQN"]()` returns (trainer class, default config)."""

LATER_NAMES = {
    "AlphaZero": "contrib/AlphaZero",
    "BanditLinTS": "contrib/LinTS",
    "BanditLinUCB": "contrib/LinUCB",
    "RandomAgent": "contrib/RandomAgent",
}
"""Names of Ray 1.11 to 1.13, when nothing was contributed any more."""

_INSTEAD = {
    "AlphaStar": "use PPO with a league of your own in callbacks, or rlframe.agents.decentralized",
    "CRR": "use IQL, CQL or MARWIL, which learn from the same data",
    "DT": "use MARWIL or IQL, which learn from the same data",
}

NOT_BUILT = {name: f"{name} exists in RLlib 1.x, but is not in rlframe yet; {use}." for name, use in _INSTEAD.items()}
"""What there is instead of the algorithms of RLlib 1.12 and 1.13 that are not built, by their name."""

_OF_OTHERS = {
    name: f"{name} is in neither RLlib 1.x nor rlframe; {use}."
    for name, use in {
        "ACKTR": "use A2C or PPO",
        "DDQN": "use DQN, of which double_q is a default",
        "Rainbow": "use DQN with num_atoms, noisy and n_step",
        "ReBRAC": "use TD3BC with critic_bc_weight and critic_layer_norm",
        "REINFORCE": "use PG",
        "SARSA": "use SimpleQ or DQN",
        "TD3+BC": "use TD3BC",
        "TD3_BC": "use TD3BC",
        "VDN": "use QMIX with mixer='vdn'",
        "VPG": "use PG",
    }.items()
}
"""What there is instead of algorithms that users of other libraries ask for."""

_NOT_OF_RLLIB = ("ACER", "IQL", "MADDPG", "PQN", "TD3BC", "TRPO")
RLLIB_ALGORITHMS = frozenset({name for name in (*ALGORITHMS, *NOT_BUILT) if name not in _NOT_OF_RLLIB})
"""All names that RLlib 1.x knows; those that are not in `ALGORITHMS` are answered with what there is instead."""


@overload
def get_trainer_class(alg: str, return_config: Literal[False] = False) -> Any: ...


@overload
def get_trainer_class(alg: str, return_config: Literal[True]) -> tuple[Any, dict[str, Any]]: ...


def get_trainer_class(alg: str, return_config: bool = False) -> Any:
    """Returns the trainer class with the given name.

    Args:
        alg: A name such as "DQN".
        return_config: Whether to return the default config as well.

    Returns:
        The class, or the class and its default config.

    Raises:
        ConfigError: If there is no such algorithm.
    """
    name = LATER_NAMES.get(alg, alg)
    if name not in ALGORITHMS:
        raise ConfigError(_unknown(alg))
    trainer, config = ALGORITHMS[name]()
    return (trainer, config) if return_config else trainer


def get_agent_class(alg: str) -> Any:
    """Returns `get_trainer_class(alg)`, under its old name."""
    from rlframe.utils.deprecation import deprecation_warning

    deprecation_warning("get_agent_class", "get_trainer_class")
    return get_trainer_class(alg)


def _resolve(path: str) -> Any:
    module, _, name = path.partition(":")
    return getattr(importlib.import_module(module), name)


def _unknown(alg: str) -> str:
    """Returns the sentence about a name that is not in `ALGORITHMS`, whatever its case."""
    available = f"Available are {', '.join(sorted(ALGORITHMS))}."
    said = _spelled(alg, {**NOT_BUILT, **_OF_OTHERS})
    if said is not None:
        return f"{said} {available}"
    built = {name.lower(): name for name in ALGORITHMS}
    contributed = f"contrib/{alg}".lower()
    if contributed in built:
        return f"{alg} is {built[contributed]}, in RLlib 1.x and here. {available}"
    near = [built[name] for name in difflib.get_close_matches(str(alg).lower(), built, n=2)]
    if near:
        return f"Unknown algorithm {alg}. Did you mean {' or '.join(near)}? {available}"
    missing = {name.lower(): sentence for name, sentence in NOT_BUILT.items()}
    nearest = [missing[name] for name in difflib.get_close_matches(str(alg).lower(), missing, n=1)]
    return " ".join([f"Unknown algorithm {alg}.", *nearest, available])


def _spelled(alg: str, sentences: Mapping[str, str]) -> str | None:
    """Returns the sentence of a name, in any case and with any hyphens; None if there is none."""
    plain = {name.lower(): sentence for name, sentence in sentences.items()}
    return plain.get(str(alg).lower().replace("-", "_"))


def register_trainables() -> None:
    """Tells the trainer and Ray Tune which algorithms there are; registering again does no harm.

    All names of RLlib 1.x go to Tune, so that the ones without an algorithm are answered by this package as well.
    """
    tune_registry.connect(_built_in)
    names = RLLIB_ALGORITHMS | {*ALGORITHMS, *LATER_NAMES}
    tune_registry.register(names, get_trainer_class, again=register_trainables)


def _built_in(name: str) -> Any:
    return get_trainer_class(name) if name in ALGORITHMS or name in LATER_NAMES else None
