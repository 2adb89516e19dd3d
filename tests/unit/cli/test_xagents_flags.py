"""xagents' flags do what they did there, or are answered with what to use."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from rlframe.agents.registry import ALGORITHMS
from rlframe.cli.flags import Flag
from rlframe.cli.live import QuietView
from rlframe.cli.main import app
from rlframe.cli.play_commands import _check_run
from rlframe.cli.run_directory import RunSpec
from rlframe.cli.stop import StopCriterion
from rlframe.cli.train_command import Request, make_spec
from rlframe.cli.tune_command import _domains
from rlframe.utils.errors import ConfigError

EVERY = {
    "n-envs": "2", "preprocess": None, "max-frame": None, "lr": "7e-4", "opt-epsilon": "1e-7", "beta1": "0.9",
    "beta2": "0.999", "weights": "w.tf", "gamma": "0.99", "reward-buffer-size": "50", "display-precision": "2",
    "seed": "1", "log-frequency": "4", "monitor-session": "x",
}  # fmt: skip
BUFFER = {"buffer-max-size": "5000", "buffer-initial-size": "500", "buffer-batch-size": "32"}
A2C = {"n-steps": "5", "entropy-coef": "0.01", "value-loss-coef": "0.5", "grad-norm": "0.5"}
PPO = {
    **A2C, "lam": "0.95", "ppo-epochs": "4", "mini-batches": "4", "advantage-epsilon": "1e-8", "clip-norm": "0.1",
}  # fmt: skip
DDPG = {**BUFFER, "gradient-steps": "10", "tau": "0.005", "step-noise-coef": "0.1"}
#: The flags of each agent but for networks, which are files.
AGENTS = {
    "a2c": A2C,
    "acer": {
        **A2C, **BUFFER, "ema-alpha": "0.99", "replay-ratio": "4", "epsilon": "1e-6", "importance-c": "10",
        "delta": "1", "trust-region": None,
    },
    "ppo": PPO,
    "trpo": {
        **PPO, "max-kl": "1e-3", "cg-iterations": "10", "cg-residual-tolerance": "1e-10", "cg-damping": "1e-3",
        "actor-iterations": "10", "critic-iterations": "3", "fvp-n-steps": "5",
    },
    "dqn": {
        **BUFFER, "double": None, "epsilon-start": "1.0", "epsilon-end": "0.02", "epsilon-decay-steps": "150000",
        "target-sync-steps": "1000",
    },
    "ddpg": DDPG,
    "td3": {**DDPG, "policy-delay": "2", "policy-noise-coef": "0.2", "noise-clip": "0.5"},
}  # fmt: skip
#: Flags that no algorithm here has, and those that some have not.
ANSWERED = {
    "preprocess", "max-frame", "beta1", "beta2", "weights", "display-precision", "log-frequency", "monitor-session",
    "advantage-epsilon", "gradient-steps",
}  # fmt: skip
NOT_EVERYWHERE = {"opt-epsilon", "clip-norm", "ppo-epochs", "value-loss-coef"}


def spec(algorithm, *flags):
    request = Request(algorithm, "CartPole-v1", None, [Flag(*flag) for flag in flags], StopCriterion())
    return make_spec(request).config


def answer(algorithm, flag):
    """Returns what is said to a flag; None where it is taken."""
    try:
        return None if spec(algorithm, flag) else "taken, and forgotten"
    except ConfigError as error:
        return str(error)


@pytest.mark.parametrize("agent", [name for name in AGENTS if name.upper() in ALGORITHMS])
def test_each_flag_works_or_says_what_to_use(agent):
    said = {name: answer(agent, (name, value)) for name, value in {**EVERY, **AGENTS[agent]}.items()}
    answers = {name: text for name, text in said.items() if text is not None}
    assert ANSWERED & set(said) <= set(answers) <= ANSWERED | NOT_EVERYWHERE
    for name, text in answers.items():
        assert text.startswith(f"--{name}: ")
        assert "no such option" not in text
        assert "\n" not in text


def test_a_command_line_of_xagents_says_the_same_here():
    assert spec("dqn", ("buffer-max-size", "5000"), ("double", None), ("epsilon-decay-steps", "9000")) == {
        "replay_buffer_config": {"capacity": 5000},
        "double_q": True,
        "exploration_config": {"epsilon_timesteps": 9000},
    }
    td3 = spec("ddpg", ("lr", "1e-4"), ("step-noise-coef", "0.2"))
    assert td3 == {
        "actor_lr": 1e-4, "critic_lr": 1e-4, "exploration_config": {"type": "GaussianNoise", "stddev": 0.2},
    }  # fmt: skip
    ppo = spec("ppo", ("n-envs", "16"), ("n-steps", "128"), ("mini-batches", "4"), ("lam", "0.9"), ("num-workers", "0"))
    assert ppo["train_batch_size"] == 2048
    assert ppo["sgd_minibatch_size"] == 512
    assert ppo["lambda"] == 0.9
    with pytest.raises(ConfigError, match="--mini-batches: got none, wanted a whole number"):
        spec("ppo", ("mini-batches", "none"))


def test_play_takes_a_run_as_weights_and_checks_whose_it_is(tmp_path):
    for arguments, said in (
        (["ppo", "--weights", str(tmp_path / "none")], "there is no directory"),
        (["ppo", "--weights", str(tmp_path), "--action-idx", "1"], "--action-idx"),
    ):
        result = CliRunner().invoke(app, ["play", *arguments])
        assert result.exit_code == 2
        assert said in result.stderr
    run = RunSpec("PPO", "CartPole-v1")
    _check_run(run, Path("ppo"), "CartPole-v1")
    with pytest.raises(ConfigError, match="a run of PPO; got dqn"):
        _check_run(run, Path("dqn"), None)
    with pytest.raises(ConfigError, match="on CartPole-v1: leave it out"):
        _check_run(run, None, "Acrobot-v1")


def test_a_quiet_run_shows_nothing(capsys):
    with QuietView("title", StopCriterion(), None) as view:
        view.update(None, {})
        view.say("text")
    assert capsys.readouterr().out == ""


def test_searches_take_the_names_as_well():
    found = _domains([Flag("entropy-coef", "0", ("0.1",)), Flag("ppo-epochs", "2", ("4", "8"))], "PPO", {})
    assert [(domain.key, domain.values) for domain in found] == [
        ("entropy_coeff", (0, 0.1)),
        ("num_sgd_iter", (2, 4, 8)),
    ]
    with pytest.raises(ConfigError, match="--mini-batches: a search tries rows of a minibatch"):
        _domains([Flag("mini-batches", "4")], "PPO", {})
    with pytest.raises(ConfigError, match="--lr: actor and critic have rates of their own"):
        _domains([Flag("lr", "1e-4", ("1e-3",))], "TD3", {})
