"""A policy acts alike wherever it acts: sampler, worker without framework, evaluate, play, calls, files, servers.

Each is held against an oracle that acts through the framework's model, see `tests.helpers.acting`.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from rlframe.agents.registry import ALGORITHMS, get_trainer_class
from rlframe.data.sample_batch import DEFAULT_POLICY_ID, SampleBatch
from rlframe.models.torch.action_mask import ActionMaskModel
from rlframe.offline.input_reader import InputReader
from rlframe.serving.policy_service import PolicyService
from rlframe.trainer.evaluating import send_weights
from tests.helpers import acting, slates
from tests.helpers.acting import Episode, Expected, Walk, Walks, check_alike, expected
from tests.helpers.frameworks import needs_tf

LINE = gym.spaces.Box(-9.0, 9.0, (3,), np.float32)
WIDE = gym.spaces.Box(-9.0, 9.0, (2, 2), np.float64)
COUNT = gym.spaces.Discrete(4, start=1)
IMAGE = gym.spaces.Box(0, 255, (9, 8, 3), np.uint8)
PARTS = gym.spaces.Dict(
    {
        "place": gym.spaces.Box(-9.0, 9.0, (2,), np.float64),
        "kind": gym.spaces.Discrete(3),
        "pair": gym.spaces.Tuple([gym.spaces.MultiBinary(2), gym.spaces.Box(0, 255, (1,), np.uint8)]),
    }
)
MASKED = gym.spaces.Dict({"action_mask": gym.spaces.MultiBinary(3), "observations": LINE})
TURN, FROM_TWO = gym.spaces.Discrete(3), gym.spaces.Discrete(3, start=2)
TEAM = gym.spaces.Dict({"obs": LINE, "state": TURN, "action_mask": gym.spaces.MultiBinary(3)})
SLATE = gym.spaces.MultiDiscrete([2, 3], start=[1, 0])
SKEWED = gym.spaces.Box(np.array([-2.0, 0.0], np.float32), np.array([5.0, 1.0], np.float32))
HALF_OPEN = gym.spaces.Box(np.array([-0.5, -np.inf], np.float32), np.array([0.5, np.inf], np.float32))
BOTH = gym.spaces.Dict({"turn": FROM_TWO, "move": gym.spaces.Tuple([SKEWED, gym.spaces.MultiDiscrete([2, 3])])})

FILTERED = {"observation_filter": "MeanStdFilter"}
LSTM = {"use_lstm": True, "lstm_cell_size": 4, "max_seq_len": 2}
SEEING = {**LSTM, "lstm_use_prev_action": True, "lstm_use_prev_reward": True}
GTRXL = {
    "use_attention": True, "attention_dim": 8, "attention_head_dim": 4, "attention_position_wise_mlp_dim": 8,
    "attention_memory_inference": 3, "attention_memory_training": 3, "max_seq_len": 2,
    "attention_use_n_prev_actions": 2, "attention_use_n_prev_rewards": 2,
}  # fmt: skip
CONVS = {"conv_filters": [[4, [3, 3], 2], [8, [5, 4], 1]], "post_fcnet_hiddens": [4]}
MASKS = {"custom_model": ActionMaskModel}
RAINBOW = {"num_atoms": 5, "v_min": -2.0, "v_max": 2.0, "noisy": True}
#: By name: algorithm, spaces of observations and actions (by agent where there are several), and what is configured.
CASES: dict[str, tuple[str, Any, Any, dict[str, Any]]] = {
    "PPO": ("PPO", PARTS, BOTH, {"model": SEEING, "clip_rewards": True}),
    "PPO, mask": ("PPO", MASKED, TURN, {"model": MASKS}),
    "PPO, attention": ("PPO", LINE, SKEWED, {"model": GTRXL, "clip_rewards": 1.0, **FILTERED}),
    "PPO, images": ("PPO", IMAGE, FROM_TWO, {"model": CONVS}),
    "PPO, clipped": ("PPO", WIDE, HALF_OPEN, {"normalize_actions": False, "clip_actions": True, **FILTERED}),
    "PPO, as they are": ("PPO", LINE, HALF_OPEN, {"normalize_actions": False, "clip_actions": False}),
    "A2C": ("A2C", LINE, SLATE, {"model": SEEING, **FILTERED}),
    "A3C": ("A3C", WIDE, TURN, {"sample_async": False, **FILTERED}),
    "PG": ("PG", COUNT, FROM_TWO, {}),
    "IMPALA": ("IMPALA", LINE, FROM_TWO, {"model": SEEING, "clip_rewards": 2.0}),
    "APPO": ("APPO", LINE, SKEWED, FILTERED),
    "DDPPO": ("DDPPO", LINE, FROM_TWO, {}),
    "TRPO": ("TRPO", LINE, HALF_OPEN, {"model": {"free_log_std": True}, **FILTERED}),
    "MAML": ("MAML", LINE, HALF_OPEN, FILTERED),
    "MBMPO": ("MBMPO", LINE, HALF_OPEN, {}),
    "ACER": ("ACER", LINE, FROM_TWO, {"model": LSTM}),
    "ES": ("ES", LINE, SKEWED, {}),
    "ARS": ("ARS", PARTS, FROM_TWO, {}),
    "LinUCB": ("contrib/LinUCB", PARTS, FROM_TWO, FILTERED),
    "MARWIL": ("MARWIL", LINE, SKEWED, FILTERED),
    "BC": ("BC", PARTS, FROM_TWO, {}),
    "SimpleQ": ("SimpleQ", LINE, FROM_TWO, FILTERED),
    "DQN": ("DQN", PARTS, FROM_TWO, RAINBOW),
    "DQN, noise in weights": ("DQN", LINE, TURN, {"exploration_config": {"type": "ParameterNoise"}}),
    "PQN": ("PQN", LINE, FROM_TWO, {}),
    "R2D2": ("R2D2", LINE, FROM_TWO, {"model": SEEING, **FILTERED}),
    "APEX": ("APEX", IMAGE, TURN, {"model": CONVS}),
    "SAC": ("SAC", LINE, SKEWED, FILTERED),
    "SAC, choices": ("SAC", PARTS, FROM_TWO, {}),
    "SlateQ": ("SlateQ", *slates.spaces(count=11), {}),
    "Dreamer": (
        "DREAMER",
        LINE,
        SKEWED,
        {**FILTERED, "dreamer_model": {"deter_size": 4, "stoch_size": 2, "hidden_size": 4}},
    ),
    "RNNSAC": ("RNNSAC", LINE, SKEWED, FILTERED),
    "CQL": ("CQL", LINE, SKEWED, FILTERED),
    "IQL": ("IQL", LINE, SKEWED, FILTERED),
    "DDPG": ("DDPG", WIDE, SKEWED, FILTERED),
    "TD3": ("TD3", LINE, SKEWED, {}),
    "TD3BC": ("TD3BC", LINE, SKEWED, {}),
    "APEX_DDPG": ("APEX_DDPG", LINE, SKEWED, {}),
    "MADDPG": ("MADDPG", {"a": LINE, "b": COUNT}, {"a": SKEWED, "b": FROM_TWO}, {}),
    "QMIX": ("QMIX", {"a": TEAM, "b": TEAM}, {"a": TURN, "b": TURN}, {}),
    "PPO, agents": ("PPO", {"a": LINE, "b": PARTS}, {"a": SKEWED, "b": FROM_TWO}, {"model": LSTM}),
}


class Rows(InputReader):
    """Two rows of zeros, for algorithms that learn from data alone."""

    def __init__(self, ioctx: Any) -> None:
        spaces = ioctx.config["env_config"]
        zeros = {key: np.zeros((2, *spaces[name].shape), np.float32) for key, name in COLUMNS.items()}
        flags = {"rewards": np.zeros(2, np.float32), "dones": np.array([False, True])}
        self.batch = SampleBatch({**zeros, **flags, "t": np.arange(2), "eps_id": np.zeros(2, np.int64)})

    def next(self) -> SampleBatch:
        return self.batch

    def read_all_files(self) -> Iterator[SampleBatch]:
        yield self.batch


COLUMNS = {"obs": "observed", "new_obs": "observed", "actions": "acted"}
FROM_DATA = ("CQL", "IQL", "TD3BC")


def groups_of(config: Any) -> Any:
    return Walks(config).with_agent_groups({"both": list(config["observed"])})


def config_of(case: str) -> dict[str, Any]:
    name, observed, acted, config = copy.deepcopy(CASES[case])
    _, known = get_trainer_class(name, return_config=True)
    memory = {"use_lstm": True, "lstm_cell_size": 4} if name == "RNNSAC" else {}
    small = {
        "num_workers": 0, "seed": 3, "log_sys_usage": False, "evaluation_interval": 1000,
        "evaluation_num_episodes": acting.EPISODES, "evaluation_config": {"explore": False},
        "input": Rows if name in FROM_DATA else "sampler", "input_evaluation": [],
        "env_config": {"observed": observed, "acted": acted},
        **{key: [4] for key in ("hiddens", "actor_hiddens", "critic_hiddens")},
        **{key: {"fcnet_hiddens": [4], **memory} for key in ("Q_model", "policy_model")},
    }  # fmt: skip
    if isinstance(acted, dict) and name != "QMIX":
        specs = {agent: (None, observed[agent], acted[agent], {"agent_id": index}) for index, agent in enumerate(acted)}
        small["multiagent"] = {"policies": specs, "policy_mapping_fn": lambda agent, *_, **__: agent}
    own_networks = {
        "QMIX": {"lstm_cell_size": 4},
        "MADDPG": {},
        "DREAMER": {},
        **({name: {}} if "Q_model" in known else {}),
    }
    return {
        **{key: value for key, value in small.items() if key in known},
        **config,
        "model": {**own_networks.get(name, {"fcnet_hiddens": [4]}), **config.get("model", {})},
    }


def trainer_of(case: str, framework: str = "torch", **more: Any) -> Any:
    """Returns a trainer with weights and filters that are drawn: new networks give next to the same everywhere."""
    name, _, acted, _ = CASES[case]
    creator: Any = groups_of if name == "QMIX" else Walks if isinstance(acted, dict) else Walk
    made = get_trainer_class(name)({**config_of(case), "framework": framework, **more}, env=creator)
    rng, worker = np.random.default_rng(0), made.workers.local_worker()
    for policy_id, policy in worker.policy_map.items():
        drawn = {
            key: rng.normal(0.0, 0.4, array.shape).astype(array.dtype) for key, array in policy.get_weights().items()
        }
        policy.set_weights(drawn)
        for row in rng.normal(2.0, 3.0, (20, *policy.observation_space.shape)):
            worker.filters[policy_id](row)
    send_weights(made.workers, made.evaluation_workers)
    return made


class Acting:
    """A trainer, the episodes that its policies played, and what the oracle says of them.

    Attributes:
        trainer: Its policies act.
        seen: Of each agent one episode with what is wanted in it.
    """

    def __init__(self, case: str, framework: str) -> None:
        self.case, self.trainer = case, trainer_of(case, framework)
        self.seen: dict[str, tuple[Episode, Expected]] = {}
        for episode, wanted, _ in self.judged(acting.sampler):
            self.seen[self.policy_of(episode)] = (episode, wanted)

    def policy_of(self, episode: Episode) -> str:
        return episode.agent if self.trainer.config["multiagent"]["policies"] else DEFAULT_POLICY_ID

    def judged(self, place: Any) -> Iterator[tuple[Episode, Expected, Any]]:
        """Yields episodes of a place that plays, once they are found to be as the oracle's."""
        found = list(place(self.trainer))
        assert len(found) >= acting.EPISODES
        for episode, states in acting.of_groups(iter(found)) if CASES[self.case][0] == "QMIX" else found:
            policy = self.trainer.get_policy(self.policy_of(episode))
            wanted = expected(policy, episode, self.trainer.how_rewards_are_clipped())
            check_alike(episode.actions, wanted.actions, f"actions of {place.__name__}")
            yield episode, wanted, states


DEFAULT = (
    "PPO", "PPO, mask", "PPO, attention", "PPO, images", "PPO, clipped", "A2C", "DQN", "R2D2", "SAC", "RNNSAC", "QMIX",
    "MADDPG",
)  # fmt: skip
IN_TENSORFLOW = ("PPO", "PPO, attention", "DQN", "RNNSAC", "QMIX")
EVERY = [pytest.param((case, "torch"), id=case, marks=() if case in DEFAULT else pytest.mark.slow) for case in CASES]
EVERY += [
    pytest.param((case, "tf"), id=f"{case}, TensorFlow", marks=[needs_tf, pytest.mark.slow]) for case in IN_TENSORFLOW
]


@pytest.fixture(scope="module", params=EVERY)
def policies(request):
    made = Acting(*request.param)
    yield made
    made.trainer.stop()


def test_the_matrix_has_every_algorithm():
    # By search of the environment's states, as LinUCB, as MADDPG, and at random.
    elsewhere = {f"contrib/{name}" for name in ("AlphaZero", "LinTS", "MADDPG", "RandomAgent")}
    assert {name for name, *_ in CASES.values()} == set(ALGORITHMS) - elsewhere


@pytest.mark.parametrize("place", [acting.sampler, acting.numpy_worker, acting.played])
def test_where_episodes_are_played(policies, place):
    if place is acting.played and isinstance(CASES[policies.case][2], dict):
        pytest.skip("games of several agents are played by another command")
    checked = 0
    for _, wanted, states in policies.judged(place):
        for index, kept in enumerate(states or ()):  # before each sequence
            before = [np.zeros_like(wanted.states[0][index]), *(after[index] for after in wanted.states[:-1])]
            check_alike(list(kept), before[:: -(-len(before) // len(kept))], f"states of {place.__name__}")
            checked += 1
    alone = place is not acting.played and not isinstance(CASES[policies.case][2], dict)
    assert bool(checked) == (alone and policies.trainer.get_policy().is_recurrent())


@pytest.mark.parametrize("place", [acting.actor, acting.single_actions, acting.many_actions, acting.served])
def test_where_one_observation_is_acted_on(policies, place):
    if policies.case == "PPO, attention" and place in (acting.single_actions, acting.many_actions):
        pytest.skip("callers have no way to say more than one past action; make_actor() keeps them")
    for policy_id, (episode, wanted) in policies.seen.items():
        actions, states = place(policies.trainer, policy_id, episode)
        check_alike(actions, wanted.actions, f"actions of {place.__name__}")
        if states is not None:
            check_alike(states, wanted.states, f"states of {place.__name__}")


def test_clipped_rewards_are_what_policies_see_of_the_past():
    trainer = trainer_of("PPO")  # clip_rewards=True
    seen = CASES["PPO"][1].sample()
    _, state, _ = trainer.compute_single_action(seen, explore=False, full_fetch=True)
    past = {"prev_action": CASES["PPO"][2].sample(), "explore": False}
    made = [trainer.compute_single_action(seen, state, prev_reward=reward, **past)[1][0] for reward in (2.5, 1.0, -1.0)]
    trainer.stop()
    np.testing.assert_array_equal(made[0], made[1])
    assert np.abs(made[0] - made[2]).max() > 1e-4


@pytest.mark.parametrize("case", ["PPO", "QMIX"])
def test_nested_spaces_are_told_by_servers(case):
    trainer = trainer_of(case)
    told = PolicyService(trainer).contract()["policies"][DEFAULT_POLICY_ID]
    trainer.stop()
    assert told["action_dtype"] is None
    assert told["action_space"].startswith({"PPO": "Dict(", "QMIX": "Tuple("}[case])


#: Slates are valued by a model of SlateQ's own.
NOT_IN_FILES = {"SlateQ"}
#: Why there is no file for NumPy alone. Dreamer's networks are PyTorch's.
NOT_IN_NUMPY = {"SlateQ": "is not written as a file; serve it instead", "Dreamer": "wanted torchscript or onnx, which"}


def test_files_that_need_numpy_only(policies, tmp_path):
    if policies.case in NOT_IN_NUMPY:
        with pytest.raises(ValueError, match=NOT_IN_NUMPY[policies.case]):
            policies.trainer.export_policy("numpy", tmp_path / "policy")
        return
    for policy_id, (episode, wanted) in policies.seen.items():
        path = policies.trainer.export_policy("numpy", tmp_path / policy_id, policy_id=policy_id)
        actions, states = acting.exported(policies.trainer, path, policy_id, episode)
        check_alike(actions, wanted.actions, "actions of the file")
        check_alike(states, wanted.states, "states of the file")


#: In a plain run; others act in each format in the slow ones.
FORMATS_OF = {"PPO": ("onnx",), "A2C": ("torchscript",), "SAC": ("onnx",)}
IN_FORMATS = [
    pytest.param(case, to, id=f"{case}, {to}", marks=() if to in FORMATS_OF.get(case, ()) else pytest.mark.slow)
    for case in CASES
    for to in ("onnx", "torchscript")
    if case not in NOT_IN_FILES
] + [
    pytest.param(case, "savedmodel", id=f"{case}, savedmodel", marks=[needs_tf, pytest.mark.slow])
    for case in IN_TENSORFLOW
]


@pytest.mark.parametrize(("case", "to"), IN_FORMATS)
def test_files_for_other_runtimes(case, to, tmp_path):
    if to == "onnx":
        pytest.importorskip("onnxruntime")
    made = Acting(case, "tf" if to == "savedmodel" else "torch")
    try:
        for policy_id, (episode, wanted) in made.seen.items():
            path = made.trainer.export_policy(to, tmp_path / policy_id, policy_id=policy_id)
            recurrent = made.trainer.get_policy(policy_id).num_state_tensors()
            actions, states = acting.run_by_contract(to, path, episode, recurrent)
            check_alike(actions, wanted.actions, f"actions of the file in {to}")
            check_alike(states, wanted.states, f"states of the file in {to}")
    finally:
        made.trainer.stop()
