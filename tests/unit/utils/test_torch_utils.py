"""Torch functions against numbers worked out by hand and against NumPy."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Dict, Discrete, MultiDiscrete

from rlframe.data.sample_batch import SampleBatch
from rlframe.models.repeated_values import RepeatedValues
from rlframe.utils import numpy as in_numpy
from rlframe.utils import torch_ops, torch_utils
from rlframe.utils.torch_utils import (
    Swish,
    apply_grad_clipping,
    atanh,
    concat_multi_gpu_td_errors,
    convert_to_non_torch_type,
    convert_to_torch_tensor,
    explained_variance,
    flatten_inputs_to_1d_tensor,
    get_device,
    global_norm,
    huber_loss,
    l2_loss,
    minimize_and_clip,
    one_hot,
    reduce_mean_ignore_inf,
    sequence_mask,
    set_torch_seed,
    softmax_cross_entropy_with_logits,
)


def optimizer_with_gradients(*groups):
    params = []
    for gradients in groups:
        group = [torch.nn.Parameter(torch.zeros(len(g))) for g in gradients]
        for param, gradient in zip(group, gradients, strict=True):
            param.grad = torch.tensor(gradient)
        params.append({"params": group})
    return torch.optim.SGD(params, lr=1.0)


def policy(clip):
    return SimpleNamespace(config={"grad_clip": clip})


def test_grad_clipping_is_by_the_global_norm_of_a_group():
    optimizer = optimizer_with_gradients([[3.0], [0.0, 4.0]])
    info = apply_grad_clipping(policy(1.0), optimizer, None)
    assert info["grad_gnorm"] == pytest.approx(5.0)
    first, second = (p.grad for p in optimizer.param_groups[0]["params"])
    assert first.tolist() == pytest.approx([0.6])
    assert second.tolist() == pytest.approx([0.0, 0.8])


def test_grad_clipping_below_the_limit_changes_nothing():
    optimizer = optimizer_with_gradients([[3.0], [4.0]])
    assert apply_grad_clipping(policy(40.0), optimizer, None)["grad_gnorm"] == pytest.approx(5.0)
    assert optimizer.param_groups[0]["params"][0].grad.tolist() == [3.0]


def test_grad_clipping_of_several_groups_clips_each_and_reports_all():
    optimizer = optimizer_with_gradients([[3.0]], [[4.0]])
    assert apply_grad_clipping(policy(1.0), optimizer, None)["grad_gnorm"] == pytest.approx(5.0)
    for group in optimizer.param_groups:
        assert group["params"][0].grad.norm() == pytest.approx(1.0)


@pytest.mark.parametrize("clip", [None, 0])
def test_grad_clipping_switched_off_reports_nothing(clip):
    optimizer = optimizer_with_gradients([[3.0]])
    assert apply_grad_clipping(policy(clip), optimizer, None) == {}
    assert optimizer.param_groups[0]["params"][0].grad.tolist() == [3.0]


def test_grad_clipping_without_gradients_reports_nothing():
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
    assert apply_grad_clipping(policy(1.0), optimizer, None) == {}


def test_minimize_and_clip_is_per_parameter():
    optimizer = optimizer_with_gradients([[30.0], [0.5]])
    minimize_and_clip(optimizer, 10.0)
    first, second = (p.grad.item() for p in optimizer.param_groups[0]["params"])
    assert first == pytest.approx(10.0)
    assert second == 0.5
    minimize_and_clip(optimizer, None)


def test_huber_l2_and_norms_agree_with_numpy():
    x = torch.linspace(-3, 3, 13)
    for delta in (1.0, 2.0):
        assert np.allclose(huber_loss(x, delta), in_numpy.huber_loss(x.numpy(), delta))
    assert l2_loss(x).item() == pytest.approx(in_numpy.l2_loss(x.numpy()))
    assert global_norm([torch.tensor([3.0]), torch.tensor([[4.0]])]).item() == 5.0
    assert torch.allclose(atanh(torch.tanh(x)), x, atol=1e-3)


def test_explained_variance_by_hand():
    y = torch.tensor([1.0, 2.0, 3.0])
    assert explained_variance(y, y).item() == 1.0
    assert explained_variance(y, torch.full((3,), 2.0)).item() == pytest.approx(0.0)
    assert explained_variance(y, -5 * y).item() == -1.0
    assert explained_variance(torch.ones(3), y).item() == -1.0, "nothing to explain, as in RLlib and PPO's statistics"


def test_sequence_mask_marks_the_steps_of_each_sequence():
    lengths = torch.tensor([1, 3, 0])
    wanted = [[True, False, False], [True, True, True], [False, False, False]]
    assert sequence_mask(lengths).tolist() == wanted
    assert sequence_mask(lengths, 4).shape == (3, 4)
    assert sequence_mask(lengths, time_major=True).t().tolist() == wanted
    assert sequence_mask(lengths, dtype=torch.float32).sum().item() == 4.0


def test_one_hot_serves_discrete_and_multi_discrete():
    assert one_hot(torch.tensor([1, 0]), Discrete(3)).tolist() == [[0, 1, 0], [1, 0, 0]]
    assert one_hot(torch.tensor([[1, 2]]), MultiDiscrete([2, 3])).tolist() == [[0, 1, 0, 0, 1]]
    assert one_hot(torch.tensor([1.0]), Discrete(2)).dtype == torch.int64
    with pytest.raises(ValueError, match="Discrete"):
        one_hot(torch.tensor([1]), Box(0, 1, (1,)))


def test_flatten_inputs_joins_leaves_and_codes_discrete_ones():
    space = Dict({"b": Discrete(2), "a": Box(0, 1, (2, 1))})
    inputs = {"b": torch.tensor([1]), "a": torch.tensor([[[0.5], [0.25]]])}
    assert flatten_inputs_to_1d_tensor(inputs, space).tolist() == [[0.5, 0.25, 0.0, 1.0]]
    timed = {"b": torch.tensor([[1, 0]]), "a": torch.ones(1, 2, 2, 1)}
    assert flatten_inputs_to_1d_tensor(timed, space, time_axis=True).shape == (1, 2, 4)
    assert flatten_inputs_to_1d_tensor((torch.ones(2, 1), torch.zeros(2, 2))).shape == (2, 3)


def test_cross_entropy_by_hand():
    logits, labels = torch.zeros(1, 4), torch.tensor([[0.0, 1.0, 0.0, 0.0]])
    assert softmax_cross_entropy_with_logits(logits, labels).tolist() == pytest.approx([np.log(4)])


def test_reduce_mean_leaves_out_minus_infinity():
    x = torch.tensor([[1.0, -torch.inf], [3.0, 5.0]])
    assert reduce_mean_ignore_inf(x).item() == 3.0
    assert reduce_mean_ignore_inf(x, axis=1).tolist() == [1.0, 4.0]
    masked = torch.tensor([[1.0, 2.0, torch.finfo(torch.float32).min], [3.0, in_numpy.FLOAT_MIN, 5.0]])
    assert reduce_mean_ignore_inf(masked, axis=1).tolist() == [1.5, 4.0]


def test_convert_to_torch_tensor_of_a_batch_is_a_batch_with_its_flags():
    batch = SampleBatch({"a": np.array([1.5, 2.5, 3.5]), "seq_lens": np.array([1, 2], np.int32)})
    batch.set_training()
    made = convert_to_torch_tensor(batch)
    assert type(made) is SampleBatch
    assert made["a"].dtype == torch.float32
    assert (made.count, made.max_seq_len, made.is_training) == (3, 2, True)


def test_convert_to_torch_tensor_keeps_structure_and_narrows_floats():
    objects = np.array([{}, {}], dtype=object)
    frozen = np.zeros(2, np.float32)
    frozen.setflags(write=False)
    got = convert_to_torch_tensor({"a": (np.zeros(2), [1, 2]), "i": objects, "f": frozen, "n": 3.0, "t": torch.ones(1)})
    assert got["a"][0].dtype == torch.float32
    assert got["a"][1].dtype == torch.int64
    assert got["i"] is objects
    got["f"][0] = 1.0
    assert frozen[0] == 0
    assert got["n"].item() == 3.0
    shared = np.zeros(2, np.float32)
    convert_to_torch_tensor(shared)[0] = 1.0
    assert shared[0] == 1.0


def test_convert_to_torch_tensor_goes_into_repeated_values():
    got = convert_to_torch_tensor(RepeatedValues(np.zeros((1, 2)), np.array([1]), 2), device="cpu")
    assert isinstance(got.values, torch.Tensor)
    assert isinstance(got.lengths, torch.Tensor)


def test_convert_to_non_torch_type_gives_numbers_and_arrays():
    got = convert_to_non_torch_type({"loss": torch.tensor(2.0), "td": [torch.ones(2)], "s": "x", "row": torch.ones(1)})
    assert got["row"].shape == (1,)
    assert got["loss"] == 2.0
    assert isinstance(got["loss"], float)
    assert isinstance(got["td"][0], np.ndarray)
    assert got["s"] == "x"


def test_td_errors_of_all_towers_are_joined():
    towers = [SimpleNamespace(tower_stats={"td_error": torch.tensor([1.0, 3.0])}), SimpleNamespace(tower_stats={})]
    info = concat_multi_gpu_td_errors(SimpleNamespace(model_gpu_towers=towers, device="cpu"))
    assert info["td_error"].tolist() == [1.0, 3.0]
    assert info["mean_td_error"].item() == 2.0


def test_get_device_is_the_cpu_unless_asked():
    assert get_device({"num_gpus": 0}) == torch.device("cpu")
    if not torch.cuda.is_available():
        with pytest.raises(ValueError, match="num_gpus"):
            get_device({"num_gpus": 1})


def test_set_torch_seed_repeats_draws():
    before = torch.get_rng_state()
    try:
        draws = []
        for _ in range(2):
            set_torch_seed(3)
            draws.append(torch.rand(2).tolist())
        assert draws[0] == draws[1]
        set_torch_seed(None)
    finally:
        torch.set_rng_state(before)
        torch.backends.cudnn.deterministic = False


def test_swish_learns_its_slope():
    layer = Swish()
    assert layer(torch.zeros(1)).item() == 0.0
    assert len(list(layer.parameters())) == 1


def test_torch_ops_is_the_older_path():
    assert torch_ops.sequence_mask is torch_utils.sequence_mask
    assert torch_ops.FLOAT_MIN == -3.4e38 == in_numpy.FLOAT_MIN


def test_a_mask_with_time_first_can_be_viewed_flat():
    mask = sequence_mask(torch.tensor([1, 3]), 3, time_major=True)
    assert mask.view(-1).tolist() == [True, True, False, True, False, True]
