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
        framework: "torch", or "tf" ("tf2", "tfe"): then the hooks are those of `build_tf_policy`.
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
    if framework in ("tf", "tf2", "tfe"):
        return build_tf_policy(name, **hooks)
    if framework != "torch":
        raise ValueError(f'framework: got {framework!r}, wanted "torch" or "tf"')
    check_hooks(hooks)
    template = importlib.import_module("rlframe.policy.torch.template")
    made: type[Any] = template.build_class(name, hooks)
    return made


#: Keyword arguments of `build_tf_policy` beyond those of `build_policy_class`.
TF_HOOK_NAMES = ("gradients_fn", "grad_stats_fn")
#: Arguments of RLlib's that only static graphs had a use for: accepted where they change nothing, else refused.
_STATIC_GRAPH = {
    "update_ops_fn": "layers update themselves when they are called; run yours in apply_gradients_fn",
    "session_creator": "there are no sessions; limit threads by tf_session_args",
    "obs_include_prev_action_reward": "ask for them in the model's view_requirements",
}


def build_tf_policy(name: str, **hooks: Any) -> type[Any]:
    """Returns a TensorFlow policy class made from functions.

    Losses and statistics run inside one traced function. Hooks are those of `build_policy_class`, but for:

    * `extra_action_out_fn(policy)`: columns from what the model's forward pass left; torch's arguments work as well.
    * `gradients_fn(policy, optimizer, loss)` or `compute_gradients_fn`: (gradient, variable) pairs; the optimiser has
      TensorFlow 1's `compute_gradients(loss, variables)`. Clip here.
    * `apply_gradients_fn(policy, optimizer, grads_and_vars)`.
    * `grad_stats_fn(policy, train_batch, grads)`: statistics of the gradients.
    * `action_sampler_fn(policy, model, ...)`: takes what it names of `obs_batch`, `input_dict`, `state_batches`,
      `seq_lens`, `prev_action_batch`, `prev_reward_batch`, `explore`, `timestep`, `is_training`, `episodes`.
    * `extra_grad_process_fn` is torch's: use `gradients_fn`.

    Args:
        name: Name of the class.
        **hooks: The hooks; those left out, or None, keep the default.

    Returns:
        A policy class with `with_updates(**overrides)`.

    Raises:
        TypeError: If a keyword is unknown.
        ValueError: If hooks contradict each other, or have no meaning without static graphs.
    """
    check_tf_hooks(hooks, needs_model=True)
    template = importlib.import_module("rlframe.policy.tf.template")
    made: type[Any] = template.build_class(name, hooks)
    return made


def check_tf_hooks(hooks: dict[str, Any], *, needs_model: bool) -> None:
    """Raises on unknown or conflicting hooks of a TensorFlow policy; renames old spellings in place.

    Raises:
        TypeError: If a hook is unknown.
        ValueError: If hooks contradict each other, or have no meaning without static graphs.
    """
    for key, instead in _STATIC_GRAPH.items():
        if hooks.pop(key, None):
            raise ValueError(f"{key}: has no meaning without static graphs; {instead}")
    if hooks.get("extra_grad_process_fn") is not None:
        raise ValueError("extra_grad_process_fn: is torch's hook; clip in gradients_fn(policy, optimizer, loss)")
    if hooks.get("gradients_fn") is not None and hooks.get("compute_gradients_fn") is not None:
        raise ValueError("got both gradients_fn and compute_gradients_fn, which is its newer name; wanted one of them")
    check_hooks(hooks, extra=TF_HOOK_NAMES)
    custom = [key for key in ("action_sampler_fn", "action_distribution_fn") if hooks.get(key) is not None]
    made = hooks.get("make_model") is not None or hooks.get("make_model_and_action_dist") is not None
    if needs_model and custom and not made:
        raise ValueError(
            f"{custom[0]} needs make_model: without the default distribution the default model has no size"
        )


def check_hooks(hooks: dict[str, Any], extra: tuple[str, ...] = ()) -> None:
    """Raises on unknown or conflicting hooks; renames old spellings in place.

    Raises:
        TypeError: If a hook is unknown.
        ValueError: If both ways to make a model are given.
    """
    if "extra_action_fetches_fn" in hooks:  # the name of releases before 1.4
        hooks["extra_action_out_fn"] = hooks.pop("extra_action_fetches_fn")
    known = (*HOOK_NAMES, *extra)
    unknown = sorted(set(hooks) - set(known))
    if unknown:
        raise TypeError(f"got the policy hook {unknown[0]!r}, wanted one of {', '.join(known)}")
    if hooks.get("make_model") is not None and hooks.get("make_model_and_action_dist") is not None:
        raise ValueError("got both make_model and make_model_and_action_dist; wanted one of them")
