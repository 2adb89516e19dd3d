"""`rlframe train decentralized` and `rlframe tournament`, on a game of four moves."""

import json

import pytest
from PIL import Image
from typer.testing import CliRunner

from rlframe.cli.commands import app

GAME = "tests.unit.agents.test_decentralized:Duel"
ONE = "tests.unit.agents.test_decentralized:one"


def run(*words):
    return CliRunner().invoke(app, [str(word) for word in words])


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("game")
    settings = {
        "env": GAME, "seats": ["learner", "random"], "num_train_envs": 2, "num_test_envs": 2, "update_freq": 16,
        "test_freq": 8, "episodes_per_train": 8, "episodes_per_test": 2, "seed": 3,
        "players": {"learner": {"algorithm": "DQN", "config": {"model": {"fcnet_hiddens": [8]}, "learning_starts": 8,
                                "train_batch_size": 8, "rollout_fragment_length": 4}}},
    }  # fmt: skip
    (folder / "game.json").write_text(json.dumps(settings))
    made = run("train", "decentralized", "-f", folder / "game.json", "--run-dir", folder / "run", "--test-freq", 4)
    assert made.exit_code == 0, made.output
    return folder / "run", made.output


def test_players_learn_from_a_file_and_flags_and_go_on(trained):
    directory, told = trained
    assert "first: win" in told
    before = json.loads((directory / "result.json").read_text())
    assert (len(before["test_episodes"]), before["num_gradient_steps"] > 0) == (2, True)
    refused = run("train", "--resume", directory, "--episodes-per-train", 12)
    assert (refused.exit_code, GAME in refused.output) == (2, True)
    made = run("train", "--resume", directory, "--episodes-per-train", 12, "--trust")
    assert made.exit_code == 0, made.output
    after = json.loads((directory / "result.json").read_text())
    assert after["num_collected_episodes"] >= 12
    assert after["test_episodes"][:2] == before["test_episodes"]


def test_saved_players_meet_others_in_a_tournament(trained):
    saved = trained[0] / "players" / "learner" / "best"
    words = ["tournament", saved, "random", ONE, "--env", GAME, "--games", 4]
    table = json.loads(run(*words, "--json").output)
    assert set(table["ratings"]) == {str(saved), "random", ONE}
    assert sum(table["ratings"].values()) == pytest.approx(3000)
    assert table["games"][f"{ONE} vs {saved}"]["num_games"] == 4
    assert table == json.loads(run(*words, "--json").output)
    assert "4 games, 4.0 steps to a win, 0 illegal moves" in run(*words).output


@pytest.fixture(scope="module")
def mail(tmp_path_factory):
    run_dir = tmp_path_factory.mktemp("mail") / "run"
    made = run("train", "decentralized", "--seats", "[PPO, random]", "--env-args", "{max_step: 12}", "--seed", 1,
               "--num-train-envs", 2, "--num-test-envs", 2, "--episodes-per-train", 2, "--episodes-per-test", 2,
               "--run-dir", run_dir, "--quiet")  # fmt: skip
    assert made.exit_code == 0, made.output
    return run_dir


def test_a_game_is_kept_as_text_and_pictures(mail, tmp_path):
    for name in ("game.txt", "game.gif"):
        made = run("play", mail, "--replay", tmp_path / name)
        assert (made.exit_code, "12 steps" in made.output) == (0, True), made.output
    assert len((tmp_path / "game.txt").read_text().split("\n\n")) >= 13
    with Image.open(tmp_path / "game.gif") as picture:
        assert picture.n_frames > 1


def test_a_person_sits_down_against_a_saved_player(mail):
    answers = "\n".join(["9", *["0", "1", "2", "3", "4"] * 40])
    made = CliRunner().invoke(app, ["play", str(mail), "--against-me", "--seat", "1"], input=answers)
    assert (made.exit_code, "12 steps" in made.output) == (0, True), made.output
    assert "you, your action (" in made.output
    assert "got '9', wanted one of" in made.output


def test_a_person_is_shown_observations_of_a_game_that_draws_no_text(trained):
    answers = "\n".join(["0", "1"])
    made = CliRunner().invoke(app, ["play", str(trained[0]), "--against-me", "--seat", "1", "--trust"], input=answers)
    assert (made.exit_code, "4 steps" in made.output) == (0, True), made.output
    assert "'observation': array([1.]" in made.output


@pytest.mark.filterwarnings("ignore")  # what PettingZoo says of its own future
def test_a_replay_that_a_game_cannot_draw_is_refused_with_what_it_can(tmp_path):
    pytest.importorskip("pettingzoo", reason="PettingZoo is not installed: pip install 'rlframe[multiagent]'")
    settings = {"env": "pettingzoo.classic.tictactoe_v3:env", "seats": ["random", "random"], "seed": 0}
    (tmp_path / "game.json").write_text(json.dumps(settings))
    made = run("play", tmp_path, "--replay", tmp_path / "game.txt", "--trust")
    assert (made.exit_code, "wanted a file that ends in .gif, .mp4" in made.output) == (2, True), made.output


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--replay", "game.avi"], "wanted a file that ends in .txt, .gif, .mp4"),
        (["--against-me", "--seat", "2"], "--seat: got 2, wanted 0 to 1"),
        (["--against-me", "--replay", "game.gif"], "kept as text alone"),
        (["--render"], "--replay FILE draws it"),
    ],
)
def test_games_that_cannot_be_shown_so_are_refused(mail, words, said):
    made = run("play", mail, *words)
    assert (made.exit_code, said in made.output) == (2, True), made.output


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["train", "decentralized", "--env", GAME], "seats: got None, wanted a list"),
        (
            ["train", "decentralized", "--seats", "[PPO, random]", "--games-in-all", "3"],
            "got the settings games_in_all",
        ),
        (["train", "decentralized", "--seats", "[PPO, random]", "--preset"], "does not take --preset"),
        (["tournament", "random", "runs/nobody", "--env", GAME], "there is no saved player in runs/nobody"),
        (["tournament", "random", "--env", GAME], "wanted two or more players"),
        (["tournament", "random", ONE, "--env-args", "3"], "--env-args: got 3, wanted a dict"),
    ],
)
def test_what_a_command_line_got_wrong_is_said_in_a_sentence(words, said):
    made = run(*words)
    assert (made.exit_code, said in made.output) == (2, True), made.output


def test_a_game_that_is_refused_leaves_no_run_and_a_run_is_no_player(trained, tmp_path):
    words = ["train", "decentralized", "--env", GAME, "--run-dir", tmp_path / "run", "--quiet"]
    for more, said in (
        (["--seats", "[PPO]"], "wanted a Player for each of the 2 seats"),
        (["--seats", "[PPO, random]", "--learning-mask", "[0, 0]"], "got no 1"),
        (["--seats", "[SAC, random]"], "SAC"),
    ):
        made = run(*words, *more)
        assert (made.exit_code, said in made.output) == (2, True), made.output
        assert not (tmp_path / "run").exists()
    few = ["--episodes-per-train", 2, "--num-train-envs", 1, "--num-test-envs", 1, "--episodes-per-test", 1]
    made = run(*words, *few, "--seats", "[PPO, random]", "--plot", "false")
    assert made.exit_code == 0, made.output
    assert not list((tmp_path / "run").rglob("*.png"))
    made = run("tournament", trained[0], "random", "--env", GAME)
    assert made.exit_code == 2
    assert "is a run, wanted one of its players: " in made.output
    assert "players/learner/best" in made.output


def test_help_lists_the_settings_of_a_game():
    assert "--learning-mask" in run("train", "decentralized", "--help").output
