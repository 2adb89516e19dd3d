"""The directory of a run: what it was asked for, how far its stages are, and their best models.

    config.json            all parameters
    data.json              which files the run was given, with SHA-256 of each
    train_venv.json        trials, best metric and state of the environment's stage
    train_policy.json      the same of the policy's stage
    tune_parameter.json    the same of parameter tuning
    revive.log             what happened
    stop.json              there while stopping is asked for
    run.lock               there while a process trains in the run, and locked by it
    venv/                  the best environment so far, both halves
    policy/                the best policy so far; policy_val/ is that of the other half
    trials/                what each trial of a search did

Every file is written beside its place and moved there, so a reader finds the earlier one or the new one, whole.
"""

from __future__ import annotations

import datetime
import hashlib
import json
import math
import os
import secrets
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlframe.utils.errors import CheckpointError, ConfigError
from rlframe.utils.files import open_regular, read_json
from rlframe.utils.run_lock import RunLock

if TYPE_CHECKING:
    from rlframe.revive.configuration import Configuration

#: States of a stage: not begun, under way, done, stopped by the user, and ended by an error.
STATES = ("Wait", "Run", "End", "Shutdown", "Failed")
STAGES = {"venv": "train_venv.json", "policy": "train_policy.json", "parameter": "tune_parameter.json"}
#: The data's halves; below the workspace, folders of what was learned from each.
HALVES = ("train", "val")
CONFIG, DATA, LOG, STOP = "config.json", "data.json", "revive.log", "stop.json"
_CHUNK = 1 << 20
#: How the names of base parameters begin that matter to policies alone; the others matter to environments.
_OF_POLICIES = ("policy_", "behavioral_", "test_", "deterministic_", "train_policy", "parameter_", "parallel_")
#: Parameters with which a stage that has begun may go on.
_LENGTHS = frozenset({
    "bc_epoch", "revive_epoch", "ppo_epoch", "epoch", "train_venv_trials", "train_policy_trials", "parallel_num",
    "parameter_tuning_algorithm", "parameter_tuning_budget", "parameter_tuning_rollout_horizon",
})  # fmt: skip


@dataclass
class StageRecord:
    """How far a stage is.

    Attributes:
        state: One of `STATES`.
        num_of_trial: Trials that have ended.
        total_num_of_trials: Trials that there will be.
        best_id: The best trial.
        best_metric: Its metric; of environments the smaller is the better, of policies the larger.
        trials: By id: metric, values of the parameters that a search varied, folder.
        error: What ended a failed stage.
        details: What else the stage found out.
    """

    state: str = "Wait"
    num_of_trial: int = 0
    total_num_of_trials: int = 0
    best_id: str | None = None
    best_metric: float | None = None
    trials: dict[str, dict[str, Any]] = field(default_factory=dict)
    error: str | None = None
    details: dict[str, Any] = field(default_factory=dict)

    def add(self, trial: str, metric: float, larger: bool, **about: Any) -> bool:
        """Notes a trial that has ended, and returns whether it is the best so far; NaN never is."""
        self.trials[trial] = {"metric": metric if math.isfinite(metric) else None, **about}
        self.num_of_trial = len(self.trials)
        best = self.best_metric
        better = math.isfinite(metric) and (best is None or (metric > best if larger else metric < best))
        if better:
            self.best_id, self.best_metric = trial, metric
        return better


class Workspace:
    """The directory of a run.

    Args:
        directory: Where it is; made with the first file that is written.
    """

    def __init__(self, directory: str | os.PathLike[str]) -> None:
        self.directory = Path(directory).absolute()

    @classmethod
    def make(cls, log_dir: str | os.PathLike[str] | None, run_id: str | None) -> Workspace:
        """Returns the workspace `log_dir/run_id`; without an id it has a random one."""
        name = run_id if run_id is not None else secrets.token_hex(8)
        if not name or Path(name).name != name or name.startswith("."):
            raise ConfigError(f"run_id: got {run_id!r}; wanted the name of a directory in log_dir")
        return cls(Path(log_dir or "logs") / name)

    @classmethod
    def open(cls, directory: str | os.PathLike[str]) -> Workspace:
        """Returns the workspace of a run that there is.

        Raises:
            ConfigError: There is none.
        """
        found = cls(directory)
        if not (found.directory / CONFIG).is_file():
            raise ConfigError(
                f"{directory} is no run: it has no {CONFIG}; wanted LOG_DIR/RUN_ID of `rlframe revive train`"
            )
        return found

    @property
    def venv(self) -> Path:
        """Where the best environment is."""
        return self.directory / "venv"

    @property
    def policy(self) -> Path:
        """Where the best policy is."""
        return self.directory / "policy"

    @property
    def policy_val(self) -> Path:
        """Where the policy is that was trained in the environment of the other half."""
        return self.directory / "policy_val"

    @property
    def trials(self) -> Path:
        """Where trials of searches are."""
        return self.directory / "trials"

    # --- records ----------------------------------------------------------------------------------------------

    def stage(self, name: str) -> StageRecord:
        """Returns how far a stage is: "venv", "policy" or "parameter"."""
        path = self.directory / STAGES[name]
        if not path.exists():
            return StageRecord()
        said = self.read(STAGES[name])
        try:
            record = StageRecord(**said)
        except TypeError as error:
            raise CheckpointError(f"{path} is damaged: {error}") from error
        if record.state not in STATES:
            raise CheckpointError(
                f"{path} is damaged: got the state {record.state!r}, wanted one of {', '.join(STATES)}"
            )
        return record

    def set_stage(self, name: str, record: StageRecord) -> None:
        """Writes how far a stage is."""
        self.write(STAGES[name], asdict(record))

    def write(self, name: str, content: Mapping[str, Any]) -> None:
        """Writes a JSON file."""
        text = json.dumps(content, indent=1, allow_nan=False)
        write_text(self.directory / name, text + "\n")

    def read(self, name: str) -> dict[str, Any]:
        """Returns what a JSON file says.

        Raises:
            CheckpointError: It cannot be read.
        """
        try:
            said = read_json(self.directory / name)
        except (OSError, ValueError) as error:
            raise CheckpointError(f"{self.directory / name} cannot be read: {error}") from error
        if not isinstance(said, dict):
            raise CheckpointError(f"{self.directory / name} is damaged: got a {type(said).__name__}, wanted an object")
        return said

    def log(self, message: str) -> None:
        """Adds a line to the run's log."""
        now = datetime.datetime.now().astimezone().isoformat(timespec="seconds")
        with (self.directory / LOG).open("a", encoding="utf-8") as file:
            file.write(f"{now} {message}\n")

    # --- which files ------------------------------------------------------------------------------------------

    def check_files(self, files: Mapping[str, str | os.PathLike[str] | None]) -> None:
        """Looks whether a run that there is began with the same data and, for a policy, the same reward.

        Raises:
            ConfigError: It began with others.
        """
        if not (self.directory / DATA).exists():
            return
        said, began = _described(files), self.read(DATA)
        judged = files.get("reward_file") is not None and self.stage("policy").state != "Wait"
        for name, what in (("dataset_file", "data"), ("val_file", "data"), ("reward_file", "a reward")):
            before, now = began.get(name), said.get(name)
            same = (before or {}).get("sha256") == (now or {}).get("sha256")
            if not same and (what == "data" or judged):
                was, new = (one["path"] if one else "none" for one in (before, now))
                changed = " has changed since" if was == new else f": {was}, now {new}"
                kind = "other data" if what == "data" else "another reward"
                raise ConfigError(
                    f"{self.directory}: this run began with {kind} ({name}{changed}); choose another run_id"
                )

    def note_files(self, files: Mapping[str, str | os.PathLike[str] | None]) -> None:
        """Notes what the run was given; a run goes on with the same data and reward only: see `check_files`.

        What an earlier stage was given and this one was not, such as the reward, stays noted.
        """
        self.check_files(files)
        before = self.read(DATA) if (self.directory / DATA).exists() else {}
        self.write(DATA, {**before, **{name: one for name, one in _described(files).items() if one or not before}})

    def files(self) -> dict[str, Path | None]:
        """Returns the files that the run was given, by name."""
        return {name: None if one is None else Path(one["path"]) for name, one in self.read(DATA).items()}

    def check_data_unchanged(self) -> None:
        """Looks whether the run's data are still those that it learned from.

        Raises:
            ConfigError: A file has changed.
        """
        for name in ("dataset_file", "val_file"):
            one = self.read(DATA).get(name)
            if one is not None and Path(one["path"]).is_file() and sha256_of(Path(one["path"])) != one["sha256"]:
                raise ConfigError(
                    f"{one['path']}: the data have changed since {self.directory} learned from them; put the old file "
                    "back, or train again with another run_id"
                )

    # --- who trains -------------------------------------------------------------------------------------------

    def lock(self) -> RunLock:
        """Keeps other processes, and other servers of this one, from training in the run until it is released.

        Raises:
            ConfigError: Another one does.
        """
        self.directory.mkdir(parents=True, exist_ok=True)
        return RunLock(self.directory)

    # --- stopping ---------------------------------------------------------------------------------------------

    def ask_to_stop(self) -> None:
        """Has all stages of the run end soon; their best models stay."""
        self.write(STOP, {"stop": True})

    def may_go_on(self) -> None:
        """Takes the wish to stop back."""
        (self.directory / STOP).unlink(missing_ok=True)

    def stop_asked(self) -> bool:
        """Returns whether the run shall stop."""
        return (self.directory / STOP).exists()


def check_same_parameters(workspace: Workspace, config: Configuration, stages: Mapping[str, bool]) -> None:
    """Looks whether stages of a run that have begun go on with the parameters that they began with.

    Lengths may be other ones: epochs, trials, and how many of these at a time.

    Args:
        workspace: Of the run.
        config: Parameters now.
        stages: By "venv" and "policy", whether the stage has begun and is to go on.

    Raises:
        ConfigError: Names the parameters that are others now.
    """
    before, now = workspace.read(CONFIG), config.to_dict()
    halves = ("global_seed", "val_split_ratio", "val_split_mode")  # both stages rest on them
    ours = {name: "policy" if name.startswith(_OF_POLICIES) else "venv" for name in now["base"]}
    pairs = [
        (name, before["base"].get(name), value)
        for name, value in now["base"].items()
        if stages[ours[name]] or (name in halves and any(stages.values()))
    ]
    for stage, going_on in stages.items():
        if going_on:
            pairs += [(name, before[stage].get(name), value) for name, value in now[stage].items()]
    changed = [f"{name} was {was}, is {now}" for name, was, now in pairs if was != now and name not in _LENGTHS]
    if changed:
        raise ConfigError(
            f"{workspace.directory}: this run began with other parameters ({'; '.join(changed)}); choose another "
            f"run_id; env_save_path {str(workspace.directory)!r} takes its environment there"
        )


def _described(files: Mapping[str, str | os.PathLike[str] | None]) -> dict[str, dict[str, str] | None]:
    return {
        name: None if path is None else {"path": str(Path(path).absolute()), "sha256": sha256_of(Path(path))}
        for name, path in files.items()
    }


def write_text(path: Path, text: str) -> None:
    """Writes a file beside its place and moves it there."""
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        with beside.open("w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)


def sha256_of(path: Path) -> str:
    """Returns the SHA-256 of a file.

    Raises:
        ConfigError: It cannot be read.
    """
    digest = hashlib.sha256()
    try:
        with open_regular(path) as file:
            while chunk := file.read(_CHUNK):
                digest.update(chunk)
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror or error}") from error
    return digest.hexdigest()
