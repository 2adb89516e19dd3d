"""Dreamer's policy: how it acts, and the losses of model, actor and value, in PyTorch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import gymnasium as gym
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch import distributions as td

from rlframe.agents.dreamer.dreamer_torch_model import IMAGE_SIZE, POSTERIOR_NOISE, DreamerModel, picture_layout
from rlframe.data.columns import NEXT_OBS, OBS, PREV_ACTIONS, PREV_REWARDS, SEQ_LENS, STATE_IN_PREFIX, STATE_OUT_PREFIX
from rlframe.data.sample_batch import SampleBatch
from rlframe.losses.imagination import lambda_return
from rlframe.losses.masking import valid_mean, valid_rows
from rlframe.models.catalog import ModelCatalog
from rlframe.policy.inference import Acted, Columns, Inference, Wanted
from rlframe.policy.own_inference import FrameworkInference
from rlframe.policy.parts import AdamSpec, LossOutput, OptimizerSpec
from rlframe.policy.torch_policy import TorchPolicy
from rlframe.replay.episodic import PREV_TERMINATEDS, histories, joined
from rlframe.tensor import ops
from rlframe.utils.errors import ConfigError, UnsupportedSpaceException

if TYPE_CHECKING:
    from rlframe.agents.dreamer.dreamer import DreamerConfig

#: Column of the noise that imagined actions and states are drawn with, float32 `[B, H, A + S]`.
DREAM_NOISE = "dream_noise"
#: Weight of whether episodes terminate in the model's loss, as in the paper's own code.
TERMINATION_SCALE = 10.0


class DreamerInference(FrameworkInference):
    """Acts by the posterior of what was seen so far; adds `explore_noise`, and remembers the action that was taken."""

    def act(self, columns: Columns, explore: bool, timestep: int | None, wanted: Wanted) -> Acted:
        """Returns actions `[B, A]` in [-1, 1], and the wanted columns."""
        policy = self.policy
        step = policy.global_timestep if timestep is None else timestep
        actions, made = super().act(columns, explore, timestep, wanted)
        if explore and not policy.exploration.is_random_at(step):
            noise = policy._action_rng.standard_normal(actions.shape).astype(np.float32)
            actions = np.clip(actions + policy.config.explore_noise * noise, -1.0, 1.0)
        made[f"{STATE_OUT_PREFIX}4"] = np.asarray(actions, np.float32)
        return actions, made


class DreamerTorchPolicy(TorchPolicy):
    """Learns a model of the environment from replayed pieces of episodes, and actor and value by imagining in it.

        L_model = mean [ −log p(o_t | s_t) − log p(r_t | s_t) ] + β max( mean KL(posterior ‖ prior), free nats )
        L_actor = −mean Σ_τ γ^τ V_τ,    L_value = mean Σ_τ γ^τ ½ ( v(s_τ) − V_τ )²,    τ < H − 1 imagined from each s_t

    V are the λ-returns of `lambda_return`. Losses of Gaussians have their constants, ½ log 2π for each number.

    Source: Hafner et al. 2020, "Dream to Control: Learning Behaviors by Latent Imagination", eqs. 6 to 10.
    """

    config: DreamerConfig
    defaults_from = "rlframe.agents.dreamer.dreamer:DEFAULT_CONFIG"
    dist_type = "squashed_gaussian"
    train_columns = (NEXT_OBS,)
    learn_columns = (OBS, PREV_ACTIONS, PREV_REWARDS, PREV_TERMINATEDS)

    def prepare(self) -> None:
        """Refuses spaces that it cannot act in or see."""
        space, seen = self.action_space, self.observation_space
        if not isinstance(space, gym.spaces.Box) or len(space.shape) != 1 or not space.is_bounded():
            raise UnsupportedSpaceException(
                f"{type(self).__name__}: got the action space {space}, wanted a bounded Box with one dimension: the "
                "actor learns by the gradients of its actions; DQN and PPO choose among Discrete ones"
            )
        if len(seen.shape or ()) != 1 and not picture_layout(seen.shape or ())[1]:
            raise UnsupportedSpaceException(
                f"{type(self).__name__}: got observations of shape {seen.shape}, wanted vectors, or pictures of "
                f"{IMAGE_SIZE} x {IMAGE_SIZE}: [C, {IMAGE_SIZE}, {IMAGE_SIZE}] or [{IMAGE_SIZE}, {IMAGE_SIZE}, C]; "
                "resize them in the environment, as gymnasium.wrappers.ResizeObservation does"
            )
        if self._obs_preprocessor is None and not isinstance(seen, gym.spaces.Box):
            raise ConfigError("_disable_preprocessor_api: got True; Dreamer sees one array; leave it out")
        self.max_seq_len = int(self.config.batch_length)

    def make_model_and_dist(self) -> tuple[Any, Any]:
        """Returns the networks, and the distribution of actions."""
        options = dict(self.config.dreamer_model)
        kind = ModelCatalog.find_model(options["custom_model"]) if options["custom_model"] else DreamerModel
        if not (isinstance(kind, type) and issubclass(kind, DreamerModel)):
            raise ConfigError(f"dreamer_model.custom_model: got {kind!r}, wanted a class derived from DreamerModel")
        dist_class, width = ModelCatalog.get_action_dist(
            self.action_space, self.config["model"], dist_type=self.dist_type, framework="torch"
        )
        model = kind(self.observation_space, self.action_space, width, options, "DreamerModel")
        self.check_model(model, width)
        return model, dist_class

    def optimizers(self) -> Mapping[str, OptimizerSpec]:
        """Returns an Adam each for model, actor and value."""
        config = self.config
        ends = ("continues",) if config.dreamer_model["predict_termination"] else ()
        world = ("encoder", "decoder", "reward", "dynamics", *ends)
        return {
            "model": AdamSpec(world, config.td_model_lr, grad_clip=config.grad_clip),
            "actor": AdamSpec(("actor",), config.actor_lr, grad_clip=config.grad_clip),
            "critic": AdamSpec(("value",), config.critic_lr, grad_clip=config.grad_clip),
        }

    def _weights_by_optimizer(self) -> Iterator[tuple[OptimizerSpec, dict[str, Any]]]:
        for spec in self.optimizer_specs.values():
            yield spec, self.weights_of(spec.networks)

    def weights_of(self, networks: tuple[str, ...]) -> dict[str, Any]:
        """Returns the weights of some networks by name."""
        named = self.model.trainable_variables(as_dict=True)
        return {name: weight for name, weight in named.items() if name.partition(".")[0] in networks}

    def _built_in_inference(self) -> Inference:
        made = super()._built_in_inference()
        return DreamerInference(self) if type(made) is FrameworkInference else made

    def _network_outputs(self, batch: SampleBatch, explore: bool) -> tuple[Tensor, list[Tensor]]:
        if explore:
            shape = batch[f"{STATE_IN_PREFIX}2"].shape
            batch[POSTERIOR_NOISE] = self.to_tensors(self._action_rng.standard_normal(shape, np.float32))
        made: tuple[Tensor, list[Tensor]] = super()._network_outputs(batch, explore)
        return made

    def complete_batch(self, batch: SampleBatch) -> SampleBatch:
        """Returns sampled rows as episodes with all their observations; what was replayed is that already."""
        return batch if PREV_REWARDS in batch else joined(histories(batch))

    def random_columns(self, rows: int, rng: np.random.Generator) -> dict[str, NDArray[Any]]:
        """Returns the noise of posteriors and of imagination."""
        stoch, actions = self.config.dreamer_model["stoch_size"], self.model.action_size
        shapes = {POSTERIOR_NOISE: (stoch,), DREAM_NOISE: (self.config.imagine_horizon, actions + stoch)}
        return {name: rng.standard_normal((rows, *shape), np.float32) for name, shape in shapes.items()}

    def loss(self, model: Any, dist_class: Any, train_batch: SampleBatch) -> Any:
        """Returns the losses of model, actor and value for one batch, and statistics."""
        del dist_class
        post, stats = self.model_loss(model, train_batch)
        starts = [valid_rows(train_batch)(part) for part in post]
        stats |= self.behaviour_losses(model, starts, valid_rows(train_batch)(train_batch[DREAM_NOISE]))
        losses = {name: stats[f"{name}_loss"] for name in self.optimizer_specs}
        return LossOutput(losses, {name: value.detach() for name, value in stats.items()})

    def model_loss(self, model: Any, batch: SampleBatch) -> tuple[list[Tensor], dict[str, Tensor]]:
        """Returns the posterior states of all rows, `[B, ...]`, and the world model's loss with what it is made of."""
        config, mean, obs = self.config, valid_mean(batch), model.seen(batch[OBS])

        def sequences(column: Tensor) -> Tensor:
            made: Tensor = ops.split_sequences(column, batch[SEQ_LENS])
            return made

        given = [sequences(part) for part in (model.encoder(obs), batch[PREV_ACTIONS])]
        states = model.dynamics.observe(*given, noise=sequences(batch[POSTERIOR_NOISE]))
        post, prior = ([part.flatten(0, 1) for part in state] for state in states)
        features = model.dynamics.get_feature(post)
        seen, believed = (model.dynamics.get_dist(*state[:2]) for state in (post, prior))
        divergence = mean(td.kl_divergence(seen, believed).sum(-1)).clamp(min=config.free_nats)
        stats = {
            "reward_loss": -mean(model.reward(features).log_prob(batch[PREV_REWARDS])),
            "image_loss": -mean(model.decoder(features).log_prob(obs)),
            "divergence": divergence,
            "prior_ent": mean(believed.entropy()),
            "post_ent": mean(seen.entropy()),
        }
        total = config.kl_coeff * divergence + stats["reward_loss"] + stats["image_loss"]
        if config.dreamer_model["predict_termination"]:
            stats["termination_loss"] = -mean(model.continues(features).log_prob(1.0 - batch[PREV_TERMINATEDS]))
            total = total + TERMINATION_SCALE * stats["termination_loss"]
        return post, {"model_loss": total, **stats}

    def behaviour_losses(self, model: Any, starts: list[Tensor], noise: Tensor) -> dict[str, Tensor]:
        """Returns the losses of actor and value, of what is imagined from N states on.

        Args:
            model: The networks.
            starts: States `[N, ...]`, which are constants here.
            noise: See `DREAM_NOISE`. Float `[N, H, A + S]`.
        """
        config = self.config
        dream = model.imagine_ahead(starts, config.imagine_horizon, noise)
        reward, value = model.reward(dream).mean, model.value(dream).mean
        pcont = torch.full_like(reward, config.discount)
        if config.dreamer_model["predict_termination"]:
            pcont = pcont * model.continues(dream).mean
        returns = lambda_return(reward[:-1], value[:-1], pcont[:-1], value[-1], config.lambda_)
        weights = torch.cat([torch.ones_like(pcont[:1]), pcont[:-2]]).cumprod(0).detach()
        said = model.value(dream[:-1].detach())
        return {
            "actor_loss": -(weights * returns).mean(),
            "critic_loss": -(weights * said.log_prob(returns.detach())).mean(),
        }
