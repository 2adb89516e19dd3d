"""The networks of fitted Q evaluation and their loss, for both frameworks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import gymnasium as gym

from rlframe.config.common import CommonConfig
from rlframe.data.columns import ACTIONS, DISCOUNTS, NEXT_OBS, OBS, REWARDS
from rlframe.data.sample_batch import SampleBatch
from rlframe.losses.q_learning import select_by_action
from rlframe.models.spec import Dense, Initial, Network, Part, dense_layers
from rlframe.policy.backends import with_backend
from rlframe.policy.learning_policy import LearningPolicy
from rlframe.policy.parts import AdamSpec, FusedGradients, LossOutput
from rlframe.tensor import ops
from rlframe.tensor.ops import Tensor
from rlframe.utils.errors import ConfigError

#: What the policy does next: probabilities `[R, A]`, or drawn actions `[R, M · n]`.
NEXT_POLICY = "next_policy"
#: What was done next, `[R, A]` with a single 1, or `[R, n]`: the policy of the last member.
NEXT_TAKEN = "next_taken"
#: How often each member has a row, `[R, 2 + members]`.
COUNTS = "counts"


@dataclass(frozen=True)
class FittedQSettings:
    """How networks are fitted.

    Attributes:
        members: Networks that are fitted to episodes drawn again; their spread makes the interval, which is widened by
            the error of one more, that is fitted to the behaviour.
        updates: Updates of all of them together.
        batch_size: Rows of an update.
        hiddens: Widths of the hidden layers.
        lr: Learning rate of Adam.
        tau: Share of the networks in their targets, after each update.

    Raises:
        ConfigError: If there are fewer than two members, or a number is not above 0.
    """

    members: int = 10
    updates: int = 500
    batch_size: int = 256
    hiddens: tuple[int, ...] = (64, 64)
    lr: float = 1e-3
    tau: float = 0.02

    def __post_init__(self) -> None:
        if self.members < 2 or min(self.updates, self.batch_size, self.lr, self.tau) <= 0:
            raise ConfigError(f"fitted Q evaluation: got {self}, wanted two members or more, and numbers above 0")


class FittedQPolicy(LearningPolicy):
    """Members that learn Q of another policy, each from its own share of the rows; it acts for nobody.

        Σ_m mean[ c_m ½ (f_m(s, a) − δ_m − γ (1 − d) E_{a' ~ π_m} f⁻_m(s', a'))² ]

    π_m is the policy that is judged; of the last member it is what was done.

    Args:
        observation_space: Of what the networks see, a Box of vectors.
        action_space: Discrete, or a Box of vectors.
        config: Keys that all policies have.
        settings: How many members, and of what kind.
    """

    acting_network = "q_0"
    fused_gradients = FusedGradients({"torch": "rlframe.offline.evaluation.fitted_q_torch:StackedGradients"})

    def __init__(
        self,
        observation_space: gym.Space[Any],
        action_space: gym.Space[Any],
        config: dict[str, Any],
        *,
        settings: FittedQSettings,
    ) -> None:
        self.settings = settings
        self.member_names = tuple(f"q_{member}" for member in range(2 + settings.members))
        self.target_networks = self.member_names
        self.choices = int(action_space.n) if isinstance(action_space, gym.spaces.Discrete) else 0
        super().__init__(observation_space, action_space, config)

    def networks(self) -> Mapping[str, Part]:
        """Returns a network for each member, from observations to choices, or from both to one number."""
        width, actions = int(self.observation_space.shape[0]), self.action_space.shape  # type: ignore[index]
        inputs = {OBS: width} if self.choices else {OBS: width, ACTIONS: int((actions or (1,))[0])}
        head = Dense("output", "linear", self.choices or 1, Initial("normc", 0.01))
        layers = (*dense_layers(self.settings.hiddens, "tanh", initial=Initial("normc", 1.0)), head)
        return dict.fromkeys(self.member_names, Network(inputs, layers))

    def check_model(self, model: Any, num_outputs: int | None) -> None:
        """Takes networks of any outputs: nothing acts by them."""

    def optimizers(self) -> Mapping[str, AdamSpec]:
        """Returns one Adam for all members, whose losses have nothing in common."""
        return {"members": AdamSpec(self.member_names, self.settings.lr)}

    def loss(self, model: Any, dist_class: Any, train_batch: SampleBatch) -> LossOutput:
        """Returns the members' losses in one."""
        del dist_class
        losses = []
        for member, name in enumerate(self.member_names):
            values = self._taken(getattr(model, name), train_batch)
            following = NEXT_TAKEN if name == self.member_names[-1] else NEXT_POLICY
            after = self._expected(getattr(self.target_model, name), train_batch[NEXT_OBS], train_batch[following])
            wanted = ops.stop_gradient(train_batch[REWARDS][:, member] + train_batch[DISCOUNTS] * after)
            losses.append(ops.mean(train_batch[COUNTS][:, member] * ops.square(values - wanted)) / 2.0)
        return LossOutput(sum(losses[1:], start=losses[0]), {"mean_loss": losses[0]})

    def _taken(self, network: Any, batch: SampleBatch) -> Tensor:
        """Returns f(s, a) of what was done, `[B]`."""
        if self.choices:
            return select_by_action(network(batch[OBS]), batch[ACTIONS])
        return network(batch[OBS], batch[ACTIONS])[:, 0]

    def _expected(self, network: Any, obs: Tensor, own: Tensor) -> Tensor:
        """Returns E_{a ~ π} f(s, a), `[B]`, of probabilities or of drawn actions."""
        if self.choices:
            return ops.sum(network(obs) * own, axis=1)
        width = int(self.action_space.shape[0])  # type: ignore[index]
        drawn = ops.split(own, [width] * (own.shape[1] // width))
        each = [network(obs, actions)[:, 0] for actions in drawn]
        return sum(each[1:], start=each[0]) / len(each)


def make_policy(
    framework: str,
    observation_space: gym.Space[Any],
    action_space: gym.Space[Any],
    settings: FittedQSettings,
    seed: int,
) -> Any:
    """Returns a `FittedQPolicy` that learns in a framework.

    Args:
        framework: "torch" or "tf".
        observation_space: Of what the networks see.
        action_space: Of the policy that is judged.
        settings: How many members, and of what kind.
        seed: Of the weights.
    """
    made = with_backend(FittedQPolicy, framework, f"FittedQ{framework.capitalize()}Policy")
    config = {**CommonConfig.defaults(), "seed": seed, "framework": framework}
    return made(observation_space, action_space, config, settings=settings)
