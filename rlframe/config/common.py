"""The keys that every algorithm has: COMMON_CONFIG and its declaration."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, ClassVar, Literal

from rlframe.config.exploration import EXPLORATIONS
from rlframe.config.faults import got
from rlframe.config.model import ModelConfig
from rlframe.config.multiagent import MultiagentConfig
from rlframe.config.nested_dict import same
from rlframe.config.options import AlgorithmConfig, UnsupportedValue, option, section
from rlframe.config.unsupported import LOCAL_TF_SESSION_ARGS, TF_SESSION_ARGS, UNSUPPORTED
from rlframe.config.validators import (
    callbacks_rule,
    env_rule,
    environ_rule,
    filter_rule,
    input_rule,
    resources_rule,
    space_rule,
)

Function = Callable[..., Any]
FreeForm = dict[Any, Any]
Number = int | float

#: Key in the config of policies that never learn. `in_evaluation` says something else: programs set it themselves.
ONLY_EVALUATES = "_only_evaluates"
#: Key in the config of workers whose rows nothing but learning reads: a trainer sets it whose plan is built in.
ROWS_ARE_FOR_LEARNING = "_rows_are_for_learning"


class CommonConfig(AlgorithmConfig):
    """The keys that every algorithm has, as in RLlib 1.x, with two defaults of rlframe's own.

    `framework` is "torch" here, and `callbacks` and `sample_collector` are None where nothing is to be called.
    """

    unsupported: ClassVar[Mapping[str, UnsupportedValue]] = UNSUPPORTED

    # Sampling
    num_workers: int = option(
        2, "Remote rollout workers; 0 samples in the driver's process.", unit="processes", low=0, tunable=False
    )
    num_envs_per_worker: int = option(
        1, "Environments stepped together in one worker.", unit="environments", low=1, alias="n_envs"
    )
    create_env_on_driver: bool = option(
        False, "Give the driver an environment although there are remote workers.", tunable=False
    )
    rollout_fragment_length: int = option(
        200,
        "Steps of each environment in one sample (what counts as a step: multiagent.count_steps_by); 0 with "
        "complete_episodes is one episode each.",
        unit="steps",
        low=0,
        alias="n_steps",
    )
    batch_mode: str = option(
        "truncate_episodes",
        "Cut samples at the fragment's length, or only where episodes end.",
        choices=("truncate_episodes", "complete_episodes"),
    )
    vectorized_env: bool = option(
        False,
        "Step the environment's own vectorised version, where Gymnasium has one: faster, but episodes are not seeded "
        "one by one, and resuming begins new ones.",
        tunable=False,
    )
    sample_async: bool = option(
        False,
        "Remote workers sample the next round while the learner learns, with weights one round older.",
        tunable=False,
    )
    sample_collector: Any = option(None, "Class that builds batches.", wanted="a class or None")
    observation_filter: Any = option(
        "NoFilter",
        "Filter of observations: a name, or a function of the shape.",
        rule=filter_rule,
        wanted="a filter",
        tunable=True,
    )
    synchronize_filters: bool = option(True, "Send merged filters to the workers in every iteration.", tunable=False)
    compress_observations: bool | Literal["bulk"] = option(
        False, 'Compress obs and new_obs in batches, row by row (zlib); "bulk" is the same.', tunable=False
    )
    share_memory: bool = option(
        True,
        "Large observations of asynchronous remote workers on this machine come through memory that both processes "
        "map, not through Ray's object store.",
        tunable=False,
    )
    fake_sampler: bool = option(False, "Repeat the first batch for ever, to measure the learner alone.", tunable=False)
    sample_in_numpy: bool = option(
        True,
        "Dense built-in models on remote workers sample in NumPy, and the workers load no framework.",
        tunable=False,
    )

    # Learning
    gamma: float = option(0.99, "Discount of later rewards.", low=0, high=1)
    lr: float = option(1e-4, "Learning rate of the default optimizer.", low=0, log=True)
    train_batch_size: int = option(200, "Rows of one training batch.", unit="steps", low=1)
    model: ModelConfig = section(ModelConfig, "Options of the networks.")
    optimizer: FreeForm | str = option({}, "Options of a plan, or what a policy of your own reads.")
    framework: str = option("torch", "The framework that learns.", choices=("torch", "tf", "tf2", "tfe"), tunable=False)
    eager_tracing: bool = option(
        False,
        "TensorFlow's step is traced in any case; tf.config.run_functions_eagerly(True) serves debugging.",
        tunable=False,
    )
    eager_max_retraces: int = option(
        20,
        "Traces of TensorFlow's learner step after which an error says what changes from batch to batch.",
        low=1,
        tunable=False,
    )
    jit_compile: bool = option(
        False, "XLA compiles TensorFlow's learner step; pays on GPUs and for many minibatches.", tunable=False
    )
    simple_optimizer: bool | Literal[-1] = option(
        -1,
        "True trains without the multi-GPU path, False with it, -1 lets the trainer choose.",
        tunable=False,
    )
    tf_policy_handles_more_than_one_loss: bool = option(
        False,
        "A TensorFlow policy may return several losses in any case.",
        key="_tf_policy_handles_more_than_one_loss",
        tunable=False,
    )

    # Environment
    env: Any = option(
        None,
        "The environment.",
        rule=env_rule,
        wanted="a registered name, a Gymnasium id, a class, a function or None",
        tunable=False,
    )
    observation_space: Any = option(
        None, "Observation space where there is no environment.", rule=space_rule, wanted="a space or None"
    )
    action_space: Any = option(
        None, "Action space where there is no environment.", rule=space_rule, wanted="a space or None"
    )
    env_config: FreeForm = option({}, "What the environment's constructor gets, as an EnvContext. Free-form.")
    horizon: int | None = option(
        None,
        "Longest episode; None, or 0, is the environment's own limit. Episodes cut here are truncated.",
        unit="env steps",
        low=0,
        tunable=False,
    )
    soft_horizon: bool = option(False, "At the horizon, record an end but do not reset the environment.", tunable=False)
    no_done_at_end: bool = option(False, "Never store the end of an episode as termination.", tunable=False)
    remote_worker_envs: bool = option(False, "Every environment of a worker is a process of its own.", tunable=False)
    remote_env_batch_wait_ms: int = option(
        0, "How long to wait for more of such environments.", unit="ms", low=0, tunable=False
    )
    env_task_fn: Function | None = option(None, "Curriculum: (result, task-settable env, env context) -> new task.")
    render_env: bool = option(False, "Call render at every step.", tunable=False)
    record_env: bool | str | None = option(
        False, "Record videos, into a folder if a string is given; False and None: none.", tunable=False
    )
    clip_rewards: bool | float | None = option(
        None, "True: sign of the reward; x: clip to [-x, x]; False: off; None: sign for Atari, else off.", low=0
    )
    normalize_actions: bool = option(True, "Policies act in [-1, 1], mapped to the bounds of the Box.")
    clip_actions: bool = option(False, "Clip actions to the bounds of the Box.")
    preprocessor_pref: str | None = option(
        "deepmind", "Atari games: wrap_deepmind, or screens by the pixel preprocessor.", choices=("deepmind", "rllib")
    )

    # Debugging and failures
    log_level: str | int = option(
        "WARN",
        "Level of rlframe's logger: a name, or a number as logging.INFO.",
        choices=("DEBUG", "INFO", "WARN", "WARNING", "ERROR"),
        low=0,
        high=50,
        tunable=False,
    )
    callbacks: Any = option(
        None, "A DefaultCallbacks subclass, or a dict of functions as in old programs.", rule=callbacks_rule,
        wanted="a DefaultCallbacks subclass, a dict of functions or None",
    )  # fmt: skip
    ignore_worker_failures: bool = option(False, "Go on with the workers that are left.", tunable=False)
    recreate_failed_workers: bool = option(
        False, "Replace a failed worker by a new one with the same index.", tunable=False
    )
    log_sys_usage: bool = option(True, "Report the use of CPU and memory as `perf`.", tunable=False)
    fake_gpus: bool = option(False, "CPUs play GPU towers, for tests.", key="_fake_gpus", tunable=False)
    logger_config: FreeForm | None = option(None, "Class and folder of the logger: type, logdir. Free-form.")
    monitor: bool | str | Literal[-1] | None = option(-1, "Old name of record_env.", deprecated=True)

    # Exploration and evaluation
    explore: bool = option(True, "False acts greedily everywhere.")
    exploration_config: FreeForm = option({"type": "StochasticSampling"}, "How to explore.", variants=EXPLORATIONS)
    evaluation_interval: int | None = option(
        None,
        "Iterations from one evaluation to the next; None or 0 is never.",
        low=0,
        tunable=False,
    )
    evaluation_num_episodes: int | Literal["auto"] = option(
        10,
        "Episodes of one evaluation (or steps: evaluation_duration_unit); 'auto' fills the time of a training step.",
        unit="episodes",
        low=1,
        tunable=False,
    )
    evaluation_duration_unit: str = option(
        "episodes",
        "What evaluation_num_episodes counts; 'timesteps': whole episodes until so many env steps are run.",
        choices=("episodes", "timesteps"),
        tunable=False,
    )
    always_attach_evaluation_results: bool = option(
        False,
        "Results of iterations without an evaluation repeat the last one, with its age: for stop criteria and "
        "schedulers that want the key in every result.",
        tunable=False,
    )
    evaluation_parallel_to_training: bool = option(False, "Evaluate while training goes on.", tunable=False)
    in_evaluation: bool = option(False, "Set by rlframe on evaluation workers.", tunable=False)
    evaluation_config: FreeForm = option({}, "Overrides of this config for evaluation.", overrides=True)
    evaluation_num_workers: int = option(
        0,
        "Remote evaluation workers; 0 evaluates in the driver's process.",
        unit="processes",
        low=0,
        tunable=False,
    )
    custom_eval_function: Function | None = option(None, "(trainer, evaluation workers) -> dict of metrics.")

    # Metrics and iterations
    collect_metrics_timeout: Number = option(
        180, "Longest wait for the workers' metrics.", unit="s", low=0, tunable=False
    )
    metrics_smoothing_episodes: int = option(
        100, "Episodes that statistics are taken over.", unit="episodes", low=1, tunable=False
    )
    keep_per_episode_custom_metrics: bool = option(
        False, "Custom metrics are lists of the episodes' values, not their mean, min and max.", tunable=False
    )
    min_iter_time_s: Number | None = option(
        0, "Shortest iteration; None as in the plan's own algorithm.", unit="s", low=0, tunable=False
    )
    timesteps_per_iteration: int = option(
        0, "Fewest steps sampled in an iteration.", unit="env steps", low=0, tunable=False
    )

    # Processes and devices
    seed: int | None = option(
        None, "Seed that every random stream is derived from; None draws one.", low=0, tunable=False
    )
    extra_python_environs_for_driver: dict[str, Any] = option(
        {}, "Environment variables set in the driver. Free-form.", rule=environ_rule
    )
    extra_python_environs_for_worker: dict[str, Any] = option(
        {}, "Environment variables set in the workers. Free-form.", rule=environ_rule
    )
    num_gpus: Number = option(0, "GPUs of the learner; a fraction shares one.", unit="GPUs", low=0, tunable=False)
    num_cpus_per_worker: Number = option(1, "CPUs of a rollout worker.", unit="CPUs", low=0, tunable=False)
    num_gpus_per_worker: Number = option(0, "GPUs of a rollout worker.", unit="GPUs", low=0, tunable=False)
    custom_resources_per_worker: dict[str, Number] = option(
        {}, "Other Ray resources of a rollout worker.", rule=resources_rule, wanted="a number >= 0 for every resource"
    )
    num_cpus_for_driver: Number = option(
        1, "CPUs of the driver, where Tune places it.", unit="CPUs", low=0, tunable=False
    )
    placement_strategy: str = option(
        "PACK",
        "How Ray spreads the workers over machines.",
        choices=("PACK", "SPREAD", "STRICT_PACK", "STRICT_SPREAD"),
        tunable=False,
    )
    learner_threads: int | None = option(
        None,
        "Threads of the framework that learns, and acts where NumPy cannot; None takes one for small networks and all "
        "usable CPUs for large ones, unless OMP_NUM_THREADS or the program says.",
        unit="threads",
        low=1,
        tunable=False,
    )
    tf_session_args: FreeForm = option(
        TF_SESSION_ARGS,
        "TensorFlow's threads: intra_op_parallelism_threads share one operation, inter_op_parallelism_threads several.",
    )
    local_tf_session_args: FreeForm = option(LOCAL_TF_SESSION_ARGS, "What differs from it in the driver. Free-form.")

    # Offline data
    input: Any = option(
        "sampler",
        "Where experience comes from.",
        rule=input_rule,
        wanted="a name, a path or a function",
        tunable=False,
    )
    input_config: FreeForm = option(
        {}, "How it is read: shuffle_rows, batch_rows, schema, n_step; what readers of your own get. Free-form."
    )
    actions_in_input_normalized: bool = option(False, "Data that do not say it have actions in [-1, 1].", tunable=False)
    input_evaluation: list[str] = option(
        ["is", "wis"],
        "Estimators of the policy's value on offline data.",
        choices=("is", "wis", "simulation"),
        tunable=False,
    )
    postprocess_inputs: bool = option(False, "Postprocess trajectories that were read.", tunable=False)
    shuffle_buffer_size: int = option(
        0, "Batches that are shuffled among each other.", unit="batches", low=0, tunable=False
    )
    output: Any = option(
        None,
        "Where to write samples.",
        rule=input_rule,
        wanted="a path, 'logdir', a function or None",
        tunable=False,
    )
    output_config: FreeForm = option(
        {}, 'How it is written: format ("json" or "parquet"), compression and group_rows (of Parquet). Free-form.'
    )
    output_compress_columns: list[str] = option(["obs", "new_obs"], "Columns to compress.", tunable=False)
    output_max_file_size: int = option(
        64 * 1024 * 1024, "Size at which a new file is begun.", unit="bytes", low=1, tunable=False
    )

    multiagent: MultiagentConfig = section(MultiagentConfig, "Several agents and policies in one environment.")
    disable_preprocessor_api: bool = option(
        False,
        "Hand observations to the model as they are.",
        key="_disable_preprocessor_api",
        tunable=False,
    )
    disable_execution_plan_api: bool = option(
        True,
        "A trainer's training_iteration() or training_step() trains where it is more derived than its execution_plan; "
        "False: the plan does in any case.",
        key="_disable_execution_plan_api",
        tunable=False,
    )

    def faults(self) -> Iterator[str]:
        """Yields what contradicts itself between the common keys."""
        yield from self._empty_fragment_faults()
        if self.evaluation_num_episodes == "auto" and not self.evaluation_parallel_to_training:
            yield "evaluation_num_episodes='auto' needs evaluation_parallel_to_training=True; else give a number"
        if self.num_gpus > 1 and self.simple_optimizer is True:
            yield "simple_optimizer=True trains on one GPU; num_gpus must be at most 1"
        if self.jit_compile and self.framework == "torch":
            yield "jit_compile=True compiles TensorFlow's learner step, but framework is 'torch'; leave it out"
        if self.multiagent.replay_mode == "lockstep" and "replay_buffer_config" not in self.options():
            yield "multiagent.replay_mode='lockstep' is for algorithms that replay; leave it at 'independent'"
        if self.sample_async and self.num_workers == 0:
            yield "sample_async=True needs num_workers >= 1: one process cannot sample and learn at once"
        for key, advice in _EVALUATION_ADVICE.items():
            if key in self.evaluation_config and not self._repeats(key):
                yield f"evaluation_config.{key}: {got(self.evaluation_config[key])}; {advice}"
        for key in self.evaluation_config:
            if str(key).startswith("evaluation_") and key != "evaluation_config" and not self._repeats(key):
                yield f"evaluation_config.{key} has no effect there; set {key} beside evaluation_config"

    def _empty_fragment_faults(self) -> Iterator[str]:
        """Yields a fault where samples would have no rows."""
        if self.rollout_fragment_length == 0 and self.batch_mode != "complete_episodes":
            yield "rollout_fragment_length=0: wanted an integer >= 1 (steps), or batch_mode='complete_episodes'"

    def remarks(self) -> Iterator[str]:
        """Yields what is allowed but hardly meant."""
        if self.evaluation_num_workers > 0 and not self.evaluation_interval:
            yield "evaluation_num_workers > 0 without evaluation_interval: only a call of evaluate() evaluates"
        if "rollout_fragment_length" in self.evaluation_config and not self._repeats("rollout_fragment_length"):
            yield "evaluation_config.rollout_fragment_length has no effect: evaluation runs whole episodes"

    def _repeats(self, key: str) -> bool:
        """Whether evaluation_config says of a key what the config says anyway."""
        return same(self.evaluation_config[key], getattr(self, key, self))


_EVALUATION_ADVICE = {
    "in_evaluation": "rlframe sets it; leave it out",
    "num_workers": "set evaluation_num_workers beside evaluation_config",
    "batch_mode": "evaluation runs whole episodes; leave it out",
}
"""Keys that have no effect inside evaluation_config, and what to do instead."""


_PARTLY = frozenset({"exploration_config.type", "input_evaluation"})
"""Refused keys of which some values besides the default are honoured."""


def honoured_keys(declaration: type[AlgorithmConfig] = CommonConfig) -> frozenset[str]:
    """Returns the dotted keys of which this version honours more than the default; each must be read somewhere."""
    refused = frozenset(declaration.unsupported) - _PARTLY
    return frozenset(declaration.known_keys() - refused - declaration.deprecated_keys())
