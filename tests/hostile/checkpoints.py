"""Attacks by checkpoints: what their JSON names, and files that are damaged, of another kind, or without end."""

import contextlib
import hashlib
import io
import json
import random
import shutil
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rlframe.agents.dqn import DQNTrainer
from rlframe.agents.pg import PGTrainer
from rlframe.agents.registry import get_trainer_class
from rlframe.examples.env.multi_agent import MultiAgentCartPole
from rlframe.rllib1x.checkpoints import load_rllib_checkpoint
from rlframe.trainer.checkpointing import gather
from rlframe.utils.errors import CheckpointError
from rlframe.utils.state_files import read_state, write_state
from tests.hostile import damage, targets
from tests.hostile.watch import Tally, attack

_RECORDED = Path(__file__).parents[1] / "golden" / "rllib19_checkpoints.zip"
#: Where a checkpoint's description of an added policy can name things.
POSITIONS = (
    "exploration_config.type", "exploration_config.sub_exploration.type", "exploration_config.epsilon_schedule.type",
    "model.custom_model", "model.custom_action_dist", "model.custom_preprocessor", "lr_schedule.type", "lr_schedule",
    "callbacks", "observation_filter", "exploration_config", "env", "framework", "multiagent.policies.late",
    "evaluation_config.env", "extra_python_environs_for_driver.LD_PRELOAD", "replay_buffer_config.type", "input",
    "logger_config.type", "model.fcnet_activation",
)  # fmt: skip


def several_agents() -> Any:
    """Returns a trainer to which policies are added."""
    multiagent = {"policies": {"main"}, "policy_mapping_fn": lambda agent: "main"}
    config = {"num_workers": 0, "train_batch_size": 10, "rollout_fragment_length": 10, "min_iter_time_s": 0, "seed": 1,
              "model": {"fcnet_hiddens": [4]}, "env_config": {"num_agents": 2}, "multiagent": multiagent}  # fmt: skip
    return PGTrainer(config, env=MultiAgentCartPole)


def with_replay() -> Any:
    """Returns a trainer with a replay buffer, filters and a schedule."""
    config = {"num_workers": 0, "train_batch_size": 4, "rollout_fragment_length": 4, "min_iter_time_s": 0, "seed": 1,
              "hiddens": [4], "model": {"fcnet_hiddens": [4]}, "learning_starts": 8, "timesteps_per_iteration": 8,
              "replay_buffer_config": {"capacity": 50}, "observation_filter": "MeanStdFilter",
              "target_network_update_freq": 8}  # fmt: skip
    return DQNTrainer(config, env="CartPole-v1")


class Victim:
    """A trainer that is attacked again and again, and what it was before.

    Args:
        trainer: The trainer.
        directory: Where its good checkpoint is.
    """

    def __init__(self, trainer: Any, directory: Path) -> None:
        self.trainer = trainer
        trainer.train()
        self.good = Path(trainer.save(str(directory))).parent
        trainer.restore(str(self.good))
        self.before = fingerprint(trainer)

    def suffers(self, hostile: Path | bytes) -> tuple[str, str]:
        """Returns how it ended to restore something; a good checkpoint must restore afterwards."""
        ends, said = attack(lambda: self._restore(hostile))
        if ends == "refused" and fingerprint(self.trainer) != self.before:
            ends = "changed"
        if ends == "refused" and ("/tmp/tmp" in said or len(said) > 4000):
            ends = "unclear"
        if ends == "harmless":  # what was taken must also train
            ends, said = attack(self.trainer.train)
            ends = "harmless" if ends in ("refused", "harmless") else ends
        for pid in set(self.trainer.workers.local_worker().policy_map) - set(self.before[1]):
            self.trainer.remove_policy(pid)
        try:
            self.trainer.restore(str(self.good))
        except CheckpointError as error:
            return "changed", f"a good checkpoint is refused: {error}"
        return ends, said

    def _restore(self, hostile: Path | bytes) -> None:
        if isinstance(hostile, bytes):
            self.trainer.restore_from_object(hostile)
        else:
            self.trainer.restore(str(hostile))


def fingerprint(trainer: Any) -> tuple[str, tuple[str, ...]]:
    """Returns what tells whether a trainer was changed: its whole state, and its policies."""
    digest = hashlib.sha256()
    _digest(gather(trainer, buffer=True), digest)
    worker = trainer.workers.local_worker()
    tables = (worker.policy_map, worker.filters, worker.preprocessors, worker.policy_specs)
    return digest.hexdigest(), tuple(sorted({pid for table in tables for pid in table}))


def _digest(value: Any, digest: Any) -> None:
    if isinstance(value, dict):
        for key in value:
            digest.update(str(key).encode())
            _digest(value[key], digest)
    elif isinstance(value, (list, tuple)):
        for item in value:
            _digest(item, digest)
    elif hasattr(value, "tobytes"):
        digest.update(value.tobytes())
    else:
        digest.update(repr(value).encode())


def attack_by_names(directory: Path, tally: Tally, stride: int = 1, seed: int = 0) -> None:
    """Restores policies that were added, with names at every place of their configs."""
    del seed  # nothing is drawn
    trainer = several_agents()
    trainer.add_policy("late", config={"gamma": 0.5})
    state, meta = read_state(Path(trainer.save(str(directory / "late"))).parent)
    trainer.remove_policy("late")
    victim = Victim(trainer, directory / "good")
    cases = [(place, name) for place in POSITIONS for name in targets.NAMES]
    cases += [("algorithm", name) for name in targets.NAMES[:4]] + [
        ("policy_class", name) for name in targets.NAMES[:4]
    ]
    for number, (place, name) in enumerate(cases):
        if number % stride:
            continue
        changed = json.loads(json.dumps(meta))
        if place == "algorithm":
            changed["algorithm"] = name
        elif place == "policy_class":
            changed["spaces"]["late"]["policy_class"] = name
        else:
            targets.put(changed["spaces"]["late"]["config"], place, name)
        hostile = directory / "hostile"
        write_state(hostile, state, changed, durable=False)
        ends, said = victim.suffers(hostile)
        tally.add("names in checkpoints", f"{place} = {name[:60]}", ends, said)
    trainer.stop()


def attack_by_files(directory: Path, tally: Tally, stride: int = 1, seed: int = 0) -> None:
    """Restores checkpoints whose files are damaged."""
    rng = random.Random(seed)
    victim = Victim(with_replay(), directory / "good")
    hostile = directory / "hostile"
    files = sorted(path.name for path in victim.good.iterdir())
    for number, (name, act, signs) in enumerate(_damages(hostile, victim.good, files, rng)):
        if number % stride:
            continue
        shutil.rmtree(hostile, ignore_errors=True)
        shutil.copytree(victim.good, hostile)
        act()
        if signs:
            with contextlib.suppress(OSError):
                sign(hostile)
        ends, said = victim.suffers(hostile)
        tally.add("damaged checkpoints", name, ends, said)
    for name, data in _archives(victim.trainer.save_to_object(), rng):
        ends, said = victim.suffers(data)
        tally.add("archives of checkpoints", name, ends, said)
    victim.trainer.stop()


def attack_by_pickles(directory: Path, tally: Tally, stride: int = 1, seed: int = 0) -> None:
    """Loads checkpoints of RLlib 1.9, recorded there and damaged, into new trainers."""
    rng, folder, hostile = random.Random(seed), directory / "recorded", directory / "hostile"
    with zipfile.ZipFile(_RECORDED) as archive:
        archive.extractall(folder)
    for case in ("ppo_torch", "pg_torch"):
        config = json.loads((folder / f"{case}.json").read_text())["config"]
        trainer_class = get_trainer_class(case.partition("_")[0].upper())
        for name in ("checkpoint-2", "checkpoint-2.tune_metadata"):
            data = (folder / case / name).read_bytes()
            path = hostile / name
            ways = (*damage.texts(path), *damage.kinds(path), *damage.cuts(path, len(data), rng, 150))
            for number, (way, act) in enumerate(ways):
                if number % stride:
                    continue
                shutil.rmtree(hostile, ignore_errors=True)
                shutil.copytree(folder / case, hostile)
                act()
                trainer = trainer_class({**config, "framework": "torch", "num_workers": 0}, env="CartPole-v1")
                ends, said = attack(lambda made=trainer: load_rllib_checkpoint(made, hostile))  # type: ignore[misc]
                trainer.cleanup()
                tally.add("pickles of RLlib", f"{case}: {name}: {way}", ends, said)


def _damages(hostile: Path, good: Path, files: list[str], rng: random.Random) -> Iterator[tuple[str, Any, bool]]:
    """Yields name, damage, and whether the manifest is made to agree with it."""
    for file in files:
        path, size = hostile / file, (good / file).stat().st_size
        for name, act in (*damage.texts(path), *damage.kinds(path), *damage.cuts(path, size, rng, 6)):
            yield f"{file}: {name}", act, False
            if file != "manifest.json":
                yield f"{file}: {name}, signed", act, True
    structure = json.loads((good / "state.json").read_text())
    for part, count in (("state", 250), ("meta", 60)):
        for name, changed in damage.wrong_values(structure, rng, count, (part,)):
            yield f"state.json: {name}", (lambda c=changed: damage.write_json(hostile / "state.json", c)), True


def sign(checkpoint: Path) -> None:
    """Makes the manifest of a checkpoint say what its files are: an attacker can."""
    manifest = json.loads((checkpoint / "manifest.json").read_text())
    for name, entry in manifest["files"].items():
        path = checkpoint / name
        if not path.is_file() or path.stat().st_size > 1 << 26:
            entry["bytes"] = path.stat().st_size
            continue
        data = path.read_bytes()
        entry.update(bytes=len(data), sha256=hashlib.sha256(data).hexdigest())
    (checkpoint / "manifest.json").write_text(json.dumps(manifest))


def _archives(good: bytes, rng: random.Random) -> Iterator[tuple[str, bytes]]:
    """Yields archives as `restore_from_object` gets them."""
    for _ in range(6):
        place = rng.randrange(len(good))
        yield f"cut at {place}", good[:place]
        flipped = bytearray(good)
        flipped[place] ^= 1 << rng.randrange(8)
        yield f"byte {place} changed", bytes(flipped)
    yield "empty", b""
    yield "text", b"checkpoint"
    for name in ("../../outside", "/tmp/outside", "a/state.json", "state.json\\..\\x", "x" * 300):
        yield f"member {name[:30]}", _with_members(good, {name: b"x"})
    yield "100,000 members", _with_members(b"", {f"array_{n:06d}.npy": b"" for n in range(100_000)})
    yield "a bomb", _with_members(b"", {"state.json": b"0" * (1 << 28)}, zipfile.ZIP_DEFLATED)
    yield "compressed", _with_members(good, {}, zipfile.ZIP_DEFLATED)


def _with_members(good: bytes, members: dict[str, bytes], how: int = zipfile.ZIP_STORED) -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", how) as archive:
        if good:
            with zipfile.ZipFile(io.BytesIO(good)) as old:
                for name in old.namelist():
                    archive.writestr(name, old.read(name))
        for name, data in members.items():
            archive.writestr(name, data)
    return made.getvalue()
