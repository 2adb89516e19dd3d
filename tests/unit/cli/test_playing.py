"""What is said when an environment fails while a policy is played back."""

from types import SimpleNamespace

import pytest
from gymnasium.error import DependencyNotInstalled

from rlframe.cli.evaluating import play
from rlframe.cli.play_options import PlayOptions
from rlframe.utils.errors import EnvError

NO_PYGAME = DependencyNotInstalled('pygame is not installed, run `pip install "gymnasium[classic-control]"`')
SAID = 'DependencyNotInstalled: pygame is not installed. It needs an extra package: pip install "rlframe[video]"'


class Failing:
    """Fails in one of its methods."""

    def __init__(self, where, error):
        self.where, self.error = where, error
        self.closed = False

    def _maybe(self, method):
        if method == self.where:
            raise self.error

    def reset(self, *, seed=None):
        self._maybe("reset")
        return 0, {}

    def step(self, action):
        self._maybe("step")
        return 0, 1.0, True, False, {}

    def render(self):
        self._maybe("render")

    def close(self):
        self.closed = True


@pytest.mark.parametrize(
    ("where", "error", "message"),
    [
        ("reset", NO_PYGAME, f"reset() of the environment raised {SAID}"),
        ("render", NO_PYGAME, f"the environment cannot be drawn: {SAID}"),
        ("step", KeyError("price"), "step() of the environment raised KeyError: 'price'"),
        ("reset", EnvError("its own"), "its own"),
    ],
)
def test_a_failing_environment_is_one_message(where, error, message, monkeypatch):
    env = Failing(where, error)
    monkeypatch.setattr("rlframe.cli.evaluating._make_env", lambda trainer, mode: env)
    trainer = SimpleNamespace(config={}, make_actor=lambda explore: SimpleNamespace(act=lambda *_: 0))
    with pytest.raises(EnvError) as said:
        list(play(trainer, 1, PlayOptions(render=True)))
    assert str(said.value) == message
    assert env.closed
