"""Numbers worked by hand and behaviour of each NumPy distribution; agreement with torch is in tests/contract."""

import numpy as np
import pytest
from gymnasium import spaces

from rlframe.models import bounded_distributions as bounded
from rlframe.models import compound_distributions as compound
from rlframe.models import distributions as dists
from rlframe.models import gaussian
from rlframe.models.action_dist import ActionDistribution
from rlframe.models.numpy_dists import numpy_dist_for

FLOAT_MIN = np.finfo(np.float32).min


def logits_of(*rows):
    return np.log(np.array(rows, np.float64))


def test_categorical_numbers_worked_by_hand():
    dist = dists.Categorical(logits_of([1, 3], [2, 2]))
    np.testing.assert_allclose(np.exp(dist.logp(np.array([1, 0]))), [0.75, 0.5])
    np.testing.assert_allclose(dist.entropy()[1], np.log(2))
    # 0.75 log(0.75/0.5) + 0.25 log(0.25/0.5)
    other = dists.Categorical(logits_of([1, 1], [2, 2]))
    np.testing.assert_allclose(dist.kl(other), [0.75 * np.log(1.5) + 0.25 * np.log(0.5), 0], atol=1e-15)
    assert dist.deterministic_sample().tolist() == [1, 0]


def test_categorical_masked_logits_are_never_drawn_and_stay_finite():
    inputs = np.array([[0.0, FLOAT_MIN, 0.0], [FLOAT_MIN, FLOAT_MIN, 5.0]] * 200, np.float32)
    dist = dists.Categorical(inputs, np.random.default_rng(0))
    drawn = dist.sample()
    assert 1 not in drawn[::2]
    assert set(drawn[1::2]) == {2}
    for values in (dist.entropy(), dist.sampled_action_logp(), dist.kl(dist)):
        assert np.isfinite(values).all()
    np.testing.assert_allclose(dist.entropy()[:2], [np.log(2), 0], atol=1e-6)


def test_categorical_infinite_mask_is_never_drawn():
    dist = dists.Categorical(np.array([[0.0, -np.inf]] * 100, np.float32), np.random.default_rng(0))
    assert not dist.sample().any()
    np.testing.assert_array_equal(dist.entropy(), 0)


def test_categorical_same_seed_draws_the_same():
    inputs = np.random.default_rng(0).standard_normal((50, 4)).astype(np.float32)
    first, second = (dists.Categorical(inputs, np.random.default_rng(5)).sample() for _ in range(2))
    np.testing.assert_array_equal(first, second)


def test_categorical_logp_accepts_a_column():
    dist = dists.Categorical(logits_of([1, 3], [2, 2]))
    np.testing.assert_array_equal(dist.logp(np.array([[1], [0]])), dist.logp(np.array([1, 0])))


def test_distribution_float32_inputs_give_float32_densities():
    inputs = np.zeros((3, 4), np.float32)
    rng = np.random.default_rng(0)
    made = [
        dists.Categorical(inputs, rng),
        compound.MultiCategorical(inputs, rng, input_lens=[2, 2]),
        gaussian.DiagGaussian(inputs, rng),
        gaussian.SquashedGaussian(inputs, rng),
        bounded.Beta(inputs, rng),
        bounded.Dirichlet(inputs, rng),
        bounded.Deterministic(inputs, rng),
    ]
    for dist in made:
        dist.sample()
        assert dist.sampled_action_logp().dtype == np.float32, type(dist)
        assert dist.sampled_action_logp().shape == (3,)
        if not isinstance(dist, gaussian.SquashedGaussian):
            assert dist.entropy().dtype == np.float32, type(dist)


def test_distribution_without_generator_refuses_to_sample():
    with pytest.raises(ValueError, match="made without a generator"):
        dists.Categorical(np.zeros((1, 2), np.float32)).sample()


@pytest.mark.parametrize("dist_class", [dists.Categorical, gaussian.SquashedGaussian])
def test_sampled_action_logp_before_sample_is_refused(dist_class):
    with pytest.raises(ValueError, match=r"call sample\(\) first"):
        dist_class(np.zeros((1, 2), np.float32)).sampled_action_logp()


def test_multi_categorical_image_shaped_actions_keep_shape_and_dtype():
    space = spaces.Box(0, 2, (2, 2), np.int32)
    dist_class, dim = numpy_dist_for(space)
    dist = dist_class(np.zeros((5, dim), np.float32), np.random.default_rng(0))
    drawn = dist.sample()
    assert drawn.shape == (5, 2, 2)
    assert drawn.dtype == np.int32
    np.testing.assert_allclose(dist.logp(drawn), 4 * np.log(1 / 3), rtol=1e-6)
    assert dist.multi_entropy().shape == (5, 4)


def test_diag_gaussian_numbers_worked_by_hand():
    dist = gaussian.DiagGaussian(np.array([[1.0, -1.0, 0.0, np.log(2.0)]]))
    half_log_2pi = 0.5 * np.log(2 * np.pi)
    np.testing.assert_allclose(dist.logp(np.array([[2.0, -1.0]])), [-0.5 - np.log(2) - 2 * half_log_2pi])
    np.testing.assert_allclose(dist.entropy(), [np.log(2) + 2 * half_log_2pi + 1])
    standard = gaussian.DiagGaussian(np.zeros((1, 4)))
    # ½(1 + 1) − ½ for the first component; −log 2 + (4 + 1)/2 − ½ for the second
    np.testing.assert_allclose(dist.kl(standard), [0.5 - np.log(2) + 2.0])
    assert dist.deterministic_sample().tolist() == [[1.0, -1.0]]


def test_squashed_gaussian_saturated_samples_have_finite_and_exact_logp():
    dist = gaussian.SquashedGaussian(
        np.array([[30.0, 0.0], [-30.0, 1.0]]), np.random.default_rng(0), low=-2.0, high=3.0
    )
    drawn = dist.sample()
    assert (drawn >= -2.0).all()
    assert (drawn <= 3.0).all()
    assert np.isfinite(dist.sampled_action_logp()).all()
    np.testing.assert_allclose(dist.sampled_action_logp(), dist.logp(drawn), rtol=1e-6)


def test_squashed_gaussian_density_integrates_to_one_over_its_range():
    grid = np.linspace(-2.0, 3.0, 200_001)[1:-1, None]
    dist = gaussian.SquashedGaussian(np.tile([[0.3, -0.5]], (len(grid), 1)), low=-2.0, high=3.0)
    assert np.exp(dist.logp(grid)).sum() * (grid[1] - grid[0])[0] == pytest.approx(1.0, abs=1e-4)


def test_squashed_gaussian_density_is_limited_before_tanh_in_each_dimension():
    # 40 standard deviations off in the first dimension: −800 and more, of which −100 is left; tanh′(2) = 0.070651
    dist = gaussian.SquashedGaussian(np.array([[0.0, 0.0, -np.log(20.0), 0.0]]))
    wanted = -100.0 - np.log(0.070651) - 0.5 * np.log(2 * np.pi)
    np.testing.assert_allclose(dist.logp(np.array([[np.tanh(2.0), 0.0]])), [wanted], atol=1e-4)


def test_squashed_gaussian_bounds_in_the_wrong_order_are_refused():
    with pytest.raises(ValueError, match="needs low < high; got low=1"):
        gaussian.SquashedGaussian(np.zeros((1, 2)), low=1.0, high=1.0)


@pytest.mark.parametrize("method", ["entropy", "kl"])
def test_squashed_gaussian_refuses_what_has_no_closed_form(method):
    dist = gaussian.SquashedGaussian(np.zeros((1, 2)))
    with pytest.raises(ValueError, match=r"closed form|no kl"):
        getattr(dist, method)(*([dist] if method == "kl" else []))


def test_beta_density_integrates_to_one_over_its_range():
    grid = np.linspace(-1.0, 4.0, 100_001)[:, None]
    dist = bounded.Beta(np.tile([[0.3, 1.5]], (len(grid), 1)), low=-1.0, high=4.0)
    assert np.exp(dist.logp(grid)).sum() * 5e-5 == pytest.approx(1.0, abs=1e-4)


def test_dirichlet_samples_lie_on_the_simplex():
    dist = bounded.Dirichlet(np.random.default_rng(0).standard_normal((20, 3)), np.random.default_rng(1))
    for points in (dist.sample(), dist.deterministic_sample()):
        np.testing.assert_allclose(points.sum(axis=1), 1.0)
        assert (points > 0).all()


def test_deterministic_returns_its_inputs():
    dist = bounded.Deterministic(np.ones((2, 3), np.float32))
    assert dist.sample() is dist.inputs
    assert dist.logp(dist.inputs).tolist() == [0, 0]
    assert dist.entropy().tolist() == [0, 0]
    with pytest.raises(NotImplementedError, match=r"does not define kl"):
        dist.kl(dist)


@pytest.fixture
def nested():
    space = spaces.Dict(
        move=spaces.Discrete(3), aim=spaces.Tuple([spaces.Box(-1, 1, (2,)), spaces.MultiDiscrete([2, 4])])
    )
    dist_class, dim = numpy_dist_for(space)
    inputs = np.random.default_rng(0).standard_normal((6, dim)).astype(np.float32)
    return space, dist_class, inputs


def test_multi_action_sample_has_the_space_s_structure(nested):
    space, dist_class, inputs = nested
    for draw in ("sample", "deterministic_sample"):
        action = getattr(dist_class(inputs, np.random.default_rng(0)), draw)()
        assert action.keys() == {"aim", "move"}
        one = {"move": action["move"][0], "aim": (np.clip(action["aim"][0][0], -1, 1), action["aim"][1][0])}
        assert space.contains(one)


def test_multi_action_logp_of_nested_and_concatenated_actions_agree(nested):
    _, dist_class, inputs = nested
    dist = dist_class(inputs, np.random.default_rng(0))
    action = dist.sample()
    joined = np.concatenate([action["aim"][0], action["aim"][1], action["move"][:, None]], axis=1)
    np.testing.assert_allclose(dist.logp(joined), dist.logp(action), rtol=1e-6)
    np.testing.assert_allclose(dist.sampled_action_logp(), dist.logp(action), rtol=1e-6)


def test_multi_action_sums_over_its_children(nested):
    _, dist_class, inputs = nested
    dist, other = dist_class(inputs), dist_class(inputs[::-1])
    children = dist.flat_child_distributions
    np.testing.assert_allclose(dist.entropy(), sum(child.entropy() for child in children), rtol=1e-6)
    np.testing.assert_allclose(dist.kl(dist), 0, atol=1e-6)
    assert (dist.kl(other) > 0).all()


@pytest.mark.parametrize(
    ("dist_class", "space", "expected"),
    [
        (dists.Categorical, spaces.Discrete(4), 4),
        (compound.MultiCategorical, spaces.MultiDiscrete([2, 3]), 5),
        (gaussian.DiagGaussian, spaces.Box(-1, 1, (3,)), 6),
        (gaussian.SquashedGaussian, spaces.Box(-1, 1, (3,)), 6),
        (bounded.Beta, spaces.Box(-1, 1, (3,)), 6),
        (bounded.Dirichlet, spaces.Box(0, 1, (3,)), 3),
        (bounded.Deterministic, spaces.Box(-1, 1, (3,)), 3),
    ],
)
def test_required_model_output_shape_is_the_plan_s_width(dist_class, space, expected):
    assert dist_class.required_model_output_shape(space, {}) == expected


def test_action_distribution_base_names_what_a_subclass_lacks():
    class Mine(ActionDistribution):
        pass

    dist = Mine(np.zeros((1, 2)), None)
    for method, arguments in [
        ("sample", ()), ("deterministic_sample", ()), ("sampled_action_logp", ()), ("logp", (0,)), ("kl", (dist,)),
        ("entropy", ()), ("multi_kl", (dist,)), ("multi_entropy", ()),
    ]:  # fmt: skip
        with pytest.raises(NotImplementedError, match="Mine does not define"):
            getattr(dist, method)(*arguments)
    with pytest.raises(NotImplementedError, match="required_model_output_shape"):
        Mine.required_model_output_shape(spaces.Discrete(2), {})
