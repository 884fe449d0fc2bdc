"""What every adapter needs: one request to the provider, the look-up of an object, and what is printed.

An adapter is called as ADAPTER HOME PROVIDER-URL KIND TARGET WORDS and makes one call of a tool.
"""

import json
import sys
import urllib.error
import urllib.parse
import urllib.request

DEADLINE_SECONDS = 1.0


class Refused(Exception):
    """The provider says that it did nothing."""


def arguments():
    return sys.argv[1:6]


def _open(request):
    try:
        with urllib.request.urlopen(request, timeout=DEADLINE_SECONDS) as answer:
            return json.loads(answer.read())
    except urllib.error.HTTPError as error:
        if error.code in (400, 402):
            raise Refused(f"the provider answered {error.code}") from None
        raise


def send(url, kind, target, words, key):
    """Asks for the effect; its identifier. `key` is the provider's Idempotency-Key, and the reference."""
    if kind == "email":
        path, content = "/v1/emails", "application/json"
        body = json.dumps({"to": target, "subject": words, "body": words, "reference": key})
    else:
        path, content = "/v1/refunds", "application/x-www-form-urlencoded"
        charge = "ch_" + target.removeprefix("R-")
        body = urllib.parse.urlencode(
            {"charge": charge, "metadata[return]": target, "metadata[reason]": words, "metadata[ref]": key})
    headers = {"Content-Type": content, "Idempotency-Key": key}
    answer = _open(urllib.request.Request(url + path, body.encode(), headers, method="POST"))
    return answer["id"]


def find(url, kind, target, key):
    """The identifier of the object that carries the reference; none when the list has none."""
    if kind == "email":
        query, reference = "/v1/emails?" + urllib.parse.urlencode({"to": target}), lambda o: o.get("reference")
    else:
        charge = "ch_" + target.removeprefix("R-")
        query = "/v1/refunds?" + urllib.parse.urlencode({"charge": charge})
        reference = lambda o: o["metadata"].get("ref")
    for one in _open(urllib.request.Request(url + query))["data"]:
        if reference(one) == key:
            return one["id"]
    return None


def done(target, receipt):
    effect = {"label": target, "state": "done", "receipt": receipt}
    print(json.dumps({"status": "done", "next_action": "none", "effects": [effect]}), flush=True)


def other(status, next_action):
    print(json.dumps({"status": status, "next_action": next_action, "effects": []}), flush=True)
