"""DBOS: a workflow with the business identifier as its own, and one step. Its system database is SQLite, or what DBOS_URL says."""

import os

from common import drive, home, send
from dbos import DBOS, SetWorkflowID

DBOS(config={
    "name": "bench",
    "system_database_url": os.environ.get("DBOS_URL") or f"sqlite:///{home}/dbos.sqlite",
    "run_admin_server": False,
    "log_level": "CRITICAL",
    "application_version": "1",
})


@DBOS.step()
def step(key):
    return send(key)


@DBOS.workflow()
def workflow(key):
    return step(key)


def act(key):
    with SetWorkflowID(key):
        return workflow(key)


DBOS.launch()
drive(act)
os._exit(0)
