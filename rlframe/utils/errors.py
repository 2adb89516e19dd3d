"""The exceptions a user of rlframe can meet; each says what was got, what was wanted and what to do."""


class ConfigError(ValueError):
    """A config is wrong. The message lists every fault that was found, one line each."""


class EnvError(ValueError):
    """An environment, its spaces or what it returned is wrong."""


class CheckpointError(ValueError):
    """A checkpoint is missing, damaged, of another algorithm or of other spaces."""


class UnsupportedSpaceException(ValueError):  # noqa: N818 - RLlib's name
    """An observation or action space cannot be handled by the chosen algorithm or model."""


class NonFiniteError(ValueError):
    """NaN or infinity appeared in observations, rewards, losses, gradients or weights."""


class WorkerError(RuntimeError):
    """A rollout worker failed, or could not be started."""


class DataError(ValueError):
    """Experience in a file that cannot be read, or written; names the file and the line."""
