"""IMPALA and APPO in one process: plans, configs, resuming, postprocessing, target policies."""

import copy
import math

import numpy as np
import pytest

from rlframe.agents.appo.appo import DEFAULT_CONFIG as APPO_CONFIG
from rlframe.agents.appo.appo import UpdateTargetAndKL
from rlframe.agents.families.vtrace_policy import postprocess_for_vtrace
from rlframe.agents.impala import DEFAULT_CONFIG, ImpalaTrainer
from rlframe.agents.ppo import APPOTrainer
from rlframe.data.sample_batch import SampleBatch
from rlframe.execution.plan.context import ACTIVE_CONTEXT, MetricsContext
from rlframe.utils.errors import ConfigError
from tests.contract.test_policies import make as make_policy
from tests.contract.test_policies import make_batch
from tests.helpers.frameworks import TORCH_FIRST, cases

SMALL = {
    "seed": 5,
    "num_workers": 0,
    "min_iter_time_s": 0,
    "model": {"fcnet_hiddens": [16]},
    "train_batch_size": 80,
    "rollout_fragment_length": 20,
    "log_sys_usage": False,
}
LSTM = {"use_lstm": True, "lstm_cell_size": 8, "max_seq_len": 7, "fcnet_hiddens": [16]}
torch_first = pytest.mark.parametrize("framework", TORCH_FIRST)
every_trainer = pytest.mark.parametrize("cls", [ImpalaTrainer, APPOTrainer], ids=["IMPALA", "APPO"])


def make(cls, env="CartPole-v1", **overrides):
    return cls({**copy.deepcopy(SMALL), **overrides}, env=env)


def stats_of(result):
    return result["info"]["learner"]["default_policy"]["learner_stats"]


@cases(
    ["cls", "overrides"],
    {
        "replay": (ImpalaTrainer, {"replay_proportion": 0.5, "replay_buffer_num_slots": 3}),
        # A fragment and its replay are two of three that make a batch: the plan holds some when it is saved.
        "replay with an LSTM": (
            ImpalaTrainer,
            {"replay_proportion": 1, "replay_buffer_num_slots": 3, "train_batch_size": 60, "model": LSTM},
        ),
        "A3C's policy": (ImpalaTrainer, {"vtrace": False}),
        "rmsprop": (ImpalaTrainer, {"opt_type": "rmsprop", "vtrace_drop_last_ts": False}),
        "APPO": (APPOTrainer, {"num_sgd_iter": 2, "minibatch_buffer_size": 2, "use_kl_loss": True}),
        "APPO without V-trace": (APPOTrainer, {"vtrace": False}),
    },
    in_tensorflow=["APPO"],  # RMSProp's state in TensorFlow: tests/contract/test_policies.py
)
def test_restored_trainer_goes_on_bit_for_bit(cls, overrides, framework, tmp_path):
    one = make(cls, framework=framework, observation_filter="MeanStdFilter", **overrides)
    for _ in range(3):
        one.train()
    path = one.save(str(tmp_path))
    two = make(cls, framework=framework, observation_filter="MeanStdFilter", **overrides)
    two.restore(path)
    for _ in range(3):
        a, b = one.train(), two.train()
        assert a["hist_stats"] == b["hist_stats"]
        for key in ("learner", "num_steps_trained", "num_steps_sampled"):
            assert a["info"][key] == b["info"][key]
    for name, array in one.get_weights()["default_policy"].items():
        np.testing.assert_array_equal(array, two.get_weights()["default_policy"][name], err_msg=name)


@torch_first
@every_trainer
def test_stats_are_those_of_rllib(cls, framework):
    trainer = make(cls, framework=framework)
    trainer.train()
    stats = stats_of(trainer.train())
    expected = {"cur_lr", "total_loss", "policy_loss", "entropy", "entropy_coeff", "var_gnorm", "vf_loss"}
    expected |= {"vf_target_mean", "vf_target_spread", "behaviour_kl"}  # ours: units of values, and the lag
    more = {"mean_IS", "var_IS", "kl", "KL_Coeff"} if cls is APPOTrainer else set()
    assert set(stats) == {*expected, *more, "vf_explained_var", "grad_gnorm", "allreduce_latency"}
    assert all(math.isfinite(value) for value in stats.values())


@every_trainer
def test_every_row_is_counted_once_however_often_it_is_learned_from(cls):
    trainer = make(cls, num_sgd_iter=3)
    info = trainer.train()["info"]
    assert info["num_steps_sampled"] == info["num_steps_trained"] == info["num_agent_steps_trained"] == 80


@torch_first
@every_trainer
def test_continuous_actions_reach_the_environment_within_bounds(cls, framework):
    trainer = make(cls, env="Pendulum-v1", framework=framework)
    trainer.train()
    env = trainer.workers.local_worker().env
    obs, _ = env.reset(seed=1)
    assert env.action_space.contains(trainer.compute_single_action(obs))


@torch_first
def test_two_optimisers_learn_policy_and_values_apart(framework):
    config = {"_separate_vf_optimizer": True, "framework": framework, "model": {"vf_share_layers": False}}
    still = make(ImpalaTrainer, _lr_vf=0.0, **copy.deepcopy(config))
    before = still.get_weights()["default_policy"]
    still.train()
    after = still.get_weights()["default_policy"]
    changed = {name for name in before if not np.array_equal(before[name], after[name])}
    assert changed
    still_there = [name for name in before if name not in changed and "popart" not in name]  # which follows the targets
    assert still_there == [name for name in before if "value" in name]


@torch_first
def test_rmsprop_is_that_of_pytorch(framework):
    torch = pytest.importorskip("torch")
    options = {"opt_type": "rmsprop", "decay": 0.9, "momentum": 0.5, "epsilon": 0.1, "lr": 0.01, "grad_clip": None}
    policy = make(ImpalaTrainer, framework=framework, **options).get_policy()
    name, start = next(iter(policy.get_weights().items()))
    order = list(policy.model.named_trainable_variables()) if framework == "tf" else [
        name for name, _ in policy.model.named_parameters()
    ]  # fmt: skip
    weights = policy.get_weights()
    mine = torch.nn.Parameter(torch.from_numpy(start.copy()))
    eps = 0.1 / SMALL["train_batch_size"]  # which is 0.1 for sums
    optimizer = torch.optim.RMSprop([mine], lr=0.01, alpha=0.9, eps=eps, momentum=0.5)
    rng = np.random.default_rng(0)
    for _ in range(3):
        grads = {key: rng.normal(size=weights[key].shape).astype(np.float32) for key in order}
        layout = [grads[key] for key in order]
        if framework == "tf":  # gradients come in the layout of the framework's variables
            shapes = [tuple(v.shape) for v in policy.model.trainable_variables()]
            layout = [g if g.shape == shape else g.T for g, shape in zip(layout, shapes, strict=True)]
        policy.apply_gradients(layout)
        mine.grad = torch.from_numpy(grads[name])
        optimizer.step()
    np.testing.assert_allclose(policy.get_weights()[name], mine.detach().numpy(), atol=1e-6)


@torch_first
@pytest.mark.parametrize(("name", "sums"), [("IMPALA", True), ("APPO", False)])
def test_epsilon_and_grad_clip_are_rllibs_for_sums_over_the_rows_that_count(framework, name, sums):
    options = {"opt_type": "rmsprop", "decay": 0.99, "momentum": 0.0, "epsilon": 0.1, "lr": 0.01}
    batch = make_batch(40)
    gradients, _ = make_policy(framework, name, {**options, "grad_clip": None}).compute_gradients(batch.copy())
    rows = int((~(batch["trajectory_ends"] & (batch["discounts"] > 0))).sum()) if sums else 1
    assert rows not in (0, 40)
    gradients = [rows * gradient for gradient in gradients]
    norm = math.sqrt(sum(float(np.square(gradient).sum()) for gradient in gradients))
    policy = make_policy(framework, name, {**options, "grad_clip": norm / 2})

    def variables():
        if framework == "tf":
            return [variable.numpy() for variable in policy.model.trainable_variables()]
        return [parameter.detach().numpy().copy() for parameter in policy.model.parameters()]

    before = variables()
    policy.learn_on_batch(batch)
    for start, gradient, now in zip(before, gradients, variables(), strict=True):
        clipped = gradient / 2
        step = 0.01 * clipped / (0.1 * np.abs(clipped) + 0.1)  # sqrt(0.01 g²) + ε
        np.testing.assert_allclose(now, start - step, atol=1e-5, rtol=1e-4)


@torch_first
def test_epsilon_fits_the_rows_of_each_batch_whose_gradients_are_applied_apart(framework):
    one, other = (make_policy(framework, "IMPALA", {"opt_type": "rmsprop", "epsilon": 0.1}) for _ in range(2))
    for rows in (40, 10):
        gradients, _ = one.compute_gradients(make_batch(rows))
        one.apply_gradients(gradients)
        other.learn_on_batch(make_batch(rows))
        other.set_weights({**other.get_weights(), **{k: v for k, v in one.get_weights().items() if "popart" in k}})
    for name, array in other.get_weights().items():
        np.testing.assert_allclose(one.get_weights()[name], array, atol=1e-6, err_msg=name)


@torch_first
def test_limits_are_for_a_loss_of_ones_own_as_it_is(framework):
    policy = make_policy(framework, "IMPALA", {})

    class Mine(type(policy)):
        def loss(self, model, dist_class, train_batch):
            return super().loss(model, dist_class, train_batch)

    mine = Mine(policy.observation_space, policy.action_space, policy.config)
    assert mine.grad_limit(mine.optimizer_specs["loss"]) == 250.0
    assert policy.grad_limit(policy.optimizer_specs["loss"]) == 250.0 / policy.config["train_batch_size"]


def test_a_loss_of_ones_own_learns_from_batches_as_they_are_given():
    policy = make_policy("torch", "IMPALA", {})
    seen = []

    class Mine(type(policy)):
        def loss(self, model, dist_class, train_batch):
            seen.append(sorted(train_batch))
            return model(train_batch)[0].square().mean()

        def extra_grad_info(self, train_batch):
            return {}

    mine = Mine(policy.observation_space, policy.action_space, policy.config)
    seen.clear()
    mine.learn_on_batch(SampleBatch({"obs": make_batch(4)["obs"]}))
    assert seen == [["obs"]]


@torch_first
def test_grad_clip_is_for_sums_without_vtrace_too(framework):
    trainer = make(ImpalaTrainer, framework=framework, vtrace=False, grad_clip=1e-3, train_batch_size=40)
    policy = trainer.get_policy()
    policy.learn_on_batch(trainer.workers.local_worker().sample())
    assert policy.grad_limit(policy.optimizer_specs["loss"]) == pytest.approx(1e-3 / 20)


# --- configs --------------------------------------------------------------------------------------------------------


def test_defaults_are_those_of_rllib_but_for_what_pendulum_needs():
    expected = {
        "rollout_fragment_length": 50, "train_batch_size": 500, "lr": 7e-4, "min_iter_time_s": None, "vtrace": True,
        "vtrace_clip_rho_threshold": 1.0, "vtrace_clip_pg_rho_threshold": 1.0, "vtrace_drop_last_ts": True,
        "num_multi_gpu_tower_stacks": 1, "minibatch_buffer_size": 1, "num_sgd_iter": 1, "replay_proportion": 0.0,
        "replay_buffer_num_slots": 0, "learner_queue_size": 16, "learner_queue_timeout": 300, "broadcast_interval": 1,
        "max_sample_requests_in_flight_per_worker": 2, "num_aggregation_workers": 0,
        "opt_type": "adam", "decay": 0.99, "momentum": 0.0, "epsilon": 0.1, "vf_loss_coeff": 0.5,
        "entropy_coeff": 0.01, "_separate_vf_optimizer": False, "_lr_vf": 5e-4, "after_train_step": None,
        "num_data_loader_buffers": -1, "num_workers": 2, "vtrace_lambda": None, "action_bound_coeff": 1.0,
        "behaviour_kl_coeff": 0.5,
    }  # fmt: skip
    assert {key: DEFAULT_CONFIG[key] for key in expected} == expected
    more = {"use_critic": True, "use_gae": True, "lambda": 1.0, "clip_param": 0.4, "use_kl_loss": False,
            "kl_coeff": 1.0, "kl_target": 0.01, "num_gpus": 0, "replay_buffer_num_slots": 100,
            "grad_clip": 40.0, "lr": 5e-4}  # fmt: skip
    assert {key: APPO_CONFIG[key] for key in more} == more


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"replay_proportion": 1.0}, "replay_proportion=1 needs replay_buffer_num_slots >= 1"),
        ({"num_aggregation_workers": 1}, "num_aggregation_workers=1 must be at most num_workers=0"),
        ({"_separate_vf_optimizer": True}, "needs model.vf_share_layers=False"),
        ({"vtrace": False, "opt_type": "rmsprop"}, "vtrace=False takes A3C's policies"),
        ({"opt_type": "sgd"}, "opt_type: got 'sgd'"),
    ],
)
def test_wrong_configs_are_refused(overrides, message):
    with pytest.raises(ConfigError, match=message):
        make(ImpalaTrainer, **overrides)


def test_an_operator_of_the_users_own_follows_each_step():
    seen = []

    def after_train_step(workers, config):
        assert config["num_sgd_iter"] == 2
        return seen.append

    make(ImpalaTrainer, num_sgd_iter=2, after_train_step=after_train_step).train()
    assert [env_steps for env_steps, _ in seen] == [0, 80]
    assert "learner_stats" in seen[0][1]["default_policy"]


# --- postprocessing -------------------------------------------------------------------------------------------------


class FakePolicy:
    def __init__(self, drop_last):
        self.config = {"gamma": 0.5, "vtrace_drop_last_ts": drop_last}

    def values_after(self, batch, rows):
        return np.asarray(batch["new_obs"])[rows, 0] * 10


@pytest.mark.parametrize("drop_last", [False, True])
def test_fragments_say_where_they_were_cut(drop_last):
    batch = SampleBatch(
        {
            "new_obs": np.arange(6, dtype=np.float32)[:, None],
            "terminateds": np.array([False, True, False, False, False, False]),
            "truncateds": np.array([False, False, False, True, False, False]),
            "eps_id": np.array([0, 0, 1, 1, 2, 2]),
            "t": np.array([3, 4, 0, 1, 0, 1]),
        }
    )
    made = postprocess_for_vtrace(FakePolicy(drop_last), batch)
    assert made["discounts"].tolist() == [0.5, 0.0, 0.5, 0.5, 0.5, 0.5]
    assert made["discounts"].dtype == np.float32
    assert made["trajectory_ends"].tolist() == [False, True, False, True, False, True]
    assert made["values_after"].tolist() == ([0.0] * 6 if drop_last else [0.0, 0.0, 0.0, 30.0, 0.0, 50.0])
    assert "new_obs" not in made


@pytest.mark.parametrize("drop_last", [False, True])
def test_workers_collect_the_next_observation_only_where_they_bootstrap(drop_last):
    trainer = make(ImpalaTrainer, vtrace_drop_last_ts=drop_last)
    assert ("new_obs" in trainer.get_policy().train_columns) is not drop_last
    batch = trainer.workers.local_worker().sample()
    assert batch["trajectory_ends"][-1]
    cut = batch["trajectory_ends"] & ~batch["terminateds"]
    assert bool(batch["values_after"][cut].any()) is not drop_last
    assert not batch["values_after"][~cut].any()


# --- APPO's target policy ---------------------------------------------------------------------------------------------


class FakeTarget:
    def __init__(self):
        self.updates, self.kls = 0, []

    def update_target(self):
        self.updates += 1

    def update_kl(self, kl):
        self.kls.append(kl)


class FakeWorkers:
    def __init__(self):
        self.policy_map = {"default_policy": FakeTarget()}
        self.policies_to_train = ["default_policy"]

    def local_worker(self):
        return self


@pytest.fixture
def counters():
    ACTIVE_CONTEXT.metrics = MetricsContext()
    yield ACTIVE_CONTEXT.metrics.counters
    ACTIVE_CONTEXT.metrics = None


def test_target_lags_by_the_passes_over_the_buffered_batches_not_by_steps_sampled(counters):
    workers = FakeWorkers()
    policy = workers.policy_map["default_policy"]
    update = UpdateTargetAndKL(workers, {"num_sgd_iter": 2, "minibatch_buffer_size": 2, "use_kl_loss": True})
    for step, kl in enumerate([0.0, 2.0] * 4):
        env_steps = 500 if step % 2 else 0  # two passes over each batch
        update((env_steps, {"default_policy": {"learner_stats": {"kl": kl}}}))
        assert policy.updates == (step + 1) // 4
    assert policy.kls == [1.0, 1.0]
    assert counters == {"num_target_updates": 2, "last_target_update_ts": 2000}


@torch_first
def test_the_target_is_the_policy_of_some_batches_ago_and_is_saved(framework, tmp_path):
    config = {"framework": framework, "num_sgd_iter": 2, "minibatch_buffer_size": 2}
    config |= {"use_kl_loss": True, "kl_target": 1e9}
    trainer = make(APPOTrainer, **config)
    trainer.train()
    policy = trainer.get_policy()
    online, target = policy.get_weights(), policy.target_network.get_weights()
    assert any(not np.array_equal(online[name], target[name]) for name in online)
    again = make(APPOTrainer, **config)
    again.restore(trainer.save(str(tmp_path)))
    for name, array in again.get_policy().target_network.get_weights().items():
        np.testing.assert_array_equal(array, target[name])
    while "num_target_updates" not in (info := trainer.train()["info"]):
        pass
    assert info["num_target_updates"] == 1
    assert any(not np.array_equal(array, target[name]) for name, array in policy.target_network.get_weights().items())
    assert policy.kl_coeff == 0.5  # far below kl_target: halved
