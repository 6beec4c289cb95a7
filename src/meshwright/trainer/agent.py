"""The process between the launcher and its ranks: torch's elastic agent on 127.0.0.1.

`python -m meshwright.trainer.agent WORKER RUN_DIR WORLD`. It leaves `logs/failures.json` when a rank failed. It is a
process of its own so that the launcher stays light and one signal ends everything.
"""

import signal
import sys
import uuid
from dataclasses import dataclass
from pathlib import Path

from torch.distributed.elastic.multiprocessing import LogsDest, LogsSpecs, SignalException
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
from torch.distributed.launcher.api import LaunchConfig, elastic_launch

from meshwright.files.strict_json import dump
from meshwright.trainer.failure import Ended, Failures, failures_file
from meshwright.trainer.rank import LOGS, follow_parent, log_file

GRACE_S = 3  # between SIGTERM and SIGKILL to a rank


@dataclass
class RankLogs(LogsSpecs):
    """One pair of files a rank, directly in the run's log folder."""

    run: Path

    def reify(self, envs: dict[int, dict[str, str]]) -> LogsDest:
        """Paths by local rank."""
        ranks = {local: int(env["RANK"]) for local, env in envs.items()}
        return LogsDest(
            stdouts={local: str(log_file(self.run, rank, "out")) for local, rank in ranks.items()},
            stderrs={local: str(log_file(self.run, rank, "err")) for local, rank in ranks.items()},
            error_files={local: str(self.run / LOGS / f"rank{rank:05}.elastic.json") for local, rank in ranks.items()},
        )

    @property
    def root_log_dir(self) -> str:
        return str(self.run / LOGS)


def main(worker: str, run: Path, world: int) -> int:
    """Start the ranks and wait for them; 0 when all ended well."""
    follow_parent(signal.SIGTERM)  # which makes the agent end its ranks
    config = LaunchConfig(
        min_nodes=1, max_nodes=1, nproc_per_node=world, run_id=uuid.uuid4().hex, rdzv_backend="c10d",
        rdzv_endpoint="127.0.0.1:0", local_addr="127.0.0.1", max_restarts=0, monitor_interval=0.1,
        logs_specs=RankLogs(run), shutdown_timeout=GRACE_S,
    )  # fmt: skip
    try:
        elastic_launch(config, sys.executable)("-m", "meshwright.trainer.rank", worker, str(run))
    except ChildFailedError as error:
        ended = tuple(Ended(rank, failure.exitcode, failure.timestamp) for rank, failure in error.failures.items())
        dump(Failures(world, ended), failures_file(run))
        return 1
    except SignalException as error:
        return 128 + int(error.sigval)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])))
