"""effect-ledger on SQLite, as its package says: FULL is what it sets itself."""

import os

from common import drive, home, send
from effect_ledger import EffectExecutor

executor = EffectExecutor(os.path.join(home, "effects.sqlite"), scope="account-1")


def handler(operation):
    return send(operation.provider_key)


def act(key):
    operation = executor.execute(key, "posting:v1", {"id": key, "amount": 1200}, handler)
    if operation.state != "completed":
        raise RuntimeError(f"{key} is {operation.state}")
    return operation.result


drive(act)
