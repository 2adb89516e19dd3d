"""The tutorial of a first environment: a checkpoint per iteration, the Keras summary, a rollout by gym.make.

Uses RLlib as DerwenAI/gym_example does (train.py): `ppo.DEFAULT_CONFIG.copy()`, the name
registered with RLlib and with gym alike, `agent.save(directory)` after each `train()`, `policy.model.base_model
.summary()`, and `restore` of what `save` returned.
"""

import shutil

import gym
import numpy as np
import ray
import rlframe.agents.ppo as ppo
from rlframe.utils.framework import try_import_tf  # tensorflow
from ray.tune.registry import register_env

tf1, tf, tfv = try_import_tf()


class Example_v0(gym.Env):
    """A walk on a line of ten places to the goal at one."""

    metadata = {"render.modes": ["human"]}
    action_space = gym.spaces.Discrete(2)
    observation_space = gym.spaces.Discrete(11)

    def reset(self):
        self.position, self.count = np.random.randint(2, 11), 0
        return self.position

    def step(self, action):
        self.count += 1
        self.position = int(np.clip(self.position + (1 if action else -1), 0, 10))
        done = self.position == 1 or self.count >= 20
        return self.position, (10.0 if self.position == 1 else -1.0), done, {"position": self.position}

    def render(self, mode="human"):
        return str(self.position)


def main():
    gym.register(id="example-v0", entry_point=Example_v0)
    chkpt_root = "tmp/exa"
    shutil.rmtree(chkpt_root, ignore_errors=True, onerror=None)
    ray.init(ignore_reinit_error=True)  # the original adds local_mode=True, which today's Ray refuses
    select_env = "example-v0"
    register_env(select_env, lambda config: Example_v0())

    config = ppo.DEFAULT_CONFIG.copy()
    config["log_level"] = "WARN"
    config["framework"] = "tf"
    config.update(num_workers=1, train_batch_size=200, sgd_minibatch_size=100, num_sgd_iter=2)
    config["model"]["fcnet_hiddens"] = [16]
    agent = ppo.PPOTrainer(config, env=select_env)
    status = "{:2d} reward {:6.2f}/{:6.2f}/{:6.2f} len {:4.2f} saved {}"
    for n in range(2):
        result = agent.train()
        chkpt_file = agent.save(chkpt_root)
        print(
            status.format(
                n + 1, result["episode_reward_min"], result["episode_reward_mean"], result["episode_reward_max"],
                result["episode_len_mean"], chkpt_file,
            )
        )

    policy = agent.get_policy()
    lines = []
    policy.model.base_model.summary(print_fn=lambda line, **kwargs: lines.append(line))
    assert any("fc_out" in line for line in "\n".join(lines).splitlines()), lines
    print(policy.model.base_model.summary())

    agent.restore(chkpt_file)
    env = Example_v0()
    state, sum_reward, episodes = env.reset(), 0, 0
    for _ in range(60):
        action = agent.compute_action(state)
        state, reward, done, info = env.step(action)
        sum_reward += reward
        env.render()
        if done == 1:
            state, sum_reward, episodes = env.reset(), 0, episodes + 1
    assert episodes >= 2
    ray.shutdown()
    print("ok program_keras_summary")


if __name__ == "__main__":
    main()
