"""What a policy that learns acts with: its networks as one model, its distribution in NumPy, the recipe for workers."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from rlframe.models.catalog import ModelCatalog
from rlframe.models.spec import ENCODER_WIDTH, Part
from rlframe.policy.numpy_policy import ActingRecipe
from rlframe.policy.policy import Policy
from rlframe.policy.users_code import overridden_by_user, users_way


def make_networks(policy: Any, parts: Mapping[str, Part], num_outputs: int) -> Any:
    """Returns the model that holds a policy's networks, with `num_outputs` numbers of that which acts."""
    home = importlib.import_module(f"rlframe.models.{policy.framework}.networks")
    encoder, encoder_config = None, policy.encoder()
    if encoder_config:
        encoder = ModelCatalog.get_model_v2(
            policy.observation_space, policy.action_space, ENCODER_WIDTH, encoder_config, policy.framework, "encoder"
        )
    made = home.Networks(
        policy.observation_space, policy.action_space, num_outputs, policy.config["model"], type(policy).__name__,
        parts=parts, acting=policy.acting_network, encoder=encoder, view=policy.acting_view(),
        memory=policy.encoder_may_remember,
    )  # fmt: skip
    policy.check_model(made, num_outputs)
    return made


def numpy_distribution(policy: Any) -> Any:
    """Returns the NumPy twin of a policy's distribution class, None for a custom class."""
    if policy.config["model"].get("custom_action_dist"):
        return None
    default, _ = ModelCatalog.get_action_dist(
        policy.action_space, policy.config["model"], dist_type=policy.dist_type, framework=policy.framework
    )
    same = policy.dist_class is None or getattr(policy.dist_class, "func", policy.dist_class) is getattr(
        default, "func", default
    )
    return policy._built_in_distribution() if same else None


def acting_recipe(policy: Any) -> ActingRecipe | None:
    """Returns what a remote worker needs to act as a policy does without its framework, None where it needs that."""
    method = type(policy).postprocess_trajectory
    marked = policy.numpy_postprocessing()
    free = method is Policy.postprocess_trajectory or bool(marked)
    own = any(overridden_by_user(type(policy), name) for name in ("forward", "forward_with_memory", "distribution"))
    spec = policy.numpy_spec()
    if spec is None or not free or own or policy._explores_with_tensors() or users_way(type(policy)) is not None:
        return None
    return ActingRecipe(
        build_actor=type(policy).build_actor,
        spec=spec,
        wants_values=policy.wants_values,
        noisy=policy._noisy_network,
        train_columns=policy.train_columns,
        learned_columns=policy.columns_learned_from(),
        postprocess=method if marked is True else marked,
        initial_state=tuple(np.asarray(state) for state in policy.get_initial_state()),
        views=policy.acting_views(),
        learns_sequences=policy.learns_sequences(),
        max_seq_len=policy.max_seq_len,
        dist_type=policy.dist_type,
        acts_for_group=policy.acts_for_group,
    )
