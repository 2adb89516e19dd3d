"""Trainables with the method names of Ray 0.8."""

from rlframe.tune import Trainable


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
    assert second.train()["count"] == 5
    second.stop()
    assert second.count == -1


def test_resources_are_asked_for_by_the_path_of_ray_1():
    from rlframe.tune.utils.placement_groups import PlacementGroupFactory

    assert PlacementGroupFactory([{"CPU": 1}, {"CPU": 2}]).required_resources == {"CPU": 3}
