"""Hooks: when they are called, with what, and in which old forms they still work."""

import sys
import tracemalloc

import numpy as np
import pytest

from rlframe.agents.callbacks import DefaultCallbacks, MemoryTrackingCallbacks, MultiCallbacks
from rlframe.agents.dqn import DQNTrainer
from rlframe.agents.dqn.dqn_policy import DQNTorchPolicy
from rlframe.agents.ppo import PPOTrainer
from rlframe.config.validators import callbacks_rule
from rlframe.data.sample_batch import MultiAgentBatch, SampleBatch
from rlframe.env.multi_agent_env import make_multi_agent
from rlframe.evaluation.callbacks import call_hook, make_callbacks, misnamed_hooks, overridden_hooks
from rlframe.evaluation.metrics import RolloutMetrics, summarize_episodes
from rlframe.examples.env.multi_agent import MultiAgentCartPole
from rlframe.policy.policy import PolicySpec
from rlframe.utils.errors import ConfigError, EnvError
from tests.helpers.envs import Counting
from tests.helpers.workers import make_worker

LOG = []


class Logging(DefaultCallbacks):
    def on_episode_start(self, *, worker, base_env, policies, episode, env_index, **kwargs):
        LOG.append(("start", env_index, episode.length, episode.last_observation_for(), dict(episode.last_info_for())))

    def on_episode_step(self, *, worker, base_env, policies, episode, env_index, **kwargs):
        LOG.append(("step", episode.length, float(episode.last_raw_obs_for()[1]), episode.last_reward_for()))

    def on_episode_end(self, *, worker, base_env, policies, episode, env_index, **kwargs):
        LOG.append(("end", episode.length, episode.total_reward))
        episode.custom_metrics["double"] = 2 * episode.total_reward
        episode.hist_data["lengths"] = [episode.length]

    def on_postprocess_trajectory(self, *, worker, episode, agent_id, policy_id, policies, postprocessed_batch,
                                  original_batches, **kwargs):  # fmt: skip
        LOG.append(("postprocess", agent_id, policy_id, postprocessed_batch.count, episode.env_id))
        assert "discounts" in postprocessed_batch
        assert "discounts" not in original_batches["agent0"][1]

    def on_sample_end(self, *, worker, samples, **kwargs):
        LOG.append(("sample", samples.count))


def test_hooks_are_called_in_order_with_known_values():
    LOG.clear()
    worker = make_worker(Counting, callbacks=Logging, rollout_fragment_length=3, env_config={"length": 2})
    worker.sample()
    assert LOG == [
        ("start", 0, 0, None, {}),
        ("step", 1, 1.0, 1.0),
        ("step", 2, 2.0, 2.0),
        ("postprocess", "agent0", "default_policy", 2, 0),
        ("end", 2, 3.0),
        ("start", 0, 0, None, {}),
        ("step", 1, 1.0, 1.0),
        ("postprocess", "agent0", "default_policy", 1, 0),
        ("sample", 3),
    ]
    metric = worker.get_metrics()[0]
    assert metric.custom_metrics == {"double": 6.0}
    assert metric.hist_data == {"lengths": [2]}


@pytest.mark.parametrize("several_agents", [False, True])
def test_the_first_episodes_begin_in_all_environments_before_a_callback_sees_one(several_agents):
    seen = []

    class LooksAtAll(DefaultCallbacks):
        def on_episode_start(self, *, base_env, env_index, **kwargs):
            envs = [env.agents[0] if several_agents else env for env in base_env.get_unwrapped()]
            seen.append((env_index, [env.episode for env in envs]))

    env = make_multi_agent(Counting) if several_agents else Counting
    config = {"length": 2, "num_agents": 1} if several_agents else {"length": 2}
    worker = make_worker(env, callbacks=LooksAtAll, num_envs_per_worker=2, env_config=config, rollout_fragment_length=1)
    worker.sample()
    first = seen[0][1]
    assert min(first) >= 0  # -1 is an environment without an episode
    assert seen == [(0, first), (1, first)]
    worker.sample()
    assert seen[2:] == [(0, [first[0] + 1, first[1]]), (1, [first[0] + 1, first[1] + 1])]


def test_an_environment_that_has_begun_is_not_made_anew_because_another_has_failed():
    made = []

    class SecondFails(Counting):
        def __init__(self, config):
            super().__init__(config)
            self.number = config.vector_index
            made.append(self.number)

        def reset(self, **kwargs):
            if self.number == 1 and made.count(1) == count + 1:
                raise RuntimeError("no")
            return super().reset(**kwargs)

    count = -1
    worker = make_worker(SecondFails, num_envs_per_worker=2, rollout_fragment_length=1, recreate_failed_workers=True)
    before, count = made.count(0), made.count(1) - 1
    with pytest.raises(EnvError, match="slot 1"):
        worker.sample()
    worker.sample()
    assert made.count(0) == before
    assert made.count(1) == count + 2


def test_base_env_shows_the_users_environments():
    seen = []

    class Looking(DefaultCallbacks):
        def on_episode_end(self, *, base_env, **kwargs):
            seen.extend([base_env.get_sub_environments(), base_env.get_unwrapped(), base_env.envs])

    worker = make_worker(Counting, callbacks=Looking, rollout_fragment_length=5, env_config={"length": 5})
    worker.sample()
    assert all(isinstance(envs[0], Counting) for envs in seen)


def test_dict_of_functions_gets_one_info():
    infos = []
    callbacks = {"on_episode_end": lambda info: infos.append((info["episode"].length, info["env"].num_envs))}
    make_worker(Counting, callbacks=callbacks, rollout_fragment_length=5, env_config={"length": 5}).sample()
    assert infos == [(5, 1)]


def test_dict_as_params_json_writes_it_has_hooks_that_are_not_called():
    callbacks = {"on_episode_start": None, "on_episode_end": "<function end at 0x7f>"}
    assert callbacks_rule(callbacks) is None
    with pytest.warns(UserWarning, match="on_episode_end is '<function end at 0x7f>', text and no function"):
        assert overridden_hooks(make_callbacks(callbacks)) == set()


def test_dict_with_unknown_hook_is_refused():
    with pytest.raises(ConfigError, match="on_episode_ends"):
        make_callbacks({"on_episode_ends": print})


def test_methods_that_look_like_hooks_are_told_of():
    class Mine(DefaultCallbacks):
        def on_episode_ends(self, **kwargs): ...
        def on_postprocess_trajectories(self, **kwargs): ...
        def on_algorithm_init(self, **kwargs): ...
        def on_episode_end(self, **kwargs): ...
        def on_price_of_bread(self): ...
        def episode_end(self): ...

    assert misnamed_hooks(DefaultCallbacks()) == []
    later, ends, trajectories = misnamed_hooks(Mine())
    assert later.startswith("callbacks: Mine.on_algorithm_init is no hook, and is never called; hooks here are on_ep")
    assert ends.startswith("callbacks: Mine.on_episode_ends is no hook, and is never called; did you mean on_episode_")
    assert trajectories.endswith("did you mean on_postprocess_trajectory?")


def test_old_signatures_get_what_they_declare():
    got = []

    class Positional(DefaultCallbacks):
        def on_episode_end(self, worker, base_env, policies, episode, env_index=None):
            got.append(episode)

        @staticmethod
        def on_sample_end(worker, samples):
            got.append(samples)

        def on_train_result(self, **info):
            got.append(info["result"])

        def on_episode_start(self, info):
            got.append(info["episode"])

    callbacks = make_callbacks(Positional)
    keywords = {"worker": 1, "base_env": 2, "policies": {}, "episode": "e", "env_index": 0}
    call_hook(callbacks, "on_episode_end", keywords)
    call_hook(callbacks, "on_sample_end", {"worker": 1, "samples": "s"})
    call_hook(callbacks, "on_train_result", {"trainer": 1, "result": "r"})
    call_hook(callbacks, "on_episode_start", keywords)
    assert got == ["e", "s", "r", "e"]


def test_type_error_inside_a_hook_is_not_hidden():
    class Broken(DefaultCallbacks):
        def on_sample_end(self, *, worker, samples, **kwargs):
            raise TypeError("mine")

    with pytest.raises(TypeError, match="mine"):
        make_worker(Counting, callbacks=Broken, rollout_fragment_length=2).sample()


def test_environments_that_are_made_are_told_of_and_those_in_place_of_broken_ones():
    told = []

    class Told(DefaultCallbacks):
        def on_sub_environment_created(self, *, worker, sub_environment, env_context, **kwargs):
            told.append((worker, sub_environment, env_context.vector_index))

    worker = make_worker(Counting, callbacks=MultiCallbacks([DefaultCallbacks, Told]), num_envs_per_worker=2)
    assert [(made, index) for made, _, index in told] == [(worker, 0), (worker, 1)]
    assert [env for _, env, _ in told] == [env.unwrapped for env in worker.foreach_env(lambda env: env)]
    worker.slots[1].recreate()
    assert told[2][1] is worker.slots[1].env.unwrapped
    assert told[2][2] == 1


def test_multi_callbacks_forwards_in_order_and_only_what_is_overridden():
    order = []

    class First(DefaultCallbacks):
        def on_sample_end(self, **kwargs):
            order.append(1)

    class Second(DefaultCallbacks):
        def on_sample_end(self, **kwargs):
            order.append(2)

    both = MultiCallbacks([First, Second])
    assert overridden_hooks(both()) == {"on_sample_end"}
    make_worker(Counting, callbacks=both, rollout_fragment_length=2).sample()
    assert order == [1, 2]


def test_default_callbacks_override_nothing():
    assert overridden_hooks(DefaultCallbacks()) == frozenset()


def test_memory_tracking_reports_resident_memory():
    worker = make_worker(
        Counting, callbacks=MemoryTrackingCallbacks, rollout_fragment_length=5, env_config={"length": 5}
    )
    worker.sample()
    tracemalloc.stop()  # it slows all that other tests do in this process, importing TensorFlow above all
    assert worker.get_metrics()[0].custom_metrics["tracemalloc/worker/rss"] > 1e6


@pytest.mark.parametrize("wrong", ["MyCallbacks", 3, lambda: object()])
def test_something_else_is_refused(wrong):
    with pytest.raises(ConfigError, match="callbacks"):
        make_callbacks(wrong)


class _InOrder(DefaultCallbacks):
    """Notes what was postprocessed of an episode, and how much of that was there when it ended."""

    seen = []  # noqa: RUF012 - for the test

    def on_postprocess_trajectory(self, *, episode, agent_id, postprocessed_batch, **kwargs):
        rows = episode.user_data.setdefault(agent_id, [])
        rows += postprocessed_batch["advantages"].tolist()

    def on_episode_end(self, *, episode, **kwargs):
        self.seen.append({agent: len(rows) for agent, rows in episode.user_data.items()})


@pytest.mark.parametrize("mode", ["truncate_episodes", "complete_episodes"])
@pytest.mark.parametrize("lstm", [False, True])
def test_what_ended_is_postprocessed_before_on_episode_end(mode, lstm):
    _InOrder.seen = []
    config = {
        "callbacks": _InOrder, "batch_mode": mode, "rollout_fragment_length": 4, "num_envs_per_worker": 2,
        "model": {"fcnet_hiddens": [4], "use_lstm": lstm, "lstm_cell_size": 4}, "seed": 0, "num_workers": 0,
        "train_batch_size": 8, "sgd_minibatch_size": 8, "env_config": {"length": 3},
    }  # fmt: skip
    worker, plain = (
        PPOTrainer({**config, "callbacks": callbacks}, env=Counting).workers.local_worker()
        for callbacks in (_InOrder, DefaultCallbacks)
    )
    plain.policy_map["default_policy"].collect_all_columns()
    for _ in range(3):
        batch, expected = worker.sample(), plain.sample()
        assert set(batch) == set(expected)
        for name in set(batch) - {"unroll_id", "infos"}:
            np.testing.assert_allclose(batch[name], expected[name], rtol=1e-5, err_msg=name)
    assert _InOrder.seen == [{"agent0": 3}] * len(_InOrder.seen)
    assert len(_InOrder.seen) >= 6


@pytest.mark.parametrize("mode", ["truncate_episodes", "complete_episodes"])
def test_what_several_agents_did_is_postprocessed_before_on_episode_end(mode, tmp_path):
    _InOrder.seen = []
    config = {
        "callbacks": _InOrder, "batch_mode": mode, "rollout_fragment_length": 4, "num_envs_per_worker": 2,
        "num_workers": 0, "horizon": 3, "env_config": {"num_agents": 2}, "seed": 0, "train_batch_size": 8,
        "sgd_minibatch_size": 8, "num_sgd_iter": 1, "model": {"fcnet_hiddens": [4]},
    }  # fmt: skip
    trainers = [PPOTrainer(config, env=MultiAgentCartPole) for _ in range(2)]
    trainer, other = trainers
    for _ in range(3):
        trainer.train()
    assert _InOrder.seen == [{0: 3, 1: 3}] * len(_InOrder.seen)
    assert len(_InOrder.seen) >= 6
    other.restore(trainer.save(tmp_path))
    first, second = (one.workers.local_worker().sample().policy_batches["default_policy"] for one in trainers)
    np.testing.assert_array_equal(first["advantages"], second["advantages"])
    np.testing.assert_array_equal(first["eps_id"], second["eps_id"])


def test_a_custom_metric_of_several_numbers_has_the_smallest_and_largest_of_them():
    episodes = [RolloutMetrics(5, 1.0, custom_metrics={"force": values}) for values in ([1.0, 4.0], [2.0, 3.0])]
    episodes.append(RolloutMetrics(5, 1.0, custom_metrics={"force": [9.0, float("nan")]}))
    summary = summarize_episodes([RolloutMetrics.from_state(episode.to_state()) for episode in episodes])
    assert summary == summarize_episodes(episodes)
    assert summary["custom_metrics"] == {"force_mean": 2.5, "force_min": 1.0, "force_max": 4.0}


def test_on_learn_on_batch_writes_custom_metrics():
    class Learning(DefaultCallbacks):
        def on_learn_on_batch(self, *, policy, train_batch, result, **kwargs):
            result["rows"] = train_batch.count

    worker = make_worker(Counting, callbacks=Learning, rollout_fragment_length=5)
    info = worker.learn_on_batch(worker.sample())
    assert list(info) == ["default_policy"]
    assert info["custom_metrics"] is info["default_policy"]["custom_metrics"]
    assert info["custom_metrics"] == {"rows": 5}


def test_each_policy_has_a_callbacks_object_of_its_own():
    class Learning(DefaultCallbacks):
        learned = 0

        def on_learn_on_batch(self, *, policy, train_batch, result, **kwargs):
            self.learned += 1
            result["learned"] = self.learned

        def on_sample_end(self, *, worker, samples, **kwargs):
            assert self is worker.callbacks
            assert self.learned == 0

    worker = make_worker(Counting, callbacks=Learning, rollout_fragment_length=5)
    worker.add_policies({"other": PolicySpec(policy_class=DQNTorchPolicy)})
    samples = worker.sample().policy_batches["default_policy"]
    both = MultiAgentBatch({"default_policy": samples, "other": samples}, 5)
    for count in (1, 2):
        info = worker.learn_on_batch(both)
        assert [info[pid]["custom_metrics"]["learned"] for pid in worker.policy_map] == [count, count]
    worker.sample()


@pytest.mark.skipif(sys.version_info < (3, 11), reason="exceptions have no notes before")
def test_an_error_in_a_hook_says_in_which():
    class Wrong(DefaultCallbacks):
        def on_episode_end(self, *, episode, **kwargs):
            raise KeyError("angle")

    with pytest.raises(KeyError, match="angle") as raised:
        make_worker(Counting, callbacks=MultiCallbacks([Wrong]), rollout_fragment_length=5).sample()
    assert raised.value.__notes__ == ["raised in Wrong.on_episode_end, a hook of the config's callbacks"]


class Doubled(DefaultCallbacks):
    """Adds each trajectory once more, with other rewards."""

    def on_postprocess_trajectory(self, *, episode, policy_id, postprocessed_batch, **kwargs):
        added = postprocessed_batch.copy()
        added["rewards"] = np.full_like(added["rewards"], -1.0)
        added["a column of its own"] = added["rewards"]
        episode.add_extra_batch(MultiAgentBatch({policy_id: added}, added.count))


@pytest.mark.parametrize("several", [False, True])
@pytest.mark.parametrize("memory", [False, True])
def test_batches_that_a_hook_adds_are_sampled_behind_the_others(several, memory):
    model = {"use_lstm": memory, "lstm_cell_size": 2, "max_seq_len": 2}
    make_env = make_multi_agent(Counting) if several else Counting
    worker = make_worker(make_env, callbacks=Doubled, rollout_fragment_length=5, model=model, replay_sequence_length=-1)
    for _ in range(2):
        batch = worker.sample()
        rewards = batch.policy_batches["default_policy"]["rewards"]
        assert batch.count == 10
        np.testing.assert_array_equal(rewards, [1, 2, 3, 4, 5] + 5 * [-1.0])


def test_rows_of_a_builder_can_be_added():
    class Imagining(DefaultCallbacks):
        def on_episode_end(self, *, episode, **kwargs):
            builder, obs = episode.new_batch_builder(), np.zeros(2, np.float32)
            row = {"obs": obs, "new_obs": obs, "actions": 1, "terminateds": True, "truncateds": False, "t": 0}
            builder.add_values("agent0", "default_policy", rewards=7.0, dones=True, eps_id=3, **row)
            builder.count += 1
            episode.add_extra_batch(builder.build_and_reset(episode))

    batch = make_worker(Counting, callbacks=Imagining, rollout_fragment_length=5, prioritized_replay=False).sample()
    assert batch["rewards"].tolist() == [1, 2, 3, 4, 5, 7]


@pytest.mark.parametrize(
    ("added", "says"),
    [
        (3, "got int, wanted a SampleBatch"),
        (
            MultiAgentBatch({"other": SampleBatch({"obs": np.zeros((1, 2))})}, 1),
            "rows of other, wanted rows of default_",
        ),
        (SampleBatch({"obs": np.zeros((1, 2))}), "lack .*rewards"),
    ],
)
def test_what_cannot_be_added_is_refused(added, says):
    class Adding(DefaultCallbacks):
        def on_episode_step(self, *, episode, **kwargs):
            episode.add_extra_batch(added)

    with pytest.raises(ValueError, match=says):
        make_worker(Counting, callbacks=Adding).sample()


@pytest.mark.parametrize("several", [False, True])
def test_episodes_tell_what_came_with_an_action_where_a_hook_reads_it(several):
    seen = []

    class Reading(DefaultCallbacks):
        def on_episode_step(self, *, episode, **kwargs):
            seen.append(episode.last_extra_action_outs_for(episode.get_agents()[0]))

    make_worker(make_multi_agent(Counting) if several else Counting, callbacks=Reading).sample()
    assert {"action_dist_inputs", "action_logp"} <= seen[0].keys()


def test_behind_a_soft_horizon_the_episode_has_the_number_of_its_rows():
    seen = []

    class Numbers(DefaultCallbacks):
        def on_episode_step(self, *, episode, **kwargs):
            seen.append(episode.episode_id)

    rows = {"rollout_fragment_length": 6, "horizon": 3, "soft_horizon": True, "env_config": {"length": 100}}
    batch = make_worker(Counting, callbacks=Numbers, output="logdir", **rows).runner.sample()
    assert batch["eps_id"].tolist() == seen
    assert len(set(seen)) == 2


def test_hooks_that_an_object_has_by_attribute_access_alone_are_called():
    called = []

    class Merged(DefaultCallbacks):
        """Hands every method on, as programs merge several callbacks."""

        def __getattribute__(self, name):
            found = super().__getattribute__(name)
            return (lambda **kwargs: called.append((name, kwargs))) if name == "on_episode_end" else found

    class Set(DefaultCallbacks):
        def __init__(self, legacy_callbacks_dict=None):
            super().__init__(legacy_callbacks_dict)
            self.on_episode_end = lambda *, episode, **kwargs: called.append(("set", episode))

    for cls in (Merged, Set):
        assert overridden_hooks(cls()) == {"on_episode_end"}
        call_hook(cls(), "on_episode_end", {"episode": 1})
    assert called == [("on_episode_end", {"episode": 1}), ("set", 1)]
    assert overridden_hooks(DefaultCallbacks()) == frozenset()


@pytest.mark.parametrize("env", ["CartPole-v1", MultiAgentCartPole])
@pytest.mark.parametrize("remote", [False, True])
def test_episodes_tell_q_values_and_outputs_alone(env, remote):
    told = []

    class Reads(DefaultCallbacks):
        def on_episode_step(self, *, episode, **kwargs):
            told.append(episode.last_extra_action_outs_for(episode.get_agents()[0]))

    config = {"env": env, "num_workers": 0, "callbacks": Reads, "rollout_fragment_length": 4, "sample_in_numpy": remote}
    DQNTrainer(config).workers.local_worker().sample()
    assert [outs["q_values"].shape for outs in told] == [(2,)] * 4
    told.clear()
    model = {"use_lstm": True, "lstm_use_prev_action": True, "lstm_use_prev_reward": True}
    PPOTrainer({**config, "model": model}).workers.local_worker().sample()
    outputs = {"action_dist_inputs", "action_logp", "action_prob", "state_out_0", "state_out_1", "vf_preds"}
    assert [set(outs) for outs in told] == [outputs] * 4
