"""What every action distribution must satisfy, in NumPy and in torch, and the agreement of the two."""

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import distributions as td

from rlframe.models.catalog import ModelCatalog
from rlframe.models.dist_plan import plan_dist
from rlframe.models.numpy_dists import numpy_dist_for
from rlframe.utils.errors import UnsupportedSpaceException
from rlframe.utils.spaces.simplex import Simplex
from tests.helpers.frameworks import HAS_TF

BATCH = 64
NESTED = spaces.Dict(
    a=spaces.Discrete(3),
    b=spaces.Tuple([spaces.Box(-1, 1, (2,)), spaces.MultiDiscrete([2, 3])]),
    c=spaces.MultiBinary(2),
)
CASES = {
    "categorical": (spaces.Discrete(5), None),
    "multi_categorical": (spaces.MultiDiscrete([2, 5, 3]), None),
    "multi_categorical_2d": (spaces.MultiDiscrete([[2, 5], [3, 2]]), None),
    "integer_box": (spaces.Box(0, 3, (2, 2), np.int32), None),
    "diag_gaussian": (spaces.Box(-1, 1, (3,)), None),
    "squashed_gaussian": (spaces.Box(-1, 1, (3,)), "squashed_gaussian"),
    "beta": (spaces.Box(0, 1, (3,)), "beta"),
    "dirichlet": (spaces.Box(0, 1, (3,)), "dirichlet"),
    "deterministic": (spaces.Box(-1, 1, (3,)), "deterministic"),
    "tanh": (spaces.Box(-1, 1, (2, 2)), "tanh"),
    "relaxed_one_hot": (Simplex((5,)), "relaxed_one_hot"),
    "multi_action": (NESTED, None),
}
NO_ENTROPY = {"squashed_gaussian"}
NO_KL = {"squashed_gaussian", "deterministic", "tanh"}


def inputs_for(dim, seed=0, dtype=np.float64):
    return np.random.default_rng(seed).standard_normal((BATCH, dim)).astype(dtype)


def to_torch(action):
    if isinstance(action, dict):
        return {key: to_torch(value) for key, value in action.items()}
    if isinstance(action, tuple):
        return tuple(to_torch(value) for value in action)
    return torch.as_tensor(action)


@pytest.fixture(params=sorted(CASES))
def pair(request):
    """(name, NumPy class, torch class, width), made for the same space."""
    space, dist_type = CASES[request.param]
    numpy_class, dim = numpy_dist_for(space, dist_type)
    torch_class, torch_dim = ModelCatalog.get_action_dist(space, {}, dist_type, "torch")
    assert dim == torch_dim
    return request.param, numpy_class, torch_class, dim


def test_numpy_and_torch_logp_agree(pair):
    _, numpy_class, torch_class, dim = pair
    inputs = inputs_for(dim)
    ours = numpy_class(inputs, np.random.default_rng(1))
    theirs = torch_class(torch.as_tensor(inputs), None)
    action = ours.sample()
    np.testing.assert_allclose(ours.logp(action), theirs.logp(to_torch(action)).numpy(), rtol=1e-6, atol=1e-6)


def test_numpy_and_torch_entropy_agree(pair):
    name, numpy_class, torch_class, dim = pair
    inputs = inputs_for(dim)
    ours, theirs = numpy_class(inputs), torch_class(torch.as_tensor(inputs), None)
    if name in NO_ENTROPY:
        for dist in (ours, theirs):
            with pytest.raises(ValueError, match="no closed form"):
                dist.entropy()
        return
    np.testing.assert_allclose(ours.entropy(), theirs.entropy().numpy(), rtol=1e-6, atol=1e-6)


def test_numpy_and_torch_kl_agree(pair):
    name, numpy_class, torch_class, dim = pair
    mine, other = inputs_for(dim, 0), inputs_for(dim, 1)
    ours = [numpy_class(x) for x in (mine, other)]
    theirs = [torch_class(torch.as_tensor(x), None) for x in (mine, other)]
    if name in NO_KL:
        for first, second in (ours, theirs):
            with pytest.raises((ValueError, NotImplementedError)):
                first.kl(second)
        return
    np.testing.assert_allclose(ours[0].kl(ours[1]), theirs[0].kl(theirs[1]).numpy(), rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(ours[0].kl(ours[0]), 0, atol=1e-9)


def test_numpy_and_torch_deterministic_samples_agree(pair):
    _, numpy_class, torch_class, dim = pair
    inputs = inputs_for(dim)
    ours = numpy_class(inputs).deterministic_sample()
    theirs = torch_class(torch.as_tensor(inputs), None).deterministic_sample()
    flat_ours, flat_theirs = flatten(ours), flatten(theirs)
    assert len(flat_ours) == len(flat_theirs)
    for mine, other in zip(flat_ours, flat_theirs, strict=True):
        assert mine.shape == tuple(other.shape)
        np.testing.assert_allclose(mine, other.numpy(), rtol=1e-12)


def flatten(action):
    if isinstance(action, dict):
        return [leaf for key in sorted(action) for leaf in flatten(action[key])]
    if isinstance(action, tuple):
        return [leaf for value in action for leaf in flatten(value)]
    return [action]


def test_sampled_action_logp_is_the_logp_of_the_sample(pair):
    _, numpy_class, torch_class, dim = pair
    inputs = inputs_for(dim)
    torch.manual_seed(0)
    ours = numpy_class(inputs, np.random.default_rng(1))
    theirs = torch_class(torch.as_tensor(inputs), None)
    for dist in (ours, theirs):
        action = dist.sample()
        np.testing.assert_allclose(np.asarray(dist.sampled_action_logp()), np.asarray(dist.logp(action)), rtol=1e-5)


def test_single_precision_agrees_with_double(pair):
    name, numpy_class, torch_class, dim = pair
    double = inputs_for(dim)
    action = numpy_class(double, np.random.default_rng(1)).sample()
    expected = numpy_class(double).logp(action)
    single = double.astype(np.float32)
    np.testing.assert_allclose(numpy_class(single).logp(action), expected, rtol=1e-3, atol=2e-5, err_msg=name)
    theirs = torch_class(torch.as_tensor(single), None).logp(to_torch(action))
    np.testing.assert_allclose(theirs.numpy(), expected, rtol=1e-3, atol=2e-5, err_msg=name)


TORCH_ORACLES = {
    "categorical": lambda x: td.Categorical(logits=x),
    "diag_gaussian": lambda x: td.Independent(td.Normal(*gaussian(x)), 1),
    "squashed_gaussian": lambda x: td.Independent(
        td.TransformedDistribution(td.Normal(*gaussian(x)), [td.TanhTransform()]), 1
    ),
    "dirichlet": lambda x: td.Dirichlet(x.exp()),
}


def gaussian(x):
    mean, log_std = x.chunk(2, dim=1)
    return mean, log_std.exp()


@pytest.mark.parametrize("name", sorted(TORCH_ORACLES))
def test_numpy_logp_agrees_with_torch_distributions(name):
    space, dist_type = CASES[name]
    numpy_class, dim = numpy_dist_for(space, dist_type)
    # Not so extreme that actions come within 1e-6 of the bounds, where ours stop.
    inputs = np.abs(inputs_for(dim)) * 0.5
    dist = numpy_class(inputs, np.random.default_rng(2))
    action = dist.sample()
    oracle = TORCH_ORACLES[name](torch.as_tensor(inputs))
    np.testing.assert_allclose(
        dist.logp(action), oracle.log_prob(torch.as_tensor(action)).numpy(), rtol=1e-6, atol=1e-6
    )


@pytest.mark.parametrize("framework", ["numpy", "torch", "tf"] if HAS_TF else ["numpy", "torch"])
def test_squashed_gaussian_is_limited_far_off_its_mean(framework):
    inputs, far = np.array([[0.0, -3.0]], np.float32), np.array([[0.964]], np.float32)
    dist_class = ModelCatalog.get_action_dist(spaces.Box(-1, 1, (1,)), {}, "squashed_gaussian", framework)[0]
    logp = np.asarray(dist_class(inputs, None).logp(far))
    np.testing.assert_allclose(logp, [-100.0 - np.log(1 - 0.964**2)], rtol=1e-5)


def test_squashed_gaussian_wider_range_is_a_density_there():
    inputs = inputs_for(4) * 0.5
    dist = numpy_dist_for(spaces.Box(-1, 1, (2,)), "squashed_gaussian")[0](
        inputs, np.random.default_rng(0), low=-3.0, high=5.0
    )
    action = dist.sample()
    affine = td.AffineTransform(1.0, 4.0)
    oracle = td.TransformedDistribution(td.Normal(*gaussian(torch.as_tensor(inputs))), [td.TanhTransform(), affine])
    expected = oracle.log_prob(torch.as_tensor(action)).sum(dim=1).numpy()
    np.testing.assert_allclose(dist.logp(action), expected, rtol=1e-6, atol=1e-6)


DRAWS = 100_000


@pytest.mark.parametrize("framework", ["torch", *(["tf"] if HAS_TF else [])])
@pytest.mark.parametrize("space", [spaces.Discrete(2), spaces.MultiDiscrete([2, 2])], ids=str)
def test_integers_are_logits(framework, space):
    dist, width = ModelCatalog.get_action_dist(space, {}, framework=framework)
    logits = np.tile([0, 40], (3, width // 2))
    for given in (logits, torch.as_tensor(logits)) if framework == "torch" else (logits,):
        made = dist(given, None)
        assert np.asarray(made.sample()).reshape(3, -1).tolist() == [[1] * (width // 2)] * 3
        np.testing.assert_allclose(made.logp(made.last_sample), 0.0, atol=1e-6)


def test_categorical_sample_frequencies_are_the_probabilities():
    logits = np.array([0.0, 1.0, -1.0, 2.5], np.float32)
    dist = numpy_dist_for(spaces.Discrete(4))[0](np.tile(logits, (DRAWS, 1)), np.random.default_rng(0))
    frequencies = np.bincount(dist.sample(), minlength=4) / DRAWS
    p = np.exp(logits) / np.exp(logits).sum()
    # Five standard errors: a false alarm once in two million seeds, and this one is fixed.
    assert (np.abs(frequencies - p) < 5 * np.sqrt(p * (1 - p) / DRAWS)).all()


def test_multi_categorical_components_are_drawn_independently():
    logits = np.log(np.array([1.0, 3.0, 2.0, 2.0], np.float32))
    dist_class, _ = numpy_dist_for(spaces.MultiDiscrete([2, 2]))
    drawn = dist_class(np.tile(logits, (DRAWS, 1)), np.random.default_rng(0)).sample()
    joint = np.bincount(drawn[:, 0] * 2 + drawn[:, 1], minlength=4) / DRAWS
    np.testing.assert_allclose(joint, [0.125, 0.125, 0.375, 0.375], atol=0.008)


@pytest.mark.parametrize("name", ["diag_gaussian", "squashed_gaussian", "beta", "dirichlet"])
def test_continuous_sample_moments_agree_with_torch(name):
    space, dist_type = CASES[name]
    numpy_class, dim = numpy_dist_for(space, dist_type)
    torch_class, _ = ModelCatalog.get_action_dist(space, {}, dist_type, "torch")
    inputs = np.tile(inputs_for(dim)[:1], (DRAWS, 1))
    torch.manual_seed(0)
    ours = numpy_class(inputs, np.random.default_rng(0)).sample()
    theirs = torch_class(torch.as_tensor(inputs), None).sample().numpy()
    np.testing.assert_allclose(ours.mean(axis=0), theirs.mean(axis=0), atol=6 * ours.std() / np.sqrt(DRAWS) * 2)
    np.testing.assert_allclose(ours.std(axis=0), theirs.std(axis=0), rtol=0.03)


def test_samples_belong_to_the_space(pair):
    name, numpy_class, _, dim = pair
    if name in ("diag_gaussian", "deterministic", "multi_action"):
        return  # unbounded: brought into the space by un-squashing
    space, _ = CASES[name]
    drawn = numpy_class(inputs_for(dim, dtype=np.float32), np.random.default_rng(0)).sample()
    assert all(space.contains(action) for action in drawn)


# --- where floats end -------------------------------------------------------------------------------------------------


def classes(space, dist_type=None):
    """The distribution of each framework, as functions from arrays of inputs."""
    numpy_class, _ = numpy_dist_for(space, dist_type)
    made = {"numpy": lambda inputs: numpy_class(inputs, np.random.default_rng(0))}
    torch_class, _ = ModelCatalog.get_action_dist(space, {}, dist_type, "torch")
    made["torch"] = lambda inputs: torch_class(torch.as_tensor(inputs), None)
    if HAS_TF:
        made["tf"] = lambda inputs: ModelCatalog.get_action_dist(space, {}, dist_type, "tf")[0](inputs, None)
    return made


FRAMEWORKS = ["numpy", "torch", *(["tf"] if HAS_TF else [])]


@pytest.mark.parametrize("framework", FRAMEWORKS)
@pytest.mark.parametrize("space", [spaces.Discrete(2), spaces.MultiDiscrete([2])], ids=["one", "several"])
def test_kl_of_choices_whose_probability_is_below_floats(framework, space):
    make = classes(space)[framework]
    mine = make(np.float32([[0, -8], [0, -80], [0, -np.inf], [0, 0]]))
    other = make(np.float32([[0, -110], [0, -110], [0, -np.inf], [0, -np.inf]]))
    rare = np.exp(-8) / (1 + np.exp(-8))
    wanted = [rare * (110 - 8 - np.log1p(np.exp(-8))) - (1 - rare) * np.log1p(np.exp(-8)), 0, 0, np.inf]
    np.testing.assert_allclose(np.asarray(mine.kl(other)), wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_gaussians_of_extreme_deviations(framework):
    make = classes(spaces.Box(-1, 1, (1,)))[framework]
    log_std = np.float32([-60, -52, 45, 50])
    dist = make(np.stack([np.zeros(4, np.float32), log_std], axis=1))
    x = np.float32([[0], [0], [1e19], [1e21]])
    z = x[:, 0].astype(np.float64) / np.exp(log_std.astype(np.float64))
    np.testing.assert_allclose(np.asarray(dist.logp(x)), -0.5 * z**2 - log_std - 0.5 * np.log(2 * np.pi), rtol=1e-5)
    np.testing.assert_allclose(np.asarray(dist.entropy()), log_std + 0.5 + 0.5 * np.log(2 * np.pi), rtol=1e-5)
    near = make(np.stack([np.zeros(4, np.float32), log_std + np.float32(0.5)], axis=1))
    np.testing.assert_allclose(np.asarray(dist.kl(near)), [0.5 * (np.exp(-1) - 1) + 0.5] * 4, rtol=1e-4)


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_dirichlets_of_small_concentrations_draw_corners_and_of_large_ones_their_mean(framework):
    make = classes(spaces.Box(0, 1, (3,)), "dirichlet")[framework]
    torch.manual_seed(0)
    if framework == "tf":
        import tensorflow

        tensorflow.random.set_seed(0)
    corners = np.asarray(make(np.full((900, 3), -12, np.float32)).sample())
    assert (corners.max(axis=1) > 0.999).all()
    assert (np.bincount(corners.argmax(axis=1)) > 200).all()
    middle = make(np.full((9, 3), 100, np.float32))
    np.testing.assert_allclose(np.asarray(middle.sample()), 1 / 3, rtol=1e-5)
    np.testing.assert_allclose(np.asarray(middle.deterministic_sample()), 1 / 3, rtol=1e-5)


@pytest.mark.parametrize("space", [spaces.Box(-1, 1, (0,)), spaces.Tuple([]), spaces.Dict({})], ids=str)
def test_spaces_without_an_action_are_refused(space):
    with pytest.raises(UnsupportedSpaceException, match="empty; wanted an action to choose"):
        plan_dist(space)
