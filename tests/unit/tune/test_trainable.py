"""Trainables with the method names of Ray 0.8, and what Ray 1.x expected of them."""

import json
import pickle
from pathlib import Path

from ray.tune import PlacementGroupFactory

from rlframe.tune import Trainable
from rlframe.tune.logger import JsonLogger
from rlframe.tune.resources import Resources


class Counter(Trainable):
    def _setup(self, config):
        self.count = config["start"]

    def _train(self):
        self.count += 1
        return {"count": self.count}

    def _save(self, checkpoint_dir):
        return {"count": self.count}

    def _restore(self, checkpoint):
        self.count = checkpoint["count"]


class Stopping(Counter):
    def _stop(self):
        self.count = -1


def test_methods_may_have_the_names_of_ray_08(tmp_path):
    first, second = Counter({"start": 3}), Stopping({"start": 0})
    assert first.train()["count"] == 4
    second.restore(first.save(str(tmp_path)))
    result = second.train()
    assert (result["count"], result["training_iteration"]) == (5, 2)
    assert result["experiment_id"] == first.experiment_id  # it is the same run
    second.stop()
    assert second.count == -1


def test_what_a_trainable_requests_in_the_way_of_ray_1_is_what_todays_tune_reserves():
    class Workers(Counter):
        @classmethod
        def default_resource_request(cls, config):
            return Resources(
                cpu=2, gpu=0, memory=7, extra_cpu=config["workers"], extra_memory=6, extra_custom_resources={"arm": 3}
            )

    requested = Workers.default_resource_request({"workers": 1})
    assert isinstance(requested, PlacementGroupFactory)
    assert requested.bundles == [{"CPU": 2.0, "memory": 7.0}, {"CPU": 1.0, "memory": 6.0, "arm": 3.0}]
    driverless = Resources(cpu=0, gpu=0, extra_cpu=1, extra_object_store_memory=9)
    assert (driverless.bundles, driverless.head_bundle_is_empty) == ([{"CPU": 1.0, "object_store_memory": 9.0}], True)
    assert requested == pickle.loads(pickle.dumps(requested)) != driverless


def test_resources_are_asked_for_by_the_path_of_ray_1():
    from rlframe.tune.utils.placement_groups import PlacementGroupFactory

    assert PlacementGroupFactory([{"CPU": 1}, {"CPU": 2}]).required_resources == {"CPU": 3}


def test_outside_of_tune_a_trainable_logs_by_what_logger_creator_makes(tmp_path):
    class Mine(Counter):
        def __init__(self, config=None, logger_creator=None):
            super().__init__(config, logger_creator)

    closed = []

    class Logger(JsonLogger):
        def close(self):
            super().close()
            closed.append(self.logdir)

    trainable = Mine({"start": 1}, lambda config: Logger(config, str(tmp_path / "mine")))
    assert trainable.logdir == str(tmp_path / "mine")
    trainable.train()
    assert json.loads((tmp_path / "mine" / "result.json").read_text())["count"] == 2
    trainable.stop()
    assert closed == [str(tmp_path / "mine")]


class Filed(Trainable):
    def setup(self, config):
        self.seen = None

    def step(self):
        return {"timesteps_this_iter": 7}

    def save_checkpoint(self, checkpoint_dir):
        path = Path(checkpoint_dir, "model")
        path.write_text("weights")
        return str(path)

    def load_checkpoint(self, path):
        self.seen = Path(path).read_text()


def test_restoring_from_a_path_goes_on_with_the_counters(tmp_path):
    first, second = Filed(), Filed()
    first.train()
    first.train()
    path = first.save_checkpoint(str(tmp_path))
    assert path == str(tmp_path / "model")
    second.restore(str(tmp_path))
    assert second.seen == "weights"
    result = second.train()
    assert (result["training_iteration"], result["timesteps_total"]) == (3, 21)


def test_saving_returns_a_path_as_in_ray_1(tmp_path):
    first, second = Filed(), Filed()
    first.train()
    path = first.save(str(tmp_path))
    assert path == str(tmp_path / "checkpoint_000001" / "model")
    second.restore(path)
    assert (second.seen, second.iteration) == ("weights", 1)
    assert Counter({"start": 3}).save(str(tmp_path)) == str(tmp_path / "checkpoint_000000") + "/"
