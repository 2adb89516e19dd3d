"""The config keys of each algorithm as a `TypedDict`, for editors and type checkers; nothing reads them.

Made from the declarations by docs/_tools/config_dicts.py; change those. Any key may be left out.
"""

# ruff: noqa: D101, E501
# fmt: off
from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

from typing_extensions import TypedDict


class NetworkConfigDict(TypedDict, total=False):
    fcnet_hiddens: Sequence[int]
    """Sizes of the fully connected layers."""
    fcnet_activation: Literal['linear', 'relu', 'tanh', 'elu', 'swish', 'silu', 'sigmoid', 'selu', 'gelu', 'leaky_relu', 'softplus', 'softsign', 'relu6'] | None
    """Activation of these layers."""
    conv_filters: Sequence[Sequence[int | str | Sequence[int]]] | None
    """Convolutions as [out_channels, kernel, stride]; None takes those for the image size, where there are any. A fourth entry is the padding, "same" or "valid"; without one the last is "valid", the others are "same"."""
    conv_activation: Literal['linear', 'relu', 'tanh', 'elu', 'swish', 'silu', 'sigmoid', 'selu', 'gelu', 'leaky_relu', 'softplus', 'softsign', 'relu6'] | None
    """Activation of the convolutions."""
    post_fcnet_hiddens: Sequence[int]
    """Sizes of the layers after convolutions or concatenation."""
    post_fcnet_activation: Literal['linear', 'relu', 'tanh', 'elu', 'swish', 'silu', 'sigmoid', 'selu', 'gelu', 'leaky_relu', 'softplus', 'softsign', 'relu6'] | None
    """Activation of these layers."""
    custom_model: Any
    """Registered name or class of the user's model."""
    custom_model_config: Mapping[Any, Any]
    """Keyword arguments of the user's model. Free-form."""

class ModelConfigDict(NetworkConfigDict, total=False):
    _use_default_native_models: bool
    """Use the framework's own layers as default models."""
    _disable_preprocessor_api: bool
    """Hand observations to the model as they are."""
    fcnet_weights_initializer: Literal['normc', 'orthogonal', 'xavier', 'fan_in']
    """How dense layers of networks for vectors begin: 'normc' as RLlib's, rows of norm 1, outputs and values of 0.01; 'orthogonal' with the gains √2, 0.01 for outputs and 1 for values; 'xavier' (uniform); 'fan_in' as PyTorch's own."""
    free_log_std: bool | None
    """The second half of the outputs, log standard deviations, is a bias that no state changes. None does so where actions are Gaussian and the model is a built-in one that can."""
    initial_log_std: float
    """What these log standard deviations begin with, if they are free."""
    no_final_linear: bool
    """The last layer has an activation, and as many units as outputs are wanted."""
    vf_share_layers: bool
    """Value function and policy share their layers."""
    use_lstm: bool
    """Put an LSTM behind the model."""
    max_seq_len: int
    """Longest sequence that gradients flow through. In env steps."""
    lstm_cell_size: int
    """Size of the LSTM's state."""
    lstm_use_prev_action: bool
    """The LSTM sees the last action."""
    lstm_use_prev_reward: bool
    """The LSTM sees the last reward."""
    _time_major: bool
    """Sequences are [T, B, ...] inside the model."""
    use_attention: bool
    """Put a GTrXL behind the model."""
    attention_num_transformer_units: int
    """Transformer units of the GTrXL."""
    attention_dim: int
    """Input and output size of a unit."""
    attention_num_heads: int
    """Attention heads of a unit."""
    attention_head_dim: int
    """Size of a head."""
    attention_memory_inference: int
    """Past embeddings kept while acting. In env steps."""
    attention_memory_training: int
    """Past embeddings kept while learning. In env steps."""
    attention_position_wise_mlp_dim: int
    """Hidden size of a unit's MLP."""
    attention_init_gru_gate_bias: float
    """Initial bias of the gates; positive is near the identity."""
    attention_use_n_prev_actions: int
    """Past actions that the GTrXL sees."""
    attention_use_n_prev_rewards: int
    """Past rewards that the GTrXL sees."""
    framestack: bool
    """Stack four frames of Atari games."""
    dim: int
    """Height and width that Atari frames are resized to. In pixels."""
    grayscale: bool
    """The pixel preprocessor drops colour."""
    zero_mean: bool
    """The pixel preprocessor maps to [-1, 1], else to [0, 1]."""
    custom_action_dist: Any
    """Registered name or class of the user's action distribution."""
    custom_preprocessor: Any
    """Registered name or class of the user's preprocessor; better an environment wrapper."""
    lstm_use_prev_action_reward: bool | Literal[-1]
    """Old name of lstm_use_prev_action and lstm_use_prev_reward."""

class MultiagentConfigDict(TypedDict, total=False):
    policies: Any
    """Policies by id: a PolicySpec or (class, observation space, action space, config); or a set of ids."""
    policy_map_capacity: int
    """Policies each worker keeps in memory; the longest unused wait on disk. In policies."""
    policy_map_cache: str | None
    """Folder for the policies that wait on disk; None is a temporary one."""
    policy_mapping_fn: Any
    """Chooses the policy of an agent: (agent_id, episode, worker, **kwargs) -> policy id."""
    policies_to_train: Any
    """Ids of the policies that learn; None is all."""
    observation_fn: Any
    """Changes the observations of all agents together before the policies see them."""
    replay_mode: Literal['independent', 'lockstep']
    """Policies replay each for itself, or all agents' steps of one time."""
    count_steps_by: Literal['env_steps', 'agent_steps']
    """What the sizes of fragments and batches count."""

class ApexOptimizerConfigDict(TypedDict, total=False):
    max_weight_sync_delay: int
    """Steps that a worker samples at most before it is sent newer weights. In env steps."""
    num_replay_buffer_shards: int
    """Parts of the replay buffer, each in a process of its own beside remote workers."""
    debug: bool
    """Results tell more of the first shard, in info.replay_shard_0."""

class LearningRatesConfigDict(TypedDict, total=False):
    actor_learning_rate: float
    """That of the actor."""
    critic_learning_rate: float
    """That of the critics."""
    entropy_learning_rate: float
    """That of the temperature α; 0 keeps initial_alpha."""

class DreamerModelConfigDict(TypedDict, total=False):
    custom_model: Any
    """A class derived from DreamerModel, or its name; None is DreamerModel."""
    custom_model_config: Mapping[Any, Any]
    """Its own options. Free-form."""
    deter_size: int
    """Width of the deterministic state, and of the layers around it."""
    stoch_size: int
    """Width of the stochastic state."""
    depth_size: int
    """Channels of the first convolution, of which the others have multiples."""
    hidden_size: int
    """Width of the dense layers."""
    action_init_std: float
    """Standard deviation of first actions, before squashing."""
    predict_termination: bool
    """A network learns where episodes terminate, and imagined returns end there."""

class DynamicsConfigDict(TypedDict, total=False):
    custom_model: Any
    """A class derived from DynamicsEnsemble in its place."""
    ensemble_size: int
    """Models."""
    fcnet_hiddens: Sequence[int]
    """Sizes of each model's hidden layers."""
    lr: float
    """Rate of Adam."""
    train_epochs: int
    """Passes of one fit over the rows, at most."""
    batch_size: int
    """Rows of one step of Adam. In rows."""
    valid_split_ratio: float
    """Share of the rows that a model does not learn from; their loss ends the fit."""
    normalize_data: bool
    """Observations, actions and what steps change have mean 0 and deviation 1."""

class SearchConfigDict(TypedDict, total=False):
    puct_coefficient: float
    """c: weight of what the network expects against what was found."""
    num_simulations: int
    """Simulations for each action."""
    temperature: float
    """τ: exponent of visits in the tree policy; large is greedy."""
    dirichlet_epsilon: float
    """Share of noise in the root's priors."""
    dirichlet_noise: float
    """α of the noise; small draws favour one action."""
    argmax_tree_policy: bool
    """Take the likeliest action of the tree policy instead of drawing one."""
    add_dirichlet_noise: bool
    """Exploring searches have noise at the root."""

class RankedRewardsConfigDict(TypedDict, total=False):
    enable: bool
    """Whether outcomes are ranked."""
    percentile: float
    """An outcome of this percentile or more is worth 1, others -1."""
    buffer_max_length: int
    """Outcomes that are ranked against. In episodes."""
    initialize_buffer: bool
    """The first outcomes are those of acting at random."""
    num_init_rewards: int
    """How many. In episodes."""

class BanditModelConfigDict(ModelConfigDict, total=False):
    alpha: float
    """α: factor on the posterior covariance: of weights that are drawn, and of squared bounds."""
    lambda_: float | None
    """λ: prior precision of each weight, the ridge; None is 1, and 0.1 for observations with `item`."""

class _CommonKeys(TypedDict, total=False):
    num_workers: int
    """Remote rollout workers; 0 samples in the driver's process. In processes."""
    num_envs_per_worker: int
    """Environments stepped together in one worker. In environments."""
    create_env_on_driver: bool
    """Give the driver an environment although there are remote workers."""
    rollout_fragment_length: int
    """Steps of each environment in one sample (what counts as a step: multiagent.count_steps_by); 0 with complete_episodes is one episode each. In steps."""
    batch_mode: Literal['truncate_episodes', 'complete_episodes']
    """Cut samples at the fragment's length, or only where episodes end."""
    vectorized_env: bool
    """Step the environment's own vectorised version, where Gymnasium has one: faster, but episodes are not seeded one by one, and resuming begins new ones."""
    sample_async: bool
    """Remote workers sample the next round while the learner learns, with weights one round older."""
    sample_collector: Any
    """Class that builds batches."""
    observation_filter: Any
    """Filter of observations: a name, or a function of the shape."""
    synchronize_filters: bool
    """Send merged filters to the workers in every iteration."""
    compress_observations: bool | Literal['bulk']
    """Compress obs and new_obs in batches, row by row (zlib); "bulk" is the same."""
    share_memory: bool
    """Large observations of asynchronous remote workers on this machine come through memory that both processes map, not through Ray's object store."""
    fake_sampler: bool
    """Repeat the first batch for ever, to measure the learner alone."""
    sample_in_numpy: bool
    """Dense built-in models on remote workers sample in NumPy, and the workers load no framework."""
    gamma: float
    """Discount of later rewards."""
    lr: float
    """Learning rate of the default optimizer."""
    train_batch_size: int
    """Rows of one training batch. In steps."""
    model: ModelConfigDict
    """Options of the networks."""
    optimizer: Mapping[Any, Any] | str | ApexOptimizerConfigDict
    """Options of a plan, or what a policy of your own reads."""
    framework: Literal['torch', 'tf', 'tf2', 'tfe']
    """The framework that learns."""
    eager_tracing: bool
    """TensorFlow's step is traced in any case; tf.config.run_functions_eagerly(True) serves debugging."""
    eager_max_retraces: int
    """Traces of TensorFlow's learner step after which an error says what changes from batch to batch."""
    jit_compile: bool
    """XLA compiles TensorFlow's learner step; pays on GPUs and for many minibatches."""
    simple_optimizer: bool | Literal[-1]
    """True trains without the multi-GPU path, False with it, -1 lets the trainer choose."""
    _tf_policy_handles_more_than_one_loss: bool
    """A TensorFlow policy may return several losses in any case."""
    env: Any
    """The environment."""
    observation_space: Any
    """Observation space where there is no environment."""
    action_space: Any
    """Action space where there is no environment."""
    env_config: Mapping[Any, Any]
    """What the environment's constructor gets, as an EnvContext. Free-form."""
    horizon: int | None
    """Longest episode; None, or 0, is the environment's own limit. Episodes cut here are truncated. In env steps."""
    soft_horizon: bool
    """At the horizon, record an end but do not reset the environment."""
    no_done_at_end: bool
    """Never store the end of an episode as termination."""
    remote_worker_envs: bool
    """Every environment of a worker is a process of its own."""
    remote_env_batch_wait_ms: int
    """How long to wait for more of such environments. In ms."""
    env_task_fn: Callable[..., Any] | None
    """Curriculum: (result, task-settable env, env context) -> new task."""
    render_env: bool
    """Call render at every step."""
    record_env: bool | str | None
    """Record videos, into a folder if a string is given; False and None: none."""
    clip_rewards: bool | float | None
    """True: sign of the reward; x: clip to [-x, x]; False: off; None: sign for Atari, else off."""
    normalize_actions: bool
    """Policies act in [-1, 1], mapped to the bounds of the Box."""
    clip_actions: bool
    """Clip actions to the bounds of the Box."""
    preprocessor_pref: Literal['deepmind', 'rllib'] | None
    """Atari games: wrap_deepmind, or screens by the pixel preprocessor."""
    log_level: Literal['DEBUG', 'INFO', 'WARN', 'WARNING', 'ERROR'] | int
    """Level of rlframe's logger: a name, or a number as logging.INFO."""
    callbacks: Any
    """A DefaultCallbacks subclass, or a dict of functions as in old programs."""
    ignore_worker_failures: bool
    """Go on with the workers that are left."""
    recreate_failed_workers: bool
    """Replace a failed worker by a new one with the same index."""
    log_sys_usage: bool
    """Report the use of CPU and memory as `perf`."""
    _fake_gpus: bool
    """CPUs play GPU towers, for tests."""
    logger_config: Mapping[Any, Any] | None
    """Class and folder of the logger: type, logdir. Free-form."""
    monitor: bool | str | Literal[-1] | None
    """Old name of record_env."""
    explore: bool
    """False acts greedily everywhere."""
    exploration_config: Mapping[Any, Any]
    """How to explore."""
    evaluation_interval: int | None
    """Iterations from one evaluation to the next; None or 0 is never."""
    evaluation_num_episodes: int | Literal['auto']
    """Episodes of one evaluation (or steps: evaluation_duration_unit); 'auto' fills the time of a training step. In episodes."""
    evaluation_duration_unit: Literal['episodes', 'timesteps']
    """What evaluation_num_episodes counts; 'timesteps': whole episodes until so many env steps are run."""
    always_attach_evaluation_results: bool
    """Results of iterations without an evaluation repeat the last one, with its age: for stop criteria and schedulers that want the key in every result."""
    evaluation_parallel_to_training: bool
    """Evaluate while training goes on."""
    in_evaluation: bool
    """Set by rlframe on evaluation workers."""
    evaluation_num_workers: int
    """Remote evaluation workers; 0 evaluates in the driver's process. In processes."""
    custom_eval_function: Callable[..., Any] | None
    """(trainer, evaluation workers) -> dict of metrics."""
    collect_metrics_timeout: int | float
    """Longest wait for the workers' metrics. In s."""
    metrics_smoothing_episodes: int
    """Episodes that statistics are taken over. In episodes."""
    keep_per_episode_custom_metrics: bool
    """Custom metrics are lists of the episodes' values, not their mean, min and max."""
    min_iter_time_s: int | float | None
    """Shortest iteration; None as in the plan's own algorithm. In s."""
    timesteps_per_iteration: int
    """Fewest steps sampled in an iteration. In env steps."""
    seed: int | None
    """Seed that every random stream is derived from; None draws one."""
    extra_python_environs_for_driver: Mapping[str, Any]
    """Environment variables set in the driver. Free-form."""
    extra_python_environs_for_worker: Mapping[str, Any]
    """Environment variables set in the workers. Free-form."""
    num_gpus: int | float
    """GPUs of the learner; a fraction shares one. In GPUs."""
    num_cpus_per_worker: int | float
    """CPUs of a rollout worker. In CPUs."""
    num_gpus_per_worker: int | float
    """GPUs of a rollout worker. In GPUs."""
    custom_resources_per_worker: Mapping[str, int | float]
    """Other Ray resources of a rollout worker."""
    num_cpus_for_driver: int | float
    """CPUs of the driver, where Tune places it. In CPUs."""
    placement_strategy: Literal['PACK', 'SPREAD', 'STRICT_PACK', 'STRICT_SPREAD']
    """How Ray spreads the workers over machines."""
    learner_threads: int | None
    """Threads of the framework that learns, and acts where NumPy cannot; None takes one for small networks and all usable CPUs for large ones, unless OMP_NUM_THREADS or the program says. In threads."""
    tf_session_args: Mapping[Any, Any]
    """TensorFlow's threads: intra_op_parallelism_threads share one operation, inter_op_parallelism_threads several."""
    local_tf_session_args: Mapping[Any, Any]
    """What differs from it in the driver. Free-form."""
    input: Any
    """Where experience comes from."""
    input_config: Mapping[Any, Any]
    """How it is read: shuffle_rows, batch_rows, schema, n_step; what readers of your own get. Free-form."""
    actions_in_input_normalized: bool
    """Data that do not say it have actions in [-1, 1]."""
    input_evaluation: Sequence[Literal['is', 'wis', 'simulation']]
    """Estimators of the policy's value on offline data."""
    postprocess_inputs: bool
    """Postprocess trajectories that were read."""
    shuffle_buffer_size: int
    """Batches that are shuffled among each other. In batches."""
    output: Any
    """Where to write samples."""
    output_config: Mapping[Any, Any]
    """How it is written: format ("json" or "parquet"), compression and group_rows (of Parquet). Free-form."""
    output_compress_columns: Sequence[str]
    """Columns to compress."""
    output_max_file_size: int
    """Size at which a new file is begun. In bytes."""
    multiagent: MultiagentConfigDict
    """Several agents and policies in one environment."""
    _disable_preprocessor_api: bool
    """Hand observations to the model as they are."""
    _disable_execution_plan_api: bool
    """A trainer's training_iteration() or training_step() trains where it is more derived than its execution_plan; False: the plan does in any case."""

class _GradientClippingKeys(_CommonKeys, total=False):
    grad_clip: float | None
    """Largest global norm of the gradient; None or 0 does not clip."""

class _ReplayKeys(_CommonKeys, total=False):
    learning_starts: int
    """Steps sampled before the first update. In env steps."""
    replay_buffer_config: Mapping[Any, Any] | None
    """The replay buffer; None for plans without one."""
    buffer_size: int
    """Old name of replay_buffer_config.capacity."""
    store_buffer_in_checkpoints: bool
    """Checkpoints hold the replay buffer, so that resuming is exact; False leaves it out in restore() too."""

class _OffPolicyKeys(_ReplayKeys, total=False):
    target_network_update_freq: int
    """Steps between two updates of the target networks; 0 updates them with each learner step. In env steps sampled."""

class _LearningRateScheduleKeys(_CommonKeys, total=False):
    lr_schedule: Any
    """Points [env step, learning rate], linear between them; None keeps lr."""

class _EntropyBonusKeys(_CommonKeys, total=False):
    entropy_coeff: float
    """Weight of the entropy bonus."""
    entropy_coeff_schedule: Any
    """Points [env step, weight]; or a step at which the weight reaches 0."""

class _LossWeightsKeys(_EntropyBonusKeys, _LearningRateScheduleKeys, total=False):
    vf_loss_coeff: float
    """Weight of the value loss."""

_ACERKeysReserved = TypedDict("_ACERKeysReserved", {"lambda": 'float'}, total=False)


class _ACERKeys(_LossWeightsKeys, _OffPolicyKeys, _GradientClippingKeys, _ACERKeysReserved, total=False):
    replay_ratio: float
    """Updates on replayed sequences for each on new ones, on average: the mean of a Poisson number."""
    importance_c: float
    """c: largest importance weight; what is cut off is made good under the policy itself."""
    epsilon: float
    """What is added to probabilities that something is divided by."""
    trust_region: bool
    """Hold each policy gradient near the average policy."""
    delta: float
    """δ: how much a policy gradient may raise the divergence from the average policy."""
    ema_alpha: float
    """α: share of the average policy's weights that an update keeps."""
    num_dueling_samples: int
    """Continuous actions drawn for the mean advantage that a stochastic dueling network takes off."""

_AdvantageKeysReserved = TypedDict("_AdvantageKeysReserved", {"lambda": 'float'}, total=False)


class _AdvantageKeys(_CommonKeys, _AdvantageKeysReserved, total=False):
    use_critic: bool
    """Advantages are measured against values."""
    use_gae: bool
    """Generalised advantage estimates."""

class _ValueNormalizationKeys(_AdvantageKeys, total=False):
    normalize_values: bool | None
    """PopArt: values are learned normalised by the running mean and standard deviation of their targets; vf_loss is in units of that deviation then."""

class _AdvantageActorCriticKeys(_AdvantageKeys, _LossWeightsKeys, total=False):
    grad_clip: float | None
    """Largest global norm of the gradient of the mean over rows; None or 0 does not clip."""

class _A2CKeys(_AdvantageActorCriticKeys, _ValueNormalizationKeys, total=False):
    microbatch_size: int | None
    """Rows whose gradients are computed at once, and averaged over a train batch; None or 0: all of it."""

class _A3CKeys(_AdvantageActorCriticKeys, total=False):
    pass

class _AdamEpsilonKeys(_CommonKeys, total=False):
    adam_epsilon: float
    """Adam's ε."""

class _TrainingIntensityKeys(_OffPolicyKeys, total=False):
    training_intensity: float | None
    """Rows trained per row sampled; None is one update per sample. In rows / env step."""

class _NStepKeys(_OffPolicyKeys, total=False):
    n_step: int
    """Rewards summed before bootstrapping. In env steps."""

class _PrioritizedReplayKeys(_OffPolicyKeys, total=False):
    prioritized_replay: bool
    """Sample by TD error."""
    prioritized_replay_alpha: float
    """Exponent of priorities."""
    prioritized_replay_beta: float
    """Exponent of importance weights, at the start."""
    final_prioritized_replay_beta: float
    """That exponent at the end of annealing."""
    prioritized_replay_beta_annealing_timesteps: int
    """Steps over which it moves from the first to the last value. In env steps."""
    prioritized_replay_eps: float
    """Added to |TD error|, so that no priority is 0."""
    worker_side_prioritization: bool
    """Workers compute the first priorities."""

class _DoubleQKeys(_OffPolicyKeys, total=False):
    double_q: bool
    """Select with the online network, evaluate with the target network."""

class _SequenceReplayKeys(_OffPolicyKeys, total=False):
    replay_sequence_length: int
    """Rows of a sequence, burn-in included, that a policy with memory learns from; 1 or -1 is burn_in + model.max_seq_len. Policies without memory replay single rows. In env steps."""
    replay_sequence_overlap: int
    """Rows of a sequence that the next one of its episode learns from, too. In env steps."""
    burn_in: int
    """Rows at the beginning of a sequence that only warm up its recurrent state. In env steps."""
    zero_init_states: bool
    """Sequences begin with states of zeros; False takes the states that the policy had there when it acted."""
    prioritized_replay_eta: float
    """A sequence's priority is this share of its largest |TD error|, and the rest of their mean."""

class _DQNKeys(_SequenceReplayKeys, _LearningRateScheduleKeys, _GradientClippingKeys, _AdamEpsilonKeys, _DoubleQKeys, _PrioritizedReplayKeys, _NStepKeys, _TrainingIntensityKeys, total=False):
    num_atoms: int
    """Atoms of the value distribution; 1 learns expected values."""
    v_min: float
    """Smallest return the atoms cover. In discounted return."""
    v_max: float
    """Largest return the atoms cover. In discounted return."""
    noisy: bool
    """Heads explore by learned noise on their weights."""
    sigma0: float
    """Initial size of that noise."""
    dueling: bool
    """Separate state value and advantages."""
    hiddens: Any
    """Hidden layers of each head; [] puts heads on the trunk itself."""
    before_learn_on_batch: Callable[..., Any] | None
    """(batch, workers, config) -> batch, called on every replayed batch."""

class _DistributedReplayKeys(_PrioritizedReplayKeys, _NStepKeys, _TrainingIntensityKeys, total=False):
    pass

class _SoftTargetKeys(_OffPolicyKeys, total=False):
    tau: float
    """How far the target networks then move towards the online ones; 1 copies."""

class _TwinCriticKeys(_OffPolicyKeys, total=False):
    twin_q: bool
    """Two critics, of which targets take the smaller value."""

class _ReplayedActorCriticKeys(_TwinCriticKeys, _PrioritizedReplayKeys, _SequenceReplayKeys, _NStepKeys, _SoftTargetKeys, _TrainingIntensityKeys, _GradientClippingKeys, total=False):
    use_huber: bool
    """The critics' losses are Huber's instead of squares."""
    huber_threshold: float
    """Error from which Huber's is linear."""

class _TwoRatesKeys(_CommonKeys, total=False):
    critic_lr: float
    """Learning rate of the critic's Adam."""
    actor_lr: float
    """Learning rate of the actor's Adam."""

class _DeterministicActorKeys(_TwoRatesKeys, _NStepKeys, _SoftTargetKeys, _TrainingIntensityKeys, total=False):
    actor_hiddens: Any
    """Hidden layers of the actor."""
    actor_hidden_activation: Literal['linear', 'relu', 'tanh', 'elu', 'swish', 'silu', 'sigmoid', 'selu', 'gelu', 'leaky_relu', 'softplus', 'softsign', 'relu6']
    """Activation of these."""
    critic_hiddens: Any
    """Hidden layers of the critic."""
    critic_hidden_activation: Literal['linear', 'relu', 'tanh', 'elu', 'swish', 'silu', 'sigmoid', 'selu', 'gelu', 'leaky_relu', 'softplus', 'softsign', 'relu6']
    """Activation of these."""

class _DDPGKeys(_DeterministicActorKeys, _ReplayedActorCriticKeys, total=False):
    policy_delay: int
    """Updates of the critics for one of the actor."""
    smooth_target_policy: bool
    """Target actions have clipped noise."""
    target_noise: float
    """Standard deviation of that noise, of actions in [-1, 1]."""
    target_noise_clip: float
    """Largest size of that noise."""
    initial_weights: Literal['xavier', 'fan_in'] | Literal['normc', 'fan_in']
    """How weights begin: 'xavier' as RLlib's (Glorot & Bengio 2010), biases 0; 'fan_in' as PyTorch's own."""
    use_state_preprocessor: bool | Literal[-1]
    """Observations pass through the network of `model` first, which learns with the critics."""
    l2_reg: float | None
    """Weight of ½‖w‖² over all weights but biases, in the losses of actor and critic; None is 0."""

class _ClippedSurrogateKeys(_CommonKeys, total=False):
    clip_param: float
    """ε: how far the probability ratio counts."""
    kl_coeff: float
    """Weight of the KL penalty at the start; 0 has none."""
    kl_target: float
    """KL divergence that the penalty's weight is adapted to. In nats."""

class _ActionBoundKeys(_CommonKeys, total=False):
    action_bound_coeff: float
    """Weight of the squared distance, in half widths of the action bounds, of Gaussian means beyond them."""

class _AsynchronousKeys(_AdvantageKeys, _LossWeightsKeys, _ActionBoundKeys, total=False):
    vtrace: bool
    """Correct for the workers' lag; False takes A3C's losses."""
    vtrace_clip_rho_threshold: float | None
    """ρ̄: largest importance weight of a value error."""
    vtrace_clip_pg_rho_threshold: float | None
    """Largest importance weight of the policy gradient."""
    vtrace_drop_last_ts: bool
    """The last row of a fragment only gives the value that the row before is bootstrapped with."""
    vtrace_lambda: float | None
    """λ: how far an error reaches back. None is 1, RLlib's, the whole fragment; 0.9 for Gaussian actions."""
    normalize_values: bool | None
    """PopArt: values are learned normalised by the running mean and standard deviation of their targets. None does so where only the learner uses values: with V-trace that drops last rows."""
    scale_advantages: bool | None
    """Advantages of a batch (of a device's share of it) are divided by their root mean square. None does so with V-trace."""
    num_multi_gpu_tower_stacks: int
    """Batches that are unpacked ahead for the learner; above 1 by a thread of their own."""
    minibatch_buffer_size: int
    """Train batches that are learned from in turn."""
    num_sgd_iter: int
    """Learner steps on each train batch."""
    replay_proportion: float
    """Earlier fragments mixed in for each new one, on average."""
    replay_buffer_num_slots: int
    """Fragments kept for that. In fragments."""
    learner_queue_size: int
    """Train batches that may wait for the learner. In batches."""
    learner_queue_timeout: int | float
    """Longest wait of the learner for a train batch. In s."""
    max_sample_requests_in_flight_per_worker: int
    """Fragments that each worker is asked for ahead."""
    broadcast_interval: int
    """Train batches learned from one sending of weights to the next."""
    num_aggregation_workers: int
    """Processes that join fragments to train batches."""
    num_data_loader_buffers: int
    """Old name of num_multi_gpu_tower_stacks."""
    grad_clip: float | None
    """Largest norm of the gradient of the loss summed over rows (APPO: of the mean); None or 0 does not clip."""
    opt_type: Literal['adam', 'rmsprop']
    """The optimiser."""
    decay: float
    """RMSProp: share of the old mean of squared gradients that is kept."""
    momentum: float
    """RMSProp: share of the last step that is done again."""
    epsilon: float
    """RMSProp: what is added to the root of that mean, of gradients as for grad_clip."""
    behaviour_kl_coeff: float
    """Weight of KL(μ‖π), how far the policy that learns is from those that acted; 0 leaves it to V-trace alone."""
    _separate_vf_optimizer: bool
    """Values and policy have losses and optimisers of their own."""
    _lr_vf: float
    """Learning rate of the values, if separate."""
    after_train_step: Callable[..., Any] | None
    """(workers, config) -> a function of (env steps, learner infos), called behind each learner step."""

class _APPOKeys(_AsynchronousKeys, _ClippedSurrogateKeys, total=False):
    use_kl_loss: bool
    """Add the KL penalty to the loss."""

class _PerturbedWeightsKeys(_CommonKeys, total=False):
    noise_stdev: float
    """σ: standard deviation of the noise on weights."""
    action_noise_std: float
    """Standard deviation of noise on continuous actions of such episodes."""
    eval_prob: float
    """Share of pairs of episodes that are played without noise, of which nothing is learned."""
    report_length: int
    """Episodes without noise that `eval_reward_mean` is the mean of, the last ones."""
    noise_size: int
    """Size of RLlib's table of noise; noise is drawn from its seed here."""

class _ARSKeys(_PerturbedWeightsKeys, total=False):
    num_rollouts: int
    """Directions of one update, each of which two episodes try."""
    rollouts_used: int
    """The best of them, of which the step is made; more are all of them."""
    sgd_stepsize: float
    """Size of the step."""
    offset: float
    """Taken off every reward, against bonuses for merely being alive. In env reward."""

class _MARWILKeys(_ReplayKeys, _GradientClippingKeys, total=False):
    beta: float
    """How much better actions weigh more; 0 clones all alike."""
    use_gae: bool
    """Where a trajectory is cut off, V stands for what followed; 0 otherwise."""
    vf_coeff: float
    """Weight of the value loss."""
    moving_average_sqd_adv_norm_start: float
    """Mean of squared advantages at the start. In squared returns."""
    moving_average_sqd_adv_norm_update_rate: float
    """Share of a batch's mean in the moving average."""
    replay_buffer_size: int
    """Old name of replay_buffer_config.capacity."""

class _NetworkSectionsKeys(_CommonKeys, total=False):
    Q_model: NetworkConfigDict
    """Options of each critic's network."""
    policy_model: NetworkConfigDict
    """Options of the actor's network."""
    initial_weights: Literal['xavier', 'fan_in'] | Literal['normc', 'fan_in']
    """How weights begin: 'normc' as RLlib's, rows of norm 1, outputs of 0.01; 'fan_in' as PyTorch's own."""

class _SACKeys(_ReplayedActorCriticKeys, _NetworkSectionsKeys, total=False):
    n_critics: int | None
    """Critics of which targets take the smallest value; None is 2 with twin_q, else 1."""
    n_quantiles: int
    """Quantiles of the return that each critic learns; 1 learns its mean."""
    top_quantiles_to_drop: int
    """With n_quantiles > 1: largest quantiles, for each critic, that targets leave out."""
    critic_batch_norm: bool
    """Critics have batch renormalisation, and see present and next state in one batch."""
    use_target_network: bool
    """Targets come from copies that follow the critics by tau; False takes the critics themselves, as CrossQ."""
    initial_alpha: float
    """Weight of the entropy at the beginning; 0 stays 0."""
    target_entropy: float | Literal['auto'] | None
    """Entropy that the weight is adapted to; 'auto' or None is minus the number of actions' components, and for n discrete actions 0.98 ln n. In nats."""
    optimization: LearningRatesConfigDict
    """Learning rates."""
    _deterministic_loss: bool
    """For debugging: losses take the mean action instead of a sample."""
    _use_beta_distribution: bool
    """RLlib's Beta-distributed actions."""
    use_state_preprocessor: bool | Literal[-1]
    """Old key without effect: Q_model and policy_model see preprocessed observations."""

class _CQLKeys(_SACKeys, total=False):
    bc_iters: int
    """Updates in which the actor clones the data's behaviour at first."""
    temperature: float
    """T: how much the highest values alone make up the penalty."""
    num_actions: int
    """Actions of each kind that are compared with the data's."""
    mean_target_actions: bool
    """Targets value the mean of the actor's next actions, as d3rlpy's, instead of one that is drawn."""
    lagrangian: bool
    """The penalty's weight is adapted to lagrangian_thresh."""
    lagrangian_thresh: float
    """What the penalty of a critic is kept near."""
    min_q_weight: float
    """Weight of the penalty."""

class _MinibatchKeys(_CommonKeys, total=False):
    sgd_minibatch_size: int
    """Rows of one learner step; 0 takes the whole train batch. In rows."""
    num_sgd_iter: int
    """Passes over a train batch."""
    shuffle_sequences: bool
    """Each pass takes the rows in a new random order."""

class _PPOKeys(_AdvantageKeys, _LossWeightsKeys, _ClippedSurrogateKeys, _ActionBoundKeys, _GradientClippingKeys, _MinibatchKeys, total=False):
    vf_clip_param: float
    """How far a value may move from its old one in a train batch. In discounted return."""
    normalize_values: bool | None
    """PopArt: values are learned normalised by the running mean and standard deviation of their targets; vf_loss is in units of that deviation then. None does so where the default network for vectors has layers for values alone, and the loss is PPO's own."""
    recompute_advantages: bool
    """Each pass over a train batch but the first has advantages and value targets of the values as they are then."""
    vf_share_layers: int
    """Old place of model.vf_share_layers."""

class _DDPPOKeys(_PPOKeys, total=False):
    keep_local_weights_in_sync: bool
    """The driver's policy gets the weights after each round; False saves the time, for runs without evaluation."""
    torch_distributed_backend: Literal['gloo', 'nccl']
    """Backend of torch.distributed; nccl between GPUs."""
    truncate_episodes: bool
    """A key of RLlib's that nothing reads."""

_DreamerKeysReserved = TypedDict("_DreamerKeysReserved", {"lambda": 'float'}, total=False)


class _DreamerKeys(_TwoRatesKeys, _GradientClippingKeys, _DreamerKeysReserved, total=False):
    td_model_lr: float
    """Learning rate of the world model's Adam."""
    discount: float
    """γ: discount of imagined rewards."""
    dreamer_train_iters: int
    """Learner steps behind each sample."""
    batch_size: int
    """Pieces of episodes in a learner step. In pieces."""
    batch_length: int
    """Observations of such a piece; shorter episodes are taken whole."""
    imagine_horizon: int
    """H: steps that are imagined from each replayed one. In env steps."""
    free_nats: float
    """Divergence of posterior and prior that costs nothing. In nats."""
    kl_coeff: float
    """Weight of the divergence in the model's loss."""
    prefill_timesteps: int
    """Random steps before learning, counted as frame_skip repeats them. In frames."""
    explore_noise: float
    """Standard deviation of what is added to actions in [-1, 1]."""
    buffer_size: int
    """Episodes kept; the oldest go first. In episodes."""
    store_buffer_in_checkpoints: bool
    """Checkpoints hold the episodes, without which training does not go on exactly."""
    dreamer_model: DreamerModelConfigDict
    """Options of the networks."""

class _ESKeys(_PerturbedWeightsKeys, total=False):
    episodes_per_batch: int
    """Episodes of one update, at least (two for 1, one for each sign); see also train_batch_size."""
    stepsize: float
    """Learning rate of the Adam that follows the estimated gradient."""
    l2_coeff: float
    """Weight of ½‖θ‖² in what is minimised."""
    return_proc_mode: Literal['centered_rank']
    """What is made of returns: ranks between −½ and ½."""

class _IQLKeys(_NetworkSectionsKeys, _TwoRatesKeys, _TwinCriticKeys, _NStepKeys, _SoftTargetKeys, _GradientClippingKeys, total=False):
    expectile: float
    """τ: values lie where what is above counts τ, and what is below 1 − τ."""
    beta: float
    """How much more actions with larger advantages are imitated; 0 clones all alike. In 1 / discounted reward units."""
    largest_weight: float
    """Largest weight of a row in the imitation."""

class _MADDPGKeys(_DeterministicActorKeys, total=False):
    agent_id: int | None
    """Number of the agent that a policy acts for, from 0; it belongs in each policy's own config."""
    use_local_critic: bool
    """The critic sees what the policy's own agent sees and does; this is DDPG."""
    use_state_preprocessor: bool | Literal[-1]
    """Refused: the actor's hidden layers are actor_hiddens."""
    good_policy: Literal['maddpg', 'ddpg']
    """Only 'maddpg'; see use_local_critic."""
    adv_policy: Literal['maddpg', 'ddpg']
    """Only 'maddpg'; see use_local_critic."""
    actor_feature_reg: float | None
    """Weight of the actor's mean squared output in its loss; None or 0 is without."""
    grad_norm_clipping: float | None
    """Largest L2 norm of the gradient of each weight array; None does not clip."""

class _MetaLearningKeys(_AdvantageKeys, _LossWeightsKeys, _ClippedSurrogateKeys, _GradientClippingKeys, total=False):
    vf_clip_param: float
    """How far a value may move from what it was when its row was sampled. In env reward units."""
    inner_adaptation_steps: int
    """Gradient steps by which weights adapt to a task."""
    inner_lr: float
    """α: rate of these steps."""
    maml_optimizer_steps: int
    """Steps of Adam on what one iteration samples."""

class _MAMLKeys(_MetaLearningKeys, total=False):
    use_meta_env: bool
    """Tasks come from sample_tasks(n) of the environment, and go to its set_task(task)."""

class _MBMPOKeys(_MetaLearningKeys, total=False):
    num_maml_steps: int
    """Meta-updates in the models for each time that these are fitted."""
    dynamics_model: DynamicsConfigDict
    """Options of the learned models."""

_PQNKeysReserved = TypedDict("_PQNKeysReserved", {"lambda": 'float'}, total=False)


class _PQNKeys(_LearningRateScheduleKeys, _GradientClippingKeys, _AdamEpsilonKeys, _MinibatchKeys, _PQNKeysReserved, total=False):
    layer_norm: bool
    """Hidden layers are normalised, which keeps values bounded in place of a target network."""

class _QMixKeys(_DoubleQKeys, _LearningRateScheduleKeys, _GradientClippingKeys, total=False):
    mixer: Literal['qmix', 'vdn'] | None
    """How the agents' values make one of the team: a network, their sum (VDN), or not at all: each agent learns for itself, from its own rewards."""
    mixing_embed_dim: int
    """Width of the mixing network. In units."""
    optim_alpha: float
    """RMSProp's decay of squared gradients."""
    optim_eps: float
    """RMSProp's ε."""

class _R2D2Keys(_DQNKeys, total=False):
    use_h_function: bool
    """Values are learned as h(value), which makes large ones small."""
    h_function_epsilon: float
    """ε of h(x) = sign(x) (√(|x| + 1) − 1) + ε x."""

class _RNNSACKeys(_SACKeys, total=False):
    Q_model: ModelConfigDict  # type: ignore[misc]
    """Options of each critic's network, and of the memory."""
    policy_model: ModelConfigDict  # type: ignore[misc]
    """Options of the actor's network; of the memory, where Q_model has none."""

class _SlateQKeys(_PrioritizedReplayKeys, _TrainingIntensityKeys, _GradientClippingKeys, _AdamEpsilonKeys, total=False):
    slateq_strategy: Literal['RANDOM', 'MYOP', 'SARSA', 'QL']
    """What follows a slate is worth what the best one is (QL), the one shown (SARSA), or nothing (MYOP); RANDOM shows any and learns nothing."""
    hiddens: Any
    """Hidden layers of the documents' values."""
    lr_choice_model: float
    """Learning rate of Adam for who clicks what."""
    lr_q_model: float
    """Learning rate of Adam for the documents' values."""
    recsim_embedding_size: int
    """Width of users and documents in RLlib; here it is that of the observations, whatever this says."""
    replay_sequence_length: int
    """Rows of a replayed sequence; 1, single steps, is all that slates learn from."""

class _TD3BCKeys(_DDPGKeys, total=False):
    value_weight: float
    """α: weight of the value of the actor's actions, in units of its mean size."""
    actor_bc_weight: float
    """β₁: weight of the actor's squared distance from the data's actions."""
    critic_bc_weight: float
    """β₂: weight of the next actions' squared distance from the data's, in targets. In reward units."""
    critic_layer_norm: bool
    """The critics' hidden layers are normalised, row by row."""

class _TRPOKeys(_ValueNormalizationKeys, _EntropyBonusKeys, _LearningRateScheduleKeys, _GradientClippingKeys, total=False):
    max_kl: float
    """δ: largest mean KL divergence of a step. In nats."""
    cg_iters: int
    """Fisher-vector products by which the step's direction is found."""
    cg_damping: float
    """Added to the Fisher matrix's diagonal."""
    cg_residual_tolerance: float
    """Squared length of the residual at which the direction is near enough."""
    fvp_sub_sampling: int
    """Fisher-vector products are made of every n-th row, or sequence. In rows."""
    line_search_steps: int
    """Lengths of a step that are tried before it is given up."""
    line_search_shrink: float
    """Each length that is tried, by the one before."""
    vf_num_sgd_iter: int
    """Passes of the values' steps over a train batch."""
    vf_sgd_minibatch_size: int
    """Rows of one step of the values; 0 takes the whole train batch. In rows."""

class _AlphaZeroKeys(_MinibatchKeys, _GradientClippingKeys, _LearningRateScheduleKeys, total=False):
    mcts_config: SearchConfigDict
    """Options of the tree search."""
    ranked_rewards: RankedRewardsConfigDict
    """Options of ranked rewards."""
    learning_starts: int
    """Steps stored before the first update, with replay. In env steps."""
    buffer_size: int
    """Sampled batches that are replayed, the last ones; simple_optimizer=True learns without replay."""
    store_buffer_in_checkpoints: bool
    """Checkpoints hold the replayed batches, without which training does not go on exactly."""

class _BanditKeys(_CommonKeys, total=False):
    model: BanditModelConfigDict  # type: ignore[misc]
    """Options of the linear model of rewards."""

class _RandomAgentKeys(_CommonKeys, total=False):
    rollouts_per_iteration: int
    """Episodes that an iteration plays, at least."""

class ACERConfigDict(_ACERKeys, total=False):
    """Config keys of ACER."""

    evaluation_config: ACERConfigDict

class A2CConfigDict(_A2CKeys, total=False):
    """Config keys of A2C."""

    evaluation_config: A2CConfigDict

class A3CConfigDict(_A3CKeys, total=False):
    """Config keys of A3C."""

    evaluation_config: A3CConfigDict

class ApexConfigDict(_DistributedReplayKeys, _DQNKeys, total=False):
    """Config keys of APEX."""

    evaluation_config: ApexConfigDict

class ApexDDPGConfigDict(_DistributedReplayKeys, _DDPGKeys, total=False):
    """Config keys of APEX_DDPG."""

    evaluation_config: ApexDDPGConfigDict

class APPOConfigDict(_APPOKeys, total=False):
    """Config keys of APPO."""

    evaluation_config: APPOConfigDict

class ARSConfigDict(_ARSKeys, total=False):
    """Config keys of ARS."""

    evaluation_config: ARSConfigDict

class BCConfigDict(_MARWILKeys, total=False):
    """Config keys of BC."""

    evaluation_config: BCConfigDict

class CQLConfigDict(_CQLKeys, total=False):
    """Config keys of CQL."""

    evaluation_config: CQLConfigDict

class DDPGConfigDict(_DDPGKeys, total=False):
    """Config keys of DDPG."""

    evaluation_config: DDPGConfigDict

class DDPPOConfigDict(_DDPPOKeys, total=False):
    """Config keys of DDPPO."""

    evaluation_config: DDPPOConfigDict

class DQNConfigDict(_DQNKeys, total=False):
    """Config keys of DQN."""

    evaluation_config: DQNConfigDict

class DreamerConfigDict(_DreamerKeys, total=False):
    """Config keys of DREAMER."""

    evaluation_config: DreamerConfigDict

class ESConfigDict(_ESKeys, total=False):
    """Config keys of ES."""

    evaluation_config: ESConfigDict

class ImpalaConfigDict(_AsynchronousKeys, total=False):
    """Config keys of IMPALA."""

    evaluation_config: ImpalaConfigDict

class IQLConfigDict(_IQLKeys, total=False):
    """Config keys of IQL."""

    evaluation_config: IQLConfigDict

class MADDPGConfigDict(_MADDPGKeys, total=False):
    """Config keys of MADDPG."""

    evaluation_config: MADDPGConfigDict

class MAMLConfigDict(_MAMLKeys, total=False):
    """Config keys of MAML."""

    evaluation_config: MAMLConfigDict

class MARWILConfigDict(_MARWILKeys, total=False):
    """Config keys of MARWIL."""

    evaluation_config: MARWILConfigDict

class MBMPOConfigDict(_MBMPOKeys, total=False):
    """Config keys of MBMPO."""

    evaluation_config: MBMPOConfigDict

class PGConfigDict(_CommonKeys, total=False):
    """Config keys of PG."""

    evaluation_config: PGConfigDict

class PPOConfigDict(_PPOKeys, total=False):
    """Config keys of PPO."""

    evaluation_config: PPOConfigDict

class PQNConfigDict(_PQNKeys, total=False):
    """Config keys of PQN."""

    evaluation_config: PQNConfigDict

class QMixConfigDict(_QMixKeys, total=False):
    """Config keys of QMIX."""

    evaluation_config: QMixConfigDict

class R2D2ConfigDict(_R2D2Keys, total=False):
    """Config keys of R2D2."""

    evaluation_config: R2D2ConfigDict

class RNNSACConfigDict(_RNNSACKeys, total=False):
    """Config keys of RNNSAC."""

    evaluation_config: RNNSACConfigDict

class SACConfigDict(_SACKeys, total=False):
    """Config keys of SAC."""

    evaluation_config: SACConfigDict

class SimpleQConfigDict(_SequenceReplayKeys, _LearningRateScheduleKeys, _GradientClippingKeys, _AdamEpsilonKeys, total=False):
    """Config keys of SimpleQ."""

    evaluation_config: SimpleQConfigDict

class SlateQConfigDict(_SlateQKeys, total=False):
    """Config keys of SlateQ."""

    evaluation_config: SlateQConfigDict

class TD3ConfigDict(_DDPGKeys, total=False):
    """Config keys of TD3."""

    evaluation_config: TD3ConfigDict

class TD3BCConfigDict(_TD3BCKeys, total=False):
    """Config keys of TD3BC."""

    evaluation_config: TD3BCConfigDict

class TRPOConfigDict(_TRPOKeys, total=False):
    """Config keys of TRPO."""

    evaluation_config: TRPOConfigDict

class AlphaZeroConfigDict(_AlphaZeroKeys, total=False):
    """Config keys of AlphaZero."""

    evaluation_config: AlphaZeroConfigDict

class LinTSConfigDict(_BanditKeys, total=False):
    """Config keys of LinTS."""

    evaluation_config: LinTSConfigDict

class LinUCBConfigDict(_BanditKeys, total=False):
    """Config keys of LinUCB."""

    evaluation_config: LinUCBConfigDict

class RandomAgentConfigDict(_RandomAgentKeys, total=False):
    """Config keys of RandomAgent."""

    evaluation_config: RandomAgentConfigDict

__all__ = [
    "A2CConfigDict",
    "A3CConfigDict",
    "ACERConfigDict",
    "APPOConfigDict",
    "ARSConfigDict",
    "AlphaZeroConfigDict",
    "ApexConfigDict",
    "ApexDDPGConfigDict",
    "ApexOptimizerConfigDict",
    "BCConfigDict",
    "BanditModelConfigDict",
    "CQLConfigDict",
    "DDPGConfigDict",
    "DDPPOConfigDict",
    "DQNConfigDict",
    "DreamerConfigDict",
    "DreamerModelConfigDict",
    "DynamicsConfigDict",
    "ESConfigDict",
    "IQLConfigDict",
    "ImpalaConfigDict",
    "LearningRatesConfigDict",
    "LinTSConfigDict",
    "LinUCBConfigDict",
    "MADDPGConfigDict",
    "MAMLConfigDict",
    "MARWILConfigDict",
    "MBMPOConfigDict",
    "ModelConfigDict",
    "MultiagentConfigDict",
    "NetworkConfigDict",
    "PGConfigDict",
    "PPOConfigDict",
    "PQNConfigDict",
    "QMixConfigDict",
    "R2D2ConfigDict",
    "RNNSACConfigDict",
    "RandomAgentConfigDict",
    "RankedRewardsConfigDict",
    "SACConfigDict",
    "SearchConfigDict",
    "SimpleQConfigDict",
    "SlateQConfigDict",
    "TD3BCConfigDict",
    "TD3ConfigDict",
    "TRPOConfigDict",
]
