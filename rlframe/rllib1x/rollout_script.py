"""RLlib's `rollout` (later `evaluate`): plays a checkpoint from the command line, and what programs took from it."""

from __future__ import annotations

import argparse
import collections
import json
import os
import pickle
import shelve
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from rlframe.data.sample_batch import DEFAULT_POLICY_ID
from rlframe.env.adapt import adapt_env
from rlframe.env.env_context import EnvContext
from rlframe.env.multi_agent_adapt import MultiAgentAdapter, is_multi_agent
from rlframe.env.wrappers.atari_wrappers import with_preprocessing
from rlframe.evaluation.episode import Episode
from rlframe.trainer.setup import resolve_trainer_env
from rlframe.trainer.trainer import Trainer
from rlframe.tune.registry import get_trainable_cls
from rlframe.utils.errors import ConfigError, EnvError

#: Flag -> what argparse makes of it.
_FLAGS: dict[str, dict[str, Any]] = {
    "--run": {"help": "name of the algorithm, or of a registered trainable; by default the checkpoint's"},
    "--env": {"help": "the environment; by default the checkpoint's"},
    "--local-mode": {"action": "store_true", "help": "without effect: playing starts no Ray"},
    "--render": {"action": "store_true", "help": "call the environment's render() at each step"},
    "--no-render": {"action": "store_true", "help": "the default; kept for old commands"},
    "--video-dir": {"help": 'refused: "rlframe play CHECKPOINT --video-dir DIR" records videos'},
    "--monitor": {"action": "store_true", "help": 'refused: "rlframe play" records videos'},
    "--steps": {"default": 10000, "type": int, "help": "env steps to play, unless --episodes says how many episodes"},
    "--episodes": {"default": 0, "type": int, "help": "episodes to play; 0 goes by --steps"},
    "--out": {"help": "file that gets the steps"},
    "--config": {"default": "{}", "type": json.loads, "help": "config keys that differ from the checkpoint's, JSON"},
    "--save-info": {"action": "store_true", "help": "also write the infos of the steps into --out"},
    "--use-shelve": {"action": "store_true", "help": "write --out as a shelf, one episode after the other"},
    "--track-progress": {"action": "store_true", "help": "write a file beside --out that says how far this is"},
}
#: What a trainer that only plays needs not have.
_PLAYING = {"num_workers": 0, "evaluation_interval": None, "evaluation_num_workers": 0, "num_gpus": 0, "output": None}
_NO_VIDEOS = 'rollouts record no videos; use "rlframe play CHECKPOINT --video-dir DIR"'
EXAMPLE_USAGE = "rollout.py CHECKPOINT --run PPO --env CartPole-v1 --steps 1000 --out rollouts.pkl"


def create_parser(parser_creator: Callable[..., Any] | None = None) -> Any:
    """Returns the parser of RLlib's command, which programs add flags of their own to.

    Args:
        parser_creator: Makes the parser; None takes `argparse.ArgumentParser`.
    """
    parser = (parser_creator or argparse.ArgumentParser)(
        formatter_class=argparse.RawDescriptionHelpFormatter,
        description="Plays a checkpoint.",
        epilog=EXAMPLE_USAGE,
    )
    parser.add_argument(
        "checkpoint", nargs="?", help="directory of the checkpoint; without one an untrained trainer plays"
    )
    for flag, options in _FLAGS.items():
        parser.add_argument(flag, **options)
    return parser


class RolloutSaver:
    """Writes the steps of episodes into a file.

        with RolloutSaver("rollouts.pkl") as saver:
            rollout(trainer, "CartPole-v1", 0, num_episodes=3, saver=saver)

    The file, which is written and never read here, is a pickle of a list: for each episode a list of steps
    `[obs, action, next_obs, reward, done]`, with the info behind them with `save_info`. With `use_shelve` it is
    a shelf with episodes under "0", "1" and so on, and their number under "num_episodes".

    Args:
        outfile: Its path. None writes nothing.
        use_shelve: Whether it is a shelf, which is written after each episode.
        write_update_file: Whether a file "__progress_NAME" beside it says how far this is.
        target_steps: Env steps to come, for that file.
        target_episodes: Episodes to come, for that file.
        save_info: Whether infos are written.

    Raises:
        ConfigError: If the file would be a shelf, or is to be followed, and has no name.
    """

    def __init__(
        self,
        outfile: str | os.PathLike[str] | None = None,
        use_shelve: bool = False,
        write_update_file: bool = False,
        target_steps: int | None = None,
        target_episodes: int | None = None,
        save_info: bool = False,
    ) -> None:
        if outfile is None and (use_shelve or write_update_file):
            raise ConfigError("use_shelve and write_update_file: got no outfile; wanted the name of a file")
        self._outfile = None if outfile is None else Path(outfile)
        self._use_shelve, self._save_info = use_shelve, save_info
        self._progress = (
            self._outfile and write_update_file and self._outfile.with_name(f"__progress_{self._outfile.name}")
        )
        self._target = f"{target_episodes} episodes" if target_episodes else f"{target_steps} steps"
        self._shelf: Any = None
        self._update_file: Any = None
        self._rollouts: list[list[Any]] = []
        self._current_rollout: list[Any] = []
        self._num_episodes = self._total_steps = 0

    @property
    def outfile(self) -> Path | None:
        """Path of the file, or None."""
        return self._outfile

    def __enter__(self) -> RolloutSaver:
        if self._use_shelve:
            self._shelf = shelve.open(str(self._outfile))
        if self._progress:
            self._update_file = self._progress.open("w")
        return self

    def __exit__(self, *exc: object) -> None:
        if self._shelf is not None:
            self._shelf["num_episodes"] = self._num_episodes
            self._shelf.close()
        elif self._outfile is not None:
            with self._outfile.open("wb") as file:
                pickle.dump(self._rollouts, file)
        if self._update_file is not None:
            self._update_file.close()
            Path(self._update_file.name).unlink(missing_ok=True)

    def begin_rollout(self) -> None:
        """Begins an episode."""
        self._current_rollout = []

    def end_rollout(self) -> None:
        """Ends the episode."""
        if self._shelf is not None:
            self._shelf[str(self._num_episodes)] = self._current_rollout
        elif self._outfile is not None:
            self._rollouts.append(self._current_rollout)
        self._num_episodes += 1
        if self._update_file is not None:
            self._update_file.seek(0)
            self._update_file.write(f"{self._get_progress()}\n")
            self._update_file.flush()

    def _get_progress(self) -> str:
        return f"{self._num_episodes} episodes and {self._total_steps} steps of {self._target}"

    def append_step(self, obs: Any, action: Any, next_obs: Any, reward: Any, done: Any, info: Any) -> None:
        """Adds a step to the episode; with several agents these are dicts, and `done` says whether it is over."""
        self._total_steps += 1
        if self._outfile is not None:
            self._current_rollout.append([obs, action, next_obs, reward, done, *([info] if self._save_info else [])])


class DefaultMapping(collections.defaultdict[Any, Any]):
    """A dict that makes a missing value from its key, by the function it was made with."""

    def __init__(self, default_factory: Callable[[Any], Any], *args: Any) -> None:
        super().__init__(default_factory, *args)  # type: ignore[arg-type]  # a key to each call: what sets it apart

    def __missing__(self, key: Any) -> Any:
        assert self.default_factory is not None
        self[key] = value = self.default_factory(key)  # type: ignore[call-arg]  # as above
        return value


def default_policy_agent_mapping(unused_agent_id: Any) -> str:
    """Returns the id of the only policy."""
    del unused_agent_id
    return DEFAULT_POLICY_ID


def keep_going(steps: int, num_steps: int | None, episodes: int, num_episodes: int | None) -> bool:
    """Returns whether less was played than asked for: `num_episodes` counts where there is one, else `num_steps`.

    With neither it never ends.
    """
    if num_episodes:
        return episodes < num_episodes
    return steps < num_steps if num_steps else True


def run(args: Any, parser: Any) -> None:
    """Plays what the flags of `create_parser` say, and prints the return of each episode.

    The config is that of the checkpoint, with `args.config` over it; functions and classes of a program's own, which a
    checkpoint does not hold, are given there. Without a checkpoint a new trainer plays, which has learned nothing.

    Raises:
        ConfigError: If videos are asked for.
        CheckpointError: If there is no such checkpoint, or it cannot be loaded.
    """
    needed = {"--run": args.run, "--env": args.env or args.config.get("env")}
    missing = [flag for flag, given in needed.items() if not given]
    if missing and not args.checkpoint:
        parser.error(f"the following arguments are required: checkpoint, or {', '.join(missing)}")
    if args.video_dir or getattr(args, "monitor", False):
        raise ConfigError(
            '--video-dir, --monitor: rollouts record no videos; use "rlframe play CHECKPOINT --video-dir DIR"'
        )
    made_by = get_trainable_cls(args.run) if args.run else Trainer
    config = {**_PLAYING, **args.config}
    trainer = (
        made_by.from_checkpoint(args.checkpoint, config, args.env) if args.checkpoint else made_by(config, args.env)
    )
    try:
        with RolloutSaver(
            args.out, args.use_shelve, args.track_progress, args.steps, args.episodes, args.save_info
        ) as saver:
            rollout(trainer, args.env, args.steps, args.episodes, saver, no_render=not args.render)
    finally:
        trainer.stop()


def rollout(
    agent: Any,
    env_name: Any,
    num_steps: int | None,
    num_episodes: int | None = 0,
    saver: RolloutSaver | None = None,
    no_render: bool = True,
    video_dir: str | None = None,
    out: str | os.PathLike[str] | None = None,
) -> None:
    """Plays episodes with a trainer's policies, and prints the return of each.

    They are played in an environment of their own, one after the other, with `explore` as the config says, so the
    saver gets all steps. RLlib left the playing to `evaluate()` where a trainer evaluates, and saved nothing then.

    Args:
        agent: The trainer.
        env_name: Name of a registered environment, for a trainer that has none.
        num_steps: Env steps to play; the last episode is played to its end by `num_episodes`, cut by `num_steps`.
        num_episodes: Episodes to play; 0 and None go by `num_steps`.
        saver: Gets the steps.
        no_render: Whether the environment is not shown.
        video_dir: Refused.
        out: File that gets the steps, as RLlib 0.7 had it in place of `saver`.

    Raises:
        ConfigError: If videos are asked for.
        EnvError: If there is no environment.
    """
    if video_dir:
        raise ConfigError(f"video_dir: {_NO_VIDEOS}")
    if saver is None:
        with RolloutSaver(out) as saver:
            rollout(agent, env_name, num_steps, num_episodes, saver, no_render)
        return
    env = _make_env(agent, env_name)
    steps = episodes = 0
    try:
        while keep_going(steps, num_steps, episodes, num_episodes):
            saver.begin_rollout()
            total = 0.0
            for step in _episode(agent, env):
                saver.append_step(*step)
                steps += 1
                total += _sum(step[3])
                if not no_render:
                    env.render()
                if not num_episodes and not keep_going(steps, num_steps, 0, 0):
                    break
            saver.end_rollout()
            episodes += 1
            sys.stdout.write(f"Episode #{episodes}: reward: {total}\n")
    finally:
        env.close()


def _sum(rewards: Any) -> float:
    return float(sum(rewards.values()) if isinstance(rewards, dict) else rewards)


def _make_env(agent: Any, env_name: Any) -> Any:
    """Returns an environment as a trainer makes it, behind today's interface for one or for several agents."""
    creator = agent.env_creator
    if creator is None and env_name is not None:
        creator = resolve_trainer_env(env_name)[1]
    creator = with_preprocessing(creator, {**agent.config, "in_evaluation": True})
    if creator is None:
        raise EnvError("the trainer has no environment to play in; wanted the name of a registered one as env_name")
    env = creator(EnvContext(dict(agent.config.get("env_config") or {})))
    return MultiAgentAdapter(env) if is_multi_agent(env) else adapt_env(env)


def _episode(agent: Any, env: Any) -> Iterator[tuple[Any, Any, Any, Any, bool, Any]]:
    """Yields the steps of an episode as `append_step` takes them."""
    play = _steps_of_many if isinstance(env, MultiAgentAdapter) else _steps_of_one
    horizon = agent.config.get("horizon")
    for count, step in enumerate(play(agent, env), 1):
        yield step
        if horizon is not None and count >= horizon:
            return


def _steps_of_one(agent: Any, env: Any) -> Iterator[tuple[Any, Any, Any, Any, bool, Any]]:
    actor = agent.make_actor()
    obs, _ = env.reset()
    reward, done = None, False
    while not done:
        action = actor.act(obs, reward)
        next_obs, reward, terminated, truncated, info = env.step(action)
        done = bool(terminated or truncated)
        yield obs, action, next_obs, reward, done, info
        obs = next_obs


def _steps_of_many(agent: Any, env: Any) -> Iterator[tuple[Any, Any, Any, Any, bool, Any]]:
    worker = agent.workers.local_worker()
    episode = Episode(worker.policy_map, worker.policy_mapping_fn, worker=worker)
    actors = DefaultMapping(lambda agent_id: agent.make_actor(episode.policy_for(agent_id)))
    obs, _ = env.reset()
    rewards: dict[Any, float] = {}
    done = False
    while not done:
        actions = {agent_id: actors[agent_id].act(seen, rewards.get(agent_id, 0.0)) for agent_id, seen in obs.items()}
        next_obs, rewards, terminateds, truncateds, infos = env.step(actions)
        done = terminateds["__all__"] or truncateds.get("__all__", False)
        yield obs, actions, next_obs, rewards, done, infos
        ended = {who for flags in (terminateds, truncateds) for who, over in flags.items() if over}
        obs = {agent_id: seen for agent_id, seen in next_obs.items() if agent_id not in ended}


def main() -> None:
    """Plays what the command line says."""
    parser = create_parser()
    run(parser.parse_args(), parser)
