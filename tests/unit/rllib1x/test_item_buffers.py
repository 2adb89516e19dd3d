"""Replay buffers that programs derive from RLlib's: items stay whole, whatever rows they have."""

import collections
import random

import numpy as np
import pytest

from rlframe.agents.dqn import ApexTrainer, DQNTrainer, R2D2Trainer
from rlframe.data.sample_batch import MultiAgentBatch, SampleBatch
from rlframe.execution import replay_buffer as rllib
from rlframe.execution.buffers.multi_agent_replay_buffer import MultiAgentReplayBuffer
from rlframe.execution.buffers.replay_buffer import PrioritizedReplayBuffer
from rlframe.execution.train_ops import StoreToReplayBuffer, td_errors_by_policy
from rlframe.replay import per_policy
from rlframe.utils.errors import CheckpointError, ConfigError
from rlframe.utils.state_files import read_state, write_state


class EpisodeBuffer(rllib.LocalReplayBuffer):
    """A whole batch is an item, as in programs whose QMIX, VDN or MADDPG learn from episodes."""

    def __init__(self, num_shards=1, learning_starts=1000, capacity=10000, replay_batch_size=32):
        rllib.LocalReplayBuffer.__init__(self, num_shards, learning_starts, capacity, replay_batch_size)

    def add_batch(self, batch):
        batch = batch.copy()
        if isinstance(batch, SampleBatch):
            batch = MultiAgentBatch({"default_policy": batch}, batch.count)
        with self.add_batch_timer:
            for policy_id, episode in batch.policy_batches.items():
                weight = np.mean(episode["weights"]) if "weights" in episode else None
                self.replay_buffers[policy_id].add(episode, weight=weight)
        self.num_added += batch.count


class Dropping(EpisodeBuffer):
    """One with buffers of its own, and a `replay` of its own."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.replay_buffers = collections.defaultdict(lambda: Doubling(self.capacity))

    def replay(self):
        if self._fake_batch or self.num_added < self.replay_starts:
            return None
        first = next(iter(self.replay_buffers.values()))
        places = [random.randint(0, len(first._storage) - 1) for _ in range(self.replay_batch_size)]
        with self.replay_timer:
            return MultiAgentBatch({pid: b.sample(places) for pid, b in self.replay_buffers.items()}, len(places))


class Doubling(rllib.ReplayBuffer):
    def sample(self, idxes):
        self._num_sampled += len(idxes)
        return self._encode_sample(idxes)

    def _encode_sample(self, idxes):
        batch = super()._encode_sample(idxes)
        batch["rewards"] = 2 * batch["rewards"]
        return batch


class StochasticEviction(rllib.PrioritizedReplayBuffer):
    """Its `add` is written with what RLlib's buffer had inside."""

    def add(self, item, weight):
        place = self._next_idx
        self._num_timesteps_added += item.count
        if not self._eviction_started:
            self._storage.append(item)
            self._est_size_bytes += item.size_bytes()
            self._next_idx += 1
        else:
            self._storage[place] = item
            self._num_timesteps_added_wrap += 1
        if self._next_idx >= 3 or self._eviction_started:
            self._eviction_started = True
            self._next_idx = int(np.argmin([self._it_sum[i] for i in range(len(self._storage))]))
            self._evicted_hit_stats.push(self._hit_count[self._next_idx])
        self._it_sum[place] = self._it_min[place] = (self._max_priority if weight is None else weight) ** self._alpha


def episode(number, length, **more):
    obs = (100 * number + np.arange(length, dtype=np.float32))[:, None]
    rewards, infos = np.full(length, number, np.float32), np.array([{"number": number}] * length)
    return SampleBatch(obs=obs, rewards=rewards, infos=infos, eps_id=np.full(length, number), **more)


def filled(make=EpisodeBuffer, lengths=(3, 5, 2), **kwargs):
    random.seed(3)
    buffer = make(**{"learning_starts": 0, "replay_batch_size": 4, **kwargs})
    for number, length in enumerate(lengths):
        StoreToReplayBuffer(local_buffer=buffer)(episode(number, length))
    return buffer


def are_whole(batch, lengths):
    rows, position = batch["obs"][:, 0], 0
    while position < len(rows):
        number = int(rows[position] // 100)
        expected = 100 * number + np.arange(lengths[number])
        if not np.array_equal(rows[position : position + lengths[number]], expected):
            return False
        position += lengths[number]
    return position == len(rows)


@pytest.mark.parametrize("make", [EpisodeBuffer])
def test_items_are_drawn_whole_and_in_order(make):
    lengths = (3, 5, 2)
    buffer = filled(make, lengths)
    for _ in range(20):
        replayed = buffer.replay()
        assert replayed.count == 4
        batch = replayed.policy_batches["default_policy"]
        assert are_whole(batch, lengths)
        assert [info["number"] for info in batch["infos"]] == batch["eps_id"].tolist()
    assert buffer.num_added == 10
    assert len(buffer.replay_buffers["default_policy"]) == 3
    assert buffer.stats()["policy_default_policy"]["num_entries"] == 3


def test_a_class_that_nobody_derives_from_is_the_buffer_of_arrays():
    buffer = rllib.LocalReplayBuffer(num_shards=1, learning_starts=0, buffer_size=20, replay_batch_size=4)
    assert type(buffer) is per_policy.LocalReplayBuffer
    assert isinstance(buffer, rllib.LocalReplayBuffer)
    assert isinstance(filled(), rllib.LocalReplayBuffer)
    assert MultiAgentReplayBuffer is rllib.LocalReplayBuffer
    assert rllib.LocalReplayBuffer.get_instance_for_testing() is not None


def test_all_rows_of_an_item_have_its_weight_and_index():
    buffer = PrioritizedReplayBuffer(100, alpha=1.0)
    buffer.add(episode(0, 3), 1.0)
    buffer.add(episode(1, 2), 4.0)
    batch = buffer.sample(40, beta=1.0)
    assert are_whole(batch, (3, 2))
    of_first = batch["eps_id"] == 0
    assert np.array_equal(batch["batch_indexes"], batch["eps_id"])
    assert np.allclose(batch["weights"], np.where(of_first, 1.0, 0.25))
    buffer.update_priorities([0, 0, 0, 1, 1], [5, 5, 8, 2, 2])
    assert [buffer._it_sum[0], buffer._it_sum[1], buffer._max_priority] == [8, 2, 8]
    with pytest.raises(ValueError, match="finite and above 0; got nan"):
        buffer.update_priorities([0], [float("nan")])


def test_capacity_counts_rows_and_the_oldest_items_leave():
    buffer = rllib.PrioritizedReplayBuffer(10, alpha=1.0)
    for number in range(5):
        buffer.add(episode(number, 2), None)
    for number in range(5, 8):
        buffer.add(episode(number, 5), None)
    kept = [int(item["eps_id"][0]) for item in buffer._storage]
    assert kept == [7, 6]
    assert buffer._it_sum.sum() == 2
    assert buffer._est_size_bytes == sum(item.size_bytes() for item in buffer._storage)


def test_a_programs_own_buffers_draw_by_its_own_code():
    buffer = filled(Dropping)
    batch = buffer.replay().policy_batches["default_policy"]
    assert are_whole(batch, (3, 5, 2))
    assert np.array_equal(batch["rewards"], 2 * batch["eps_id"])


def test_an_add_of_a_programs_own_finds_what_rllibs_buffer_had():
    buffer = StochasticEviction(100, 1.0)
    for number, weight in enumerate((3.0, 1.0, 2.0, 9.0, 9.0)):
        buffer.add(episode(number, 2 + number), weight)
    assert sorted(int(item["eps_id"][0]) for item in buffer._storage) == [0, 3, 4]
    assert are_whole(buffer.sample(8, beta=0.4), (2, 3, 4, 5, 6))


@pytest.mark.parametrize(("make", "more"), [(EpisodeBuffer, {}), (Dropping, {}), (EpisodeBuffer, {"other": True})])
def test_a_checkpoint_holds_items_and_draws(make, more, tmp_path):
    buffer = filled(make, (3, 5, 2, 4))
    if more:
        buffer.add_batch(episode(4, 6, other=np.zeros(6, np.int8)))
    write_state(tmp_path / "state", buffer.get_state())
    again = make(learning_starts=0, replay_batch_size=4)
    again.set_state(read_state(tmp_path / "state")[0])
    assert again.num_added == buffer.num_added
    ours, theirs = (each.replay_buffers["default_policy"] for each in (buffer, again))
    assert [item.count for item in theirs._storage] == [item.count for item in ours._storage]
    assert ours.stats() == theirs.stats()
    if more:
        return
    random.seed(1)
    expected = buffer.replay().policy_batches["default_policy"]
    random.seed(1)
    got = again.replay().policy_batches["default_policy"]
    assert expected.keys() == got.keys()
    assert all(np.array_equal(expected[key], got[key]) for key in expected)


def test_joint_items_of_several_policies_are_saved(tmp_path):
    class Joint(rllib.LocalReplayBuffer):
        pass

    def make():
        return Joint(learning_starts=0, replay_batch_size=3, replay_mode="lockstep")

    steps = {"t": np.arange(4), "agent_index": np.zeros(4, int)}
    buffer = make()
    buffer.add_batch(MultiAgentBatch({"a": episode(1, 4, **steps), "b": episode(1, 4, **steps)}, 4))
    replayed = buffer.replay()
    assert replayed.policy_batches["a"]["t"].tolist() == replayed.policy_batches["b"]["t"].tolist()
    write_state(tmp_path / "state", buffer.get_state())
    again = make()
    again.set_state(read_state(tmp_path / "state")[0])
    assert np.array_equal(buffer.replay().policy_batches["b"]["obs"], again.replay().policy_batches["b"]["obs"])


def test_states_that_do_not_fit_are_refused():
    of_rows = rllib.LocalReplayBuffer(num_shards=1, learning_starts=0)
    with pytest.raises(CheckpointError, match="holds rows, this one, a EpisodeBuffer, items; go on without"):
        filled().set_state(of_rows.get_state())
    with pytest.raises(CheckpointError, match="capacity 10000, this one 50; set it to 10000, or go on without"):
        filled(capacity=50).set_state(filled().get_state())
    buffer = filled()
    buffer.replay_buffers["other"] = object()
    with pytest.raises(ValueError, match=r"is a object, which has no get_state.*store_buffer_in_checkpoints: False"):
        buffer.get_state()


@pytest.mark.parametrize("length", [0, 5])
def test_td_errors_of_sequences_find_their_items(length):
    class Sequences(rllib.LocalReplayBuffer):
        def _items_of(self, rows):
            items = super()._items_of(rows)
            return [item.right_zero_pad(length) for item in items] if length else items

    buffer = Sequences(learning_starts=0, replay_batch_size=20, replay_sequence_length=5)
    rows = episode(1, 8, state_in_0=np.ones((2, 1), np.float32), seq_lens=np.array([3, 5]))
    del rows["infos"]
    buffer.add_batch(rows)
    batch = buffer.replay()
    lens = batch.policy_batches["default_policy"]["seq_lens"]
    assert len(lens) == 4
    td_errors = np.where(lens == 3, 0.5, 2.0)
    (places, errors) = td_errors_by_policy(batch, {"default_policy": {"td_error": td_errors}})["default_policy"]
    assert np.array_equal(np.asarray(places) == 0, lens == 3)
    buffer.update_priorities({"default_policy": (places, errors)})


class Counting(rllib.LocalReplayBuffer):
    def __init__(self, *args, bonus=1, **kwargs):
        super().__init__(*args, **kwargs)
        self.bonus, self.batches = bonus, 0

    def add_batch(self, batch):
        self.batches += 1
        super().add_batch(batch)


def dqn_with(kind, **options):
    config = {"type": kind, "capacity": 500, **options}
    few = {"num_workers": 0, "min_iter_time_s": 0, "timesteps_per_iteration": 40, "learning_starts": 20, "seed": 0}
    return DQNTrainer({**few, "replay_buffer_config": config}, env="CartPole-v1")


@pytest.mark.parametrize("kind", [Counting, f"{__name__}.Counting"], ids=["class", "path"])
def test_a_config_names_a_buffer_of_the_programs_own(kind, tmp_path):
    trainer, twin = (dqn_with(kind, bonus=3) for _ in range(2))
    assert trainer.train()["info"]["num_steps_trained"] > 0
    buffer = trainer.local_replay_buffer
    assert (type(buffer), buffer.bonus, buffer.capacity, buffer.replay_batch_size) == (Counting, 3, 500, 32)
    assert buffer.batches > 0
    twin.restore(trainer.save(str(tmp_path)))
    assert twin.local_replay_buffer.num_added == buffer.num_added


def test_rllibs_own_class_in_a_config_is_the_buffer_of_arrays():
    assert type(dqn_with(rllib.LocalReplayBuffer).local_replay_buffer) is per_policy.LocalReplayBuffer


def test_a_class_that_cannot_serve_is_named():
    with pytest.raises(ConfigError, match=r"got Nothing, which has no add_batch\(\) and replay\(\); derive it from"):
        dqn_with(type("Nothing", (), {}))
    shards = {"num_workers": 0, "replay_buffer_config": {"type": Counting, "capacity": 500}}
    with pytest.raises(ConfigError, match="rows are in shards here, which are made by the plan; leave it out"):
        ApexTrainer(shards, env="CartPole-v1")


def test_a_buffer_of_the_programs_own_cuts_sequences_as_the_config_says():
    config = {"num_workers": 0, "replay_buffer_config": {"type": Counting, "capacity": 500}, "burn_in": 2}
    model = {"max_seq_len": 6, "use_lstm": True, "lstm_cell_size": 4}
    buffer = R2D2Trainer({**config, "model": model}, env="CartPole-v1").local_replay_buffer
    assert (buffer.replay_sequence_length, buffer.replay_burn_in) == (8, 2)


def test_an_option_that_a_buffer_of_the_programs_own_does_not_take_is_named():
    with pytest.raises(ConfigError, match=r"EpisodeBuffer has no option 'bonus' \(value 3\): it takes"):
        dqn_with(EpisodeBuffer, bonus=3)


def test_the_modules_of_rllib_1_13_have_both_buffers():
    from rlframe.execution.buffers import prioritized_replay_buffer, replay_buffer

    assert replay_buffer.ReplayBuffer is rllib.ReplayBuffer
    assert replay_buffer.PrioritizedReplayBuffer is prioritized_replay_buffer.PrioritizedReplayBuffer
    assert replay_buffer.PrioritizedReplayBuffer is rllib.PrioritizedReplayBuffer


def test_nothing_drawn_of_an_empty_buffer_is_an_empty_batch():
    nothing = rllib.ReplayBuffer(10).sample(0)
    assert nothing.count == 0
    assert SampleBatch({"obs": np.zeros((3, 2))}).concat(nothing).count == 3
