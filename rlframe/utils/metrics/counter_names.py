"""Names of the counters and timers that a `training_iteration` of a program's own reads and writes."""

from typing import Final

# Counters, keys of `trainer._counters`.
NUM_ENV_STEPS_SAMPLED: Final = "num_env_steps_sampled"
NUM_AGENT_STEPS_SAMPLED: Final = "num_agent_steps_sampled"
NUM_ENV_STEPS_TRAINED: Final = "num_env_steps_trained"
NUM_AGENT_STEPS_TRAINED: Final = "num_agent_steps_trained"
NUM_ENV_STEPS_TRAINED_THIS_ITER: Final = "num_env_steps_trained_this_iter"
NUM_TARGET_UPDATES: Final = "num_target_updates"
LAST_TARGET_UPDATE_TS: Final = "last_target_update_ts"

# Timers, keys of `trainer._timers`.
TRAINING_ITERATION_TIMER: Final = "training_iteration"
SAMPLE_TIMER: Final = "sample"
GRAD_WAIT_TIMER: Final = "grad_wait"
COMPUTE_GRADS_TIMER: Final = "compute_grads"
APPLY_GRADS_TIMER: Final = "apply_grad"
LOAD_BATCH_TIMER: Final = "load"
LEARN_ON_BATCH_TIMER: Final = "learn"
SYNCH_WORKER_WEIGHTS_TIMER: Final = "synch_weights"
WORKER_UPDATE_TIMER: Final = "update"
TARGET_NET_UPDATE_TIMER: Final = "target_net_update"
