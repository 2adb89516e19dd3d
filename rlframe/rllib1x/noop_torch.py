"""RLlib's model that gives observations as they are, in PyTorch."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from rlframe.models.modelv2 import OBS_FLAT
from rlframe.models.torch.torch_modelv2 import TorchModelV2


class TorchNoopModel(TorchModelV2, nn.Module):
    """Gives the observations, flat: what programs of RLlib's DDPG and SAC put in front of actor and critics.

    Args:
        *args: Those of `TorchModelV2`.
        **kwargs: The same.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        nn.Module.__init__(self)
        TorchModelV2.__init__(self, *args, **kwargs)

    def forward(self, input_dict: Any, state: list[Any], seq_lens: Any) -> tuple[Tensor, list[Any]]:
        """Returns flat observations, float `[B, D]`, and the state as it was."""
        del seq_lens
        return input_dict[OBS_FLAT].float(), state
