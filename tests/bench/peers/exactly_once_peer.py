"""exactly-once on SQLite. Its default, `synchronous=NORMAL`, loses what it acknowledged when the power goes: FULL is set here."""

import os

from common import drive, home, send
from exactly_once import Store, current_key, once

store = Store.sqlite(os.path.join(home, "effects.db"))
store._conn.execute("PRAGMA synchronous=FULL;")


@once(store, key=lambda key: key)
def act(key):
    return send(current_key())


drive(act)
