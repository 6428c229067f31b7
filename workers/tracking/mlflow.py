"""MLflow: a server or store by `MLFLOW_TRACKING_URI`, else files below `TRACKING_DIR`.

The project is the experiment; every attempt is a run of its own, tagged with the run it belongs to.
"""

import os
import re
import time
from collections.abc import Mapping
from typing import Any

from mlflow import MlflowClient
from mlflow.entities import Metric, Param, RunTag

from workers.contract.events import Histogram
from workers.contract.jobs import JobSpec
from workers.tracking.tool import described, folder_of, worded

REFERENCE = "/reference"  # ends the names of what the reference does
STATUS = {"finished": "FINISHED", "failed": "FAILED", "cancelled": "KILLED"}
MOST_PARAMS = 100  # of one request
LONGEST = 500  # characters of a value, in the oldest servers
# A server that does not answer is given up soon: the run does not wait for it, but its end does,
# for a little.
_PATIENCE = {"MLFLOW_HTTP_REQUEST_MAX_RETRIES": "2", "MLFLOW_HTTP_REQUEST_TIMEOUT": "10"}


class MLflow:
    def __init__(self, spec: JobSpec) -> None:
        self.spec = spec
        for name, value in _PATIENCE.items():
            os.environ.setdefault(name, value)

    def begin(self) -> None:
        spec, uri = self.spec, os.environ.get("MLFLOW_TRACKING_URI")
        if not uri:
            folder = folder_of("mlflow")
            folder.mkdir(parents=True, exist_ok=True)
            uri = folder.as_uri()
            # Newer versions want to be asked twice for a store of plain files.
            os.environ.setdefault("MLFLOW_ALLOW_FILE_STORE", "true")
        self.client = MlflowClient(tracking_uri=uri)
        known = self.client.get_experiment_by_name(spec.project)
        experiment = known.experiment_id if known else self.client.create_experiment(spec.project)
        run = self.client.create_run(
            experiment,
            run_name=f"{spec.run} #{spec.attempt}",
            tags={"concord.run": spec.run, "concord.kind": spec.kind},
        )
        self.run_id = run.info.run_id
        params = [
            Param(_key(name), worded(value)[:LONGEST]) for name, value in described(spec).items()
        ]
        for start in range(0, len(params), MOST_PARAMS):
            self.client.log_batch(self.run_id, params=params[start : start + MOST_PARAMS])

    def metrics(self, step: int, at: float, values: Mapping[str, float]) -> None:
        when = int(at * 1000)
        metrics = [Metric(_key(name), value, when, step) for name, value in values.items()]
        self.client.log_batch(self.run_id, metrics=metrics)

    def histogram(self, event: Histogram) -> None:
        """It has no place for them."""

    def end(self, outcome: str, summary: Mapping[str, Any]) -> None:
        tags = [
            RunTag(f"concord.{_key(name)}", worded(value)[:LONGEST])
            for name, value in summary.items()
        ]
        self.client.log_batch(self.run_id, tags=[RunTag("concord.outcome", outcome), *tags])
        self.client.set_terminated(self.run_id, STATUS[outcome], end_time=int(time.time() * 1000))


def _key(name: str) -> str:
    """What a name may hold there: letters, digits, _ - . / and spaces. A store of plain files keeps
    each metric as a file of its name, so `a` and `a/reference` cannot both be there."""
    return re.sub(r"[^A-Za-z0-9_\-./ ]", "_", name.replace(REFERENCE, ".reference"))


def make(spec: JobSpec) -> MLflow:
    return MLflow(spec)
