"""Simulators that ask for actions: what becomes of their calls, and of their mistakes."""

import contextlib
import queue
import threading
import time

import gymnasium as gym
import numpy as np
import pytest

from rlframe.agents.callbacks import DefaultCallbacks
from rlframe.agents.dqn import DQNTrainer
from rlframe.agents.pg import PGTrainer
from rlframe.agents.ppo import PPOTrainer
from rlframe.env import register_env
from rlframe.env.episode_broker import EpisodeBroker
from rlframe.env.external_env import ExternalEnv, TrainingStopped
from rlframe.policy.policy import PolicySpec
from rlframe.utils.errors import ConfigError, EnvError
from tests.helpers.external_envs import SPACE, ExternalCartPole, Scripted, ScriptedAgents, number
from tests.helpers.frameworks import FRAMEWORKS
from tests.helpers.scripted import rows


def make(env=Scripted, cls=DQNTrainer, play=None, **config):
    settings = {
        "num_workers": 0, "seed": 1, "min_iter_time_s": 0, "log_sys_usage": False, "model": {"fcnet_hiddens": [4]},
        "rollout_fragment_length": 4, "train_batch_size": 4, "env_config": {"play": play} if play else {},
        **({"sgd_minibatch_size": 2} if cls is PPOTrainer else {}), **config,
    }  # fmt: skip
    return cls(settings, env=env)


@pytest.fixture
def trainers():
    made = []

    def build(*args, **kwargs):
        made.append(make(*args, **kwargs))
        return made[-1]

    yield build
    for trainer in made:
        trainer.stop()


def of(batch, *names):
    return rows(batch.policy_batches["default_policy"], *names)


def three_steps(env, **end):
    """One episode of the observations 1, 2, 3 and 4, with rewards in pieces."""
    episode = env.start_episode()
    for value in (1, 2, 3):
        env.get_action(episode, number(value))
        env.log_returns(episode, value)
        env.log_returns(episode, 0.5)
    env.end_episode(episode, number(4), **end)


def forever(play):
    def loop(env):
        while True:
            play(env)

    return loop


@pytest.mark.parametrize("truncated", [False, True])
def test_an_episode_becomes_rows(trainers, truncated):
    trainer = trainers(play=forever(lambda env: three_steps(env, truncated=truncated)), rollout_fragment_length=3)
    worker = trainer.workers.local_worker()
    batch = worker.sample()
    assert batch.env_steps() == 3
    discounts = [pytest.approx(0.99), pytest.approx(0.99), pytest.approx(0.99) if truncated else 0.0]
    assert of(batch, "obs", "new_obs", "rewards", "terminateds", "discounts") == {
        0: [(1.0, 2.0, 1.5, False, discounts[0]), (2.0, 3.0, 2.5, False, discounts[1]),
            (3.0, 4.0, 3.5, not truncated, discounts[2])]
    }  # fmt: skip
    (metrics,) = worker.get_metrics()
    assert (metrics.episode_length, metrics.episode_reward) == (3, pytest.approx(7.5))
    assert metrics.agent_rewards == {("agent0", "default_policy"): pytest.approx(7.5)}


def test_steps_are_counted_when_they_are_closed(trainers):
    worker = trainers(play=forever(three_steps), rollout_fragment_length=2).workers.local_worker()
    first, second = worker.sample(), worker.sample()
    assert list(of(first, "obs")[0]) == [(1.0,), (2.0,)]
    assert list(of(second, "obs")[0]) == [(3.0,), (1.0,)]


def test_whole_episodes_only(trainers):
    trainer = trainers(
        play=forever(three_steps), cls=PGTrainer, batch_mode="complete_episodes", rollout_fragment_length=4
    )
    batch = trainer.workers.local_worker().sample()
    assert len(batch.policy_batches["default_policy"]) == 6


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_actions_of_ones_own_have_their_probability(trainers, framework):
    def play(env):
        episode = env.start_episode()
        env.log_action(episode, number(1), 1)
        env.log_returns(episode, 1.0)
        env.log_action(episode, number(2), 0)
        env.get_action(episode, number(3))
        env.end_episode(episode, number(4))

    trainer = trainers(play=forever(play), cls=PPOTrainer, framework=framework, rollout_fragment_length=3)
    batch = trainer.workers.local_worker().sample().policy_batches["default_policy"]
    assert batch["actions"][:2].tolist() == [1, 0]
    policy = trainer.get_policy()
    logp = policy.compute_log_likelihoods(batch["actions"], batch["obs"])
    np.testing.assert_allclose(batch["action_logp"], logp, atol=1e-6)
    assert batch["rewards"].tolist() == [1.0, 0.0, 0.0, 1.0]


def test_logged_actions_of_boxes_are_squashed_and_remembered(trainers):
    space = gym.spaces.Box(-10.0, 10.0, (2,), np.float32)

    def play(env):
        episode = env.start_episode()
        for value in (1, 2, 3):
            env.log_action(episode, number(value), np.array([10.0, -5.0], np.float32))
        env.end_episode(episode, number(4))

    class Boxes(Scripted):
        def __init__(self, config):
            super().__init__(config)
            self.action_space = space

    model = {"fcnet_hiddens": [4], "use_lstm": True, "lstm_cell_size": 3, "lstm_use_prev_action": True}
    trainer = trainers(Boxes, PPOTrainer, forever(play), model=model, rollout_fragment_length=3, train_batch_size=3)
    trainer.get_policy().train_columns = None
    batch = trainer.workers.local_worker().sample().policy_batches["default_policy"]
    np.testing.assert_allclose(batch["actions"], [[1.0, -0.5]] * 3)
    np.testing.assert_allclose(batch["prev_actions"], [[0, 0], [1.0, -0.5], [1.0, -0.5]])
    distribution = trainer.get_policy().distribution(batch["action_dist_inputs"])
    np.testing.assert_allclose(batch["action_logp"], distribution.logp(batch["actions"]), atol=1e-5)


def test_episodes_without_training_leave_no_rows(trainers):
    def play(env):
        episode = env.start_episode(training_enabled=False)
        env.get_action(episode, number(50))
        env.log_returns(episode, 9.0)
        env.end_episode(episode, number(51))
        three_steps(env)

    worker = trainers(play=forever(play), rollout_fragment_length=6).workers.local_worker()
    batch = worker.sample()
    assert [row[0] for row in of(batch, "obs")[0]] == [1.0, 2.0, 3.0] * 2
    assert {metric.episode_reward for metric in worker.get_metrics()} >= {9.0, 7.5}


def test_episodes_without_training_are_not_counted_among_whole_ones(trainers):
    def play(env):
        episode = env.start_episode(training_enabled=False)
        for value in range(50):
            env.get_action(episode, number(value))
        env.end_episode(episode, number(51))
        three_steps(env)

    worker = trainers(
        play=forever(play), cls=PGTrainer, batch_mode="complete_episodes", rollout_fragment_length=6
    ).workers.local_worker()
    assert len(worker.sample().policy_batches["default_policy"]) == 6


def test_episodes_side_by_side_are_answered_in_one_call(trainers):
    def play(env):
        episodes = [env.start_episode(f"{name}{env.rounds}") for name in "ab"]
        threads = [threading.Thread(target=one, args=(env, episode, 10.0 * i), daemon=True)
                   for i, episode in enumerate(episodes)]  # fmt: skip
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        env.rounds += 1

    def one(env, episode, base):
        with contextlib.suppress(TrainingStopped):  # which threading ignores, and pytest's hook does not
            for step in range(3):
                env.get_action(episode, number(base + step))
                env.log_returns(episode, base)
            env.end_episode(episode, number(base + 3))

    class Rounds(Scripted):
        rounds = 0

    batch = trainers(Rounds, play=forever(play), rollout_fragment_length=6).workers.local_worker().sample()
    data = batch.policy_batches["default_policy"]
    for base in (0.0, 10.0):
        mine = data["rewards"] == base
        assert data["obs"][mine, 0].tolist() == [base, base + 1, base + 2]
        assert len(set(data["eps_id"][mine].tolist())) == 1


def test_agents_come_and_go(trainers):
    def play(env):
        episode = env.start_episode()
        env.seen.append(env.get_action(episode, {"a": number(1), "b": number(2)}))
        env.log_returns(episode, {"a": 1.0, "b": 2.0}, {"a": {"x": 1}}, {"b": True})
        env.seen.append(env.get_action(episode, {"a": number(3), "b": number(4)}))
        env.log_returns(episode, {"a": 1.0})
        env.log_action(episode, {"a": number(5), "c": number(6)}, {"a": 0, "c": 1})
        env.log_returns(episode, {"a": 0.5, "c": 3.0})
        env.end_episode(episode, {"a": number(7), "c": number(8)})

    worker = trainers(ScriptedAgents, play=forever(play), rollout_fragment_length=3).workers.local_worker()
    batch = worker.sample()
    assert batch.env_steps() == 3
    assert of(batch, "obs", "new_obs", "rewards", "terminateds") == {
        0: [(1.0, 3.0, 1.0, False), (3.0, 5.0, 1.0, False), (5.0, 7.0, 0.5, True)],
        1: [(2.0, 4.0, 2.0, True)],
        2: [(6.0, 8.0, 3.0, True)],
    }
    assert [set(actions) for actions in worker.env.seen[:2]] == [{"a", "b"}, {"a"}]
    assert worker.get_metrics()[0].agent_rewards == {
        ("a", "default_policy"): 2.5, ("b", "default_policy"): 2.0, ("c", "default_policy"): 3.0,
    }  # fmt: skip


def test_policies_of_their_own(trainers):
    def play(env):
        episode = env.start_episode()
        env.get_action(episode, {"a": number(1), "b": number(2)})
        env.log_returns(episode, {"a": 1.0, "b": -1.0})
        env.end_episode(episode, {"a": number(3), "b": number(4)})

    multiagent = {"policies": {"a": PolicySpec(), "b": PolicySpec(config={"gamma": 0.5})},
                  "policy_mapping_fn": lambda agent_id: agent_id}  # fmt: skip
    trainer = trainers(ScriptedAgents, PPOTrainer, forever(play), multiagent=multiagent, sgd_minibatch_size=4)
    result = trainer.train()
    assert set(result["info"]["learner"]) == {"a", "b"}
    assert result["policy_reward_mean"] == {"a": 1.0, "b": -1.0}


def test_callbacks_see_its_episodes(trainers):
    class Notes(DefaultCallbacks):
        def on_episode_end(self, *, episode, base_env, **kwargs):
            episode.custom_metrics["length"] = episode.length
            assert isinstance(base_env.envs[0], Scripted)

    worker = trainers(play=forever(three_steps), callbacks=Notes).workers.local_worker()
    worker.sample()
    assert worker.get_metrics()[0].custom_metrics == {"length": 3}


# --- mistakes --------------------------------------------------------------------------------------------------


def noting(*acts):
    """Runs each act, keeps the messages of its error, and then plays on."""

    def play(env):
        for act in acts:
            with pytest.raises((ValueError, EnvError)) as caught:
                act(env)
            env.seen.append(str(caught.value))
        while True:
            three_steps(env)

    return play


def begin(env, name):
    env.start_episode(name)
    env.get_action(name, number(1))


def ended(env):
    begin(env, "old")
    env.end_episode("old", number(1))
    env.log_returns("old", 1.0)


def test_wrong_calls_raise_where_they_are_made(trainers):
    play = noting(
        lambda env: env.get_action("nobody", number(1)),
        ended,
        lambda env: env.start_episode("old"),
        lambda env: (env.start_episode("new"), env.start_episode("new")),
        lambda env: env.start_episode("more"),
        lambda env: env.log_returns("new", float("nan")),
        lambda env: env.end_episode("other", number(1)),
    )
    options = {"max_concurrent": 1}
    trainer = trainers(play=play, env_config={"play": play_then_end_new(play), "options": options})
    worker = trainer.workers.local_worker()
    worker.sample()
    seen = worker.env.seen
    assert "get_action('nobody'): this episode is not known" in seen[0]
    assert "log_returns('old'): this episode has ended" in seen[1]
    assert "start_episode('old'): this episode has ended; wanted a new id" in seen[2]
    assert "start_episode('new'): this episode has begun already" in seen[3]
    assert "max_concurrent=1" in seen[4]
    assert "log_returns(): agent 'agent0'" in seen[5]
    assert "end_episode('other'): this episode is not known" in seen[6]


def play_then_end_new(play):
    """Ends the episode that the mistakes above left open before the good ones begin."""

    def run(env):
        original = env.start_episode

        def start(*args, **kwargs):
            if len(env.seen) == 7 and "new" in env.broker._open:
                env.end_episode("new", number(1))
            return original(*args, **kwargs)

        env.start_episode = start
        play(env)

    return run


def train_thrice(trainer):
    for _ in range(3):
        trainer.train()


def test_what_run_raises_train_raises_with_its_traceback(trainers):
    def play(env):
        three_steps(env)
        raise RuntimeError("the simulator broke")

    trainer = trainers(play=play)
    message = (
        r"(?s)Scripted of worker 0, slot 0: its run\(\) raised RuntimeError: the simu.*in play\n.*raise RuntimeError"
    )
    with pytest.raises(EnvError, match=message) as caught:
        train_thrice(trainer)
    assert isinstance(caught.value.__cause__, RuntimeError)
    with pytest.raises(EnvError, match="the simulator broke"):
        trainer.train()


def test_a_run_that_returns_is_named(trainers):
    trainer = trainers(play=three_steps)
    with pytest.raises(EnvError, match=r"its run\(\) has returned; wanted a loop that goes on"):
        train_thrice(trainer)


def test_a_simulator_is_made_anew_where_failures_are_mended(trainers):
    made = []

    def play(env):
        made.append(env)
        three_steps(env)
        raise RuntimeError("broke")

    worker = trainers(play=play, recreate_failed_workers=True).workers.local_worker()
    for _ in range(2):
        with pytest.raises(EnvError, match="broke"):
            worker.sample()
    assert len(made) == 2
    assert len({id(env) for env in made}) == 2


def test_a_simulator_that_calls_nothing_is_named(trainers):
    over = threading.Event()
    config = {"play": lambda env: over.wait(30), "options": {"timeout_s": 0.05}}
    trainer = trainers(env_config=config)
    with pytest.raises(EnvError, match=r"its run\(\) has called nothing for 0\.05 s.*timeout_s"):
        trainer.train()
    over.set()


def two_simulators(first, second):
    """Returns the config of two of them, each a function and its timeout."""
    made = []

    class Each(Scripted):
        def __init__(self, config):
            play, timeout_s = (first, second)[len(made) % 2]
            made.append(self)
            super().__init__({"play": play, "options": {"timeout_s": timeout_s}})

    return Each


def sample_often(trainer):
    for _ in range(1000):
        trainer.workers.local_worker().sample()


def idle(env):
    while not env.broker._closed:
        time.sleep(0.005)


def falls_silent(env):
    three_steps(env)
    env.start_episode()
    idle(env)


def test_the_silent_simulator_is_named_and_not_the_first(trainers):
    def slow(env):
        time.sleep(0.02)
        three_steps(env)

    trainer = trainers(two_simulators((forever(slow), 5.0), (falls_silent, 0.2)), num_envs_per_worker=2)
    with pytest.raises(EnvError, match=r"^the Each of worker 0, slot 1: its run\(\) has called nothing for 0\.2 s;"):
        sample_often(trainer)


def test_one_that_may_be_silent_for_ever_excuses_no_other(trainers):
    trainer = trainers(two_simulators((falls_silent, None), (falls_silent, 0.1)), num_envs_per_worker=2)
    for _ in range(2):
        with pytest.raises(EnvError, match=r"^the Each of worker 0, slot 1: its run\(\) has called nothing for 0\.1"):
            sample_often(trainer)


def test_an_observation_of_another_shape_is_named_on_both_sides(trainers):
    errors = []

    def play(env):
        episode = env.start_episode("mine")
        try:
            env.get_action(episode, np.zeros(3, np.float32))
        except EnvError as error:
            errors.append(str(error))
            raise

    trainer = trainers(play=play)
    with pytest.raises(EnvError, match=r"episode 'mine'.*shape"):
        trainer.train()
    trainer.stop()
    assert "shape" in errors[0]


TWO = gym.spaces.Discrete(2)
BOX = gym.spaces.Box(-1.0, 1.0, (2,), np.float32)


def logging_an_action(space, action, seen):
    """Returns a simulator that logs one action after a good episode, and notes how that went."""

    def play(env):
        three_steps(env)
        episode = env.start_episode("mine")
        try:
            env.log_action(episode, number(1), action)
            seen.append(None)
        except EnvError as error:
            seen.append(str(error))
            raise
        while True:
            env.end_episode(episode, number(2))
            episode = env.start_episode()
            env.get_action(episode, number(1))

    class Logs(Scripted):
        def __init__(self, config):
            super().__init__(config)
            self.action_space = space

    return Logs, play


@pytest.mark.parametrize(
    ("space", "action"),
    [
        (TWO, 7), (TWO, -1), (TWO, 0.7), (TWO, None), (TWO, "x"), (TWO, [0, 1]),
        (BOX, np.zeros(3)), (BOX, np.array([np.nan, 0.0])), (BOX, np.array([2.0, 0.0])), (BOX, None),
        (gym.spaces.Tuple([TWO, BOX]), (0, 0)),
    ],
    ids=str,
)  # fmt: skip
def test_a_logged_action_of_another_space_is_named_on_both_sides(trainers, space, action):
    seen = []
    logs, play = logging_an_action(space, action, seen)
    trainer = trainers(logs, PGTrainer, play, train_batch_size=8)
    message = r"Logs of worker 0.*episode 'mine': log_action\(\): agent 'agent0': got .*, wanted an action of "
    for _ in range(2):
        with pytest.raises(EnvError, match=message):
            trainer.train()
    runner = trainer.workers.local_worker().runner
    assert not any(collector.waiting for collector in runner.rows.by_policy.values())
    trainer.workers.local_worker().env.join(5)
    assert len(seen) == 1
    assert seen[0].startswith("log_action(): agent 'agent0': got ")


@pytest.mark.parametrize(
    ("space", "action", "stored"),
    [
        (TWO, np.int8(1), 1), (TWO, np.array(1), 1), (gym.spaces.Discrete(2, start=5), 6, 1),
        (BOX, [0.5, -1], [0.5, -1.0]), (BOX, np.array([0.1, 1.0]), [0.1, 1.0]),
        (gym.spaces.Tuple([TWO, BOX]), [1, [0.5, 0.0]], [1.0, 0.5, 0.0]),
    ],
    ids=str,
)  # fmt: skip
def test_a_logged_action_is_stored_as_its_space_has_it(trainers, space, action, stored):
    seen = []
    logs, play = logging_an_action(space, action, seen)
    batch = trainers(logs, PGTrainer, play).workers.local_worker().sample()
    np.testing.assert_allclose(batch.policy_batches["default_policy"]["actions"][3], stored, atol=1e-6)
    assert seen == [None]


def test_a_simulator_whose_logged_action_was_wrong_is_made_anew(trainers):
    made = []

    def play(env):
        made.append(env)
        if len(made) > 1:
            forever(three_steps)(env)
        env.log_action(env.start_episode(), number(1), "x")

    worker = trainers(play=play, recreate_failed_workers=True).workers.local_worker()
    with pytest.raises(EnvError, match="got 'x'"):
        worker.sample()
    assert worker.sample().env_steps() == 4


def test_actions_of_agents_that_are_through_are_not_looked_at(trainers):
    def play(env):
        episode = env.start_episode()
        env.log_action(episode, {"a": number(1), "b": number(2)}, {"a": 0, "b": 1})
        env.log_returns(episode, {"a": 1.0}, None, {"b": True})
        env.log_action(episode, {"a": number(3), "b": number(4)}, {"a": 1, "b": None})
        env.log_action(episode, {"a": number(5)}, {"a": 1 if env.seen else "x"})

    trainer = trainers(ScriptedAgents, play=forever(play), rollout_fragment_length=4)
    with pytest.raises(EnvError, match="agent 'a': got 'x'"):
        trainer.train()


def test_a_horizon_is_the_simulators_matter(trainers):
    with pytest.raises(ConfigError, match=r"horizon: got 3 with an ExternalEnv"):
        trainers(play=three_steps, horizon=3)


def test_a_constructor_that_forgets_its_base_is_named(trainers):
    class Forgets(ExternalEnv):
        def __init__(self, config):
            threading.Thread.__init__(self)

    with pytest.raises(EnvError, match=r"Forgets has not called super\(\).__init__\(action_space"):
        trainers(Forgets)


@pytest.mark.parametrize(("options", "message"), [({"max_concurrent": 0}, "max_concurrent"), ({"timeout_s": 0}, "tim")])
def test_options_are_checked(options, message):
    with pytest.raises(ValueError, match=message):
        ExternalEnv(gym.spaces.Discrete(2), SPACE, **options)


# --- beginnings and ends ---------------------------------------------------------------------------------------


class Early(Scripted):
    """One whose own thread calls as soon as it is made; its `run()` only waits."""

    def __init__(self, config):
        super().__init__(config)
        threading.Thread(target=self.serve, daemon=True).start()
        deadline = time.monotonic() + 5
        while not self.broker.requests.qsize():
            assert time.monotonic() < deadline
            time.sleep(0.001)

    def serve(self):
        with contextlib.suppress(TrainingStopped, EnvError):
            self.play(self)

    def run(self):
        idle(self)


def test_calls_from_before_the_first_sample_are_answered(trainers):
    options = {"timeout_s": 2.0}
    worker = trainers(
        Early, env_config={"play": forever(three_steps), "options": options}, rollout_fragment_length=3
    ).workers.local_worker()  # fmt: skip
    for _ in range(2):
        assert list(of(worker.sample(), "obs")[0]) == [(1.0,), (2.0,), (3.0,)]


def test_calls_from_before_the_first_sample_of_one_made_anew_are_answered(trainers):
    made = []

    def play(env):
        made.append(env)
        if len(made) == 1:
            env.log_action(env.start_episode(), number(1), 7)
        forever(three_steps)(env)

    options = {"timeout_s": 2.0}
    worker = trainers(
        Early, env_config={"play": play, "options": options}, recreate_failed_workers=True
    ).workers.local_worker()
    with pytest.raises(EnvError, match="got 7"):
        worker.sample()
    assert worker.sample().env_steps() == 4


def test_a_desk_keeps_the_order_of_calls_when_it_changes_queues():
    broker, requests = EpisodeBroker(10), queue.SimpleQueue()
    for name in "abc":
        broker.end(broker.start(name, True), {}, False)
    broker.attach_queue(requests)
    broker.attach_queue(requests)  # a second time changes nothing
    broker.end(broker.start("d", True), {}, False)
    broker.ended(None)
    assert [requests.get_nowait().episode.episode_id for _ in range(4)] == ["a", "b", "c", "d"]
    assert requests.get_nowait().episode is None
    assert requests.empty()


def test_no_call_is_lost_while_a_desk_changes_queues():
    broker, requests, count = EpisodeBroker(10_000), queue.SimpleQueue(), 2000

    def call():
        for _ in range(count):
            broker.end(broker.start(None, True), {}, False)

    threads = [threading.Thread(target=call) for _ in range(2)]
    for thread in threads:
        thread.start()
    for _ in range(50):
        requests = queue.SimpleQueue()
        broker.attach_queue(requests)
    for thread in threads:
        thread.join()
    assert requests.qsize() == 2 * count


@pytest.mark.parametrize("recurrent", [False, True])
def test_episodes_in_which_nobody_acts_leave_nothing(trainers, recurrent):
    def play(env):
        for _ in range(10):
            empty = env.start_episode()
            env.log_returns(empty, 1.0)
            env.end_episode(empty, number(0))
        three_steps(env)

    model = {"fcnet_hiddens": [4], "use_lstm": recurrent, "lstm_cell_size": 3}
    worker = trainers(play=forever(play), cls=PGTrainer, model=model, rollout_fragment_length=6).workers.local_worker()
    for _ in range(5):
        worker.sample()
        assert len(worker.get_metrics()) == 2
    runner = worker.runner
    (collector,) = runner.rows.by_policy.values()
    assert max(len(kept) for kept in (runner.rows.running, runner.rows.names, runner.rows.over, runner._indices)) <= 2
    assert collector.num_indices <= 2


@pytest.mark.parametrize("stubborn", [False, True])
def test_threads_end_with_the_trainer(stubborn):
    def play(env):
        while True:
            try:
                three_steps(env)
            except Exception:
                if not stubborn:
                    raise

    trainer = make(play=play)
    env = trainer.workers.local_worker().env
    assert not env.is_alive()
    trainer.train()
    assert env.is_alive()
    trainer.stop()
    assert not env.is_alive()
    with pytest.raises(TrainingStopped):
        env.start_episode()


def test_evaluation_counts_episodes_of_its_own(trainers):
    trainer = trainers(ExternalCartPole, evaluation_interval=1, evaluation_num_episodes=3, learning_starts=10)
    for _ in range(2):
        assert trainer.train()["evaluation"]["episodes_this_iter"] == 3


def test_a_checkpoint_leaves_out_the_simulators_place(trainers, tmp_path):
    one, two = (trainers(ExternalCartPole, learning_starts=10, timesteps_per_iteration=50) for _ in range(2))
    one.train()
    two.restore(one.save(str(tmp_path)))
    for name, array in one.get_weights()["default_policy"].items():
        np.testing.assert_array_equal(two.get_weights()["default_policy"][name], array)
    assert two.train()["timesteps_total"] > one.iteration * 50


def test_one_simulator_gives_the_same_run_each_time(trainers):
    config = {"train_batch_size": 200, "sgd_minibatch_size": 50, "num_sgd_iter": 2}
    runs = [trainers(ExternalCartPole, PPOTrainer, **config) for _ in range(2)]
    one, two = ([trainer.train()["hist_stats"] for _ in range(2)] for trainer in runs)
    assert one == two


@pytest.mark.parametrize("config", [{}, {"threads": 3}, {"logged": 3}], ids=["one", "three at once", "logged"])
@pytest.mark.parametrize("cls", [DQNTrainer, PPOTrainer])
def test_registered_simulators_train(trainers, cls, config):
    register_env("external_cartpole", ExternalCartPole)
    ppo = {"train_batch_size": 200, "sgd_minibatch_size": 50} if cls is PPOTrainer else {"learning_starts": 20}
    trainer = trainers("external_cartpole", cls, env_config=config, num_envs_per_worker=2, **ppo)
    result = trainer.train()
    assert result["info"]["num_steps_trained"] > 0
    assert result["episodes_total"] > 0
