"""What every peer's driver needs: callers, each with a kept connection to the provider, and a clock around them.

A driver is called as DRIVER HOME PROVIDER-URL CALLERS EFFECTS and prints {"seconds": S, "done": N}.
"""

import http.client
import json
import sys
import threading
import time
import urllib.parse

home, url = sys.argv[1:3]
callers, effects = int(sys.argv[3]), int(sys.argv[4])
_address = urllib.parse.urlparse(url).netloc
_own = threading.local()


def send(key, amount=1200, memo="from a peer"):
    """One effect at the provider, over a connection that this thread keeps; its identifier."""
    if not hasattr(_own, "connection"):
        _own.connection = http.client.HTTPConnection(_address)
    body = json.dumps({"id": key, "amount": amount, "memo": memo, "reference": key})
    headers = {"Content-Type": "application/json", "Idempotency-Key": key}
    _own.connection.request("POST", "/v1/postings", body, headers)
    answer = _own.connection.getresponse()
    return json.loads(answer.read())["id"]


def drive(act):
    """Calls `act(key)` for each key, from as many threads as there are callers; prints how long that took."""
    numbers, lock, done, failed = iter(range(effects)), threading.Lock(), [], []

    def caller():
        while True:
            with lock:
                number = next(numbers, None)
            if number is None:
                return
            try:
                done.append(act(f"posting:{number}"))
            except Exception as error:
                failed.append(error)
                return

    act("posting:warm")
    threads = [threading.Thread(target=caller) for _ in range(callers)]
    started = time.monotonic()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    seconds = time.monotonic() - started
    if failed:
        raise failed[0]
    print(json.dumps({"seconds": seconds, "done": len(done)}), flush=True)
