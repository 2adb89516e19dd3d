"""All attacks, and how they ended: `make hostile`."""

import argparse
import logging
import resource
import sys
import tempfile
import time
import warnings
from pathlib import Path

from tests.hostile import checkpoints, runs
from tests.hostile.watch import Tally, watching

CLASSES = {
    "names": checkpoints.attack_by_names,
    "files": checkpoints.attack_by_files,
    "pickles": checkpoints.attack_by_pickles,
    "runs": runs.attack_by_runs,
    "texts": runs.attack_by_texts,
    "configs": runs.attack_by_configs,
}


#: Bytes of address space: what reads a file without end shall fail here, not in the machine's other programs.
_MOST_MEMORY = 24 << 30


def main() -> int:
    """Runs the campaign, prints a table, and returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", choices=CLASSES, action="append", help="a class of attacks; may be given twice")
    parser.add_argument("--stride", type=int, default=1, help="every how manyth attack is made")
    parser.add_argument("--seed", type=int, default=0, help="of the places that are damaged")
    chosen = parser.parse_args()
    logging.disable(logging.CRITICAL)
    resource.setrlimit(resource.RLIMIT_AS, (_MOST_MEMORY, _MOST_MEMORY))
    warnings.simplefilter("ignore")
    tally = Tally()
    with tempfile.TemporaryDirectory(prefix="hostile-") as text, watching(Path(text)):
        for name in chosen.only or CLASSES:
            started = time.monotonic()
            place = Path(text, name)
            place.mkdir()
            CLASSES[name](place, tally, chosen.stride, chosen.seed)
            sys.stderr.write(f"{name}: {time.monotonic() - started:.0f} s\n")
    return report(tally)


def report(tally: Tally) -> int:
    """Prints how attacks ended, and returns whether any ended as it must not."""
    for line in tally.bad:
        sys.stdout.write(f"BAD {line}\n")
    ways = ("refused", "harmless", "executed", "traceback", "hang", "changed", "unclear")
    sys.stdout.write(f"{'class':<28}{'tried':>8}" + "".join(f"{way:>11}" for way in ways) + "\n")
    total = dict.fromkeys(ways, 0)
    for kind, counts in tally.counts.items():
        sys.stdout.write(f"{kind:<28}{counts.total():>8}" + "".join(f"{counts[way]:>11}" for way in ways) + "\n")
        total = {way: total[way] + counts[way] for way in ways}
    sys.stdout.write(f"{'all':<28}{sum(total.values()):>8}" + "".join(f"{total[way]:>11}" for way in ways) + "\n")
    return int(bool(tally.bad))


if __name__ == "__main__":
    sys.exit(main())
