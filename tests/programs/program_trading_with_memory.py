"""Intraday trading: a class that picks trainer and config by name, then acts by hand with a recurrent state.

Uses RLlib as a student trading project does (its TradeModel): `a3c.DEFAULT_CONFIG.copy()` with an LSTM, DQN as "rainbow"
with few atoms, `in_evaluation` set before a second trainer restores, `compute_action(obs, state=[h, c])` in a loop over
days, result kept in an .npz file.
"""

import tempfile

import gym
import numpy as np

import rlframe.agents.a3c as a3c
import rlframe.agents.dqn as dqn
import rlframe.agents.ppo as ppo
from rlframe.examples.models.rnn_model import RNNModel
from rlframe.models import ModelCatalog


class Market(gym.Env):
    """A price that swings; the position is short, flat or long; a day has 12 steps, the record three days."""

    def __init__(self, config=None):
        self.action_space = gym.spaces.Discrete(3)
        self.observation_space = gym.spaces.Box(-np.inf, np.inf, (2,))
        self.prices = 10 + np.sin(np.arange(37) / 2.0)
        self.cur_pos = 0

    def observe(self):
        return np.array([self.prices[self.cur_pos], self.prices[self.cur_pos] - self.prices[self.cur_pos - 1]])

    def reset(self):
        self.cur_pos = 0
        return self.observe()

    def jmp_to_next_day(self):
        self.cur_pos = 0 if self.cur_pos >= 36 else self.cur_pos
        return self.observe()

    def step(self, action):
        before = self.prices[self.cur_pos]
        self.cur_pos += 1
        reward = (action - 1) * (self.prices[self.cur_pos] - before)
        return self.observe(), reward, self.cur_pos % 12 == 0, {}


class TradeModel:
    def __init__(self, model):
        self.model = model
        if model == "ppo":
            self.trainer, self.config = ppo.PPOTrainer, ppo.DEFAULT_CONFIG.copy()
            self.config["model"] = {"custom_model": "rnn", "max_seq_len": 20}
            self.config.update(train_batch_size=120, sgd_minibatch_size=60, num_sgd_iter=2)
        elif model == "a3c":
            self.trainer, self.config = a3c.A3CTrainer, a3c.DEFAULT_CONFIG.copy()
            self.config["model"] = {"use_lstm": True}
            self.config["sample_async"] = False
        elif model == "rainbow":
            self.trainer, self.config = dqn.DQNTrainer, dqn.DEFAULT_CONFIG.copy()
            self.config.update(n_step=10, noisy=True, num_atoms=4, v_min=-10.0, v_max=10.0, learning_starts=100)
        self.config["num_workers"] = 0
        self.config["min_iter_time_s"] = 0
        self.config["env"] = Market
        self.config["framework"] = "torch"

    def train(self, folder):
        agent = self.trainer(config=self.config)
        agent.train()
        path = agent.save(folder)
        agent.stop()
        return path

    def evaluate(self, path, folder):
        self.config["in_evaluation"] = True
        agent = self.trainer(config=self.config, env=Market)
        agent.restore(path)
        env = Market()
        obs, rewards = env.reset(), []
        state = {"a3c": [np.zeros(256), np.zeros(256)], "ppo": [np.zeros(64), np.zeros(64)]}.get(self.model)
        while True:
            done = False
            while not done:
                if state is None:
                    action = agent.compute_action(obs)
                else:
                    action, state = agent.compute_action(obs, state=state)[:2]
                obs, reward, done, _ = env.step(action)
                rewards.append(reward)
            obs = env.jmp_to_next_day()
            if env.cur_pos == 0:
                break
        np.savez(folder + "/" + self.model + "-run.npz", profit=np.array(rewards))
        agent.stop()
        return len(rewards)


def main():
    ModelCatalog.register_custom_model("rnn", RNNModel if not hasattr(RNNModel, "forward") else TorchRNN())
    for name in ("a3c", "rainbow", "ppo"):
        with tempfile.TemporaryDirectory() as folder:
            model = TradeModel(name)
            assert model.evaluate(model.train(folder), folder) == 36
    print("ok program_trading_with_memory")


def TorchRNN():
    from rlframe.examples.models.rnn_model import TorchRNNModel

    class Sized(TorchRNNModel):
        def __init__(self, *args, **kwargs):
            super().__init__(*args, fc_size=64, lstm_state_size=64, **kwargs)

    return Sized


if __name__ == "__main__":
    main()
