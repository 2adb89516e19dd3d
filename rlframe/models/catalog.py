"""The catalog of models, action distributions and preprocessors, and of the user's own."""

from __future__ import annotations

import functools
import importlib
import inspect
import math
from collections.abc import Mapping
from typing import Any, TypeAlias

import gymnasium
import numpy as np

from rlframe.config.model import ModelConfig
from rlframe.models.action_dist import ActionDistribution
from rlframe.models.conv_sizes import DefaultFilters
from rlframe.models.custom import accepted_options, resolve_class, with_interface
from rlframe.models.dist_plan import is_gaussian, plan_dist, space_struct
from rlframe.models.fcnet_spec import fcnet_spec
from rlframe.models.modelv2 import ModelV2
from rlframe.models.numpy_dists import dist_from_plan, numpy_dist_for
from rlframe.models.preprocessed_env import PreprocessedEnv
from rlframe.models.preprocessors import Preprocessor, get_preprocessor
from rlframe.models.state_windows import keep_windows
from rlframe.utils import shared_names
from rlframe.utils.errors import ConfigError, UnsupportedSpaceException
from rlframe.utils.framework import require_framework
from rlframe.utils.spaces.old_gym import convert_spaces

ModelConfigDict: TypeAlias = dict[str, Any]

#: Defaults of the config's `model` section. Copy it before changing it; `ModelConfig.defaults()` makes a fresh one.
MODEL_DEFAULTS: ModelConfigDict = ModelConfig.defaults()

#: What `framework` may be -> the folder of its models.
_FRAMEWORKS = {"torch": "torch", "tf": "tf", "tf2": "tf", "tfe": "tf"}
_BASES = {"torch": "TorchModelV2", "tf": "TFModelV2"}
_DIST_BASES = {"torch": "TorchDistributionWrapper", "tf": "TFActionDistribution"}
_KERAS = {"keras", "tf_keras", "tensorflow"}

_REGISTRY: dict[str, dict[str, Any]] = {"model": {}, "action_dist": {}, "preprocessor": {}}


class ModelCatalog:
    """Builds models, action distributions and preprocessors for spaces; registers the user's own by name.

    Names are kept per process. A driver hands its own to another process by `install(registered())`; with a Ray runtime
    those of the driver are found in all processes, see `rlframe.evaluation.shared_names`.
    """

    @staticmethod
    def register_custom_model(model_name: str, model_class: Any) -> None:
        """Makes a model class, or a function that makes a model, known as config["model"]["custom_model"]."""
        _register("model", model_name, model_class)

    @staticmethod
    def find_model(custom_model: Any) -> Any:
        """Returns the class, or function, that a `custom_model` is or names.

        Raises:
            ConfigError: If no model is known by this name.
        """
        return _resolve("model", custom_model, ModelV2)

    @staticmethod
    def framework_of(custom_model: Any) -> str | None:
        """Returns the framework that a `custom_model` is made for, "torch" or "tf"; None where its class tells none."""
        if isinstance(custom_model, str) and "." not in custom_model and not _is_registered("model", custom_model):
            return None  # the name is refused, or asked for, where the model is made
        found = _resolve("model", custom_model, ModelV2)
        bases = {base.__name__ for base in getattr(found, "__mro__", ())}
        if _is_keras_model(found):
            return "tf"
        return next((framework for framework, base in _BASES.items() if base in bases), None)

    @staticmethod
    def framework_of_dist(custom_action_dist: Any) -> str | None:
        """Returns the framework that a `custom_action_dist` is made for; None where its class tells none."""
        if isinstance(custom_action_dist, str):
            if "." not in custom_action_dist and not _is_registered("action_dist", custom_action_dist):
                return None
            custom_action_dist = _resolve("action_dist", custom_action_dist, ActionDistribution)
        bases = {base.__name__ for base in getattr(custom_action_dist, "__mro__", ())}
        return next((framework for framework, base in _DIST_BASES.items() if base in bases), None)

    @staticmethod
    def register_custom_action_dist(action_dist_name: str, action_dist_class: Any) -> None:
        """Makes a subclass of `ActionDistribution` known as config["model"]["custom_action_dist"]."""
        _register("action_dist", action_dist_name, action_dist_class)

    @staticmethod
    def register_custom_preprocessor(preprocessor_name: str, preprocessor_class: Any) -> None:
        """Makes a `Preprocessor` known as config["model"]["custom_preprocessor"]; an environment wrapper is better."""
        _register("preprocessor", preprocessor_name, preprocessor_class)

    @staticmethod
    def registered() -> dict[str, dict[str, Any]]:
        """Returns a snapshot of what is registered in this process: kind -> name -> class."""
        return {kind: dict(entries) for kind, entries in _REGISTRY.items()}

    @staticmethod
    def install(snapshot: Mapping[str, Mapping[str, Any]]) -> None:
        """Registers everything of a snapshot in this process; other names stay."""
        for kind, entries in snapshot.items():
            _REGISTRY[kind].update(entries)

    @staticmethod
    def get_model_v2(  # noqa: PLR0913, PLR0917 - the signature users' programs call
        obs_space: Any,
        action_space: Any,
        num_outputs: int | None,
        model_config: Mapping[str, Any],
        framework: str | None = None,
        name: str = "default_model",
        model_interface: type | None = None,
        default_model: Any = None,
        **model_kwargs: Any,
    ) -> Any:
        """Builds the model for an observation space: the user's own, else the algorithm's, else the default network.

        Args:
            obs_space: Preprocessed observation space.
            action_space: Action space of the environment.
            num_outputs: Width of the outputs; None lets the model choose.
            model_config: Keys of MODEL_DEFAULTS; missing ones are filled in.
            framework: "torch" or "tf" ("tf2" and "tfe" mean the same); None takes the one that a `custom_model` is
                made for, else "torch".
            name: Name of the model.
            model_interface: Class that the algorithm puts on top of the model; its constructor gets `model_kwargs`.
            default_model: Class to use where the user names none.
            **model_kwargs: Further keyword arguments of the constructor.

        Returns:
            A `TorchModelV2` or `TFModelV2`.

        Raises:
            ConfigError: If the config names an unknown model, or asks for what is not there.
            UnsupportedSpaceException: If no default network fits the space.
        """
        if framework is None:
            custom_model = model_config.get("custom_model")
            framework = ModelCatalog.framework_of(custom_model) if custom_model else None
        framework = _known_framework(framework or "torch")
        obs_space, action_space = convert_spaces(obs_space), convert_spaces(action_space)
        config = _complete(model_config)
        has_own_layer = config["custom_model"] and not (config["use_lstm"] or config["use_attention"])
        if num_outputs is not None and not (np.ndim(num_outputs) and has_own_layer):
            num_outputs = int(np.prod(num_outputs))  # Keras takes no other for the size of a layer
        config["free_log_std"] = _frees_log_std(config, obs_space, action_space, num_outputs)
        if config["use_lstm"] or config["use_attention"]:
            arguments: Any = (obs_space, action_space, num_outputs, config, name)
            if model_interface is None:
                model = _with_memory(arguments, framework, default_model, model_kwargs)
            else:
                model = _with_memory(arguments, framework, default_model, {}, model_interface, model_kwargs)
            _tell_filters(model_config, config)
            return model
        options: dict[str, Any] = {}
        if config["custom_model"]:
            model_class = _resolve("model", config["custom_model"], ModelV2)
            _refuse_other_framework(model_class, framework)
            if _is_keras_model(model_class):
                model_class = _sibling(framework, "keras_model").as_tf_modelv2(model_class)
            options = accepted_options(model_class, config["custom_model_config"])
        elif default_model is None and model_interface is None and has_action_mask(obs_space, num_outputs):
            model_class = _sibling(framework, "action_mask").ActionMaskModel
        else:
            model_class = default_model or _default_model_class(obs_space, framework)
        arguments = (obs_space, action_space, num_outputs, config, name)
        if model_interface is not None and isinstance(model_class, type):
            wrapped = with_interface(model_class, model_interface, options)
            options = options if wrapped is model_class else {}
            model_class = wrapped
        model = _checked_model(model_class(*arguments, **{**options, **model_kwargs}), model_class, framework)
        _tell_filters(model_config, config)
        return model

    @staticmethod
    def actor_spec(
        obs_space: Any, num_outputs: int | None, model_config: Mapping[str, Any], *, values: bool = True
    ) -> dict[str, Any] | None:
        """Returns the spec with which `ChainActor` acts like the model that `get_model_v2` builds, or None.

        Loads no framework, so that a rollout worker can ask.

        Args:
            obs_space: Preprocessed observation space.
            num_outputs: Width of the outputs.
            model_config: Keys of MODEL_DEFAULTS. `free_log_std` None counts as False: no action space says otherwise.
            values: Whether the algorithm asks for values.
        """
        config = _complete(model_config)
        if config["custom_model"] or config["use_lstm"] or config["use_attention"]:
            return None
        is_dense = default_network(obs_space) == "fcnet"
        return fcnet_spec(num_outputs, config, values=values).to_spec() if is_dense else None

    @staticmethod
    def get_action_dist(
        action_space: Any, config: Mapping[str, Any] | None = None, dist_type: Any = None, framework: str | None = None
    ) -> tuple[Any, Any]:
        """Returns the distribution for an action space, and how many model outputs it takes.

        Args:
            action_space: Action space.
            config: Keys of MODEL_DEFAULTS; `custom_action_dist` goes before everything else.
            dist_type: None for the default; "deterministic", "squashed_gaussian", "beta", "dirichlet"; or a class.
            framework: "torch", "tf" (or "tf2", "tfe"), or "numpy" for the siblings that need no framework; None is that
                of a custom distribution's class, else "torch".

        Returns:
            A class, or a partial of one, called as `dist(inputs[B, K], model)`; and K, a tuple if a custom one asks so.

        Raises:
            ConfigError: If the config names an unknown distribution.
            UnsupportedSpaceException: If there is none for the space.
        """
        action_space = convert_spaces(action_space)
        custom = (config or {}).get("custom_action_dist") or (dist_type if isinstance(dist_type, type) else None)
        if custom:
            dist_class = _resolve("action_dist", custom, ActionDistribution)
            if getattr(dist_class, "takes_children", False):
                framework = framework or ModelCatalog.framework_of_dist(dist_class) or "torch"
                return _with_children(dist_class, action_space, config or {}, framework)
            shape = dist_class.required_model_output_shape(action_space, dict(config or {}))
            return dist_class, tuple(shape) if np.size(shape) > 1 else int(np.prod(shape))
        if framework == "numpy":
            return numpy_dist_for(action_space, dist_type)
        framework = _known_framework(framework or "torch")
        distributions = getattr(_sibling(framework, f"{framework}_action_dist"), f"{framework.upper()}_DISTRIBUTIONS")
        plan = plan_dist(action_space, dist_type)
        return dist_from_plan(plan, distributions), plan.dim

    @staticmethod
    def get_action_shape(action_space: Any, framework: str = "torch") -> tuple[Any, tuple[int | None, ...]]:
        """Returns dtype and shape `(None, ...)` of a batch of actions; nested actions count as concatenated.

        Args:
            action_space: Action space.
            framework: "torch" for a torch dtype, "tf" (or "tf2", "tfe") for a TensorFlow one, "numpy" for a NumPy one.
        """
        action_space = convert_spaces(action_space)
        struct = space_struct(action_space)
        if struct is action_space:
            dtype, shape = np.dtype(action_space.dtype or np.int64), tuple(action_space.shape or ())
        else:
            leaves = _leaf_spaces(action_space)
            integer = all(np.issubdtype(leaf.dtype, np.integer) for leaf in leaves)
            dtype = np.dtype(np.int64 if integer else np.float32)
            shape = (sum(math.prod(leaf.shape or ()) for leaf in leaves),)
        if framework == "numpy":
            return dtype, (None, *shape)
        framework = _known_framework(framework)
        converted = getattr(_sibling(framework, "misc"), f"{framework}_dtype")
        return converted(dtype), (None, *shape)

    @staticmethod
    def get_action_placeholder(action_space: Any, name: str = "action") -> Any:
        """Refuses: there are no placeholders, and nothing to feed.

        Raises:
            ConfigError: Always; with what there is instead.
        """
        raise ConfigError(
            f"There is no placeholder {name!r} for {action_space}: TensorFlow runs eagerly or in tf.function here. Use "
            "ModelCatalog.get_action_shape(action_space, framework='tf') for dtype and shape instead."
        )

    @staticmethod
    def get_preprocessor(env: Any, options: Mapping[str, Any] | None = None) -> Preprocessor:
        """Returns the preprocessor for an environment's observations."""
        return ModelCatalog.get_preprocessor_for_space(env.observation_space, options)

    @staticmethod
    def get_preprocessor_for_space(observation_space: Any, options: Mapping[str, Any] | None = None) -> Preprocessor:
        """Returns the preprocessor for an observation space.

        Args:
            observation_space: Space of the environment.
            options: Keys of MODEL_DEFAULTS; `custom_preprocessor`, `dim`, `grayscale` and `zero_mean` count here.

        Raises:
            ConfigError: If the config names an unknown preprocessor.
        """
        observation_space = convert_spaces(observation_space)
        config = _complete(options or {})
        custom = config["custom_preprocessor"]
        make = _resolve("preprocessor", custom, Preprocessor) if custom else get_preprocessor(observation_space)
        preprocessor: Preprocessor = make(observation_space, config)
        return preprocessor

    @staticmethod
    def get_preprocessor_as_wrapper(env: Any, options: Mapping[str, Any] | None = None) -> Any:
        """Returns the environment with its observations preprocessed, in the contract that it has."""
        preprocessor = ModelCatalog.get_preprocessor(env, options)
        if not (isinstance(env, gymnasium.Env) and "seed" in inspect.signature(env.reset).parameters):
            return PreprocessedEnv(env, preprocessor)
        return gymnasium.wrappers.TransformObservation(env, preprocessor.transform, preprocessor.observation_space)


def _register(kind: str, name: str, value: Any) -> None:
    if not isinstance(name, str) or not name:
        raise ConfigError(f"A custom {kind} is registered under a name; got {name!r}.")
    if not callable(value):
        raise ConfigError(f"The custom {kind} {name!r} must be a class; got {value!r} ({type(value).__name__}).")
    _REGISTRY[kind][name] = value
    shared_names.tell(kind, name, value)


def _with_children(dist_class: Any, action_space: Any, config: Mapping[str, Any], framework: str) -> tuple[Any, int]:
    """Returns a program's subclass of a multi-action distribution, bound to the space's own distributions."""
    plain = {key: value for key, value in config.items() if key != "custom_action_dist"}
    made = [ModelCatalog.get_action_dist(leaf, plain, framework=framework) for leaf in _leaf_spaces(action_space)]
    widths = [int(width) for _, width in made]
    bound = functools.partial(
        dist_class, child_distributions=[child for child, _ in made], input_lens=widths, action_space=action_space
    )
    return bound, sum(widths)


def _resolve(kind: str, given: Any, base: type) -> Any:
    """Returns the class that a config means; see `resolve_class`."""
    if isinstance(given, str):
        _is_registered(kind, given)
    return resolve_class(kind, given, _REGISTRY[kind], base)


def _is_registered(kind: str, name: str) -> bool:
    """Whether a name is known; one that was registered in a process of the same Ray runtime is from now on."""
    registry = _REGISTRY[kind]
    if name not in registry:
        found = shared_names.ask(kind, name)
        if found is not None:
            registry[name] = found
    return name in registry


def _known_framework(framework: str) -> str:
    """Returns "torch" or "tf"."""
    known = _FRAMEWORKS.get(framework)
    if known is None:
        raise ConfigError(
            f"Models of the framework {framework!r} are not available; use framework='torch' or framework='tf'."
        )
    return known


def _sibling(framework: str, module: str) -> Any:
    """Returns a module of `rlframe.models.torch` or `rlframe.models.tf`."""
    return importlib.import_module(f"rlframe.models.{require_framework(framework)}.{module}")


def _complete(model_config: Mapping[str, Any]) -> ModelConfigDict:
    """Returns `model_config` with missing keys filled in, and a model's options under their new and their old name.

    Raises:
        ConfigError: If it asks for both memories.
    """
    config = {**ModelConfig.defaults(), **model_config}
    if config["use_lstm"] and config["use_attention"]:
        raise ConfigError("model.use_lstm and model.use_attention are both on; choose one")
    config["custom_model_config"] = {**(config.get("custom_options") or {}), **(config["custom_model_config"] or {})}
    config["custom_options"] = config["custom_model_config"]
    return config


def _frees_log_std(config: Mapping[str, Any], obs_space: Any, action_space: Any, num_outputs: int | None) -> bool:
    """Returns whether standard deviations are free of the state.

    Raises:
        ConfigError: If they shall be, in a built-in model that has none, or has them depend on the state.
    """
    asked = config["free_log_std"]
    if asked is False:
        return False
    memory = config["use_lstm"] or config["use_attention"]
    if config["custom_model"] and not memory:
        return bool(asked)  # the user's own model reads the key, or does not
    can = num_outputs is not None and (memory or default_network(obs_space) == "fcnet")
    if asked is None:
        return can and is_gaussian(action_space, config)
    if num_outputs is not None and not can:
        raise ConfigError(
            f"model.free_log_std=True: the default network for observations of {obs_space} has standard deviations "
            "that depend on the state; wanted vectors as observations, a memory (use_lstm, use_attention) or a custom "
            "model; or leave the key out"
        )
    return True


def _tell_filters(given: Any, config: Mapping[str, Any]) -> None:
    """Writes the default convolutions that a model has into a section that has None, as RLlib did; never the defaults.

    Programs put layers of their own behind a default network by what is said there.
    """
    said = given.get("conv_filters", ())
    if isinstance(given, dict) and given is not MODEL_DEFAULTS and (said is None or isinstance(said, DefaultFilters)):
        given["conv_filters"] = config["conv_filters"]


def _with_memory(
    arguments: tuple[Any, ...],
    framework: str,
    default_model: Any,
    model_kwargs: Mapping[str, Any],
    interface: Any = None,
    interface_kwargs: Mapping[str, Any] | None = None,
) -> Any:
    """Returns an LSTM or a GTrXL behind the model that the rest of the config describes, and an interface on top."""
    obs_space, action_space, num_outputs, config, name = arguments
    if config["lstm_use_prev_action_reward"] in (True, 1):
        config |= {"lstm_use_prev_action": True, "lstm_use_prev_reward": True}
    inside = {**config, "use_lstm": False, "use_attention": False}
    if framework == "torch" and config["custom_model"]:
        own = _resolve("model", config["custom_model"], ModelV2)
        inside["custom_model"] = _sibling("torch", "torch_modelv2").as_module(own)
    inner = ModelCatalog.get_model_v2(
        obs_space,
        action_space,
        None,
        inside,
        framework,
        f"{name}_inner",
        default_model=default_model or features_class(obs_space, config, framework),
        **model_kwargs,
    )
    config["conv_filters"] = inside["conv_filters"]
    if inner.get_initial_state():
        raise ConfigError(
            f"model: got use_lstm or use_attention with {type(inner).__name__}, which has a memory of its own; wanted "
            "one of them"
        )
    if inner.num_outputs is None:  # RLlib's rule for a model that was told no width and says none
        inner.num_outputs = math.prod(obs_space.shape)
    module, wrapper = ("recurrent_net", "LSTMWrapper") if config["use_lstm"] else ("attention_net", "AttentionWrapper")
    made = with_interface(getattr(_sibling(framework, module), wrapper), interface, {"inner": inner})
    bound = {} if interface is not None else {"inner": inner}
    return made(obs_space, action_space, num_outputs, config, name, **bound, **(interface_kwargs or {}))


def features_class(obs_space: Any, config: Mapping[str, Any], framework: str) -> Any:
    """Returns the default network without a value head: values are computed behind the memory."""
    if config.get("custom_model"):
        return None
    default = _default_model_class(obs_space, framework)
    return type(default.__name__, (default,), {"uses_value_function": False, "__module__": __name__})


def has_action_mask(obs_space: Any, num_outputs: int | None) -> bool:
    """Returns whether observations say which actions are allowed: Dict(action_mask=..., observation=...).

    Args:
        obs_space: Preprocessed observation space.
        num_outputs: Number of logits, which the mask has as many entries as.
    """
    parts = getattr(getattr(obs_space, "original_space", obs_space), "spaces", None)
    if not isinstance(parts, dict) or "action_mask" not in parts or len(parts) != 2:
        return False
    mask = parts["action_mask"]
    size = math.prod(mask.shape) if getattr(mask, "shape", None) else None
    return size == num_outputs and bool(parts.keys() & {"observations", "obs", "observation"})


def default_network(obs_space: Any) -> str:
    """Returns "fcnet", "visionnet" or "complex_input_net": the kind of the default network for an observation space.

    Args:
        obs_space: Preprocessed observation space; nested spaces are found in its attribute `original_space`.

    Raises:
        UnsupportedSpaceException: If none fits.
    """
    original = getattr(obs_space, "original_space", obs_space)
    nested = space_struct(original) is not original
    raw = obs_space is original or getattr(obs_space, "raw_leaves", False)
    if nested and (raw or any(_is_image(leaf) for leaf in _leaf_spaces(original))):
        return "complex_input_net"
    shape = obs_space.shape
    if not shape and not isinstance(original, gymnasium.spaces.Box):  # a Box of one number is a vector of length 1
        raise UnsupportedSpaceException(
            f"No default network for observations of {obs_space} without preprocessing; leave "
            "_disable_preprocessor_api at False, or write a custom model. A policy or model that is made by hand takes "
            "the preprocessed space: get_preprocessor(space)(space).observation_space, of rlframe.models.preprocessors."
        )
    if len(shape) <= 2:
        return "fcnet"
    if len(shape) == 3:
        return "visionnet"
    raise UnsupportedSpaceException(
        f"No default network for observations of shape {tuple(shape)}; wanted at most 3 dimensions (height, width, "
        f"channels). Reshape them in the environment, or write a custom model."
    )


def _leaf_spaces(space: Any) -> list[Any]:
    children = space_struct(space)
    if children is space:
        return [space]
    parts = children.values() if isinstance(children, dict) else children
    leaves: list[Any] = []
    for part in parts:
        leaves.extend(_flat(part))
    return leaves


def _flat(node: Any) -> list[Any]:
    if isinstance(node, dict):
        return [leaf for child in node.values() for leaf in _flat(child)]
    if isinstance(node, tuple):
        return [leaf for child in node for leaf in _flat(child)]
    return [node]


def _is_image(space: Any) -> bool:
    return isinstance(space, gymnasium.spaces.Box) and len(space.shape) >= 3


#: Kind of a default network -> its class.
_DEFAULT_MODELS = {
    "fcnet": "FullyConnectedNetwork",
    "visionnet": "VisionNetwork",
    "complex_input_net": "ComplexInputNetwork",
}


def _default_model_class(obs_space: Any, framework: str) -> type:
    kind = default_network(obs_space)
    model_class: type = getattr(_sibling(framework, kind), _DEFAULT_MODELS[kind])
    return model_class


def _is_keras_model(model_class: Any) -> bool:
    """Whether `model_class` is a class of plain Keras models, told by names: neither Keras nor TensorFlow is loaded."""
    bases = model_class.__mro__ if isinstance(model_class, type) else ()
    keras = any(base.__name__ == "Model" and base.__module__.partition(".")[0] in _KERAS for base in bases)
    return keras and not issubclass(model_class, ModelV2)


def _refuse_other_framework(model_class: Any, framework: str) -> None:
    """Raises ConfigError for a class (or object) that derives from the other framework's base, told by its name."""
    cls = model_class if isinstance(model_class, type) else type(model_class)
    bases = {base.__name__ for base in cls.__mro__}
    if framework == "torch" and _is_keras_model(cls):
        raise ConfigError(
            f"The model {cls.__name__!r} is a Keras model, but the config says framework='torch'; set 'tf'."
        )
    for other, base in _BASES.items():
        if other != framework and base in bases:
            raise ConfigError(
                f"The model {cls.__name__!r} is a {base}, made for framework={other!r}, but the config says "
                f"framework={framework!r}; set framework={other!r}, or derive the model from {_BASES[framework]}."
            )


def _checked_model(model: Any, model_class: Any, framework: str) -> Any:
    """Returns the model after checking that it is one."""
    _refuse_other_framework(model, framework)
    if not isinstance(model, getattr(_sibling(framework, f"{framework}_modelv2"), _BASES[framework])):
        wanted = "TorchModelV2 and torch.nn.Module" if framework == "torch" else _BASES[framework]
        raise ConfigError(
            f"The model {getattr(model_class, '__name__', model_class)!r} must derive from {wanted}; got a "
            f"{type(model).__name__}."
        )
    model.variables()  # raises where nn.Module.__init__ was forgotten
    keep_windows(model)
    return model
