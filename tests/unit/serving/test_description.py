"""How a client is told to act by itself: messages that name what is not there."""

import pytest

from rlframe.agents.ppo import PPOTrainer
from rlframe.serving.description import describe_worker, recipe_of
from rlframe.utils.errors import DataError


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("rlframe.nowhere:gae", "wanted a function of rlframe .* or the server's version of rlframe"),
        ("rlframe.evaluation.postprocessing:nothing", "wanted a function of rlframe that postprocesses"),
        ("os:system", "wanted a function of rlframe that postprocesses"),
    ],
)
def test_functions_that_this_version_has_not_are_refused_in_a_sentence(path, said):
    trainer = PPOTrainer({"env": "CartPole-v1", "num_workers": 0})
    (described,) = describe_worker(trainer.workers.local_worker())["policies"].values()
    assert callable(recipe_of(described).postprocess)
    with pytest.raises(DataError, match=f"got '{path}', {said}"):
        recipe_of({**described, "postprocess": path})
    trainer.stop()
