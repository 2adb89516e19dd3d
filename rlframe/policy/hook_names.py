"""The functions that policies are made from: their names, and which of them go together."""

from __future__ import annotations

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
    "view_requirements_fn",
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
#: Keyword arguments of `build_tf_policy` beyond those of `build_policy_class`.
TF_HOOK_NAMES = ("gradients_fn", "grad_stats_fn")
#: Arguments of RLlib's that only static graphs had a use for: accepted where they change nothing, else refused.
_STATIC_GRAPH = {
    "update_ops_fn": "layers update themselves when they are called; run yours in apply_gradients_fn",
    "session_creator": "there are no sessions; limit threads by tf_session_args",
    "obs_include_prev_action_reward": "ask for them in the model's view_requirements",
}


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
