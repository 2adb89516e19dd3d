"""The keys of `model`: MODEL_DEFAULTS and their declaration."""

from collections.abc import Iterator, Mapping
from typing import Any, Literal

from rlframe.config.declaration import Section, option

ACTIVATIONS = (
    *("linear", "relu", "tanh", "elu", "swish", "silu", "sigmoid"),
    *("selu", "gelu", "leaky_relu", "softplus", "softsign", "relu6"),
)
"""Names of activation functions that the built-in models know."""


def _model_rule(value: Any) -> str | None:
    """Wants a registered name, a class or a function."""
    return None if value is None or isinstance(value, str) or callable(value) else "a registered name, a class or None"


PADDINGS = ("same", "valid")
"""How a convolution treats its images' edges: ceil(size / stride) outputs, or whole filters alone."""


def _filters_rule(value: Any) -> str | None:
    """Wants [out_channels, kernel, stride], and a padding or none, for every convolution.

    Kernel and stride are a size or [height, width].
    """
    wanted = "a list of [out_channels, kernel, stride], for example [[16, [8, 8], 4], [32, 4, 2]]"
    for layer in value or ():
        if not isinstance(layer, list | tuple) or len(layer) not in (3, 4) or not _is_size(layer[0], pairs=False):
            return wanted
        if not _is_size(layer[1]) or not _is_size(layer[2]):
            return wanted
        if len(layer) == 4 and layer[3] not in PADDINGS:
            return '"same" or "valid" as the padding, a filter\'s fourth entry: for example [16, [8, 8], 4, "valid"]'
    return None


def _is_size(value: Any, *, pairs: bool = True) -> bool:
    """Whether a value is a positive integer, or two of them."""
    if pairs and isinstance(value, list | tuple):
        return len(value) == 2 and all(_is_size(item, pairs=False) for item in value)
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


_OF_NETWORKS = (
    *("fcnet_hiddens", "fcnet_activation", "conv_filters", "conv_activation"),
    *("post_fcnet_hiddens", "post_fcnet_activation"),
)


class NetworkConfig(Section):
    """Options of one network."""

    fcnet_hiddens: list[int] = option([256, 256], "Sizes of the fully connected layers.", low=1)
    fcnet_activation: str | None = option("tanh", "Activation of these layers.", choices=ACTIVATIONS)
    conv_filters: list[list[int | str | list[int]]] | None = option(
        None,
        "Convolutions as [out_channels, kernel, stride]; None takes those for the image size, where there are any. A "
        'fourth entry is the padding, "same" or "valid"; without one the last is "valid", the others are "same".',
        rule=_filters_rule,
        wanted="a list of [out_channels, kernel, stride] or None",
    )
    conv_activation: str | None = option("relu", "Activation of the convolutions.", choices=ACTIVATIONS)
    post_fcnet_hiddens: list[int] = option([], "Sizes of the layers after convolutions or concatenation.", low=1)
    post_fcnet_activation: str | None = option("relu", "Activation of these layers.", choices=ACTIVATIONS)
    custom_model: Any = option(
        None,
        "Registered name or class of the user's model.",
        rule=_model_rule,
        wanted="a registered name, a class or None",
    )
    custom_model_config: dict[Any, Any] = option({}, "Keyword arguments of the user's model. Free-form.")

    @classmethod
    def takes_own_keys(cls, values: Mapping[str, Any]) -> bool:
        """Returns whether a class of the user's own gets these options whole, and so finds keys of its own in them."""
        return any(values.get(key) is not None for key in ("custom_model", "custom_action_dist", "custom_preprocessor"))

    @classmethod
    def left_to_own_class(cls, values: Mapping[str, Any]) -> tuple[str, ...]:
        """Returns the keys of which networks are built, where a custom model builds its own, as in RLlib."""
        return () if values.get("custom_model") is None else _OF_NETWORKS


class ModelConfig(NetworkConfig):
    """Options of the networks."""

    use_default_native_models: bool = option(
        False, "Use the framework's own layers as default models.", key="_use_default_native_models"
    )
    disable_preprocessor_api: bool = option(
        False, "Hand observations to the model as they are.", key="_disable_preprocessor_api"
    )
    fcnet_weights_initializer: str = option(
        "normc", "How dense layers of networks for vectors begin: 'normc' as RLlib's, rows of norm 1, outputs and "
        "values of 0.01; 'orthogonal' with the gains √2, 0.01 for outputs and 1 for values; 'xavier' (uniform); "
        "'fan_in' as PyTorch's own.", choices=("normc", "orthogonal", "xavier", "fan_in"),
        source="Engstrom et al. 2020, section 3; Saxe et al. 2014",
    )  # fmt: skip
    free_log_std: bool | None = option(
        False,
        "The second half of the outputs, log standard deviations, is a bias that no state changes. None does so where "
        "actions are Gaussian and the model is a built-in one that can.",
    )
    initial_log_std: float = option(0.0, "What these log standard deviations begin with, if they are free.")
    no_final_linear: bool = option(False, "The last layer has an activation, and as many units as outputs are wanted.")
    vf_share_layers: bool = option(True, "Value function and policy share their layers.")
    use_lstm: bool = option(False, "Put an LSTM behind the model.")
    max_seq_len: int = option(20, "Longest sequence that gradients flow through.", unit="env steps", low=1)
    lstm_cell_size: int = option(256, "Size of the LSTM's state.", low=1)
    lstm_use_prev_action: bool = option(False, "The LSTM sees the last action.")
    lstm_use_prev_reward: bool = option(False, "The LSTM sees the last reward.")
    time_major: bool = option(False, "Sequences are [T, B, ...] inside the model.", key="_time_major")
    use_attention: bool = option(False, "Put a GTrXL behind the model.", source="Parisotto et al. 2020")
    attention_num_transformer_units: int = option(1, "Transformer units of the GTrXL.", low=1)
    attention_dim: int = option(64, "Input and output size of a unit.", low=1)
    attention_num_heads: int = option(1, "Attention heads of a unit.", low=1)
    attention_head_dim: int = option(32, "Size of a head.", low=1)
    attention_memory_inference: int = option(50, "Past embeddings kept while acting.", unit="env steps", low=0)
    attention_memory_training: int = option(50, "Past embeddings kept while learning.", unit="env steps", low=0)
    attention_position_wise_mlp_dim: int = option(32, "Hidden size of a unit's MLP.", low=1)
    attention_init_gru_gate_bias: float = option(2.0, "Initial bias of the gates; positive is near the identity.")
    attention_use_n_prev_actions: int = option(0, "Past actions that the GTrXL sees.", low=0)
    attention_use_n_prev_rewards: int = option(0, "Past rewards that the GTrXL sees.", low=0)
    framestack: bool = option(True, "Stack four frames of Atari games.")
    dim: int = option(84, "Height and width that Atari frames are resized to.", unit="pixels", low=1)
    grayscale: bool = option(False, "The pixel preprocessor drops colour.")
    zero_mean: bool = option(True, "The pixel preprocessor maps to [-1, 1], else to [0, 1].")
    custom_action_dist: Any = option(
        None,
        "Registered name or class of the user's action distribution.",
        rule=_model_rule,
        wanted="a registered name, a class or None",
    )
    custom_preprocessor: Any = option(
        None,
        "Registered name or class of the user's preprocessor; better an environment wrapper.",
        rule=_model_rule,
        wanted="a registered name, a class or None",
    )
    lstm_use_prev_action_reward: bool | Literal[-1] = option(
        -1, "Old name of lstm_use_prev_action and lstm_use_prev_reward.", deprecated=True
    )

    def faults(self) -> Iterator[str]:
        """Yields what contradicts itself within the model options."""
        if self.use_lstm and self.use_attention:
            yield "use_lstm and use_attention are both on; choose one"
