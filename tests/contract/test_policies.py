"""What every learning policy must do, in every framework."""

from __future__ import annotations

import copy
import importlib

import gymnasium as gym
import numpy as np
import pytest
import tree

from rlframe.agents.dreamer import DreamerConfig
from rlframe.data.sample_batch import SampleBatch
from rlframe.policy.policy import PolicySpec
from rlframe.trainer.setup import import_path
from rlframe.utils.errors import NonFiniteError, UnsupportedSpaceException
from tests.helpers.frameworks import needs_tf
from tests.helpers.slates import FLAT, SLATES, slate_batch
from tests.helpers.workers import SMALL

OBS_SPACE = gym.spaces.Box(-10, 10, (4,), np.float32)
ACTIONS = gym.spaces.Discrete(3)
RAINBOW = {"num_atoms": 11, "v_min": -2.0, "v_max": 2.0, "noisy": True, "n_step": 3}

ALPHA_ZERO = "rlframe.agents.alpha_zero.alpha_zero"

#: By algorithm: module of its policies without the framework, prefix of their classes, where the config is declared.
POLICIES = {
    "SimpleQ": ("rlframe.agents.dqn.simple_q", "SimpleQ", "rlframe.agents.dqn.dqn:DQNConfig"),
    "DQN": ("rlframe.agents.dqn.dqn", "DQN", "rlframe.agents.dqn.dqn:DQNConfig"),
    "PQN": ("rlframe.agents.dqn.pqn_policy", "PQN", "rlframe.agents.dqn.pqn:PQNConfig"),
    "PG": ("rlframe.agents.pg.pg", "PG", "rlframe.agents.pg.pg:PGConfig"),
    "A2C": ("rlframe.agents.a3c.a3c", "A3C", "rlframe.agents.a3c.a2c:A2CConfig"),
    "PPO": ("rlframe.agents.ppo.ppo", "PPO", "rlframe.agents.ppo.ppo:PPOConfig"),
    "IMPALA": ("rlframe.agents.impala.vtrace", "VTrace", "rlframe.agents.impala.impala:ImpalaConfig"),
    "APPO": ("rlframe.agents.ppo.appo", "AsyncPPO", "rlframe.agents.appo.appo:APPOConfig"),
    "MADDPG": ("rlframe.agents.maddpg.maddpg_policy", "MADDPG", "rlframe.agents.maddpg.maddpg:MADDPGConfig"),
    "MAML": ("rlframe.agents.maml.maml_policy", "MAML", "rlframe.agents.maml.maml:MAMLConfig"),
    "MARWIL": ("rlframe.agents.marwil.marwil_policy", "MARWIL", "rlframe.agents.marwil.marwil:MARWILConfig"),
    "MBMPO": ("rlframe.agents.mbmpo.mbmpo_policy", "MBMPO", "rlframe.agents.mbmpo.mbmpo:MBMPOConfig"),
    "BC": ("rlframe.agents.marwil.marwil_policy", "MARWIL", "rlframe.agents.marwil.marwil:BCConfig"),
    "Dreamer": ("rlframe.agents.dreamer.dreamer", "Dreamer", "rlframe.agents.dreamer.dreamer:DreamerConfig"),
    "R2D2": ("rlframe.agents.dqn.r2d2_policy", "R2D2", "rlframe.agents.dqn.r2d2:R2D2Config"),
    "RNNSAC": ("rlframe.agents.sac.rnnsac_policy", "RNNSAC", "rlframe.agents.sac.rnnsac:RNNSACConfig"),
    "SlateQ": ("rlframe.agents.slateq.slateq_policy", "SlateQ", "rlframe.agents.slateq.slateq:SlateQConfig"),
    "SAC": ("rlframe.agents.sac.sac_policy", "SAC", "rlframe.agents.sac.sac:SACConfig"),
    "CQL": ("rlframe.agents.sac.cql_policy", "CQL", "rlframe.agents.sac.cql:CQLConfig"),
    "discrete CQL": ("rlframe.agents.sac.cql_policy", "CQL", "rlframe.agents.sac.cql:CQLConfig"),
    "discrete SAC": ("rlframe.agents.sac.sac_policy", "SAC", "rlframe.agents.sac.sac:SACConfig"),
    "AlphaZero": (f"{ALPHA_ZERO}_policy", "AlphaZero", f"{ALPHA_ZERO}:AlphaZeroConfig"),
    "DDPG": ("rlframe.agents.ddpg.ddpg_policy", "DDPG", "rlframe.agents.ddpg.ddpg:DDPGConfig"),
    "TD3": ("rlframe.agents.ddpg.ddpg_policy", "DDPG", "rlframe.agents.ddpg.td3:TD3Config"),
    "TD3BC": ("rlframe.agents.ddpg.td3_bc_policy", "TD3BC", "rlframe.agents.ddpg.td3_bc:TD3BCConfig"),
    "IQL": ("rlframe.agents.iql.iql_policy", "IQL", "rlframe.agents.iql.iql:IQLConfig"),
    "discrete IQL": ("rlframe.agents.iql.iql_policy", "IQL", "rlframe.agents.iql.iql:IQLConfig"),
    "ACER": ("rlframe.agents.acer.acer_policy", "ACER", "rlframe.agents.acer.acer:ACERConfig"),
    "continuous PPO": ("rlframe.agents.ppo.ppo", "PPO", "rlframe.agents.ppo.ppo:PPOConfig"),
    "continuous ACER": ("rlframe.agents.acer.acer_policy", "ACER", "rlframe.agents.acer.acer:ACERConfig"),
    "TRPO": ("rlframe.agents.trpo.trpo_policy", "TRPO", "rlframe.agents.trpo.trpo:TRPOConfig"),
}
#: Algorithms that are tried on a Box of two numbers; the others choose among three.
BOX = gym.spaces.Box(-2, 2, (2,), np.float32)
ON_BOX = ("SAC", "CQL", "IQL", "DDPG", "TD3", "TD3BC", "continuous PPO", "continuous ACER", "Dreamer")
#: The agent beside the one whose policy is tested.
OTHER = PolicySpec(
    None, gym.spaces.Box(-10, 10, (2,), np.float32), gym.spaces.Box(-1, 1, (2,), np.float32), {"agent_id": 0}
)
Q_LEARNING = [
    ("SimpleQ", {}),
    ("DQN", {}),
    ("DQN", {"double_q": False, "dueling": False, "hiddens": []}),
    ("DQN", RAINBOW),
]
SEPARATE = {"_separate_vf_optimizer": True, "_lr_vf": 1e-3, "model": {"vf_share_layers": False}}
OFF_POLICY = [
    ("IMPALA", {}),
    ("APPO", {"use_kl_loss": True}),
    ("APPO", {"vtrace": False}),
]
#: Whose optimisers' state is that of one framework.
OWN_OPTIMISERS = [
    ("IMPALA", {"vtrace_drop_last_ts": False, "opt_type": "rmsprop", "momentum": 0.5}),
    ("APPO", SEPARATE),
]
#: The policy's step is no gradient, and none of an optimiser.
OWN_STEPS = [("TRPO", {"vf_num_sgd_iter": 2, "vf_sgd_minibatch_size": 8})]
ON_POLICY = [
    ("PG", {}),
    ("A2C", {}),
    ("A2C", {"use_gae": False, "use_critic": False}),
    ("PPO", {}),
    ("PPO", {"kl_coeff": 0.0, "entropy_coeff": 0.01, "grad_clip": 0.5}),
    ("MAML", {}),
    ("MBMPO", {}),
    *OWN_STEPS,
    *OFF_POLICY,
]

#: Critics of several agents.
OF_MANY = [("MADDPG", {}), ("MADDPG", {"use_local_critic": True, "grad_norm_clipping": None})]

#: Actors and critics with optimisers of their own, in one policy of parts.
TQC = {"n_critics": 3, "n_quantiles": 5}
REBRAC = {"critic_bc_weight": 0.5, "critic_layer_norm": True}
CROSSQ = {"critic_batch_norm": True, "use_target_network": False}
OF_PARTS = [
    ("CQL", {"bc_iters": 2, "num_actions": 2}),
    ("CQL", {"bc_iters": 0, "num_actions": 2, "lagrangian": True}),
    ("discrete CQL", {"bc_iters": 2}),
    ("SAC", {}),
    ("SAC", TQC),
    ("SAC", CROSSQ),
    ("discrete SAC", {}),
    ("DDPG", {"use_huber": True}),
    ("TD3", {}),
    ("TD3BC", {}),
    ("TD3BC", REBRAC),
    ("IQL", {}),
    ("discrete IQL", {}),
]


#: Actors and critics that learn from sequences, with one optimiser.
OF_SEQUENCES = [("ACER", {}), ("continuous ACER", {})]


#: What is tried in TensorFlow, too: losses are written once, and tests/golden holds each algorithm's steps there to
#: PyTorch's; this is about TensorFlow's half of policies, where a learner step is traced for each. The others wait for
#: `make slow`.
IN_TENSORFLOW = [("SAC", {})]
SLOWLY_IN_TENSORFLOW = [("DQN", RAINBOW), ("PPO", {}), ("APPO", SEPARATE)]


def _cases(algorithms, in_tensorflow=IN_TENSORFLOW, slowly=SLOWLY_IN_TENSORFLOW):
    made = [("torch", *case, ()) for case in algorithms]
    made += [("tf", *case, [needs_tf]) for case in algorithms if case in in_tensorflow]
    made += [("tf", *case, [needs_tf, pytest.mark.slow]) for case in algorithms if case in slowly]
    return [
        pytest.param(
            framework, name, overrides, id=f"{framework}-{name}-{'-'.join(overrides) or 'defaults'}", marks=marks
        )
        for framework, name, overrides, marks in made
    ]


#: From data alone.
OFFLINE = [("MARWIL", {}), ("MARWIL", {"moving_average_sqd_adv_norm_update_rate": 0.5}), ("BC", {})]

#: From what a search found.
SEARCHED = [("AlphaZero", {})]

#: Q-learning on what was just sampled.
WITHOUT_REPLAY = [("PQN", {}), ("PQN", {"layer_norm": False})]

#: Slates of candidates, by values and clicks with an optimiser each.
OF_SLATES = [("SlateQ", {}), ("SlateQ", {"slateq_strategy": "SARSA"})]

#: Policies with memory, which learn from sequences: in tests that learn, and do not act on single rows.
MEMORY = {"use_lstm": True, "lstm_cell_size": 6}
DREAMS = {**DreamerConfig.defaults()["dreamer_model"], "deter_size": 6, "stoch_size": 3, "hidden_size": 8}
WITH_MEMORY = [
    ("R2D2", {"burn_in": 2, "n_step": 2, "model": {**MEMORY, "max_seq_len": 5}}),
    ("RNNSAC", {"model": {"max_seq_len": 5}}),
    ("Dreamer", {"imagine_horizon": 3, "dreamer_model": DREAMS}),
]

ALONE = [*Q_LEARNING, *WITHOUT_REPLAY, *SEARCHED, *OFFLINE]
EVERY = [*ALONE, *ON_POLICY, *OWN_OPTIMISERS, *OF_MANY, *OF_PARTS, *OF_SEQUENCES, *OF_SLATES]
every_policy = pytest.mark.parametrize(("framework", "name", "overrides"), _cases(EVERY))
every_learner = pytest.mark.parametrize(("framework", "name", "overrides"), _cases([*EVERY, *WITH_MEMORY]))
every_q_policy = pytest.mark.parametrize(("framework", "name", "overrides"), _cases(Q_LEARNING))


def config_of(name: str, **overrides) -> dict:
    declaration = import_path(POLICIES[name][2])
    config = declaration.defaults()
    config["model"].update(SMALL)
    if name in ("SimpleQ", "DQN", "SlateQ"):
        config["hiddens"] = [16]
    for key in ("Q_model", "policy_model"):
        if key in config:
            config[key]["fcnet_hiddens"] = [16]
            config[key].update(MEMORY if name == "RNNSAC" else {})
    for key in ("actor_hiddens", "critic_hiddens"):
        if key in config:
            config[key] = [16]
    model = overrides.pop("model", {})
    config["model"].update(model)
    return {**config, "seed": 3, **overrides}


def policy_class_of(framework: str, name: str) -> type:
    module, prefix, _ = POLICIES[name]
    found = importlib.import_module(module if module.endswith("_policy") else f"{module}_{framework}_policy")
    return getattr(found, f"{prefix}{'Torch' if framework == 'torch' else 'TF'}Policy")


def make(framework: str, name: str, overrides: dict, obs_space=OBS_SPACE, action_space=None, **more):
    if name == "SlateQ" and obs_space is OBS_SPACE:
        obs_space = FLAT
    action_space = action_space or (SLATES if name == "SlateQ" else BOX if name in ON_BOX else ACTIONS)
    given = {**overrides, **more, "model": {**overrides.get("model", {}), **more.get("model", {})}}
    if name == "MADDPG":
        mine = PolicySpec(None, obs_space, action_space, {"agent_id": 1})
        given |= {"agent_id": 1, "multiagent": {"policies": {"mine": mine, "other": OTHER}}}
    return policy_class_of(framework, name)(obs_space, action_space, config_of(name, framework=framework, **given))


def network_of(policy):
    """Returns the weights that gradients move; units of values and running statistics follow batches instead."""
    followers = ("popart", "ranked_rewards", "running_mean", "running_var", "_norm.steps")
    return {name: array for name, array in policy.get_weights().items() if not any(part in name for part in followers)}


def stepped_by_optimisers(policy):
    """Returns the weights that gradients move by a learning rate."""
    own = {name for networks in policy.own_steps.values() for name in policy.weights_of(networks)}
    return {name: array for name, array in network_of(policy).items() if name not in own}


def make_batch(rows: int = 12, seed: int = 0, name: str | None = None) -> SampleBatch:
    """Returns rows for any algorithm; with the name of one on a Box, their actions are in [-1, 1]."""
    if name == "SlateQ":
        return slate_batch(rows, seed)[0]
    rng = np.random.default_rng(seed)
    batch = SampleBatch(
        {
            "obs": rng.normal(size=(rows, 4)).astype(np.float32),
            "new_obs": rng.normal(size=(rows, 4)).astype(np.float32),
            "actions": rng.integers(3, size=rows),
            "rewards": rng.normal(size=rows).astype(np.float32),
            "discounts": rng.uniform(size=rows).astype(np.float32),
            "weights": rng.uniform(size=rows).astype(np.float32),
            "infos": np.array([{}] * rows, dtype=object),
            "action_dist_inputs": rng.normal(size=(rows, 3)).astype(np.float32),
            "action_logp": rng.normal(-1.0, 0.1, size=rows).astype(np.float32),
            "vf_preds": rng.normal(size=rows).astype(np.float32),
            "advantages": rng.normal(size=rows).astype(np.float32),
            "value_targets": rng.normal(size=rows).astype(np.float32),
            "trajectory_ends": rng.random(rows) < 0.2,
            "values_after": rng.normal(size=rows).astype(np.float32),
            "mcts_policies": np.random.default_rng(seed).dirichlet(np.ones(3), rows).astype(np.float32),
            "joint_obs": rng.normal(size=(rows, 6)).astype(np.float32),
            "joint_new_obs": rng.normal(size=(rows, 6)).astype(np.float32),
            "joint_actions": rng.dirichlet(np.ones(5), rows).astype(np.float32),
            "joint_new_actions": rng.dirichlet(np.ones(5), rows).astype(np.float32),
        }
    )
    if name in dict(WITH_MEMORY):
        batch.update({f"state_in_{index}": rng.normal(size=(rows, 6)).astype(np.float32) for index in range(2)})
    if name in ON_BOX:
        batch["actions"] = rng.uniform(-1, 1, (rows, 2)).astype(np.float32)
        batch["action_dist_inputs"] = rng.normal(size=(rows, 4)).astype(np.float32)
    return batch


def same(a: dict, b: dict, **tolerance: float) -> None:
    assert set(a) == set(b)
    for key in a:
        np.testing.assert_allclose(a[key], b[key], err_msg=key, **(tolerance or {"rtol": 0}))


@every_learner
def test_same_seed_same_policy_same_learning(framework, name, overrides):
    one, other = make(framework, name, overrides), make(framework, name, overrides)
    same(one.get_weights(), other.get_weights())
    for step in range(3):
        one.learn_on_batch(make_batch(seed=step, name=name))
        batch = make_batch(seed=step, name=name)
        if step:  # as workers with compress_observations give it, or by rows
            batch.compress(bulk=step == 1)
        other.learn_on_batch(batch)
    same(one.get_weights(), other.get_weights())
    another = make(framework, name, overrides, seed=4)
    assert any(not np.array_equal(another.get_weights()[key], array) for key, array in one.get_weights().items())


@every_q_policy
def test_learning_changes_the_weights_and_not_the_target(framework, name, overrides):
    policy = make(framework, name, overrides)
    before, target = policy.get_weights(), policy.target_network.get_weights()
    result = policy.learn_on_batch(make_batch())
    assert any(not np.array_equal(array, before[key]) for key, array in policy.get_weights().items())
    same(policy.target_network.get_weights(), target)
    assert result["td_error"].shape == (12,)
    assert result["td_error"].dtype == np.float32
    stats = result["learner_stats"]
    assert {"cur_lr", "grad_gnorm", "mean_q", "min_q", "max_q"} <= set(stats)
    assert all(isinstance(value, float) for value in stats.values()), stats
    assert stats["min_q"] <= stats["mean_q"] <= stats["max_q"]
    policy.update_target()
    same(policy.target_network.get_weights(), policy.get_weights())


@every_learner
def test_any_number_of_rows_is_learned_on_without_a_new_trace(framework, name, overrides):
    policy = make(framework, name, overrides)
    for rows in (32, 7, 1, 32, 64):
        result = policy.learn_on_batch(make_batch(rows, name=name))
        assert name not in ("SimpleQ", "DQN") or result["td_error"].shape == (rows,)
    with_and_without_actor = policy.config.get("policy_delay", 1)
    assert getattr(policy, "trace_count", 1) <= with_and_without_actor


@every_q_policy
def test_learning_lowers_the_error_on_its_batch(framework, name, overrides):
    policy = make(framework, name, overrides, lr=3e-3)
    batch = make_batch(64)
    first = np.abs(policy.learn_on_batch(batch)["td_error"]).mean()
    for _ in range(150):
        last = np.abs(policy.learn_on_batch(batch)["td_error"]).mean()
    assert last < 0.8 * first


@every_policy
def test_acting_in_numpy_is_acting_in_the_framework(framework, name, overrides):
    policy = make(framework, name, overrides)
    policy.learn_on_batch(make_batch(name=name))
    obs = make_batch(9, seed=3, name=name)["obs"]
    in_numpy, _ = policy.forward(obs, explore=False)
    in_framework, _, _ = policy.forward_in_framework({"obs": obs}, False)
    np.testing.assert_allclose(in_numpy, in_framework, atol=1e-5)
    actions, _, extra = policy.compute_actions(obs, explore=False)
    np.testing.assert_array_equal(actions, policy.distribution(in_numpy).deterministic_sample())
    if name not in (*ON_BOX, "SlateQ"):
        np.testing.assert_array_equal(policy.to_env_actions(actions), in_numpy.argmax(1))
    assert {"action_dist_inputs", "action_logp", "action_prob"} == set(extra) - {"vf_preds", "q_values"}
    if "q_values" in extra:
        np.testing.assert_allclose(extra["q_values"], in_framework, atol=1e-5)
        np.testing.assert_array_equal(policy.q_values, in_numpy)
    if policy.wants_values:
        np.testing.assert_allclose(extra["vf_preds"], policy.forward_in_framework({"obs": obs}, False)[1], atol=1e-5)
        np.testing.assert_allclose(policy.values(obs), extra["vf_preds"], atol=1e-6)


@every_policy
def test_state_goes_on_bit_for_bit(framework, name, overrides):
    policy, again = make(framework, name, overrides), make(framework, name, overrides, seed=99)
    for step in range(3):
        policy.learn_on_batch(make_batch(seed=step, name=name))
    policy.compute_actions(make_batch(name=name)["obs"])
    state = copy.deepcopy(policy.get_state())
    again.set_state(state)
    for step in range(3, 6):
        one, other = (
            policy.learn_on_batch(make_batch(seed=step, name=name)),
            again.learn_on_batch(make_batch(seed=step, name=name)),
        )
        assert one["learner_stats"] == other["learner_stats"]
    same(policy.get_weights(), again.get_weights())
    obs = make_batch(20, seed=8, name=name)["obs"]
    for _ in range(3):
        np.testing.assert_array_equal(policy.compute_actions(obs)[0], again.compute_actions(obs)[0])


@every_learner
def test_gradients_applied_elsewhere_are_the_learner_step(framework, name, overrides):
    if overrides.get("noisy") or (name, overrides) in OWN_STEPS:
        pytest.skip("noise is drawn anew for each pass, or the step is no gradient")
    one, other = make(framework, name, overrides), make(framework, name, overrides)
    gradients, info = one.compute_gradients(make_batch(name=name))
    assert len(info["learner_stats"]) > 1
    one.apply_gradients(gradients)
    other.learn_on_batch(make_batch(name=name))
    same(network_of(one), network_of(other), rtol=0, atol=1e-6)


@every_learner
def test_nan_names_its_column_and_leaves_the_weights(framework, name, overrides):
    policy = make(framework, name, overrides)
    policy.learn_on_batch(make_batch(name=name))
    before = network_of(policy)
    batch = make_batch(name=name)
    on_advantages = name in ("PG", "A2C", "PPO", "MAML", "MBMPO", "TRPO", "MARWIL") or overrides.get("vtrace") is False
    of_others = {"PQN": "value_targets", "AlphaZero": "value_targets", "BC": "obs"}
    column = "advantages" if on_advantages else of_others.get(name, "rewards")
    batch[column][5] = np.nan
    with pytest.raises(NonFiniteError, match=rf"column '{column}' .* in row 5"):
        policy.learn_on_batch(batch)
    same(network_of(policy), before)
    policy.learn_on_batch(make_batch(name=name))


@every_policy
def test_clipped_gradients_report_their_norm(framework, name, overrides):
    if name in ("PG", "MADDPG", "SlateQ") or "_lr_vf" in overrides or (name, overrides) in OF_PARTS:
        pytest.skip("no grad_clip, or one for each of several optimisers")
    overrides = {key: value for key, value in overrides.items() if key != "grad_clip"}
    free, clipped = make(framework, name, overrides, grad_clip=None), make(framework, name, overrides, grad_clip=1e-3)
    assert "grad_gnorm" not in free.learn_on_batch(make_batch(name=name))["learner_stats"]
    off = make(framework, name, overrides, grad_clip=0)  # RLlib's other way to say so
    off.learn_on_batch(make_batch(name=name))
    same(network_of(off), network_of(free))
    norm = clipped.learn_on_batch(make_batch(name=name))["learner_stats"]["grad_gnorm"]
    assert norm > 1e-3
    if (name, overrides) in OWN_STEPS:
        return  # it gives no gradients to look at
    gradients, _ = clipped.compute_gradients(make_batch(name=name))
    found = np.sqrt(sum(float(np.square(g).sum()) for g in gradients if g is not None))
    limit = 1e-3 / getattr(clipped, "rows_learned", 1.0)  # IMPALA's is for the sum over the rows
    np.testing.assert_allclose(found, limit, rtol=1e-3)


@every_policy
def test_learning_rate_follows_its_schedule(framework, name, overrides):
    without = ("PG", "MADDPG", "MARWIL", "BC", "SlateQ")
    if name in without or "_lr_vf" in overrides or (name, overrides) in OF_PARTS:
        pytest.skip("no lr_schedule, or one that only one of two optimisers follows")
    policy = make(framework, name, overrides, lr_schedule=[[0, 1e-3], [100, 0.0]])
    policy.on_global_var_update({"timestep": 50})
    assert policy.learn_on_batch(make_batch(name=name))["learner_stats"]["cur_lr"] == pytest.approx(5e-4)
    policy.on_global_var_update({"timestep": 200})
    before = stepped_by_optimisers(policy)
    assert policy.learn_on_batch(make_batch(name=name))["learner_stats"]["cur_lr"] == 0.0
    same(stepped_by_optimisers(policy), before)


@pytest.mark.parametrize("framework", ["torch", pytest.param("tf", marks=needs_tf)])
def test_acting_leaves_schedules_of_a_restored_policy_where_they_were(framework):
    policy, again = (make(framework, "PPO", {}, lr_schedule=[[0, 1e-3], [100, 0.0]]) for _ in range(2))
    policy.compute_actions(make_batch(name="PPO")["obs"], explore=False)
    again.set_state(policy.get_state())
    assert again.cur_lr == policy.cur_lr == pytest.approx(1e-3)
    policy.on_global_var_update({"timestep": 50})
    policy.compute_actions(make_batch(name="PPO")["obs"], explore=False)
    again.set_state(policy.get_state())
    assert again.global_timestep == policy.global_timestep > 50
    assert again.cur_lr == policy.cur_lr == pytest.approx(5e-4)


@every_policy
def test_weights_that_do_not_fit_change_nothing(framework, name, overrides):
    policy = make(framework, name, overrides)
    before = policy.get_weights()
    of_parts = (
        "actor."
        if (name, overrides) in [*OF_PARTS, *OF_MANY, *OF_SEQUENCES]
        else "q."
        if name in ("PQN", "SlateQ")
        else ""
    )
    first = f"{of_parts}hidden_0.weight"
    wrong = {**before, first: np.zeros((3, 3), np.float32)}
    with pytest.raises(ValueError, match=rf"{first} is \(3, 3\), wanted"):
        policy.set_weights(wrong)
    with pytest.raises(ValueError, match=r"unknown .*'surplus'"):
        policy.set_weights({**before, "surplus": np.zeros(1)})
    same(policy.get_weights(), before)


@every_q_policy
def test_continuous_actions_are_refused(framework, name, overrides):
    policy = make(framework, name, overrides)
    with pytest.raises(UnsupportedSpaceException, match="Discrete"):
        type(policy)(OBS_SPACE, gym.spaces.Box(-1, 1, (2,)), policy.config)


@pytest.mark.parametrize(("framework", "name", "overrides"), _cases([*Q_LEARNING, *OF_PARTS]))
def test_td_errors_without_learning(framework, name, overrides):
    policy, batch = make(framework, name, overrides), make_batch(name=name)
    before = policy.get_weights()
    columns = (batch["obs"], batch["actions"], batch["rewards"], batch["new_obs"], np.zeros(12, bool))
    made = policy.compute_td_error(*columns, discounts=batch["discounts"])
    assert made.shape == (12,)
    same(policy.get_weights(), before)
    if not overrides.get("noisy") and name not in ("SAC", "CQL", "TD3", "TD3BC"):  # others draw no noise
        np.testing.assert_allclose(made, policy.learn_on_batch(batch)["td_error"], atol=1e-6)


@every_policy
def test_images_go_through_convolutions(framework, name, overrides):
    if name in ("MADDPG", "MBMPO", "SlateQ"):
        pytest.skip("refuses them: it is about vectors")
    space = gym.spaces.Box(0, 255, (42, 42, 3), np.uint8)
    model = {"conv_filters": [[4, [4, 4], 4], [8, [11, 11], 1]]}
    policy = make(framework, name, overrides, obs_space=space, model=model)
    rng = np.random.default_rng(0)
    batch = make_batch(5, name=name)
    batch["obs"] = rng.integers(0, 255, (5, 42, 42, 3), dtype=np.uint8)
    batch["new_obs"] = rng.integers(0, 255, (5, 42, 42, 3), dtype=np.uint8)
    before = policy.get_weights()
    policy.learn_on_batch(batch)
    assert any(not np.array_equal(array, before[key]) for key, array in policy.get_weights().items() if "conv" in key)
    assert len(policy.compute_actions(batch["obs"], explore=False)[0]) == 5


on_policy = pytest.mark.parametrize(("framework", "name", "overrides"), _cases(ON_POLICY, [("PPO", {})], []))


@on_policy
@pytest.mark.parametrize(
    "action_space",
    [
        gym.spaces.Box(-2, 2, (2,), np.float32),
        gym.spaces.MultiDiscrete([3, 2]),
        gym.spaces.Dict({"a": gym.spaces.Discrete(2), "b": gym.spaces.Box(-1, 1, (1,), np.float32)}),
    ],
    ids=["box", "multi discrete", "dict"],
)
def test_actor_critics_act_and_learn_in_every_action_space(framework, name, overrides, action_space):
    if name == "MBMPO" and not isinstance(action_space, gym.spaces.Box):
        pytest.skip("refuses them: its models are given a vector, or one choice")
    policy = make(framework, name, overrides, action_space=action_space)
    batch = make_batch(6)
    actions, _, extra = policy.compute_actions(batch["obs"])
    env_actions = policy.to_env_actions(actions)
    for row in range(6):
        one = tree.map_structure(lambda leaf, row=row: leaf[row], env_actions)
        assert action_space.contains(one), one
    batch["actions"] = actions
    batch["action_dist_inputs"], batch["action_logp"] = extra["action_dist_inputs"], extra["action_logp"]
    before = network_of(policy)
    policy.learn_on_batch(batch)
    assert any(not np.array_equal(array, before[key]) for key, array in network_of(policy).items())


@on_policy
def test_actor_critics_learn_what_pays(framework, name, overrides):
    policy = make(framework, name, overrides, lr=1e-2)
    obs = make_batch(64)["obs"]
    for _ in range(40):
        actions, _, extra = policy.compute_actions(obs)
        batch = make_batch(64)
        batch["obs"], batch["actions"] = obs, actions
        batch["action_dist_inputs"], batch["action_logp"] = extra["action_dist_inputs"], extra["action_logp"]
        batch["advantages"] = batch["rewards"] = np.where(actions == 1, 1.0, -1.0).astype(np.float32)
        batch["discounts"], batch["trajectory_ends"] = np.zeros(64, np.float32), np.ones(64, bool)
        policy.learn_on_batch(batch)
    assert (policy.compute_actions(obs, explore=False)[0] == 1).mean() > 0.95
