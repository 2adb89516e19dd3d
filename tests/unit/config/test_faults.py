import pytest

from rlframe.agents.registry import get_trainer_class
from rlframe.agents.sac.sac import SACConfig
from rlframe.config.faults import _STABLE_BASELINES, Fault, fault_list, got, near_choice, nearest_keys, shorten
from rlframe.utils.errors import ConfigError


class Rude:
    def __repr__(self) -> str:
        raise RuntimeError("no")


def test_fault_list_counts_and_shows_each_line_once() -> None:
    one = Fault("a.b", "got 1 (int), wanted 2", ("a.c",))
    assert str(one) == "a.b: got 1 (int), wanted 2; did you mean a.c?"
    assert fault_list([one, one]) == f"1 fault in the config:\n  {one}"
    assert fault_list([one, Fault("", "x needs y")]) == f"2 faults in the config:\n  {one}\n  x needs y"


def test_fault_below_a_section_moves_key_and_suggestions() -> None:
    assert str(Fault("b", "unknown key", ("c",)).below("a")) == "a.b: unknown key; did you mean a.c?"
    assert str(Fault("", "x needs y").below("a")) == "a: x needs y"


@pytest.mark.parametrize(
    ("key", "nearest"),
    [
        ("lrr", "lr"), ("rl", "lr"), ("gama", "gamma"), ("gmama", "gamma"), ("LR", "lr"), ("model.lr", "lr"),
        ("model.gama", "gamma"), ("dim", "model.dim"), ("batch_size_train", "train_batch_size"),
    ],
)  # fmt: skip
def test_nearest_keys_begins_with_the_one_meant(key: str, nearest: str) -> None:
    assert nearest_keys(key, {"lr", "gamma", "model.dim", "model.hidden", "train_batch_size"})[0] == nearest


def test_nearest_keys_of_something_far_is_empty() -> None:
    assert nearest_keys("xyzzy", {"lr", "gamma"}) == ()


def test_nearest_keys_prefers_the_same_section_and_shows_ties() -> None:
    known = {"num_cpus_per_worker", "num_gpus_per_worker", "model.dim", "dim"}
    assert nearest_keys("num_xpus_per_worker", known) == ("num_cpus_per_worker", "num_gpus_per_worker")
    assert nearest_keys("model.dym", known)[0] == "model.dim"


def test_shorten_survives_long_and_rude_objects() -> None:
    assert len(shorten(list(range(1000)))) == 60
    assert shorten("a\n  b") == "'a\\n b'"
    assert shorten(Rude()) == "<Rude object>"


def test_got_shows_the_type_where_the_value_does_not() -> None:
    assert (got(None), got(True), got(int), got("1")) == ("got None", "got True", "got <class 'int'>", "got '1' (str)")


def test_near_choice_of_no_string_is_empty() -> None:
    assert near_choice(3, ["a"]) == ""
    assert near_choice("aa", ["a", 3]) == "; did you mean 'a'?"


@pytest.mark.parametrize(
    ("algorithm", "theirs", "ours"),
    [
        ("PPO", "learning_rate", "lr"), ("PPO", "n_steps", "rollout_fragment_length"), ("PPO", "gae_lambda", "lambda"),
        ("PPO", "batch_size", "sgd_minibatch_size or train_batch_size"), ("DQN", "batch_size", "train_batch_size"),
        ("PPO", "ent_coef", "entropy_coeff"), ("PPO", "clip_range", "clip_param"), ("PPO", "vf_coef", "vf_loss_coeff"),
        ("PPO", "net_arch", "model.fcnet_hiddens"), ("PPO", "n_epochs", "num_sgd_iter"),
        ("PPO", "max_grad_norm", "grad_clip"), ("PPO", "target_kl", "kl_target"),
        ("PPO", "n_envs", "num_envs_per_worker"), ("DQN", "gradient_steps", "training_intensity"),
        ("DQN", "target_update_interval", "target_network_update_freq"),
        ("DQN", "exploration_initial_eps", "exploration_config.initial_epsilon"),
    ],
)  # fmt: skip
def test_keys_of_stable_baselines_are_answered_with_ours(algorithm: str, theirs: str, ours: str) -> None:
    trainer_class = get_trainer_class(algorithm)
    with pytest.raises(ConfigError, match=rf"{theirs}: unknown key; here it is called {ours}$"):
        trainer_class.merge_trainer_configs(trainer_class.get_default_config(), {theirs: 1})


def test_keys_of_stable_baselines_that_an_algorithm_lacks_are_named() -> None:
    with pytest.raises(ConfigError, match=r"ent_coef: unknown key; what it is called here, entropy_coeff, this algo"):
        get_trainer_class("DQN").merge_trainer_configs(get_trainer_class("DQN").get_default_config(), {"ent_coef": 0.1})


def test_every_name_for_a_key_of_stable_baselines_is_one_that_an_algorithm_has() -> None:
    known = set().union(*(get_trainer_class(name)._config_class.known_keys() for name in ("PPO", "DQN")))
    assert [name for names in _STABLE_BASELINES.values() for name in names if name not in known] == []


def test_a_key_like_no_other_in_a_section_is_told_what_the_section_takes():
    with pytest.raises(ConfigError, match=r"optimization.xyz: unknown key; optimization takes actor_learning_rate"):
        SACConfig.from_dict({"optimization": {"xyz": 1}})
