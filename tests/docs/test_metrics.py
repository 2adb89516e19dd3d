"""Each number that an algorithm reports is explained: on its page, or on the page of callbacks and metrics."""

import importlib
import re

import pytest

from rlframe.agents.alpha_zero import AlphaZeroTrainer
from rlframe.agents.ddpg import DDPGTrainer, TD3BCTrainer
from rlframe.agents.iql import IQLTrainer
from rlframe.agents.maddpg import MADDPGTrainer
from rlframe.agents.marwil import BCTrainer
from rlframe.agents.qmix import QMixTrainer
from rlframe.agents.sac import CQLTrainer
from rlframe.examples.env.cartpole_of_states import CartPoleOfStates
from tests.contract.test_trainers import CASES, REPLAY, SMALL, make
from tests.docs.test_algorithm_table import SPACES, OneAgent, TwoAgents, each_its_policy, from_files, group
from tests.docs.test_pages import ROOT

BOX = SPACES["Continuous"]
#: Other algorithms, with their environments.
OTHERS = {
    "AlphaZero": (AlphaZeroTrainer, CartPoleOfStates),
    "BC": (BCTrainer, OneAgent),
    "CQL": (CQLTrainer, OneAgent),
    "DDPG": (DDPGTrainer, OneAgent),
    "IQL": (IQLTrainer, OneAgent),
    "MADDPG": (MADDPGTrainer, TwoAgents),
    "QMIX": (QMixTrainer, group),
    "TD3BC": (TD3BCTrainer, OneAgent),
}


def make_other(name, folder):
    trainer_class, env = OTHERS[name]
    config = {**SMALL, "observation_filter": "NoFilter", "env_config": {"space": BOX}, "train_batch_size": 8}
    config["rollout_fragment_length"] = 4
    if name == "AlphaZero":
        config |= {"env_config": {}, "sgd_minibatch_size": 8, "num_sgd_iter": 1, "learning_starts": 4}
        config |= {"mcts_config": {"num_simulations": 2}, "ranked_rewards": {"num_init_rewards": 2}}
    elif name in ("DDPG", "MADDPG", "QMIX"):
        config |= {**REPLAY, "learning_starts": 20, "train_batch_size": 8}
    else:
        config |= {**from_files(folder, BOX), "input_evaluation": [], "timesteps_per_iteration": 16}
    if name == "MADDPG":
        config |= each_its_policy(name, BOX)
    known = trainer_class._config_class.known_keys() - {"model"}  # each has keys of its own for its networks
    return trainer_class({key: value for key, value in config.items() if key in known}, env=env)


def names_of(result):
    """Yields the names of all numbers of a result; those of arrays, lists and the config are one name."""
    for name, value in result.items():
        if isinstance(value, dict) and name != "config":
            yield from names_of(value)
        yield re.sub(r"_\d+$", "_0", str(name))


@pytest.mark.parametrize("case", [*CASES, *OTHERS])
def test_every_number_of_a_result_is_explained(case, tmp_path):
    trainer = make_other(case, tmp_path) if case in OTHERS else make(case, "torch", observation_filter="NoFilter")
    result = {}
    while not result.get("info", {}).get("learner"):
        result = trainer.train()
    trainer.stop()
    package = importlib.import_module(trainer._config_class.__module__.rpartition(".")[0])
    page = ROOT / package.__path__[0] / "README.md"
    explained = page.read_text() + (ROOT / "docs" / "callbacks.md").read_text()
    own = {*trainer.workers.local_worker().policy_map, *(f"policy_{pid}" for pid in ("a", "b", "default_policy"))}
    own |= {f"policy_{pid}_reward" for pid in "ab"}
    missing = [name for name in names_of(result) if name not in own and not re.search(rf"[`.]{name}`", explained)]
    assert not missing, f"{page} and docs/callbacks.md do not say what {', '.join(missing)} mean"
