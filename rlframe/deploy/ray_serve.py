"""A run's policies as a deployment of Ray Serve.

from ray import serve
from rlframe.deploy.ray_serve import PolicyDeployment

serve.run(PolicyDeployment.bind("runs/ppo"))
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rlframe.cli.evaluating import loaded_trainer
from rlframe.serving.policy_service import OutOfTurnError, PolicyService
from rlframe.serving.protocol import TOKEN_VARIABLE
from rlframe.utils.errors import ConfigError

try:
    from ray import serve

    from rlframe.serving.web import application
except ImportError as error:
    raise ImportError(
        f"rlframe.deploy.ray_serve needs Ray Serve ({error}): pip install 'rlframe[ray-serve]'"
    ) from error


class _ReplicaService(PolicyService):
    """A `PolicyService` in one of several replicas: episodes live in one, and requests go to any."""

    def open_session(self, policy_id: str | None, explore: bool | None) -> str:
        """Begins an episode, where all requests come here; see `PolicyService.open_session`."""
        count = _replicas()
        if count > 1:
            raise OutOfTurnError(_one_replica(count))
        return super().open_session(policy_id, explore)


def _replicas() -> int:
    return int(serve.get_replica_context().world_size)


def _one_replica(count: int) -> str:
    return (
        f"num_replicas: got {count}, wanted 1: the policy acts from what it saw before, which one replica keeps and "
        "requests may reach any; for more, deploy under several names"
    )


class _PolicyDeployment:
    """Acts as `rlframe serve` does, over HTTP at the application's route, and for other deployments by a handle.

        serve.run(PolicyDeployment.options(num_replicas=4).bind("runs/ppo"))

    Policies with memory take one replica. What serves them over HTTP is Ray's proxy: it encrypts nothing, and on a
    cluster it commonly listens for other machines, so set a token there.

    Args:
        path: A run or checkpoint, where every node of the cluster finds it.
        best: Whether of a run the checkpoint with the best mean return is taken.
        explore: Whether actions are drawn as in training, where a caller does not say.
        token: What callers over HTTP must show; by default the replica's variable `RLFRAME_POLICY_TOKEN`, or nothing.
        session_timeout_s: Seconds without a call after which an episode ends.
        most_sessions: How many episodes may be open.
        trust: Whether classes that the run names are imported, though they are not built in.

    Raises:
        CheckpointError: If there is no run, it cannot be loaded, or it names what is not trusted.
        ConfigError: If a policy has memory and there are several replicas.
    """

    def __init__(  # noqa: PLR0913  as the command line's options
        self,
        path: str | os.PathLike[str],
        *,
        best: bool = False,
        explore: bool = False,
        token: str | None = None,
        session_timeout_s: float = 600.0,
        most_sessions: int = 1024,
        trust: bool = False,
    ) -> None:
        self._token = token or os.environ.get(TOKEN_VARIABLE)
        with contextlib.ExitStack() as stack:
            trainer, _, _ = stack.enter_context(loaded_trainer(Path(path), best=best, trust=trust))
            count, policies = _replicas(), trainer.workers.local_worker().policy_map
            if count > 1 and any(policies[policy_id].needs_memory() for policy_id in policies):
                raise ConfigError(_one_replica(count))
            self._service = _ReplicaService(
                trainer, explore=explore, session_timeout_s=session_timeout_s, most_sessions=most_sessions
            )
            self._held = stack.pop_all()  # as long as the replica lives

    def __serve_build_asgi_app__(self) -> Any:
        return application(self._service, self._token)

    async def act(self, observation: Any, policy: str | None = None, explore: bool | None = None) -> Any:
        """Returns the action for one observation of the environment; `handle.act.remote(observation)`."""
        (action,) = await self._service.act(policy, [observation], explore)
        return action

    async def act_many(
        self, observations: Sequence[Any], policy: str | None = None, explore: bool | None = None
    ) -> list[Any]:
        """Returns the actions for observations that have nothing to do with each other."""
        return await self._service.act(policy, list(observations), explore)


PolicyDeployment = serve.deployment(serve.ingress()(_PolicyDeployment), name="PolicyDeployment")

__all__ = ["PolicyDeployment"]
