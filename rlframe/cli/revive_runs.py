"""`rlframe revive train | status | evaluate | infer | tune-parameter | report`: runs of ReviveServer."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rlframe.cli.app import CONFIG_FLAGS, ConfigFlagsCommand, Debug, reporting
from rlframe.cli.revive_commands import revive
from rlframe.cli.trust import Trust
from rlframe.utils.errors import ConfigError

if TYPE_CHECKING:
    from rlframe.revive.server import ReviveServer

#: Exit code of a run whose policy should not be used.
DO_NOT_USE = 3
_STAGES = ("venv", "policy", "parameter")

Run = Annotated[Path, typer.Argument(metavar="RUN", help="LOG_DIR/RUN_ID.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]
DataFile = Annotated[Path, typer.Option("-df", "--data-file", "--data_file", help="npz, h5, parquet or csv.")]
GraphFile = Annotated[Path, typer.Option("-cf", "--config-file", "--config_file", help="The graph file.")]
ValFile = Annotated[Path | None, typer.Option("-vf", "--val-file", "--val_file", help="Data of the other half.")]
RewardFile = Annotated[Path | None, typer.Option("-rf", "--reward-file", "--reward_file", help="The reward file.")]
UserModule = Annotated[
    Path | None, typer.Option("-umf", "--user-module-file-path", "--user_module_file_path", hidden=True)
]
MatcherReward = Annotated[
    Path | None, typer.Option("-mrf", "--matcher-reward-file", "--matcher_reward_file", hidden=True)
]
ReviveConfig = Annotated[
    Path | None, typer.Option("-rcf", "--revive-config-file", "--revive_config_file", help="Parameters: config.json.")
]
Target = Annotated[
    str | None, typer.Option("-tpn", "--target-policy-name", "--target_policy_name", help="The node that is decided.")
]
LogDir = Annotated[Path, typer.Option("--log-dir", "--log_dir", help="Where runs are.")]
RunId = Annotated[str | None, typer.Option("--run-id", "--run_id", help="Name of the run; it goes on. [random]")]
Address = Annotated[str | None, typer.Option("--address", help="A Ray cluster for searches. [one on this machine]")]


class ParametersCommand(ConfigFlagsCommand):
    """A command whose further flags are the parameters of `rlframe.revive.configuration`."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Writes the help, and the parameters with their defaults."""
        from rlframe.revive.configuration import parameter_lines

        super().format_help(ctx, formatter)
        formatter.write("\nParameters:\n" + "\n".join(parameter_lines()) + "\n")


def _parameters(ctx: typer.Context) -> dict[str, Any]:
    """Returns the parameters that flags name."""
    from rlframe.cli.flags import read_value
    from rlframe.revive.configuration import annotation_of, unknown_name

    given: dict[str, Any] = {}
    faults = []
    for flag in ctx.meta.get(CONFIG_FLAGS, ()):
        name = flag.name.replace("-", "_")
        annotation = annotation_of(name)
        if annotation is None:
            faults.append(f"--{unknown_name(name)}")
        elif flag.value is None and annotation is not bool:
            faults.append(f"--{flag.name}: got no value, wanted one: --{flag.name}=VALUE")
        else:
            given[name] = True if flag.value is None else read_value(flag.value, annotation)
    if faults:
        raise ConfigError("\n".join(faults))
    return given


@revive.command(cls=ParametersCommand)
def train(  # noqa: PLR0913, PLR0917  one parameter for each option
    ctx: typer.Context,
    data_file: DataFile,
    config_file: GraphFile,
    val_file: ValFile = None,
    reward_file: RewardFile = None,
    revive_config_file: ReviveConfig = None,
    user_module_file_path: UserModule = None,
    matcher_reward_file: MatcherReward = None,
    target_policy_name: Target = None,
    venv_mode: Annotated[str, typer.Option("-vm", "--venv-mode", "--venv_mode", help="tune, once or None.")] = "tune",
    policy_mode: Annotated[
        str, typer.Option("-pm", "--policy-mode", "--policy_mode", help="tune, once or None.")
    ] = "tune",
    tuning_mode: Annotated[
        str, typer.Option("-tm", "--tuning-mode", "--tuning_mode", help="max, min or None: tune parameters instead.")
    ] = "None",
    tuning_initial_state_file: Annotated[
        Path | None, typer.Option("-tisf", "--tuning-initial-state-file", "--tuning_initial_state_file",
                                  help="Where its rollouts begin (npz)."),
    ] = None,
    log_dir: LogDir = Path("logs"),
    run_id: RunId = None,
    address: Address = None,
    env_save_path: Annotated[
        Path | None, typer.Option("--env-save-path", "--env_save_path",
                                  help="A run whose environment is taken; with -vm None."),
    ] = None,
    short: Annotated[bool, typer.Option("--short", help="Make everything short, to see whether it runs.")] = False,
    debug: Debug = False,
) -> None:  # fmt: skip
    """Learn an environment from logs, and a policy in it; the same command goes on with a run that was ended.

    Exits with 3 where the policy should not be used.
    """
    with reporting(debug):
        from rlframe.revive.server import ReviveServer

        modes: Any = {"venv_mode": venv_mode, "policy_mode": policy_mode, "tuning_mode": tuning_mode}
        server = ReviveServer(
            str(data_file), str(config_file), _text(val_file), _text(user_module_file_path),
            _text(matcher_reward_file), _text(reward_file), target_policy_name, log_dir=str(log_dir),
            run_id=run_id, address=address, tune_initial_state=_text(tuning_initial_state_file),
            revive_config_file_path=_text(revive_config_file), debug=short,
            env_save_path=_text(env_save_path), **modes, **_parameters(ctx),
        )  # fmt: skip
        for remark in server.config.remarks:
            sys.stderr.write(f"warning: {remark}\n")
        server.train()
        sys.stdout.write(f"run: {server.workspace.directory}\n")
        _follow(server)
        _show_status(server.workspace.directory)
    if policy_mode != "None" and tuning_mode == "None" and not _may_be_used(server.workspace.directory):
        raise typer.Exit(DO_NOT_USE)


@revive.command(name="tune-parameter", cls=ParametersCommand)
def tune_parameter(
    ctx: typer.Context,
    run: Run,
    initial_state: Annotated[
        Path, typer.Option("-tisf", "--tuning-initial-state-file", "--tuning_initial_state_file",
                           help="Where rollouts begin (npz)."),
    ],
    mode: Annotated[str, typer.Option("-tm", "--tuning-mode", "--tuning_mode", help="max or min.")] = "max",
    json_output: AsJson = False,
    debug: Debug = False,
) -> None:  # fmt: skip
    """Search the tunable external factors of a run's environment."""
    with reporting(debug):
        from rlframe.revive.server import ReviveServer
        from rlframe.revive.workspace import Workspace

        files = Workspace.open(run).files()
        server = ReviveServer(
            str(files["dataset_file"]), str(files["dataset_desc_file"]), _text(files["val_file"]),
            reward_file_path=_text(files["reward_file"]), log_dir=str(run.absolute().parent), run_id=run.name,
            venv_mode="None", policy_mode="None", tuning_mode=mode, tune_initial_state=str(initial_state),
            revive_config_file_path=str(run / "config.json"), **_parameters(ctx),
        )  # fmt: skip
        server.tune_parameter()
        _follow(server)
        parameters, log = server.get_parameter()
        found = {name: value.tolist() for name, value in (parameters or {}).items()}
        if json_output:
            sys.stdout.write(json.dumps({"parameters": found, **log}) + "\n")
            return
        for name, value in found.items():
            sys.stdout.write(f"{name}: {value}\n")
        sys.stdout.write(f"mean reward per step: {log['best_metric']:.5g}, {log['searched_trail']} tried\n")


@revive.command()
def status(run: Run, json_output: AsJson = False, debug: Debug = False) -> None:
    """Say how far the stages of a run are."""
    with reporting(debug):
        from rlframe.revive.workspace import Workspace

        workspace = Workspace.open(run)
        if json_output:
            sys.stdout.write(json.dumps({name: vars(workspace.stage(name)) for name in _STAGES}) + "\n")
        else:
            _show_status(run)


@revive.command()
def evaluate(
    run: Run,
    system: Annotated[str | None, typer.Option("--example", help="Try the policy on this simulated process.")] = None,
    episodes: Annotated[int, typer.Option(min=1, help="Trajectories of it.")] = 20,
    seed: Annotated[int, typer.Option(help="Of them.")] = 1000,
    json_output: AsJson = False,
    debug: Debug = False,
) -> None:
    """Say what double validation says of a run's policy, and what it is worth on the process itself.

    Exits with 3 where the policy should not be used.
    """
    with reporting(debug):
        from rlframe.revive.policy_model import PolicyModel
        from rlframe.revive.workspace import Workspace

        workspace = Workspace.open(run)
        if not workspace.policy.is_dir():
            raise ConfigError(f"{run}: the run has no policy yet; train one: rlframe revive train ... -pm once")
        details = workspace.stage("policy").details
        said: dict[str, Any] = {key: details.get(key) for key in ("scores", "data", "verdict")}
        if system is not None:
            from rlframe.revive.examples import true_score

            said["true_score"] = true_score(system, PolicyModel.load(workspace.policy).infer, episodes, seed)
        if json_output:
            sys.stdout.write(json.dumps(said) + "\n")
        else:
            _show_scores(said)
    if not _may_be_used(run):
        raise typer.Exit(DO_NOT_USE)


@revive.command()
def infer(
    run: Run,
    states: Annotated[Path, typer.Argument(metavar="STATES", help="npz or JSON: arrays by node, rows or one row.")],
    sample: Annotated[bool, typer.Option("--sample", help="Draw actions instead of the most likely ones.")] = False,
    debug: Debug = False,
) -> None:
    """Print the actions of a run's policy as JSON."""
    with reporting(debug):
        from rlframe.revive.policy_model import PolicyModel
        from rlframe.revive.workspace import Workspace

        model = PolicyModel.load(Workspace.open(run).policy)
        actions = model.infer(_read_states(states), deterministic=not sample)
        sys.stdout.write(json.dumps({model.node: actions.tolist()}) + "\n")


def _read_states(path: Path) -> dict[str, Any]:
    from rlframe.revive.data_files import read_archive
    from rlframe.utils.files import read_json

    if path.suffix == ".npz":
        return read_archive(path)
    try:
        said = read_json(path)
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path} cannot be read: {error}") from error
    if not isinstance(said, dict):
        raise ConfigError(f"{path}: got a {type(said).__name__}; wanted an object of arrays by node")
    return said


def _text(path: Path | None) -> str | None:
    return None if path is None else str(path)


def _follow(server: ReviveServer) -> None:
    """Shows what a server does until it has done it; Ctrl-C ends it with the best so far."""

    def say(message: str) -> None:
        sys.stdout.write(message + "\n")
        sys.stdout.flush()

    server.on_progress(say)
    try:
        while not server.wait(timeout_s=0.2):
            pass
    except KeyboardInterrupt:
        server.stop_train()
        sys.stderr.write("stopping; the best so far stays, and the same command goes on\n")
        server.wait()
        raise


def _show_status(run: Path) -> None:
    from rlframe.cli.show import print_table
    from rlframe.revive.workspace import Workspace

    workspace = Workspace.open(run)
    rows = []
    for name in _STAGES:
        record = workspace.stage(name)
        best = "" if record.best_metric is None else f"{record.best_metric:.5g}"
        rows.append(
            (name, record.state, best, f"{record.num_of_trial}/{record.total_num_of_trials}", record.error or "")
        )
    print_table(("stage", "state", "best", "trials", "error"), rows)
    _show_scores(workspace.stage("policy").details)


def _show_scores(details: dict[str, Any]) -> None:
    for name, (value, low, high) in (details.get("scores") or {}).items():
        sys.stdout.write(f"{name}: {value:.5g} per step [{low:.5g}, {high:.5g}]\n")
    for half, value in (details.get("data") or {}).items():
        sys.stdout.write(f"{half} data: {value:.5g}\n")
    if details.get("verdict"):
        from rlframe.revive.verdict import Verdict

        sys.stdout.write(f"{Verdict.from_dict(details['verdict'])}\n")
    if details.get("true_score") is not None:
        sys.stdout.write(f"true score: {details['true_score']:.5g}\n")


def _may_be_used(run: Path) -> bool:
    from rlframe.revive.workspace import Workspace

    verdict = Workspace.open(run).stage("policy").details.get("verdict")
    return verdict is not None and bool(verdict["use"])


@revive.command()
def report(
    run: Run,
    output: Annotated[Path, typer.Option("--output", "-o", help="The HTML file.")] = Path("revive.html"),
    trust: Trust = False,
    debug: Debug = False,
) -> None:
    """Make a page about a run: verdict, double validation, graph, fits, rollouts, what the policy does.

    Exits with 3 where the policy should not be used.
    """
    with reporting(debug):
        from rlframe.revive.report import write_report
        from rlframe.revive.workspace import Workspace, write_text

        workspace = Workspace.open(run)
        write_text(output.absolute(), write_report(workspace, trust=trust))
        sys.stdout.write(f"report: {output}\n")
    if workspace.policy.is_dir() and not _may_be_used(run):
        raise typer.Exit(DO_NOT_USE)
