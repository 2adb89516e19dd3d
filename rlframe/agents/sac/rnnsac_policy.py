"""RNNSAC: the policy, SAC's behind a memory, for both frameworks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rlframe.agents.sac.sac_policy import SACPolicy
from rlframe.policy.backends import lazy_policies
from rlframe.policy.parts import Component
from rlframe.utils.errors import ConfigError

if TYPE_CHECKING:
    from rlframe.agents.sac.rnnsac import RNNSACConfig


class RNNSACPolicy(SACPolicy):
    """SAC whose actor and critics see what one memory makes of the observations so far.

    The memory learns with the critics. Its layers are those of `Q_model`, or of `policy_model` where that alone has a
    memory; behind it are the layers of both. States are stored with sequences, burn-in warms them up.

    Source: Yang & Nguyen 2021, "Recurrent Off-policy Baselines for Memory-based Continuous Control" (a memory that
    actor and critics share); Kapturowski et al. 2019 (stored states, burn-in).
    """

    config: RNNSACConfig
    defaults_from = "rlframe.agents.sac.rnnsac:DEFAULT_CONFIG"
    takes_own_model = False

    def encoder(self) -> dict[str, Any] | None:
        """Returns the memory: the section that has one, with what only `model` says."""
        config = self.config
        for section in (config.Q_model, config.policy_model, config.model):
            if section.get("use_lstm") or section.get("use_attention") or section.get("custom_model"):
                return {**config.model, **section, "max_seq_len": config.model["max_seq_len"], "vf_share_layers": True}
        return super().encoder()

    def section_behind(self, name: str) -> dict[str, Any]:
        """Returns a section without the custom model, which is the memory."""
        return {**self.config[name], "custom_model": None}

    def make_components(self) -> dict[str, Component]:
        """Returns what SAC has; raises a ConfigError where there is no memory."""
        if not self.is_recurrent():
            raise ConfigError(
                "Q_model: got no memory in Q_model, policy_model or model, but RNNSAC learns from sequences; set "
                "Q_model.use_lstm and policy_model.use_lstm to True, give a custom_model whose get_initial_state() is "
                "not empty, or take SAC"
            )
        return super().make_components()


__getattr__ = lazy_policies(__name__, RNNSACPolicy, RNNSACTorchPolicy="torch", RNNSACTFPolicy="tf")
