"""Names for the types that travel between the parts; RLlib's aliases, for annotations in user code."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias, TypeVar

T = TypeVar("T")

TensorType: TypeAlias = Any
"""A NumPy array, a torch tensor or a TensorFlow tensor."""
TensorStructType: TypeAlias = Any
"""A tensor, or a dict or tuple of tensors, nested to any depth."""
TensorShape: TypeAlias = tuple[int, ...] | list[int]

AlgorithmConfigDict: TypeAlias = dict[str, Any]
TrainerConfigDict: TypeAlias = dict[str, Any]
PartialTrainerConfigDict: TypeAlias = dict[str, Any]
PartialAlgorithmConfigDict: TypeAlias = dict[str, Any]
EnvConfigDict: TypeAlias = dict[str, Any]
ModelConfigDict: TypeAlias = dict[str, Any]
MultiAgentPolicyConfigDict: TypeAlias = dict[str, Any]
FileType: TypeAlias = Any
"""A file name or an open file."""

AgentID: TypeAlias = Any
PolicyID: TypeAlias = str
EnvID: TypeAlias = int | str
EpisodeID: TypeAlias = int | str
UnrollID: TypeAlias = int
MultiAgentDict: TypeAlias = dict[AgentID, Any]
MultiEnvDict: TypeAlias = dict[EnvID, MultiAgentDict]

EnvType: TypeAlias = Any
EnvObsType: TypeAlias = Any
EnvActionType: TypeAlias = Any
EnvInfoDict: TypeAlias = dict[str, Any]
EnvCreator: TypeAlias = Callable[..., Any]
SpaceStruct: TypeAlias = Any
"""A space, or a dict or tuple of spaces, nested to any depth."""

SampleBatchType: TypeAlias = Any
"""A SampleBatch or a MultiAgentBatch."""
StateBatch: TypeAlias = list[Any]
StateBatches: TypeAlias = list[list[Any]]
ViewRequirementsDict: TypeAlias = dict[str, Any]
PolicyState: TypeAlias = dict[str, Any]
ModelWeights: TypeAlias = dict[str, Any]
ModelInputDict: TypeAlias = dict[str, Any]
ModelGradients: TypeAlias = list[Any]
LocalOptimizer: TypeAlias = Any
GradInfoDict: TypeAlias = dict[str, Any]
LearnerStatsDict: TypeAlias = dict[str, Any]
ResultDict: TypeAlias = dict[str, Any]
WeightsDict: TypeAlias = Mapping[str, Any]
FromConfigSpec: TypeAlias = dict[str, Any] | type | str
"""What `from_config` makes an object from."""
