"""DBOS: the workflow's identifier is the business identifier; a restart recovers what was pending."""

import os
import time

from common import arguments, done, other, send
from dbos import DBOS, SetWorkflowID

ANSWER_SECONDS = 12
home, url, kind, target, words = arguments()
DBOS(config={
    "name": "matrix",
    "system_database_url": f"sqlite:///{home}/dbos.sqlite",
    "run_admin_server": False,
    "log_level": "CRITICAL",
    "application_version": "1",
})
retries = os.environ.get("VARIANT") == "retries"


@DBOS.step(retries_allowed=retries, interval_seconds=0.1, max_attempts=3)
def step(kind, target, words):
    return send(url, kind, target, words, DBOS.workflow_id)


@DBOS.workflow()
def act(kind, target, words):
    return step(kind, target, words)


DBOS.launch()
with SetWorkflowID(f"{kind}:{target}"):
    handle = DBOS.start_workflow(act, kind, target, words)
until = time.monotonic() + ANSWER_SECONDS
status = handle.get_status().status
while status in ("PENDING", "ENQUEUED") and time.monotonic() < until:
    time.sleep(0.02)
    status = handle.get_status().status
if status == "SUCCESS":
    done(target, handle.get_result())
elif status in ("PENDING", "ENQUEUED"):
    other("pending", "wait")
else:
    # The workflow failed for good: its identifier answers with the error from now on.
    other("failed", "none")
os._exit(0)
