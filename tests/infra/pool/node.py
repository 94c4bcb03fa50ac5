"""A node that does what its jobs say; it speaks the line protocol of LocalPool."""

import json
import os
import sys
import threading
import time
from pathlib import Path


def work(payload: dict) -> dict:
    if "die_until" in payload:
        mark = Path(payload["die_until"])
        tries = len(mark.read_text()) if mark.exists() else 0
        mark.write_text("x" * (tries + 1))
        if tries < payload["times"]:
            print("out of memory, said the node", file=sys.stderr, flush=True)
            os._exit(9)
    if "log" in payload:
        with open(payload["log"], "a") as log:
            log.write(payload["name"] + "\n")
    time.sleep(payload.get("sleep", 0))
    if "raise" in payload:
        raise ValueError(payload["raise"])
    return {"pid": os.getpid()} | payload.get("echo", {})


def main() -> None:
    jobs: list[str] = []
    ready = threading.Semaphore(0)

    def read() -> None:
        for line in sys.stdin:
            jobs.append(line)
            ready.release()
        os._exit(0)

    threading.Thread(target=read, daemon=True).start()
    # It signs nothing, so 32 bytes that may be a public key will do.
    node_id = os.environ.get("NODE_SAYS", os.urandom(31).hex() + "00")
    print(json.dumps({"node_id": node_id}), flush=True)
    while True:
        ready.acquire()
        job = json.loads(jobs.pop(0))
        try:
            reply = {"output": work(job["payload"]), "seconds": 0.1}
        except ValueError as error:
            reply = {"error_kind": "ValueError", "error": str(error)}
        print(json.dumps(reply), flush=True)


main()
