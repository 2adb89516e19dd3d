"""`get_policy_class(config)` of each algorithm, as RLlib's `build_trainer` calls took it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rlframe.trainer.setup import import_path


def _torch_or_default(path: str) -> Callable[[dict[str, Any]], Any]:
    """Returns what gives the torch policy at `module:Class` for torch, and None, the default, for TensorFlow."""

    def get_policy_class(config: dict[str, Any]) -> Any:
        """Returns the torch policy's class; None, which means `default_policy`, for TensorFlow."""
        return import_path(path) if config["framework"] == "torch" else None

    return get_policy_class


of_a3c = _torch_or_default("rlframe.agents.a3c.a3c_policy:A3CTorchPolicy")
of_appo = _torch_or_default("rlframe.agents.appo.appo_policy:AsyncPPOTorchPolicy")
of_cql = _torch_or_default("rlframe.agents.sac.cql_policy:CQLTorchPolicy")
of_ddpg = _torch_or_default("rlframe.agents.ddpg.ddpg_policy:DDPGTorchPolicy")
of_dreamer = _torch_or_default("rlframe.agents.dreamer.dreamer_torch_policy:DreamerTorchPolicy")
of_dqn = _torch_or_default("rlframe.agents.dqn.dqn_policy:DQNTorchPolicy")
of_maml = _torch_or_default("rlframe.agents.maml.maml_policy:MAMLTorchPolicy")
of_marwil = _torch_or_default("rlframe.agents.marwil.marwil_policy:MARWILTorchPolicy")
of_pg = _torch_or_default("rlframe.agents.pg.pg_policy:PGTorchPolicy")
of_ppo = _torch_or_default("rlframe.agents.ppo.ppo_policy:PPOTorchPolicy")
of_r2d2 = _torch_or_default("rlframe.agents.dqn.r2d2_policy:R2D2TorchPolicy")
of_rnnsac = _torch_or_default("rlframe.agents.sac.rnnsac_policy:RNNSACTorchPolicy")
of_sac = _torch_or_default("rlframe.agents.sac.sac_policy:SACTorchPolicy")
of_slateq = _torch_or_default("rlframe.agents.slateq.slateq_policy:SlateQTorchPolicy")
of_simple_q = _torch_or_default("rlframe.agents.dqn.simple_q_policy:SimpleQTorchPolicy")


def of_es(config: dict[str, Any]) -> Any:
    """Returns the policy of ES, which is one for both frameworks."""
    del config
    return import_path("rlframe.agents.es.es_policy:ESPolicy")


def of_ars(config: dict[str, Any]) -> Any:
    """Returns the policy of ARS, which is one for both frameworks."""
    del config
    return import_path("rlframe.agents.es.es_policy:ARSPolicy")
