"""Work on another node than the driver's: two Ray daemons, one object store each."""

import json
import subprocess
import sys

import pytest

from rlframe.execution.plan.remote_sources import _on_several_nodes

pytestmark = pytest.mark.ray

PROGRAM = """
import json
import ray
from ray.cluster_utils import Cluster
from rlframe.agents.impala import ImpalaTrainer
from rlframe.execution.plan.remote_sources import _on_several_nodes

store = {"object_store_memory": 80_000_000}
cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, **store})
cluster.add_node(num_cpus=2, **store)
ray.init(address=cluster.address, log_to_driver=False)
trainer = ImpalaTrainer({
    "num_workers": 2, "num_cpus_per_worker": 0.5, "min_iter_time_s": 0, "timesteps_per_iteration": 8_000,
    "rollout_fragment_length": 1_000, "num_envs_per_worker": 4, "train_batch_size": 8_000,
    "model": {"fcnet_hiddens": [8]}, "log_sys_usage": False,
}, env="CartPole-v1")  # fragments of 4,000 rows are too large to come without an object store
here = ray.get_runtime_context().get_node_id()
where = lambda worker: __import__("ray").get_runtime_context().get_node_id()
there = ray.get([worker.apply.remote(where) for worker in trainer.workers.remote_workers()])
result = trainer.train()
trainer.stop()
elsewhere, trained = [node != here for node in there], result["info"]["num_steps_trained"]
print(json.dumps({"elsewhere": elsewhere, "trained": trained, "fetches": _on_several_nodes()}))
ray.shutdown()
cluster.shutdown()
"""

SEARCH = """
import json
import sys
import ray
from ray.cluster_utils import Cluster
from rlframe.revive.examples import write_example
from rlframe.revive.server import ReviveServer
from rlframe.revive.venv_model import VirtualEnv

store = {"object_store_memory": 80_000_000}
cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, **store})
cluster.add_node(num_cpus=1, **store)
files, _ = write_example("mixed", sys.argv[1], trajectories=4)
server = ReviveServer(
    str(files["data"]), str(files["graph"]), log_dir=sys.argv[1], run_id="run", address=cluster.address,
    venv_mode="tune", policy_mode="None", train_venv_trials=2, bc_epoch=1, venv_rollout_horizon=5,
)
server.train()
server.wait()
record = server.workspace.stage("venv")
nodes = {trial["node"] for trial in record.trials.values()}
loaded = [len(VirtualEnv.load(server.workspace.venv / half, trust=True).members) for half in ("train", "val")]
print(json.dumps({"state": record.state, "nodes": len(nodes), "best": record.best_id, "loaded": loaded}))
ray.shutdown()
cluster.shutdown()
"""


@pytest.mark.slow
def test_trials_of_a_search_are_spread_over_the_nodes_at_the_address(tmp_path):
    program = [sys.executable, "-c", SEARCH, str(tmp_path)]
    done = subprocess.run(program, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout.splitlines()[-1])
    assert answer == {"state": "End", "nodes": 2, "best": answer["best"], "loaded": [1, 1]}
    assert answer["best"] in {"0", "1"}


@pytest.mark.slow
def test_fragments_come_from_the_node_where_they_were_sampled():
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout.splitlines()[-1])
    assert answer["elsewhere"] == [True, True]
    assert answer["trained"] >= 8_000
    assert answer["fetches"], "items of other nodes have to be fetched while they are waited for"


def test_on_one_node_nothing_is_fetched(ray_runtime):
    assert not _on_several_nodes()
