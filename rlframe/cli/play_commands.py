"""`rlframe play` and `rlframe evaluate`: trained policies at work."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rlframe.cli.app import Debug, app, reporting
from rlframe.cli.trust import Trust
from rlframe.utils.errors import ConfigError

if TYPE_CHECKING:
    from rlframe.cli.off_policy import OffPolicyOptions
    from rlframe.cli.run_directory import RunSpec

#: Exit code of `--deploy-if-better` where the data do not say that the policy is better.
NOT_BETTER = 3
_EPISODES, _LEAST_ESS = 10, 10.0

RunPath = Annotated[Path, typer.Argument(metavar="RUN|CHECKPOINT", help="A run directory, or a checkpoint.")]
Seed = Annotated[int | None, typer.Option(help="Same seed, same episodes.")]
Explore = Annotated[bool, typer.Option("--explore", help="Draw actions as in training, do not choose greedily.")]
Render = Annotated[bool, typer.Option("--render", help="Show the environment.")]
MaxSteps = Annotated[int | None, typer.Option(min=1, help="Cut episodes. [the config's horizon]")]
Weights = Annotated[
    Path | None,
    typer.Option(help="The run or checkpoint, where an algorithm stands in its place: `play ppo --weights RUN`."),
]
EnvOfRun = Annotated[str | None, typer.Option("--env", help="Environment of that run, to be sure.")]
ActionIndex = Annotated[int | None, typer.Option("--action-idx", hidden=True)]
OffPolicy = Annotated[
    list[str] | None,
    typer.Option(metavar="DATA", help="Judge it by recorded experience, as `input` names it, instead of playing."),
]
Estimators = Annotated[str | None, typer.Option(help="With --off-policy: some of tis,is,wis,dm,dr,fqe. [all]")]
Gamma = Annotated[float | None, typer.Option(help="With --off-policy: discount per step. [the config's]")]
LeastESS = Annotated[
    float, typer.Option(min=0, help="With --off-policy: fewest effective episodes that an estimate is made of.")
]
ActionsNormalized = Annotated[
    bool | None,
    typer.Option(help="With --off-policy: actions in the data are as policies choose them. [the config's]"),
]
DeployIfBetter = Annotated[
    bool, typer.Option("--deploy-if-better", help="With --off-policy: exit code 3 unless the gain is above 0 for sure.")
]
DecideBy = Annotated[str | None, typer.Option(help="With --deploy-if-better: the estimator that decides. [dr]")]
Best = Annotated[bool, typer.Option("--best", help="The checkpoint with the best mean return, not the newest.")]


@app.command()
def play(  # noqa: PLR0913, PLR0917  one parameter for each option
    path: RunPath,
    episodes: Annotated[int, typer.Option(min=1, help="How many are played.")] = 1,
    seed: Seed = None,
    explore: Explore = False,
    render: Render = False,
    video_dir: Annotated[Path | None, typer.Option(help="Record each episode as an MP4 file in here.")] = None,
    frame_dir: Annotated[Path | None, typer.Option(help="Keep frames as PNG files in here.")] = None,
    frame_frequency: Annotated[int, typer.Option(min=1, help="Env steps from one kept frame to the next.")] = 1,
    frame_delay: Annotated[float, typer.Option(min=0, help="Seconds to wait after each step.")] = 0.0,
    max_steps: MaxSteps = None,
    best: Best = False,
    against_me: Annotated[
        bool, typer.Option("--against-me", help="Sit down yourself, in a run of `train decentralized`.")
    ] = False,
    seat: Annotated[int, typer.Option(min=0, help="With --against-me: the seat's number.")] = 0,
    replay: Annotated[
        Path | None, typer.Option(help="Keep one game of such a run as a .txt, .gif or .mp4 file.")
    ] = None,
    weights: Weights = None,
    env: EnvOfRun = None,
    action_idx: ActionIndex = None,
    trust: Trust = False,
    debug: Debug = False,
) -> None:
    """Watch a trained policy, on the screen or in a video, and print what it got."""
    with reporting(debug):
        from rlframe.cli.evaluating import loaded_trainer
        from rlframe.cli.evaluating import play as play_episodes
        from rlframe.cli.play_options import PlayOptions

        if action_idx:
            raise ConfigError("--action-idx: a policy's action is taken as it is; leave it out")
        from rlframe.cli.game_runs import is_game_run

        if is_game_run(path):
            from rlframe.cli.game_play import play_game

            if render or video_dir or frame_dir or episodes > 1:
                raise ConfigError("a game's players play one game: --replay FILE draws it, --against-me seats you")
            place = seat if against_me else None
            play_game(path, best=best, seed=seed, seat=place, replay=replay, trust=trust)
            return
        if against_me or replay:
            raise ConfigError(f"--against-me and --replay: {path} is no run of `rlframe train decentralized`")
        if render and (video_dir or frame_dir):
            raise ConfigError("--render shows the environment, --video-dir and --frame-dir draw it: give one of them")
        options = PlayOptions(seed, explore, render, max_steps, video_dir, frame_dir, frame_frequency, frame_delay)
        with loaded_trainer(weights or path, best=best, trust=trust) as (trainer, spec, checkpoint):
            _check_run(spec, path if weights else None, env)
            for number, played in enumerate(play_episodes(trainer, episodes, options), start=1):
                sys.stdout.write(
                    f"episode {number}  return {played.total:,.2f}  length {played.length:,}  {played.ended}\n"
                )
        sys.stdout.write(f"checkpoint: {checkpoint}\n")
        for name, directory in (("videos", video_dir), ("frames", frame_dir)):
            if directory is not None:
                sys.stdout.write(f"{name}:     {directory}\n")


def _check_run(spec: RunSpec, algorithm: Path | None, env: str | None) -> None:
    """Raises a ConfigError where a run is not of the algorithm or environment that the command line names."""
    from rlframe.cli.algorithms import canonical_name

    if algorithm is not None and canonical_name(str(algorithm)) != spec.algorithm:
        raise ConfigError(f"--weights: names a run of {spec.algorithm}; got {algorithm} as the algorithm")
    if env not in (None, spec.env):
        raise ConfigError(f"--env: got {env}; the policy plays where it was trained, on {spec.env}: leave it out")


@app.command()
def evaluate(  # noqa: PLR0913, PLR0917  one parameter for each option
    path: RunPath,
    episodes: Annotated[int, typer.Option(min=1, help="How many are played.")] = _EPISODES,
    seed: Seed = None,
    explore: Explore = False,
    render: Render = False,
    max_steps: MaxSteps = None,
    best: Best = False,
    off_policy: OffPolicy = None,
    estimators: Estimators = None,
    gamma: Gamma = None,
    least_ess: LeastESS = _LEAST_ESS,
    actions_normalized: ActionsNormalized = None,
    deploy_if_better: DeployIfBetter = False,
    decide_by: DecideBy = None,
    trust: Trust = False,
    json_output: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    debug: Debug = False,
) -> None:
    """Play a trained policy and print its returns with a 95 % interval, or what recorded experience says of them."""
    with reporting(debug):
        from rlframe.cli.evaluating import loaded_trainer

        if off_policy:
            from rlframe.cli.off_policy import OffPolicyOptions

            if render or max_steps is not None or episodes != _EPISODES:
                raise ConfigError("--off-policy plays nothing: leave out --episodes, --max-steps and --render")
            judged = OffPolicyOptions(
                off_policy,
                estimators,
                gamma,
                explore,
                actions_normalized,
                least_ess,
                seed or 0,
                decide_by,
                deploy_if_better,
            )
            with loaded_trainer(path, best=best, trust=trust) as (trainer, _, checkpoint):
                _judge(trainer, judged, checkpoint, json_output)
            return
        if (
            deploy_if_better
            or estimators
            or decide_by
            or least_ess != _LEAST_ESS
            or {gamma, actions_normalized} != {None}
        ):
            raise ConfigError(
                "--estimators, --gamma, --least-ess, --actions-normalized, --deploy-if-better and --decide-by judge by "
                "data: give --off-policy, too"
            )
        from rlframe.cli.evaluating import play as play_episodes
        from rlframe.cli.play_options import PlayOptions
        from rlframe.cli.show import show_episodes, show_episodes_as_json

        with loaded_trainer(path, best=best, trust=trust) as (trainer, spec, checkpoint):
            played = list(play_episodes(trainer, episodes, PlayOptions(seed, explore, render, max_steps)))
        if json_output:
            show_episodes_as_json(played, checkpoint, spec, seed)
        else:
            show_episodes(played, checkpoint)


def _judge(trainer: Any, options: OffPolicyOptions, checkpoint: Path, json_output: bool) -> None:
    """Prints what data say of a policy; exits with `NOT_BETTER` where it is asked to be better, and is not."""
    from rlframe.cli.off_policy import decide, judge, show, show_as_json

    report = judge(trainer, options)
    verdict = decide(report, options.decide_by) if options.deploy else None
    if json_output:
        show_as_json(report, options, checkpoint, verdict)
    else:
        show(report, checkpoint)
        if verdict is not None:
            sys.stdout.write(f"deploy: {'yes' if verdict['better'] else 'no'}, {verdict['reason']}\n")
    if verdict is not None and not verdict["better"]:
        raise typer.Exit(NOT_BETTER)
