"""What Dreamer computes of its weights, one state and one step after the other, in NumPy and float64."""

from __future__ import annotations

import numpy as np

HALF_LOG_2PI = 0.5 * np.log(2 * np.pi)


def elu(x):
    return np.where(x > 0, x, np.expm1(np.minimum(x, 0)))


def relu(x):
    return np.maximum(x, 0)


def softplus(x):
    return np.logaddexp(0, x)


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def n_step_return(reward, value, discount, start, n):
    """Returns n rewards and the value behind them; values have one entry more than rewards."""
    total, weight = 0.0, 1.0
    for step in range(start, start + n):
        total += weight * reward[step]
        weight *= discount[step]
    return total + weight * value[start + n]


def lambda_returns(reward, value, discount, lambda_):
    """Returns the means of n-step returns that eq. 6 of Hafner et al. 2020 has; values have one entry more."""
    made = []
    for start in range(len(reward)):
        left = len(reward) - start
        mean = sum(
            (1 - lambda_) * lambda_ ** (n - 1) * n_step_return(reward, value, discount, start, n)
            for n in range(1, left)
        )
        made.append(mean + lambda_ ** (left - 1) * n_step_return(reward, value, discount, start, left))
    return np.array(made)


def divergence(posterior, prior):
    """Returns KL(posterior ‖ prior) of two diagonal Gaussians, (mean, std) each."""
    (m, s), (n, t) = posterior, prior
    return float(np.sum(np.log(t / s) + (s**2 + (m - n) ** 2) / (2 * t**2) - 0.5))


class Oracle:
    """Dreamer's numbers for vectors that are seen, and one sequence.

    Args:
        weights: Those of a policy.
        init_std: `action_init_std`.
    """

    def __init__(self, weights, init_std=5.0):
        self.weights = {name: np.asarray(array, np.float64) for name, array in weights.items()}
        self.init_std = init_std

    def linear(self, name, x):
        return self.weights[f"{name}.weight"] @ x + self.weights[f"{name}.bias"]

    def dense(self, name, x, layers, act=elu):
        for layer in range(layers):
            x = act(self.linear(f"{name}.{2 * layer}", x))
        return self.linear(f"{name}.{2 * layers}", x)

    def gru(self, x, h):
        w = self.weights
        from_x = w["dynamics.cell.weight_ih"] @ x + w["dynamics.cell.bias_ih"]
        from_h = w["dynamics.cell.weight_hh"] @ h + w["dynamics.cell.bias_hh"]
        (xr, xz, xn), (hr, hz, hn) = np.split(from_x, 3), np.split(from_h, 3)
        reset, update = sigmoid(xr + hr), sigmoid(xz + hz)
        return (1 - update) * np.tanh(xn + reset * hn) + update * h

    def moments(self, outputs):
        mean, raw = np.split(outputs, 2)
        return mean, softplus(raw) + 0.1

    def prior(self, stoch, deter, action):
        """Returns the moments that are expected behind an action, and the next deterministic state."""
        deter = self.gru(elu(self.linear("dynamics.img1", np.concatenate([stoch, action]))), deter)
        return self.moments(self.linear("dynamics.img3", elu(self.linear("dynamics.img2", deter)))), deter

    def posterior(self, deter, obs):
        embedded = elu(self.dense("encoder.0", obs, 1))
        return self.moments(
            self.linear("dynamics.obs2", elu(self.linear("dynamics.obs1", np.concatenate([deter, embedded]))))
        )

    def observe(self, obs, actions, noise):
        """Returns (posterior, prior, stoch, deter) of each step of a sequence."""
        size, made = noise.shape[1], []
        stoch, deter = np.zeros(size), np.zeros(self.weights["dynamics.cell.weight_hh"].shape[1])
        for seen, action, drawn in zip(obs, actions, noise, strict=True):
            prior, deter = self.prior(stoch, deter, action)
            mean, std = self.posterior(deter, seen)
            stoch = mean + std * drawn
            made.append(((mean, std), prior, stoch, deter))
        return made

    def action(self, feature, drawn):
        mean, raw = np.split(self.dense("actor.model", feature, 4, relu), 2)
        mean, std = 5 * np.tanh(mean / 5), softplus(raw + np.log(np.expm1(self.init_std))) + 1e-4
        return np.tanh(mean + std * drawn)

    def dream(self, stoch, deter, noise, actions):
        """Returns the features of imagined steps, `[H, S + D]`; noise is `[H, A + S]`."""
        features = []
        for drawn in noise:
            action = self.action(np.concatenate([stoch, deter]), drawn[:actions])
            (mean, std), deter = self.prior(stoch, deter, action)
            stoch = mean + std * drawn[actions:]
            features.append(np.concatenate([stoch, deter]))
        return np.array(features)

    def losses(self, batch, config):
        """Returns the losses of one sequence by the names of statistics."""
        steps = self.observe(batch["obs"], batch["prev_actions"], batch["posterior_noise"])
        features = [np.concatenate([stoch, deter]) for _, _, stoch, deter in steps]
        seen = [self.dense("decoder.model", feature, 2) for feature in features]
        gained = [self.dense("reward.model", feature, 2)[0] for feature in features]
        image = np.mean([np.sum(0.5 * (a - b) ** 2 + HALF_LOG_2PI) for a, b in zip(seen, batch["obs"], strict=True)])
        reward = np.mean(0.5 * (np.array(gained) - batch["prev_rewards"]) ** 2 + HALF_LOG_2PI)
        kl = max(np.mean([divergence(post, prior) for post, prior, _, _ in steps]), config["free_nats"])
        ends = 0.0
        if config["dreamer_model"]["predict_termination"]:
            logits = np.array([self.dense("continues.model", feature, 3)[0] for feature in features])
            goes_on = 1 - batch["prev_terminateds"]
            ends = np.mean(goes_on * softplus(-logits) + (1 - goes_on) * softplus(logits))
        actors, values = [], []
        for (_, _, stoch, deter), noise in zip(steps, batch["dream_noise"], strict=True):
            dream = self.dream(stoch, deter, noise, batch["prev_actions"].shape[1])
            r = np.array([self.dense("reward.model", feature, 2)[0] for feature in dream])
            v = np.array([self.dense("value.model", feature, 3)[0] for feature in dream])
            discount = np.full(len(r), config["discount"])
            if config["dreamer_model"]["predict_termination"]:
                discount *= [sigmoid(self.dense("continues.model", feature, 3)[0]) for feature in dream]
            returns = lambda_returns(r[:-1], v, discount, config["lambda"])
            weights = np.cumprod([1.0, *discount[:-2]])
            actors.append(weights * returns)
            values.append(weights * (0.5 * (v[:-1] - returns) ** 2 + HALF_LOG_2PI))
        made = {
            "image_loss": image, "reward_loss": reward, "divergence": kl, "actor_loss": -np.mean(actors),
            "critic_loss": np.mean(values), "model_loss": image + reward + config["kl_coeff"] * kl + 10 * ends,
        }  # fmt: skip
        return {name: float(value) for name, value in made.items()}
