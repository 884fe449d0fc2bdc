"""exactly-once: keyed by business identity; `quarantine` is its default, `check_then_decide` its recipe for money."""

import os

from common import arguments, done, find, other, send
from exactly_once import (ProbeResult, Store, Verdict, check_then_decide, current_key, once, quarantine)
from exactly_once.errors import QuarantinedError

home, url, kind, target, words = arguments()
store = Store.sqlite(os.path.join(home, "effects.db"))
key = f"{kind}:{target}"


def prober(key):
    try:
        receipt = find(url, kind, target, key)
    except Exception:
        return ProbeResult(Verdict.UNKNOWN)
    return ProbeResult(Verdict.COMMITTED, receipt) if receipt else ProbeResult(Verdict.NOT_COMMITTED)


policy = check_then_decide(prober) if os.environ.get("VARIANT") == "check" else quarantine


@once(store, key=lambda target, words: key, policy=policy)
def act(target, words):
    return send(url, kind, target, words, current_key())


try:
    done(target, act(target, words))
except QuarantinedError:
    other("pending", "ask_person")
except Exception:
    # The effect raised: the key stays in flight, the next call decides by the policy.
    other("pending", "wait")
