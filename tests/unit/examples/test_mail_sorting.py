"""The mail-sorting game: PettingZoo's contract, its rules worked by hand, and boards that cannot be."""

import os
import subprocess
import sys
import warnings

import numpy as np
import pytest

pytest.importorskip("pettingzoo", reason="PettingZoo is not installed: pip install 'rlframe[multiagent]'")

from rlframe.examples.env.mail_sorting import ACTIONS, Board, MailSorting
from rlframe.utils.errors import EnvError
from tests.helpers.frameworks import needs_tf

STAY, FORWARD, BACK, LEFT, RIGHT = range(5)
# One row of cells that matter: start, pick-up, floor, target of mail 3; a charger below the floor.
COLOURS = [["w", "g", "gr", "y"], ["gr", "gr", "b", "gr"], ["gr"] * 4, ["w", "gr", "gr", "gr"]]
TARGETS = [[0, 0, 0, 3], [0] * 4, [0] * 4, [0] * 4]


def game(**options):
    made = MailSorting(board=Board(COLOURS, TARGETS), num_players=2, **options)
    made.reset(seed=1)
    made.occupied[:] = False  # robot 0 in the upper left corner, robot 1 in the lower
    made.cells[:] = [0, 12]
    made.occupied[[0, 12]] = True
    made._describe(0)
    made._describe(1)
    return made


def play(made, first, second=STAY):
    """Lets both robots act; returns the first one's reward."""
    made.step(first)
    reward = made.rewards["player_1_robot_1"]
    if not made.terminations["player_1_robot_1"]:
        made.step(second)
    return reward


@pytest.mark.parametrize("options", [{}, {"with_battery": True, "robots_per_player": 2, "random_moves": True}])
def test_the_game_passes_pettingzoos_test(options, capsys):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from pettingzoo.test import api_test

        api_test(MailSorting(**options), num_cycles=300)
    assert "Passed" in capsys.readouterr().out


def test_a_robot_fetches_a_mail_and_wins_by_its_delivery():
    made = game(required_mail=1)
    assert made.mask(0).tolist() == [1, 0, 1, 0, 1]  # the board ends above and to the left
    assert play(made, LEFT) == -0.1
    assert made.cells[0] == 0
    assert play(made, RIGHT) == 1.0
    assert made.mails[0] == 3
    np.testing.assert_allclose(made.observe("player_1_robot_1")["observation"], [1 / 3, 0, 1 / 3, 0, 1, 0])
    np.testing.assert_allclose(made.observe("player_2_robot_1")["observation"], [0, 1, 0, 1 / 3, 0, 1 / 3])
    assert play(made, RIGHT) == -0.1
    assert made.mask(0).tolist() == [1, 0, 0, 0, 1]  # the pick-up cell takes nobody with a mail, no battery: no charger
    assert play(made, RIGHT) == 5.0
    assert made.winner == 1
    assert all(made.terminations.values())
    assert not any(made.truncations.values())


def test_only_the_right_mail_enters_a_target_and_robots_do_not_share_cells():
    made = game()
    made.cells[0] = 2
    assert made.mask(0)[RIGHT] == 0
    made.mails[0] = 3
    assert made.mask(0)[RIGHT] == 1
    made.occupied[3] = True
    assert made.mask(0)[RIGHT] == 0


def test_a_robot_stands_five_times_in_a_row():
    made = game()
    for _ in range(5):
        assert made.mask(0)[STAY] == 1
        play(made, STAY, [RIGHT, LEFT][made.steps // 2 % 2])
    assert made.mask(0)[STAY] == 0
    made.occupied[[1, 4]] = True  # shut in: then staying is all there is
    assert made.mask(0).tolist() == [1, 0, 0, 0, 0]


def test_batteries_drain_and_are_charged():
    made = game(with_battery=True)
    made.cells[0], made.batteries[0] = 2, 4.1
    assert made.mask(0)[BACK] == 0
    made.batteries[0] = 4.0
    assert made.mask(0)[BACK] == 1
    assert play(made, BACK, RIGHT) == 1.0
    assert made.batteries[0] == pytest.approx(4.0 - 0.2 + 1.0)  # its own move, and the other's beside it
    assert made.batteries[1] == pytest.approx(9.8)
    assert made.mask(0).tolist() == [1, 0, 0, 0, 0]
    assert play(made, STAY, LEFT) == 0.0
    assert made.batteries[0] == pytest.approx(6.8)
    play(made, STAY, RIGHT)
    assert made.mask(0)[FORWARD] == 1
    made.cells[1], made.batteries[1] = 12, 2.0
    made.step(FORWARD)
    made.step(FORWARD)
    assert made.batteries[1] == pytest.approx(1.9)
    made.batteries[0] = 0.0
    assert made.mask(0).tolist() == [1, 0, 0, 0, 0]


def test_the_game_is_cut_off_after_max_step_moves():
    made = game(max_step=2)
    play(made, RIGHT, RIGHT)
    assert all(made.truncations.values())
    assert not any(made.terminations.values())


def test_cells_between_closed_ones_are_for_their_mail_alone():
    colours = [["w", "y", "w"], ["g", "gr", "y"], ["w", "w", "w"]]
    targets = [[0, 1, 0], [0, 0, 2], [0, 0, 0]]
    board = Board(colours, targets)
    assert [bool(board.allowed[mail, 7, FORWARD]) for mail in (0, 1, 2, 3)] == [False, True, True, False]


def test_the_game_is_shown_as_text_and_as_a_picture():
    made = game(render_mode="ansi")
    assert made.render().splitlines()[0].split() == ["A", "g", ".", "3"]
    picture = game(render_mode="rgb_array").render()
    assert picture.shape == (160, 160, 3)
    assert len(np.unique(picture.reshape(-1, 3), axis=0)) > 5
    assert len(ACTIONS) == 5


_IN_A_WINDOW = """
import sys
import numpy as np
import pygame

if sys.argv[1] == "tensorflow":
    import rlframe.utils.quiet_tf
from rlframe.examples.env.mail_sorting import MailSorting

made = MailSorting(num_players=1, render_mode="human")
made.reset(seed=0)
made.step(4)
shown = pygame.surfarray.array3d(pygame.display.get_surface()).swapaxes(0, 1)
made.render_mode = "rgb_array"
np.testing.assert_array_equal(shown, made.render())
made.close()
assert pygame.display.get_surface() is None
"""


@pytest.mark.parametrize("beside", ["", pytest.param("tensorflow", marks=needs_tf)])
def test_the_game_is_shown_in_a_window(beside):
    """In a process of its own: where a test has imported TensorFlow itself, opening a window would end it."""
    pytest.importorskip("pygame", reason="pygame is not installed: pip install 'rlframe[multiagent]'")
    env = {**os.environ, "SDL_VIDEODRIVER": "offscreen"}
    done = subprocess.run(
        [sys.executable, "-c", _IN_A_WINDOW, beside], env=env, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr


def test_the_same_seed_gives_the_same_game():
    first, second = MailSorting(num_players=3), MailSorting(num_players=3)
    for made in (first, second):
        made.reset(seed=7)
    assert first.cells.tolist() == second.cells.tolist()
    assert first.waiting_mails == second.waiting_mails


@pytest.mark.parametrize(
    ("colours", "targets", "said"),
    [
        (["w,g", "y"], ["0,0", "1,0"], "colour map has 1 fields in row 1, wanted 2"),
        (["w,g", "y,gr"], ["0,0"], "target map has 1 rows, wanted 2"),
        (["w,x", "y,g"], ["0,0", "1,0"], "'x' in row 0, column 1"),
        (["w,g", "y,gr"], ["0,0", "one,0"], "'one' in row 1, column 0; wanted an integer"),
        (["w,g", "y,gr"], ["0,0", "0,0"], "has 0 in row 1, column 0; wanted 1 to 9"),
        (["w,g", "y,gr"], ["0,2", "1,0"], "has 2 in row 0, column 1; wanted 0"),
        (["w,g,r", "gr,r,r", "r,r,y"], ["0,0,0", "0,0,0", "0,0,4"], "target of mail 4 cannot be reached"),
        (["w,w", "y,gr"], ["0,0", "1,0"], "0 pick-up cells"),
    ],
)
def test_a_faulty_board_is_refused_in_one_sentence(colours, targets, said, tmp_path):
    for name, rows in (("colours.csv", colours), ("targets.csv", targets)):
        (tmp_path / name).write_text("\n".join(rows))
    with pytest.raises(EnvError, match=said) as caught:
        Board.from_csv(tmp_path / "colours.csv", tmp_path / "targets.csv")
    assert "colours.csv" in str(caught.value)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"num_players": 0}, "num_players: got 0"),
        ({"num_players": 13}, "at most 12 robots"),
        ({"colour_map": "a.csv"}, "both colour_map and target_map"),
        ({"render_mode": "3d"}, "render_mode: got '3d'"),
    ],
)
def test_a_game_that_cannot_be_is_refused(options, said):
    with pytest.raises(EnvError, match=said):
        MailSorting(**options)


def test_a_delivery_cell_that_nobody_can_leave_is_refused():
    colours = [["y", "gr", "w", "g"], ["r", "r", "w", "w"], ["w"] * 4, ["w"] * 4]
    targets = [[1, 0, 0, 0], [0] * 4, [0] * 4, [0] * 4]
    with pytest.raises(EnvError, match="from the delivery cell in row 0, column 0"):
        Board(colours, targets)
