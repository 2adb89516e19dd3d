"""Which policy acts for which agent: the config's function, called with the arguments that it declares."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from rlframe.data.sample_batch import DEFAULT_POLICY_ID
from rlframe.utils.errors import ConfigError

#: `fn(agent id, episode, worker) -> policy id`.
AgentMapping = Callable[[Any, Any, Any], str]


def agent_mapping(function: Any, policy_ids: list[str]) -> AgentMapping:
    """Returns `multiagent.policy_mapping_fn` as a function of agent id, episode and worker.

    It is called with what it declares: the agent's id, the episode as second argument (whatever that is called), and
    `worker` where it names it; with `**kwargs` alone all through these. Without a function the default policy acts for
    everybody, or the only one there is.

    Args:
        function: The user's function, or None.
        policy_ids: Ids of all policies.

    Raises:
        ConfigError: If a function is needed.
    """
    if function is None:
        if DEFAULT_POLICY_ID not in policy_ids and len(policy_ids) > 1:
            raise ConfigError(
                f"multiagent.policy_mapping_fn: got None with the policies {', '.join(map(repr, policy_ids))}; wanted "
                "a function (agent_id, episode, worker, **kwargs) -> policy id"
            )
        only = DEFAULT_POLICY_ID if DEFAULT_POLICY_ID in policy_ids else policy_ids[0]
        return lambda agent_id, episode, worker: only  # noqa: ARG005 - one signature for all mappings
    return _called_as_declared(function)


def _called_as_declared(function: Any) -> AgentMapping:
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except ValueError:  # written in C, without a signature
        return lambda agent_id, episode, worker: function(agent_id)  # noqa: ARG005 - as above
    positional = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    takes_all = any(p.kind is p.VAR_KEYWORD for p in parameters)
    takes_more = any(p.kind is p.VAR_POSITIONAL for p in parameters)
    named = {p.name for p in positional[1:] + [p for p in parameters if p.kind is p.KEYWORD_ONLY]}
    second = positional[1].name if len(positional) > 1 else None
    # RLlib calls f(agent_id, episode, worker=worker): whatever the second parameter is called, it gets the episode.
    in_second_place = second == "episode" or (
        "episode" not in named and second != "worker" and (second is not None or takes_more)
    )

    def mapping(agent_id: Any, episode: Any, worker: Any) -> str:
        given = {"worker": worker} if in_second_place else {"episode": episode, "worker": worker}
        keywords = {name: value for name, value in given.items() if takes_all or name in named}
        return str(function(agent_id, *([episode] if in_second_place else []), **keywords))

    return mapping
