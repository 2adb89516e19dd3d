"""`ReviveServer`: learns environments and policies from logs, with the constructor and methods that Revive has."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from rlframe.revive.configuration import read_configuration
from rlframe.revive.graph import DecisionGraph
from rlframe.revive.parameter_tuning import InitialState
from rlframe.revive.policy_model import PolicyModel
from rlframe.revive.venv_model import VirtualEnv
from rlframe.revive.workspace import CONFIG, HALVES, StageRecord, Workspace, check_same_parameters
from rlframe.utils.errors import ConfigError

Mode = Literal["tune", "once", "None"]
_MODES = ("tune", "once", "None")
_TUNING_MODES = ("None", "max", "min")
_SHORT = {
    "venv_rollout_horizon": 20, "test_horizon": 20, "revive_epoch": 2, "bc_epoch": 3, "ppo_epoch": 2, "sac_epoch": 2,
    "td3_epoch": 2, "shooting_epoch": 2, "policy_bc_epoch": 2, "train_venv_trials": 5, "train_policy_trials": 5,
    "parameter_tuning_budget": 100,
}  # fmt: skip


@dataclass(frozen=True)
class Virtual:
    """The learned environments of both halves.

    Attributes:
        env_list: That of the training half, then that of the other.
    """

    env_list: tuple[VirtualEnv, VirtualEnv]

    def __getattr__(self, name: str) -> Any:
        """Anything else is asked of the environment of the training half."""
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self.env_list[0], name)


class ReviveServer:
    """Learns an environment from logs along a graph, and a policy in it.

    The methods `train*` and `tune_parameter` return at once and the work goes on in a thread; `wait` waits for it. What
    is best so far is in the run's directory at any instant. Whatever goes wrong is raised by `wait` and by the `get_*`
    methods.

    Args:
        dataset_file_path: Logged trajectories: npz, h5, parquet or csv.
        dataset_desc_file_path: The graph file.
        val_file_path: Trajectories for the other half; None splits the data.
        user_module_file_path: Of Revive; must be None: losses of nodes are named in the graph file here.
        matcher_reward_file_path: Of Revive; must be None.
        reward_file_path: The reward file; policies and parameter tuning need it.
        target_policy_name: Which node is decided; None takes the first.
        log_dir: Where runs are; "logs" by default.
        run_id: Name of the run; a run of that name goes on. A random one by default.
        address: A Ray cluster for searches; None starts one on this machine where a search needs it.
        venv_mode: "tune" searches parameters, "once" takes them as they are, "None" takes what the run has.
        policy_mode: Likewise.
        tuning_mode: "max" or "min" searches tunable external factors instead of training a policy; "None" does not.
        tune_initial_state: Where its rollouts begin: arrays by node, or an `.npz` file.
        debug: Whether everything is made short.
        revive_config_file_path: `config.json` with parameters.
        **kwargs: Parameters by name; `env_save_path` names a run, or the folder "venv" of one, whose environment is
            taken.

    Raises:
        ConfigError: Something of this is wrong; nothing has been written then.
    """

    def __init__(  # noqa: PLR0913, PLR0917  Revive's signature
        self,
        dataset_file_path: str,
        dataset_desc_file_path: str,
        val_file_path: str | None = None,
        user_module_file_path: str | None = None,
        matcher_reward_file_path: str | None = None,
        reward_file_path: str | None = None,
        target_policy_name: str | None = None,
        log_dir: str | None = None,
        run_id: str | None = None,
        address: str | None = None,
        venv_mode: Mode = "tune",
        policy_mode: Mode = "tune",
        tuning_mode: str = "None",
        tune_initial_state: Mapping[str, Any] | str | None = None,
        debug: bool = False,
        revive_config_file_path: str | None = None,
        **kwargs: Any,
    ) -> None:
        for name, mode, known in (
            ("venv_mode", venv_mode, _MODES), ("policy_mode", policy_mode, _MODES),
            ("tuning_mode", tuning_mode, _TUNING_MODES),
        ):  # fmt: skip
            if mode not in known:
                raise ConfigError(f"{name}: got {mode!r}; wanted one of {', '.join(map(repr, known))}")
        for name, path, instead in (
            ("user_module_file_path", user_module_file_path, "losses of nodes are named in the graph file, loss_type"),
            ("matcher_reward_file_path", matcher_reward_file_path, "discriminators judge by the data alone"),
        ):
            if path is not None:
                raise ConfigError(f"{name}: got {path!r}; leave it out: {instead}")
        self._env_save_path = kwargs.pop("env_save_path", None)
        self.config = read_configuration(revive_config_file_path, {**(_SHORT if debug else {}), **kwargs})
        if debug:  # lengths of algorithms that are not chosen are nothing to remark on
            own = tuple(remark for remark in self.config.remarks if remark.partition(" ")[0] in kwargs)
            self.config = dataclasses.replace(self.config, remarks=own)
        self.venv_mode, self.policy_mode, self.tuning_mode = venv_mode, policy_mode, tuning_mode
        if tuning_mode != "None":
            self.policy_mode = "None"
        self.target, self.address = target_policy_name, address
        self._initial_state = tune_initial_state
        from rlframe.revive.stages import Inputs, RunFiles

        self._files = RunFiles(*(
            None if path is None else str(Path(path).absolute())
            for path in (dataset_file_path, dataset_desc_file_path, val_file_path, reward_file_path)
        ))  # type: ignore[arg-type]  # fmt: skip
        self._inputs = Inputs(self._files, self.config)
        if reward_file_path is not None:
            self._inputs.reward  # noqa: B018 - checked before anything is written
        if self.policy_mode != "None":
            self._inputs.graph.policy_node(target_policy_name)
        self.config = dataclasses.replace(self.config, remarks=(*self.config.remarks, *self._remarks(policy_mode)))
        self.workspace = Workspace.make(log_dir, run_id)
        self._check_goes_on()
        # No join(): in Python 3.11 a thread whose join Ctrl-C has interrupted counts as ended, and goes on.
        self._ended = threading.Event()
        self._ended.set()
        self._failure: BaseException | None = None
        self._say: Callable[[str], None] = lambda _: None

    def _remarks(self, policy_mode: Mode) -> Iterator[str]:
        """Yields what was said in vain."""
        if self.tuning_mode != "None" and policy_mode == "once":
            yield f"policy_mode 'once' has no effect: tuning_mode {self.tuning_mode!r} searches parameters instead"
        if self.address is not None and "tune" not in {self.venv_mode, self.policy_mode}:
            yield f"address {self.address} has no effect: neither venv_mode nor policy_mode is 'tune'"
        frozen = ", ".join(self._inputs.graph.frozen)
        if frozen and self.venv_mode != "None":
            yield f"nodes: {frozen}: freeze leaves networks as they are drawn, at random: nothing trains them"

    def _given(self) -> dict[str, str | None]:
        """Returns the files that the run is given, by the name that it notes them under."""
        names = ("dataset_file", "dataset_desc_file", "val_file", "reward_file")
        files = self._files
        return dict(zip(names, (files.data, files.graph, files.val, files.reward), strict=True))

    def _check_goes_on(self) -> None:
        """Looks whether the run of this name began with the same; writes nothing."""
        workspace = self.workspace
        workspace.check_files(self._given())
        if self._env_save_path is not None and self.venv_mode != "None":
            raise ConfigError(
                f"env_save_path: got {self._env_save_path!r} with venv_mode {self.venv_mode!r}; an environment that is "
                "taken is not learned: wanted venv_mode 'None'"
            )
        before = workspace.stage("venv").details.get("graph")
        if self.venv_mode != "None" and before not in {None, self._inputs.graph.fingerprint}:
            if (workspace.venv / "train").is_dir():  # it may be the functions alone that are others
                from rlframe.revive.stages import check_functions_unchanged

                check_functions_unchanged(self._inputs.graph, VirtualEnv.load(workspace.venv / "train").graph)
            raise ConfigError(
                f"{workspace.directory}: the environment of this run was learned along another graph; choose another "
                "run_id, or venv_mode 'None' to train a policy in it"
            )
        if (workspace.directory / CONFIG).exists():
            begun = {stage: workspace.stage(stage).state != "Wait" for stage in ("venv", "policy")}
            asked = {"venv": self.venv_mode != "None", "policy": self.policy_mode != "None"}
            check_same_parameters(workspace, self.config, {stage: begun[stage] and asked[stage] for stage in begun})

    def _environment_is_there(self) -> bool:
        """Returns whether the run has an environment, or takes that of another one."""
        return self._env_save_path is not None or all((self.workspace.venv / half).is_dir() for half in HALVES)

    def _check_before(self, venv: bool, policy: bool, tuning: bool) -> None:
        """Looks whether there is what stages need, before the first one begins."""
        if venv and self.config.base.venv_algo != "bc":
            from rlframe.revive.adversarial import check_learnable

            check_learnable(self._inputs.graph)
        if policy:
            from rlframe.revive.policy_training import check_trainable

            node = self._inputs.graph.policy_node(self.target)
            check_trainable(self.config, self._inputs.data["train"], self._inputs.reward, node)
        if (policy or tuning) and not venv and not self._environment_is_there():
            raise ConfigError(
                f"{self.workspace.venv}: there is no learned environment yet; train one: venv_mode 'once' or 'tune' "
                "(-vm once), or take that of another run: env_save_path"
            )
        if policy:
            self._check_disagreement(venv)
        if (venv and self.venv_mode == "tune") or (policy and self.policy_mode == "tune"):
            from rlframe.tune.trial_pool import check_address

            check_address(self.address)
        if tuning:
            self._inputs.reward  # noqa: B018 - read and checked
            if self._initial_state is None:
                raise ConfigError("tune_initial_state: got none; parameter tuning begins at a state: give the file")
            self._initial(self._inputs.graph if venv else VirtualEnv.load(self._environment_place() / "train").graph)

    def _check_disagreement(self, venv: bool) -> None:
        """Looks whether there is an ensemble, where its disagreement is a penalty."""
        weight = self.config.policy.reward_uncertainty_weight
        if weight <= 0:
            return
        if venv:
            members = self.config.base.num_venv_in_use
        else:
            members = min(len(VirtualEnv.load(self._environment_place() / half).members) for half in HALVES)
        if members == 1:
            raise ConfigError(
                f"reward_uncertainty_weight is {weight:g}, a penalty for what environments disagree about, but there "
                "is one of each half; wanted num_venv_in_use 2 or more where they are learned, or no such weight"
            )

    # --- what is done -----------------------------------------------------------------------------------------

    def train(self, env_save_path: str | None = None) -> None:
        """Begins all stages that the modes ask for, one behind the other."""
        self._begin([
            *([self._venv_stage] if self.venv_mode != "None" else []),
            *([self._policy_stage] if self.policy_mode != "None" else []),
            *([self._tuning_stage] if self.tuning_mode != "None" else []),
        ], env_save_path)  # fmt: skip

    def train_venv(self) -> None:
        """Begins the environment's stage."""
        self._begin([self._venv_stage] if self.venv_mode != "None" else [], None)

    def train_policy(self, env_save_path: str | None = None) -> None:
        """Begins the policy's stage, in the environment that the run has, or another one's."""
        self._begin([self._policy_stage] if self.policy_mode != "None" else [], env_save_path)

    def tune_parameter(self, env_save_path: str | None = None) -> None:
        """Begins the search of tunable parameters."""
        if self.tuning_mode == "None":
            raise ConfigError("tune_parameter: tuning_mode is 'None'; wanted 'max' or 'min'")
        self._begin([self._tuning_stage], env_save_path)

    def stop_train(self) -> None:
        """Has all stages end soon; what is best so far stays."""
        self.workspace.ask_to_stop()

    def wait(self, timeout_s: float | None = None) -> bool:
        """Waits until the work has ended, and returns whether it has; what went wrong in it is raised."""
        if not self._ended.wait(timeout_s):
            return False
        self._raise_failure()
        return True

    def on_progress(self, say: Callable[[str], None]) -> None:
        """Has a function called with each line of the run's log."""
        self._say = say

    # --- what there is ----------------------------------------------------------------------------------------

    def get_virtualenv_env(self) -> tuple[Virtual | None, dict[str, Any]]:
        """Returns the best environments so far, None where there are none yet, and how far the stage is."""
        self._raise_failure()
        record = self.workspace.stage("venv")
        found = None
        if all((self.workspace.venv / half).is_dir() for half in HALVES):
            from rlframe.revive.stages import load_environments

            halves = load_environments(self.workspace.venv)
            found = Virtual((halves["train"], halves["val"]))
        return found, {**_log(record), "venv_acc": record.best_metric, "least_metric": record.best_metric}

    def get_policy_model(self) -> tuple[PolicyModel | None, dict[str, Any]]:
        """Returns the best policy so far, None where there is none yet, and how far the stage is."""
        self._raise_failure()
        record = self.workspace.stage("policy")
        model = PolicyModel.load(self.workspace.policy) if self.workspace.policy.is_dir() else None
        return model, {**_log(record), "policy_acc": record.best_metric, "verdict": record.details.get("verdict")}

    def get_parameter(self) -> tuple[dict[str, Any] | None, dict[str, Any]]:
        """Returns the best parameters so far by node, None where there are none yet, and how far the search is."""
        self._raise_failure()
        record = self.workspace.stage("parameter")
        log = {
            "task_state": record.state, "best_metric": record.best_metric, "searched_trail": record.num_of_trial,
            "budget": record.total_num_of_trials,
        }  # fmt: skip
        best = record.details.get("parameters")
        return (None if best is None else {name: np.array(value, np.float32) for name, value in best.items()}), log

    # --- stages -----------------------------------------------------------------------------------------------

    def _begin(self, stages: list[Callable[[], None]], env_save_path: str | None) -> None:
        if not self._ended.is_set():
            raise ConfigError("a stage of this server is under way; wait() for it, or stop_train()")
        self._env_save_path = env_save_path or self._env_save_path
        self._check_before(*(stage in stages for stage in (self._venv_stage, self._policy_stage, self._tuning_stage)))
        self._check_goes_on()
        taken = self._environment_to_take()
        self._failure = None
        lock = self.workspace.lock()
        try:
            self.workspace.note_files(self._given())
            self.workspace.write(CONFIG, self.config.to_dict())
            self.workspace.may_go_on()
        except BaseException:
            lock.release()
            raise

        def work() -> None:
            try:
                if taken is not None:
                    self._take_environment(*taken)
                for stage in stages:
                    stage()
                    if self.workspace.stop_asked():
                        break
            except BaseException as error:  # raised by wait() and the get_* methods
                self._failure = error
            finally:
                lock.release()
                self._ended.set()

        self._ended.clear()
        threading.Thread(target=work, name="revive", daemon=True).start()

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise self._failure

    def _log(self, message: str) -> bool:
        """Adds a line to the log; returns whether the work goes on."""
        self.workspace.log(message)
        self._say(message)
        return not self.workspace.stop_asked()

    @contextlib.contextmanager
    def _stage(self, name: str) -> Iterator[StageRecord]:
        """A context in which a stage is under way; its record says how it ended."""
        record = self.workspace.stage(name)
        record.state, record.error = "Run", None
        self.workspace.set_stage(name, record)
        try:
            yield record
        except BaseException as error:
            record.state, record.error = "Failed", f"{type(error).__name__}: {error}"
            self.workspace.set_stage(name, record)
            self.workspace.log(f"{name} stage failed: {record.error}")
            raise
        record.state = "Shutdown" if self.workspace.stop_asked() else "End"
        self.workspace.set_stage(name, record)
        self._log(f"{name} stage: {record.state}, best {record.best_metric}")

    def _environment_place(self) -> Path:
        """Returns where the environments are that are not learned now."""
        if self._env_save_path is None:
            return self.workspace.venv
        place = Path(self._env_save_path).absolute()
        return place / "venv" if (place / "venv").is_dir() else place

    def _environment_to_take(self) -> tuple[Path, dict[str, VirtualEnv]] | None:
        """Returns where the environment is that is to be taken, and both halves; None where none is named."""
        if self._env_save_path is None:
            return None
        from rlframe.revive.stages import load_environments

        place = self._environment_place()
        halves = load_environments(place)
        for venv in halves.values():
            self._inputs.graph.check_completes(venv.graph)
        record = self.workspace.stage("venv")
        if record.state != "Wait" and record.details.get("taken_from") != str(place):
            raise ConfigError(
                f"{self.workspace.directory}: this run has an environment already; choose another run_id to take that "
                f"of {place}"
            )
        return place, halves

    def _take_environment(self, place: Path, halves: Mapping[str, VirtualEnv]) -> None:
        """Makes the environment of another run that of this one, with its error where it is known."""
        if place == self.workspace.venv:
            return
        for half, venv in halves.items():
            venv.save(self.workspace.venv / half)
        theirs = Workspace(place.parent).stage("venv")
        details = {**theirs.details, "graph": halves["train"].graph.fingerprint, "taken_from": str(place)}
        record = StageRecord(state="End", best_metric=theirs.best_metric, details=details)
        self.workspace.set_stage("venv", record)
        self._log(f"venv stage: the environment of {place}")

    def _venv_stage(self) -> None:
        with self._stage("venv") as record:
            record.details["graph"] = self._inputs.graph.fingerprint
            if self.venv_mode == "tune":
                self._search("venv", record, self._keep_environment)
            elif self.venv_mode == "once":
                from rlframe.revive.stages import learn_environment

                record.total_num_of_trials = 1
                self.workspace.set_stage("venv", record)
                learned = learn_environment(self._inputs, self.config, self.workspace.venv, self._log)
                record.trials, record.best_metric = {}, None
                record.add("0", learned.metric, larger=False, metrics=learned.metrics, traj_dir=str(learned.path))
                record.details["metrics"] = learned.metrics

    def _keep_environment(self, trial: str, folder: Path) -> None:
        for half in HALVES:
            VirtualEnv.load(folder / half, trust=True).save(self.workspace.venv / half)
        self._log(f"venv trial {trial} is the best so far")

    def _policy_stage(self) -> None:
        from rlframe.revive.stages import PolicyStage, details_of, load_environments

        with self._stage("policy") as record:
            venvs = load_environments(self.workspace.venv)
            stage = PolicyStage(self._inputs, venvs, self.target)
            record.details = {"node": stage.node}  # scores and verdict were another policy's
            if self.policy_mode == "tune":
                self._search("policy", record, self._keep_policy)
                return
            record.total_num_of_trials = 1
            self.workspace.set_stage("policy", record)
            result = stage.run(self.config, self._keep_best, self._log, self._known_policies())
            record.trials, record.best_metric = {}, None
            record.add("0", result.metric, larger=True)
            record.details |= details_of(result)

    def _known_policies(self) -> dict[str, PolicyModel]:
        places = {"train": self.workspace.policy, "val": self.workspace.policy_val}
        return {half: PolicyModel.load(place) for half, place in places.items() if place.is_dir()}

    def _keep_best(self, progress: Any) -> None:
        progress.model.save(self.workspace.policy if progress.half == "train" else self.workspace.policy_val)

    def _keep_policy(self, trial: str, folder: Path) -> None:
        for name, place in (("policy", self.workspace.policy), ("policy_val", self.workspace.policy_val)):
            if (folder / name).is_dir():
                PolicyModel.load(folder / name).save(place)
        self._log(f"policy trial {trial} is the best so far")

    def _search(self, stage: Any, record: StageRecord, better: Callable[[str, Path], None]) -> None:
        """Searches a stage's parameters on the cluster."""
        from rlframe.revive.searching import Search
        from rlframe.tune.trial_pool import TrialPool

        self.workspace.set_stage(stage, record)
        with TrialPool(self.address) as pool:
            found = Search(self.workspace, stage, self._files, self.config, self.target).run(pool, better)
        vars(record).update({**vars(found), "details": {**record.details, **_best_details(found)}})
        if record.best_id is None and not self.workspace.stop_asked():
            errors = sorted({str(said.get("error", "no finite metric")) for said in record.trials.values()})
            raise ConfigError(f"all {record.num_of_trial} trials failed: {'; '.join(errors)}")

    def _initial(self, graph: DecisionGraph) -> InitialState:
        """Returns where rollouts begin, in an environment's graph, whose tunable nodes are those of the graph file."""
        from rlframe.revive.parameter_tuning import read_initial_state

        graph.tunable = self._inputs.graph.tunable or graph.tunable
        longest = self.config.base.parameter_tuning_rollout_horizon
        return read_initial_state(self._initial_state, graph, longest)  # type: ignore[arg-type]  # there is one: `_check_before`

    def _tuning_stage(self) -> None:
        from rlframe.revive.parameter_tuning import TuningResult, tune_parameters
        from rlframe.revive.stages import load_environments

        base, mode = self.config.base, self.tuning_mode
        with self._stage("parameter") as record:
            venvs = load_environments(self.workspace.venv)
            initial = self._initial(venvs["train"].graph)
            record.total_num_of_trials = base.parameter_tuning_budget

            def note(found: TuningResult) -> bool:
                record.num_of_trial, record.best_metric = found.searched, found.metric
                record.details["parameters"] = {name: value.tolist() for name, value in found.parameters.items()}
                self.workspace.set_stage("parameter", record)
                return self.workspace.stop_asked()

            found = tune_parameters(
                list(venvs.values()), self._inputs.reward, initial, mode=mode,  # type: ignore[arg-type]
                algorithm=base.parameter_tuning_algorithm, budget=base.parameter_tuning_budget, seed=base.global_seed,
                report=note,
            )  # fmt: skip
            note(found)


def _best_details(record: StageRecord) -> dict[str, Any]:
    """Returns what the best trial of a search found out."""
    best = record.trials.get(record.best_id or "", {})
    return {name: value for name, value in best.items() if name not in {"metric", "traj_dir", "node", "stopped"}}


def _log(record: StageRecord) -> dict[str, Any]:
    best = record.trials.get(record.best_id or "", {})
    return {
        "task_state": record.state, "current_num_of_trials": record.num_of_trial,
        "total_num_of_trials": record.total_num_of_trials, "best_trial": record.best_id,
        "traj_dir": best.get("traj_dir"), "trials": json.loads(json.dumps(record.trials)), "error": record.error,
    }  # fmt: skip
