import math

import numpy as np
import pytest

from rlframe.models.special import digamma, log_beta, log_gamma

POINTS = [1e-6, 0.1, 0.5, 1.0, 1.5, 2.0, 3.7, 10.0, 123.4, 1e5]


@pytest.mark.parametrize("x", POINTS)
def test_log_gamma_agrees_with_the_standard_library(x):
    assert log_gamma(np.array(x)) == pytest.approx(math.lgamma(x), rel=1e-12, abs=1e-12)


def test_digamma_known_values():
    euler = 0.5772156649015329
    values = digamma(np.array([1.0, 2.0, 0.5]))
    np.testing.assert_allclose(values, [-euler, 1 - euler, -euler - 2 * math.log(2)], rtol=1e-12)


@pytest.mark.parametrize("x", [0.3, 1.0, 5.5, 80.0])
def test_digamma_is_the_slope_of_log_gamma(x):
    h = 1e-5 * max(x, 1)
    slope = (math.lgamma(x + h) - math.lgamma(x - h)) / (2 * h)
    assert digamma(np.array(x)) == pytest.approx(slope, rel=1e-7, abs=1e-8)


def test_log_beta_of_integers_is_a_ratio_of_factorials():
    # B(3, 4) = 2! 3! / 6!
    assert log_beta(np.array(3.0), np.array(4.0)) == pytest.approx(math.log(2 * 6 / 720), rel=1e-13)
