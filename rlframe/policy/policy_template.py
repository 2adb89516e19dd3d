"""Policy classes from functions: a loss, and hooks around it."""

from __future__ import annotations

from typing import Any

from rlframe.policy.hook_names import check_hooks, check_tf_hooks


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
            * `view_requirements_fn(policy)`: further `ViewRequirement`s by column, as in RLlib 1.0.
            * `optimizer_fn(policy, config)`: optimiser or list of them.
            * `validate_spaces`, `before_init`, `before_loss_init`, `after_init`
              `(policy, obs_space, action_space, config)`: called in this order; before anything, before the base
              constructor, when the model exists, and last.
            * `action_sampler_fn(policy, model, input_dict, state_batches, explore, timestep)`.
            * `action_distribution_fn(policy, model, *, input_dict, state_batches, seq_lens, explore, timestep,
              is_training)`: `(dist_inputs, dist_class, state_out)`.
            * `make_model(policy, obs_space, action_space, config)` or `make_model_and_action_dist(...)`.
            * `compute_gradients_fn(policy, batch)`, which returns `(gradients, info)`, and
              `apply_gradients_fn(policy, gradients)`: a learner step calls the one, then the other with the gradients
              in the parameters. `fn(policy, optimizer, gradients)` is called with each optimiser.
            * `mixins`: classes that come before the base policy.
            * `get_batch_divisibility_req`: int or `fn(policy)`, which is the policy's `batch_divisibility_req`. Losses
              may read it; batches are not filled up with zeros to a multiple of it.

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
    from rlframe.policy.torch.template import build_class
    from rlframe.policy.torch_policy import TorchPolicy

    return build_class(name, hooks, TorchPolicy)


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
    from rlframe.policy.tf.template import build_class
    from rlframe.policy.tf_policy import TFPolicy

    return build_class(name, hooks, TFPolicy)
