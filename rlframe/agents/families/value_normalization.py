"""Values normalised by PopArt: the key of algorithms that start without."""

from __future__ import annotations

from collections.abc import Iterator

from rlframe.agents.families.actor_critic import AdvantageConfig
from rlframe.config.options import option


class ValueNormalizationConfig(AdvantageConfig):
    """Values may be normalised."""

    normalize_values: bool = option(
        False,
        "PopArt: values are learned normalised by the running mean and standard deviation of their targets; vf_loss is "
        "in units of that deviation then.",
        source="van Hasselt et al. 2016, section 2",
    )

    def faults(self) -> Iterator[str]:
        """Yields cross-field faults; never rewrites a value."""
        yield from super().faults()
        if self.normalize_values and not self.use_critic:
            yield "normalize_values=True needs use_critic=True: there are no values to normalise"
