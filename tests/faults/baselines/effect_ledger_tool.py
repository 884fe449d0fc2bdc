"""effect-ledger: the host's business identifier is the operation, the stored request is used again."""

import os

from common import arguments, done, other, send
from effect_ledger import EffectExecutor

home, url, kind, target, words = arguments()
executor = EffectExecutor(os.path.join(home, "effects.sqlite"), scope="account-1")
key = f"{kind}:{target}"
# "Reuse the original JSON": another wording under the same operation would be a conflict.
known = executor.get(key)
request = known.request if known else {"target": target, "words": words}


def handler(operation):
    return send(url, kind, operation.request["target"], operation.request["words"], operation.provider_key)


operation = executor.execute(key, f"{kind}:v1", request, handler)
if operation.state == "completed":
    done(target, operation.result)
else:
    # Without a lease, in_flight and indeterminate are both left to an operator.
    other("pending", "ask_person")
