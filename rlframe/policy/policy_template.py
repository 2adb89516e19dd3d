"""Policy classes from functions: a loss, and hooks around it."""

from __future__ import annotations

import importlib
from typing import Any

#: Keyword arguments of `build_policy_class`, in the order in which they take effect.
HOOK_NAMES = (
    "loss_fn",
    "get_default_config",
    "stats_fn",
    "postprocess_fn",
    "extra_action_out_fn",
    "extra_grad_process_fn",
    "extra_learn_fetches_fn",
    "optimizer_fn",
    "validate_spaces",
    "before_init",
    "before_loss_init",
    "after_init",
    "_after_loss_init",
    "action_sampler_fn",
    "action_distribution_fn",
    "make_model",
    "make_model_and_action_dist",
    "compute_gradients_fn",
    "apply_gradients_fn",
    "mixins",
    "get_batch_divisibility_req",
)


def build_policy_class(name: str, framework: str, **hooks: Any) -> type[Any]:
    """Returns a policy class made from functions.

    Args:
        name: Name of the class.
        framework: "torch".
        **hooks: Any of the following; those left out, or None, keep the default.

            * `loss_fn(policy, model, dist_class, train_batch)`: scalar loss, or a list with one per optimiser.
            * `get_default_config()`: dict that the given config is merged over.
            * `stats_fn(policy, train_batch)`: learner statistics, called after the step.
            * `postprocess_fn(policy, sample_batch, other_agent_batches=None, episode=None)`: per trajectory fragment,
              after the exploration's own postprocessing.
            * `extra_action_out_fn(policy, input_dict, state_batches, model, action_dist)`: more columns when acting.
            * `extra_grad_process_fn(policy, optimizer, loss)`: after `backward`, before the step.
            * `extra_learn_fetches_fn(policy)`: more learner output.
            * `optimizer_fn(policy, config)`: optimiser or list of them.
            * `validate_spaces`, `before_init`, `before_loss_init`, `after_init`
              `(policy, obs_space, action_space, config)`: called in this order; before anything, before the base
              constructor, when the model exists, and last.
            * `action_sampler_fn(policy, model, input_dict, state_batches, explore, timestep)`.
            * `action_distribution_fn(policy, model, *, input_dict, state_batches, seq_lens, explore, timestep,
              is_training)`: `(dist_inputs, dist_class, state_out)`.
            * `make_model(policy, obs_space, action_space, config)` or `make_model_and_action_dist(...)`.
            * `compute_gradients_fn(policy, batch)`, `apply_gradients_fn(policy, optimizer, grads)`.
            * `mixins`: classes that come before the base policy.
            * `get_batch_divisibility_req`: int or `fn(policy)`.

    Returns:
        A policy class with `with_updates(**overrides)`, which derives a class with some hooks replaced.

    Raises:
        TypeError: If a keyword is unknown.
        ValueError: If the framework is unknown, or both ways to make a model are given.
    """
    check_hooks(hooks)
    if framework != "torch":
        raise ValueError(f'framework: got {framework!r}, wanted "torch" (TensorFlow policies are not in this version)')
    template = importlib.import_module("rlframe.policy.torch.template")
    made: type[Any] = template.build_class(name, hooks)
    return made


def check_hooks(hooks: dict[str, Any]) -> None:
    """Raises on unknown or conflicting hooks; renames old spellings in place.

    Raises:
        TypeError: If a hook is unknown.
        ValueError: If both ways to make a model are given.
    """
    if "extra_action_fetches_fn" in hooks:  # the name of releases before 1.4
        hooks["extra_action_out_fn"] = hooks.pop("extra_action_fetches_fn")
    unknown = sorted(set(hooks) - set(HOOK_NAMES))
    if unknown:
        raise TypeError(f"got the policy hook {unknown[0]!r}, wanted one of {', '.join(HOOK_NAMES)}")
    if hooks.get("make_model") is not None and hooks.get("make_model_and_action_dist") is not None:
        raise ValueError("got both make_model and make_model_and_action_dist; wanted one of them")
