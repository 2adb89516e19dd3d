"""Group policies and batches of whole episodes for them."""

import gymnasium as gym
import numpy as np

from rlframe.agents.qmix import QMixConfig
from rlframe.data.sample_batch import SampleBatch
from rlframe.models.preprocessors import get_preprocessor

N, A, H = 3, 4, 6
PLAIN = gym.spaces.Box(-10, 10, (2,), np.float32)
STATE, MASK = gym.spaces.Box(-10, 10, (5,), np.float32), gym.spaces.Box(0, 1, (A,), np.int8)
FULL = gym.spaces.Dict({"obs": PLAIN, "state": STATE, "action_mask": MASK})


def config_of(**overrides):
    config = QMixConfig.defaults()
    model = {"lstm_cell_size": H, **overrides.pop("model", {})}
    config["model"].update(model)
    return {**config, "seed": 3, "mixing_embed_dim": 5, **overrides}


def group_policy(member=FULL, n_agents=N, framework="torch", **overrides):
    from rlframe.agents import qmix

    cls = qmix.QMixTorchPolicy if framework == "torch" else qmix.QMixTFPolicy
    space = gym.spaces.Tuple([member] * n_agents)
    actions = gym.spaces.Tuple([gym.spaces.Discrete(A)] * n_agents)
    return cls(get_preprocessor(space)(space).observation_space, actions, config_of(framework=framework, **overrides))


def group_obs(rng, rows, member=FULL):
    """Returns random observations of groups, as environments give them."""
    made = []
    for _ in range(rows):
        state = rng.normal(size=5).astype(np.float32)
        agents = []
        for _ in range(N):
            obs = rng.normal(size=2).astype(np.float32)
            mask = (rng.random(A) < 0.6).astype(np.int8)
            mask[rng.integers(A)] = 1
            agents.append({"obs": obs, "state": state, "action_mask": mask} if member is FULL else obs)
        made.append(tuple(agents))
    return made


def flatten(observations, member=FULL):
    space = gym.spaces.Tuple([member] * N)
    preprocessor = get_preprocessor(space)(space)
    return np.stack([preprocessor.transform(obs) for obs in observations])


def episodes(lens=(4, 2, 1), seed=0, member=FULL, gamma=0.9):
    """Returns a batch of episodes; the last of them was truncated, the others terminated."""
    rng = np.random.default_rng(seed)
    parts = {"obs": [], "new_obs": [], "discounts": [], "eps_id": []}
    for number, length in enumerate(lens):
        flat = flatten(group_obs(rng, length + 1, member), member)
        parts["obs"].append(flat[:-1])
        parts["new_obs"].append(flat[1:])
        discounts = np.full(length, gamma, np.float32)
        discounts[-1] *= number == len(lens) - 1
        parts["discounts"].append(discounts)
        parts["eps_id"].append(np.full(length, number))
    rows = sum(lens)
    columns = {key: np.concatenate(values) for key, values in parts.items()}
    columns["actions"] = rng.integers(A, size=(rows, N))
    columns["rewards"] = rng.normal(size=rows).astype(np.float32)
    columns["member_rewards"] = rng.normal(size=(rows, N)).astype(np.float32)
    columns["state_in_0"] = rng.normal(size=(len(lens), N, H)).astype(np.float32)
    columns["seq_lens"] = np.array(lens, np.int32)
    return SampleBatch(columns)
