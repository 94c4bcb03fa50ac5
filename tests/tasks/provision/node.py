"""A worker that does what its jobs say; it speaks the protocol of infra/pool/agent/worker.py."""

import hashlib
import json
import os
import sys
import threading
import time
from pathlib import Path


def work(payload: dict, out: str) -> dict:
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
    if "write" in payload:
        (Path(out) / "made.txt").write_text(payload["write"])
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
    secret = Path(os.environ["TRACEMILL_NODE_KEY"]).read_bytes()
    # It signs nothing, so it need not know its public key.
    print(json.dumps({"node_id": hashlib.sha256(secret).hexdigest()}), flush=True)
    while True:
        ready.acquire()
        job = json.loads(jobs.pop(0))
        try:
            output = work(job["payload"], job["out"])
            reply = {"output": output, "seconds": 0.1, "files": os.listdir(job["out"])}
        except ValueError as error:
            reply = {"error_kind": "ValueError", "error": str(error)}
        print(json.dumps(reply), flush=True)


main()
