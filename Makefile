# One command for each thing to know; CI calls only these. They use the tools of the active environment.
PYTHON ?= python
TESTS = $(PYTHON) -m pytest

.PHONY: help check fix lint types layers spelling unit test learning slow programs search hostile fault docs site bench

help:  ## Say what there is
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 16

check: lint types layers spelling unit  ## Everything that needs no Ray: format, lint, types, layers, spelling, unit tests

fix:  ## Repair format and lint where a machine can
	$(PYTHON) -m ruff check --fix .
	$(PYTHON) -m ruff format .

lint:  ## Lint and format, nothing changed
	$(PYTHON) -m ruff check .
	$(PYTHON) -m ruff format --check .

types:  ## Static types, strict
	$(PYTHON) -m mypy

layers:  ## A package imports only what stands below it
	lint-imports

spelling:  ## Misspelt words
	codespell

unit:  ## Unit, property, contract, golden and architecture tests that start no Ray
	$(TESTS) -m "not ray and not learning and not programs and not fault and not gpu"

test:  ## All tests but those that train for minutes
	$(TESTS)

learning:  ## Every algorithm reaches its return
	$(TESTS) -m learning

slow:  ## Tests that take more than ten seconds each
	$(TESTS) -m slow

programs:  ## Programs of RLlib's users, re-expressed
	$(TESTS) -m "programs or not programs" tests/programs

search:  ## Property tests with many new random examples
	PROPERTY_PROFILE=search $(TESTS) tests/property

hostile:  ## Checkpoints, run directories and configs of somebody who means harm, 4,000 of them
	$(PYTHON) -m tests.hostile.campaign

kills:  ## Workers of every algorithm killed at random instants, 20 in each of two modes; long
	$(PYTHON) -m tests.fault.kill_campaign

fault:  ## Workers killed, disks full, checkpoints cut short
	$(TESTS) -m fault

docs:  ## The README's and the pages' blocks, the examples, the links
	$(TESTS) tests/docs

site:  ## The documentation as pages, in docs/_build/html; needs the extras docs and tf-cpu. Runs the gallery; every warning is an error
	$(PYTHON) -m sphinx -W --keep-going -n -q -b html docs docs/_build/html

BENCHMARKS = startup sampling replay_buffer dqn_against_sb3 ppo_against_sb3 actor_critics_against_sb3 ppo_to_450 impala_throughput \
             image_throughput multi_agent_sampling tf_against_torch remote_workers busy_core fast_dense \
             images_against_sb3 learning

bench:  ## The figures of docs/figures.md, measured side by side; needs stable-baselines3 and cpprb
	for name in $(BENCHMARKS); do echo "== $$name"; $(PYTHON) benchmarks/$$name.py || exit 1; done
