"""Action distributions in TensorFlow; what they compute is said in `rlframe.models.tensor_distributions`."""

from __future__ import annotations

from typing import Any

from rlframe.models import compound_tensor_distributions as compound
from rlframe.models import continuous_tensor_distributions as continuous
from rlframe.models import tensor_distributions as once
from rlframe.utils.quiet_tf import tf


class TFActionDistribution(once.TensorDistribution):
    """Base of the distributions in TensorFlow; one of the user's own may define `_build_sample_op` instead of `sample`.

    Args:
        inputs: Outputs of the model. Float `[B, K]`.
        model: The model that made them; may be None.
    """

    @staticmethod
    def _as_tensor(values: Any) -> Any:
        return tf.convert_to_tensor(values)

    @staticmethod
    def _as_floats(values: Any) -> Any:
        tensor = tf.convert_to_tensor(values)
        return tensor if tensor.dtype.is_floating else tf.cast(tensor, tf.float32)

    @staticmethod
    def _normal_like(x: Any) -> Any:
        return tf.random.normal(tf.shape(x), dtype=x.dtype)

    @staticmethod
    def _uniform_like(x: Any) -> Any:
        return tf.random.uniform(tf.shape(x), dtype=x.dtype)

    @staticmethod
    def _gamma(concentration: Any) -> Any:
        return tf.random.gamma([], concentration, dtype=concentration.dtype)

    @staticmethod
    def _choices(log_probs: Any) -> Any:
        return tf.squeeze(tf.random.categorical(log_probs, 1, dtype=tf.int64), axis=1)

    def _draw(self) -> Any:
        raise NotImplementedError(f"{type(self).__name__} must define sample(), or _build_sample_op().")

    def _build_sample_op(self) -> Any:
        """Draws one action per row."""
        return self._draw()

    def sample(self) -> Any:
        """Draws one action per row."""
        self.last_sample = self._build_sample_op()
        return self.last_sample


class Categorical(once.Categorical, TFActionDistribution):
    """`tensor_distributions.Categorical` in TensorFlow."""


class MultiCategorical(compound.MultiCategorical, TFActionDistribution):
    """`compound_tensor_distributions.MultiCategorical` in TensorFlow."""

    component = Categorical

    @property
    def cats(self) -> list[Any]:
        """The components."""
        return self._components


class DiagGaussian(continuous.DiagGaussian, TFActionDistribution):
    """`continuous_tensor_distributions.DiagGaussian` in TensorFlow."""


class SquashedGaussian(continuous.SquashedGaussian, TFActionDistribution):
    """`continuous_tensor_distributions.SquashedGaussian` in TensorFlow."""


class Beta(continuous.Beta, TFActionDistribution):
    """`continuous_tensor_distributions.Beta` in TensorFlow."""


class Dirichlet(continuous.Dirichlet, TFActionDistribution):
    """`continuous_tensor_distributions.Dirichlet` in TensorFlow."""


class Deterministic(continuous.Deterministic, TFActionDistribution):
    """`continuous_tensor_distributions.Deterministic` in TensorFlow."""


class Tanh(continuous.Tanh, TFActionDistribution):
    """`continuous_tensor_distributions.Tanh` in TensorFlow."""


class RelaxedOneHot(continuous.RelaxedOneHot, Categorical):
    """`continuous_tensor_distributions.RelaxedOneHot` in TensorFlow."""


class MultiActionDistribution(compound.MultiActionDistribution, TFActionDistribution):
    """`compound_tensor_distributions.MultiActionDistribution` in TensorFlow."""


#: Kinds of `rlframe.models.dist_plan` in TensorFlow.
TF_DISTRIBUTIONS: dict[str, Any] = {
    "categorical": Categorical,
    "multi_categorical": MultiCategorical,
    "diag_gaussian": DiagGaussian,
    "squashed_gaussian": SquashedGaussian,
    "beta": Beta,
    "dirichlet": Dirichlet,
    "deterministic": Deterministic,
    "tanh": Tanh,
    "relaxed_one_hot": RelaxedOneHot,
    "multi_action": MultiActionDistribution,
}
