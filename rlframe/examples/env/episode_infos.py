"""What games of several players tell in the infos of an episode's last step: parts to derive games from."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from typing import Any


class InfoAccumulationInterface(ABC):
    """What a game calls to collect something in each step and to tell it in the infos of the last one."""

    @abstractmethod
    def _init_info(self) -> None:
        """Makes what is collected in; called once."""

    @abstractmethod
    def _reset_info(self) -> None:
        """Forgets the last episode."""

    @abstractmethod
    def _get_episode_info(self) -> Any:
        """Returns what was collected."""

    @abstractmethod
    def _accumulate_info(self, *args: Any, **kwargs: Any) -> None:
        """Collects one step."""


class NPlayersNDiscreteActionsInfoMixin(InfoAccumulationInterface, ABC):
    """How often which actions were taken together: `{"0_2": 0.5, ...}`, shares of an episode's steps."""

    def _init_info(self) -> None:
        self._done_together: Counter[str] = Counter()

    def _reset_info(self) -> None:
        self._done_together.clear()

    def _accumulate_info(self, *actions: Any) -> None:
        self._done_together["_".join(str(action) for action in actions)] += 1

    def _get_episode_info(self) -> dict[str, float]:
        return {name: count / self._done_together.total() for name, count in self._done_together.items()}


class TwoPlayersTwoActionsInfoMixin(InfoAccumulationInterface, ABC):
    """How often both did what: `{"CC": 0.5, "DD": 0.5, "CD": 0.0, "DC": 0.0}`; C is action 0, D action 1."""

    def _init_info(self) -> None:
        self.cc_count: list[bool] = []
        self.dd_count: list[bool] = []
        self.cd_count: list[bool] = []
        self.dc_count: list[bool] = []

    def _reset_info(self) -> None:
        self._init_info()

    def _accumulate_info(self, ac0: Any, ac1: Any) -> None:
        self.cc_count.append(ac0 == 0 and ac1 == 0)
        self.dd_count.append(ac0 == 1 and ac1 == 1)
        self.cd_count.append(ac0 == 0 and ac1 == 1)
        self.dc_count.append(ac0 == 1 and ac1 == 0)

    def _get_episode_info(self) -> dict[str, float]:
        counts = {"CC": self.cc_count, "DD": self.dd_count, "CD": self.cd_count, "DC": self.dc_count}
        return {name: sum(count) / len(count) for name, count in counts.items() if count}
