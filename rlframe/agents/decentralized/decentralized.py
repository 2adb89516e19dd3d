"""`DecentralizedTrainer`: players of one game who each learn for themselves."""

from __future__ import annotations

import importlib.util
import logging
import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rlframe.agents.decentralized import statistics
from rlframe.agents.decentralized.games import Game, GamesRunner, Seat, make_slots
from rlframe.agents.decentralized.learning_player import LearningPlayer
from rlframe.agents.decentralized.players import Player, members_of
from rlframe.trainer.setup import resolve_trainer_env
from rlframe.utils.errors import CheckpointError, ConfigError
from rlframe.utils.seeding import derive_seed, entropy_seed
from rlframe.utils.state_files import read_state, write_state
from rlframe.utils.threads import blas_in_one_thread

_LOGGER = logging.getLogger("rlframe.decentralized")
_DEFAULT_GAME = "rlframe.examples.env.mail_sorting:MailSorting"
_DEFAULT_PLOT = "plots/results.png"
#: Streams of the places' seeds; workers of trainers count from 1.
_TRAINING_STREAM, _TEST_STREAM = 1, 2


class DecentralizedTrainer:
    """Lets the players of a game learn, each for itself, from what it sees or from what all do.

    Many games are played side by side, each followed by the next one at once. A seat's transition ends with its own
    next turn, or with the game, and has all rewards that came meanwhile. Every row is handed to a player once.

    Args:
        env_args: Arguments of the game; the dict stays as it is.
        num_train_envs: Games side by side while training.
        num_test_envs: The same of tests.
        batch_size: `train_batch_size` of the players that replay; None leaves it to their configs.
        update_freq: Steps of agents between two updates, at least; all agents' together.
        test_freq: Episodes between two tests.
        episodes_per_train: Episodes of a training, at least.
        episodes_per_test: Games of a test; rounded up to a multiple of `num_test_envs`.
        train_fn: `fn(episodes, steps)`, called after each batch of `num_train_envs` games that ended.
        test_fn: `fn(episodes, steps)`, called after each test, with its own counts.
        save_best_fn: `fn(episodes)`, called after a test whose metric is the best so far; after the first one, too.
        save_last_fn: `fn()`, called at the end.
        stop_fn: `fn(metric, episodes) -> bool`, asked after each batch of games, with the newest test's metric.
        reward_metric: `fn(returns [episodes, agents]) -> float`, or a seat's agent, whose mean return it is; None takes
            the mean of all, which in a zero-sum game is 0 whoever wins.
        env: The game: a name, a class, or a function that makes one of PettingZoo's or a `MultiAgentEnv`. A name or
            class of PettingZoo's is made with `env_args` as keywords. None is the mail-sorting game.
        share_experience: What players learn from: "own", rows of their seats in the learning mask; "all", rows of
            every seat, whoever sits there, or, of players that do not replay, of every seat in which they explore. A
            player's own `share_experience` goes before it.
        wait_for_slowest: Whether games begin together, and those that are over wait for the others: a batch of games
            has the same number of whole ones from each place. Without it the next game begins at once, which is faster.
        steps_per_train: Steps of agents after which training ends, whatever `episodes_per_train`; None has no such end.
        seed: Seed of games and players; the same one gives the same run.
        checkpoint_dir: Where the whole state is written after each test; None writes none. See `train`.

    Attributes:
        num_agents: Seats of the game.
        agent_names: Their agents' ids.
        train_env: Places of the games of training; `set_env_attr(name, value)` changes the games.
        test_env: The same of tests.

    Raises:
        ConfigError: If a number is out of range; names it.
        EnvError: If there is no such game, or it has not several agents.
    """

    plot_stats = staticmethod(statistics.plot_stats)

    def __init__(  # noqa: PLR0913, PLR0917 - rbgame's signature, and what it lacks
        self,
        env_args: Mapping[str, Any] | None = None,
        num_train_envs: int = 16,
        num_test_envs: int = 16,
        batch_size: int | None = None,
        update_freq: int = 100,
        test_freq: int = 100,
        episodes_per_train: int = 5000,
        episodes_per_test: int = 50,
        train_fn: Callable[[int, int], Any] | None = None,
        test_fn: Callable[[int, int], Any] | None = None,
        save_best_fn: Callable[[int], Any] | None = None,
        save_last_fn: Callable[[], Any] | None = None,
        stop_fn: Callable[[float, int], bool] | None = None,
        reward_metric: Callable[[NDArray[np.float64]], float] | str | None = None,
        *,
        env: Any = None,
        share_experience: str = "own",
        wait_for_slowest: bool = False,
        steps_per_train: int | None = None,
        seed: int | None = None,
        checkpoint_dir: str | None = None,
    ) -> None:
        counts = {
            "num_train_envs": num_train_envs, "num_test_envs": num_test_envs, "update_freq": update_freq,
            "test_freq": test_freq, "episodes_per_train": episodes_per_train, "episodes_per_test": episodes_per_test,
            "steps_per_train": steps_per_train, "batch_size": batch_size,
        }  # fmt: skip
        hooks = {"train_fn": train_fn, "test_fn": test_fn, "save_best_fn": save_best_fn, "save_last_fn": save_last_fn,
                 "stop_fn": stop_fn}  # fmt: skip
        _check_arguments(counts, hooks, seed)
        if share_experience not in ("own", "all"):
            raise ConfigError(f"share_experience: got {share_experience!r}, wanted 'own' or 'all'")
        self.batch_size, self.update_freq, self.test_freq = batch_size, update_freq, test_freq
        self.episodes_per_train, self.episodes_per_test = episodes_per_train, episodes_per_test
        self.train_fn, self.test_fn, self.stop_fn = train_fn, test_fn, stop_fn
        self.save_best_fn, self.save_last_fn = save_best_fn, save_last_fn
        self.share_experience = share_experience
        self.checkpoint_dir, self.steps_per_train = checkpoint_dir, steps_per_train
        self.wait_for_slowest = bool(wait_for_slowest)
        self.seed = entropy_seed() if seed is None else int(seed)
        creator = game_creator(env)
        args = dict(env_args or {})
        self.train_env = make_slots(creator, args, num_train_envs, self.seed, _TRAINING_STREAM)
        self.test_env = make_slots(creator, args, num_test_envs, self.seed, _TEST_STREAM)
        self.agent_names = list(self.train_env[0].env.possible_agents)
        self.num_agents = len(self.agent_names)
        self.reward_metric = self._metric_of(reward_metric)

    def _metric_of(self, metric: Any) -> Callable[[NDArray[np.float64]], Any]:
        if metric is None:
            return lambda returns: returns.mean()
        if metric in self.agent_names:
            column = self.agent_names.index(metric)
            return lambda returns: returns[:, column].mean()
        if not callable(metric):
            raise ConfigError(
                f"reward_metric: got {metric!r}, wanted a function of returns [episodes, agents], one of the seats "
                f"{self.agent_names}, or None"
            )
        function: Callable[[NDArray[np.float64]], Any] = metric
        return function

    def take_seed(self, seed: int) -> None:
        """Goes by another seed from the next games on; a resumed run goes by the one it began with."""
        self.seed = seed
        for slot in (*self.train_env, *self.test_env):
            slot.seed = seed

    # --- seats ------------------------------------------------------------------------------------------------

    def _check_seats(self, agents: Sequence[Player]) -> None:
        if len(agents) != self.num_agents or any(not isinstance(player, Player) for player in agents):
            raise ConfigError(
                f"agents: got {list(agents)}, wanted a Player for each of the {self.num_agents} seats "
                f"{self.agent_names}"
            )

    def _seats(self, agents: Sequence[Player], learning: Sequence[int], exploring: Sequence[int]) -> list[Seat]:
        self._check_seats(agents)
        for player in _learners_of(agents):
            if self.batch_size is not None:
                player.prefer("train_batch_size", self.batch_size)
        return [
            Seat(agent, player, bool(learns), bool(explores))
            for agent, player, learns, explores in zip(self.agent_names, agents, learning, exploring, strict=True)
        ]

    def _mask(self, name: str, mask: Sequence[int]) -> list[int]:
        given = list(mask) if isinstance(mask, Iterable) else [mask]
        if len(given) != self.num_agents or any(value not in (0, 1) for value in given):
            raise ConfigError(
                f"{name}: got {given}, wanted 0 or 1 for each of the {self.num_agents} seats {self.agent_names}"
            )
        return [int(value) for value in given]

    def _check_learners(self, seats: Sequence[Seat]) -> None:
        if not any(seat.learns for seat in seats):
            raise ConfigError(f"learning_mask: got no 1, wanted at least one seat of {self.agent_names} that learns")
        for seat in seats:
            if seat.learns and not seat.player.learns:
                raise ConfigError(
                    f"learning_mask: seat {seat.agent!r} shall learn, but player {seat.player.name!r} cannot; seat a "
                    "LearningPlayer there, or set its mask to 0"
                )

    # --- training ---------------------------------------------------------------------------------------------

    def train(
        self,
        agents: Sequence[Player],
        learning_mask: Sequence[int],
        exploration_mask: Sequence[int] | None = None,
        plot: bool | str = True,
        *,
        resume: bool = False,
    ) -> dict[str, Any]:
        """Lets players learn.

        Args:
            agents: A player for each seat; the same object in several is one player, with one policy.
            learning_mask: 1 for seats whose player learns from what happens there; 0 elsewhere.
            exploration_mask: 1 for seats whose player explores; None for all.
            plot: Whether the metric of tests is drawn into `plots/results.png`, or the path to draw it to.
            resume: Whether to go on from `checkpoint_dir`, with players like those that were saved.

        Returns:
            `reward_metric_stats` (one number a test), `num_collected_steps`, `num_collected_episodes`,
            `num_gradient_steps`, `training_time` (s); and `test_episodes`, `best_metric`, `steps_per_second`.

        Raises:
            ConfigError: If masks or players do not fit the seats; names seat and player.
            EnvError: If a game fails, or a player takes an action that is not allowed.
        """
        exploring = [1] * self.num_agents if exploration_mask is None else exploration_mask
        self._check_seats(agents)
        masks = self._mask("learning_mask", learning_mask), self._mask("exploration_mask", exploring)
        seats = self._seats(agents, *masks)
        self._check_learners(seats)
        picture = _make_folder_of(_DEFAULT_PLOT if plot is True else str(plot)) if plot else None
        fragment = max(1, math.ceil(self.update_freq / len(self.train_env)))
        for slot in self.train_env:
            slot.episode = -1
        runner = GamesRunner(
            self.train_env, seats, share=self.share_experience, fragment=fragment, seed=self.seed,
            wait=self.wait_for_slowest,
        )  # fmt: skip
        run = _Run(self, agents, runner)
        if resume:
            run.load()
        run.train()
        if picture is not None:
            self._draw(run, picture)
        return run.result()

    def _draw(self, run: _Run, path: str) -> None:
        if importlib.util.find_spec("matplotlib") is None:
            _LOGGER.warning("no curve is drawn: matplotlib is not installed (pip install 'rlframe[plot]')")
            return
        self.plot_stats(run.test_episodes, run.metrics, path)

    # --- tests ------------------------------------------------------------------------------------------------

    def test(self, agents: Sequence[Player], eval_metrics: bool = False) -> dict[str, Any]:
        """Plays games without exploration and without learning; the same seed gives the same games.

        Args:
            agents: A player for each seat.
            eval_metrics: Whether to return time spans and wins, too.

        Returns:
            `reward` (the metric), `mean_num_steps`, `num_collected_steps`, `num_collected_episodes`; with
            `eval_metrics` also `time_spans` (mean length of games with a winner, None without), `count_wins`
            ({winner: games}, None for draws), `seats` (rates of wins, draws and losses by seat, with 95 % intervals)
            and `illegal_moves`: actions taken in turns whose mask forbids all; elsewhere a forbidden one is an error.
        """
        seats = self._seats(agents, [0] * self.num_agents, [0] * self.num_agents)
        for slot in self.test_env:
            slot.episode = -1
        seed = derive_seed(self.seed, "test")
        runner = GamesRunner(self.test_env, seats, share="own", fragment=1, seed=seed, playing=True)
        players = _learners_of(agents)
        before = [player.policy.global_timestep for player in players]
        games = _play(runner, math.ceil(self.episodes_per_test / len(self.test_env)))
        for player, step in zip(players, before, strict=True):
            player.policy.global_timestep = step  # schedules go by what was learned from
        returns = np.array([[game.returns[agent] for agent in self.agent_names] for game in games])
        lengths = [game.length for game in games]
        result: dict[str, Any] = {
            "reward": self._metric(returns),
            "mean_num_steps": float(np.mean(lengths)),
            "num_collected_steps": int(np.sum(lengths)),
            "num_collected_episodes": len(games),
        }
        if self.test_fn is not None:
            _call("test_fn", self.test_fn, len(games), result["num_collected_steps"])
        return result | (self._more_of(games) if eval_metrics else {})

    def _metric(self, returns: NDArray[np.float64]) -> float:
        value = _call("reward_metric", self.reward_metric, returns)
        try:
            number = float(value)
        except (TypeError, ValueError):
            number = math.nan
        if not math.isfinite(number):
            raise ConfigError(f"reward_metric: got {value!r} of the returns {returns.tolist()}, wanted a finite number")
        return number

    def _more_of(self, games: Sequence[Game]) -> dict[str, Any]:
        won = [game.length for game in games if game.winners]
        return {
            "time_spans": float(np.mean(won)) if won else None,
            "count_wins": statistics.count_wins(games),
            "seats": statistics.seat_rates(games, self.agent_names),
            "illegal_moves": sum(game.illegal_moves for game in games),
        }


def _check_arguments(counts: Mapping[str, Any], hooks: Mapping[str, Any], seed: Any) -> None:
    """Raises a ConfigError for what is no count, no hook or no seed; names it."""
    for name, value in counts.items():
        if value is None and name in ("steps_per_train", "batch_size"):
            continue
        if not isinstance(value, (int, np.integer)) or value < 1:
            raise ConfigError(f"{name}: got {value!r}, wanted an integer of at least 1")
    for name, hook in hooks.items():
        if hook is not None and not callable(hook):
            raise ConfigError(f"{name}: got {hook!r}, wanted a function, or None")
    if seed is not None and not isinstance(seed, (int, np.integer)):
        raise ConfigError(f"seed: got {seed!r}, wanted an integer, or None")


def _make_folder_of(path: str) -> str:
    """Makes the folder of the picture before anything is trained; returns the picture's path."""
    if Path(path).suffix.lower() not in statistics.PICTURES:
        raise ConfigError(f"plot: got {path!r}, wanted a file that ends with one of {', '.join(statistics.PICTURES)}")
    try:
        Path(path).parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"plot: got {path!r}, wanted a file in a folder that can be written: {error}") from error
    return path


def _learners_of(agents: Sequence[Player]) -> list[LearningPlayer]:
    """Returns the players with algorithms, members of leagues as well, each once."""
    found = {id(member): member for player in agents for member in members_of(player)}
    return [player for player in found.values() if isinstance(player, LearningPlayer)]


def _call(name: str, hook: Callable[..., Any], *arguments: Any) -> Any:
    """Calls a hook of the user's; what it raises says which one it was."""
    try:
        return hook(*arguments)
    except Exception as error:
        shown = ", ".join(str(part) for part in arguments if isinstance(part, (int, float)))
        raise ConfigError(f"{name}({shown}) raised {type(error).__name__}: {error}") from error


def _play(runner: GamesRunner, rounds: int) -> list[Game]:
    """Returns the first games of each place, as many of each: short ones are not more likely to be counted."""
    by_slot: dict[int, list[Game]] = {index: [] for index in range(len(runner.slots))}
    while min(map(len, by_slot.values())) < rounds:
        with blas_in_one_thread():
            runner.sample()
        for game in runner.take_games():
            by_slot[game.slot].append(game)
    return [game for index in by_slot for game in by_slot[index][:rounds]]


class _Run:
    """One call of `DecentralizedTrainer.train`: its counts, its best test, and its checkpoints.

    Args:
        trainer: The trainer.
        agents: Players by seat.
        runner: Plays the games.
    """

    def __init__(self, trainer: DecentralizedTrainer, agents: Sequence[Player], runner: GamesRunner) -> None:
        self._trainer, self._agents, self._runner = trainer, agents, runner
        self._learners = runner.routing.learners()
        self.episodes = self.gradient_steps = self._batches = 0
        self.metrics: list[float] = []
        self.test_episodes: list[int] = []
        self._best = -math.inf
        self._time = 0.0

    def train(self) -> None:
        """Plays and learns until there are enough episodes, or the program stops it."""
        trainer = self._trainer
        started = time.perf_counter() - self._time
        while self._runner.waits_for_games or not self._over():
            with blas_in_one_thread():
                self._runner.sample()
            self.gradient_steps += sum(player.learn() for player in self._learners)
            self.episodes += len(self._runner.take_games())
            self._time = time.perf_counter() - started
            if self._runner.waits_for_games:
                continue
            due = self.episodes - (self.test_episodes[-1] if self.test_episodes else 0) >= trainer.test_freq
            tested = due or self._over()
            if tested:
                self._test()
            stopped = self._end_batches()
            if tested and trainer.checkpoint_dir is not None:
                self.save(trainer.checkpoint_dir)  # with what the hooks did
            if stopped:
                break
        self._time = time.perf_counter() - started
        if trainer.save_last_fn is not None:
            _call("save_last_fn", trainer.save_last_fn)

    def _over(self) -> bool:
        steps = self._trainer.steps_per_train
        enough = steps is not None and self._runner.agent_steps >= steps
        return enough or self.episodes >= self._trainer.episodes_per_train

    def _end_batches(self) -> bool:
        """Calls the hooks of batches of games that have ended; returns whether training stops."""
        trainer, size = self._trainer, len(self._trainer.train_env)
        while (self._batches + 1) * size <= self.episodes:
            self._batches += 1
            if trainer.train_fn is not None:
                _call("train_fn", trainer.train_fn, self._batches * size, self._runner.agent_steps)
            asked = trainer.stop_fn if self.metrics else None
            if asked is not None and _call("stop_fn", asked, self.metrics[-1], self.episodes):
                return True
        return False

    def _test(self) -> None:
        trainer = self._trainer
        metric = trainer.test(self._agents)["reward"]
        self.metrics.append(metric)
        self.test_episodes.append(self.episodes)
        _LOGGER.info("episode %d: test metric %.3f, best %.3f", self.episodes, metric, max(self._best, metric))
        if metric > self._best:
            self._best = metric
            if trainer.save_best_fn is not None:
                _call("save_best_fn", trainer.save_best_fn, self.episodes)

    def result(self) -> dict[str, Any]:
        """Returns what `train` returns."""
        return {
            "reward_metric_stats": list(self.metrics),
            "num_collected_steps": self._runner.agent_steps,
            "num_collected_episodes": self.episodes,
            "num_gradient_steps": self.gradient_steps,
            "training_time": self._time,
            "test_episodes": list(self.test_episodes),
            "best_metric": self._best if self.metrics else None,
            "steps_per_second": self._runner.agent_steps / max(self._time, 1e-9),
        }

    # --- checkpoints ------------------------------------------------------------------------------------------

    def _keepers(self) -> dict[str, Any]:
        """Returns who has something to remember, each once, by the group's name: seat, place and player's name."""
        self._runner.seat_newcomers()
        found: dict[int, tuple[str, Any]] = {}
        for group_id, group in sorted(self._runner.groups.items()):
            learns = isinstance(group.player, LearningPlayer)
            keeper = group.player if learns else self._runner.policies[group_id]
            found.setdefault(id(keeper), (group_id, keeper))
        return dict(found.values())

    def save(self, directory: str) -> None:
        """Writes the whole state of the run."""
        players = {group_id: keeper.get_state() for group_id, keeper in self._keepers().items()}
        state = {
            "counts": {"episodes": self.episodes, "gradient_steps": self.gradient_steps, "batches": self._batches,
                       "agent_steps": self._runner.agent_steps, "time": self._time},
            "metrics": [float(value) for value in self.metrics],
            "test_episodes": list(self.test_episodes),
            "best": self._best,
            "seed": self._trainer.seed,
            "games": self._games(),
            "runner": self._runner.get_state(),
            "players": [[group_id, saved] for group_id, saved in players.items()],
            "groups": list(self._runner.groups),
        }  # fmt: skip
        write_state(
            directory,
            state,
            {"kind": "DecentralizedTrainer", "seats": [str(name) for name in self._trainer.agent_names]},
        )

    def _games(self) -> dict[str, Any]:
        """Returns what a resumed run must have in common with the one that was saved."""
        trainer = self._trainer
        return {"num_train_envs": len(trainer.train_env), "wait_for_slowest": trainer.wait_for_slowest}

    def load(self) -> None:
        """Goes on from the state in `checkpoint_dir`."""
        directory = self._trainer.checkpoint_dir
        if directory is None:
            raise ConfigError(
                "resume: got True without a checkpoint_dir; give DecentralizedTrainer the one to go on from"
            )
        state, meta = read_state(directory)
        keepers = self._keepers()
        if meta.get("kind") != "DecentralizedTrainer":
            raise CheckpointError(f"{directory}: got a checkpoint of {meta.get('kind')!r}, wanted one of such a run")
        players = dict(state["players"])
        here, there = ({*keepers, *self._runner.groups}, {*players, *state["groups"]})
        if here != there:
            raise CheckpointError(
                f"{directory}: resume wants the players that were saved, in their seats, masks and places of leagues; "
                f"missing here: {sorted(there - here)}; not in the checkpoint: {sorted(here - there)}; seat those that "
                "are missing, and let others join a league after the run has gone on"
            )
        if state.get("games", self._games()) != self._games():
            raise CheckpointError(
                f"{directory}: resume wants games as they were saved, {state['games']}; got {self._games()}"
            )
        self._trainer.take_seed(int(state["seed"]))
        self._runner.seed = self._trainer.seed
        for group_id, keeper in keepers.items():
            try:
                keeper.set_state(players[group_id])
            except ValueError as error:
                raise CheckpointError(f"{directory}: player {group_id} is not as it was saved: {error}") from error
        self._runner.order_groups(state["groups"])
        self._runner.set_state(state["runner"])
        counts = state["counts"]
        self.episodes, self._batches = int(counts["episodes"]), int(counts["batches"])
        self.gradient_steps, self._runner.agent_steps = int(counts["gradient_steps"]), int(counts["agent_steps"])
        self._time, self._best = float(counts["time"]), float(state["best"])
        self.metrics, self.test_episodes = list(state["metrics"]), list(state["test_episodes"])


def game_creator(env: Any) -> Callable[[Any], Any]:
    """Returns `fn(env_config) -> game` of what a user gives as the game.

    Args:
        env: A name, class or function as trainers take it; "module:name" of something that is made with keywords, as
            PettingZoo's games are; None for the mail-sorting game.
    """
    from rlframe.utils import names

    if env is None:
        env = _DEFAULT_GAME
    if isinstance(env, str) and ":" in env:
        made: Any = names.find(env, names.Kind("game", "a class or function that makes one", callable))
        return lambda context: made(**dict(context))
    if isinstance(env, type) and any(base.__module__.startswith("pettingzoo.") for base in env.__mro__):
        return lambda context: env(**dict(context))
    _, creator = resolve_trainer_env(env)
    if creator is None:
        raise ConfigError(f"env: got {env!r}, wanted a game")
    return creator


__all__ = ["DecentralizedTrainer", "game_creator"]
