#!/usr/bin/env python3
"""A worker for Fermata's inbox, with the Python standard library only.

    python3 worker.py --server http://127.0.0.1:7070 --queue documents

It claims tasks of a queue, calls `work` for each, renews the lease while `work` runs, and reports the result.
Replace `work` with your own function. Several workers may share a queue: each task is held by one of them.
"""

import argparse
import json
import os
import socket
import sys
import threading
import time
import urllib.error
import urllib.parse
import urllib.request

LEASE_SECONDS = 30
WAIT_SECONDS = 20


def work(task, report):
    """Returns new members of the state (or, for a decision, {"outcome": ...}). An exception fails the attempt.

    `task["state"]` is what the node sees, `task["idempotencyKey"]` is the same each time this attempt is delivered.
    `report(progress)` shows progress in the inbox.
    """
    report({"step": "started"})
    if task.get("outcomes"):
        return {"outcome": task["outcomes"][0]}
    return {"state": {task["nodeId"]: {"doneBy": "python", "keys": sorted(task["state"])}}}


class Api:
    def __init__(self, server):
        self.base = server.rstrip("/") + "/api/v1/inbox"

    def post(self, path, body, timeout=30):
        """Returns (status, answer). Statuses below 500 are answers; the rest is raised and may be tried again."""
        request = urllib.request.Request(
            self.base + path,
            data=json.dumps(body).encode(),
            headers={"content-type": "application/json"},
            method="POST",
        )
        try:
            with urllib.request.urlopen(request, timeout=timeout) as response:
                return response.status, json.load(response)
        except urllib.error.HTTPError as error:
            if error.code >= 500:
                raise
            return error.code, json.load(error)


def retry(call, attempts=5):
    """Repeats a call while the server cannot be reached. An answer is stored once, so repeating it is safe."""
    for attempt in range(attempts):
        try:
            return call()
        except OSError as error:
            if attempt == attempts - 1:
                raise
            print(f"the server does not answer, trying again: {error}", file=sys.stderr)
            time.sleep(min(2**attempt, 10))


def handle(api, task):
    path = "/" + urllib.parse.quote(task["id"])
    lease = {"leaseId": task["leaseId"]}
    lost = threading.Event()
    finished = threading.Event()

    def heartbeat(progress=None):
        body = dict(lease, lease=f"{LEASE_SECONDS}s")
        if progress is not None:
            body["progress"] = progress
        try:
            status, _ = api.post(path + "/heartbeat", body)
            if status != 200:
                lost.set()  # lapsed or closed: another worker may have the task, so stop
        except OSError as error:
            print(f"heartbeat: {error}", file=sys.stderr)

    def beat():
        while not finished.wait(LEASE_SECONDS / 3) and not lost.is_set():
            heartbeat()

    beating = threading.Thread(target=beat, daemon=True)
    beating.start()
    try:
        body = dict(lease, **work(task, heartbeat))
        path += "/complete"
    except Exception as error:  # noqa: BLE001 - whatever fails is reported
        body = dict(lease, error={"code": type(error).__name__, "message": str(error)}, retriable=True)
        path += "/fail"
    finally:
        finished.set()
        beating.join()
    if lost.is_set():
        print(f"{task['id']}: the lease was lost; the result is dropped", file=sys.stderr)
        return
    status, answer = retry(lambda: api.post(path, body))
    if status == 200:
        print(f"{task['id']}: {path.rsplit('/', 1)[1]}", flush=True)
    else:
        print(f"{task['id']}: {status} {answer['error']['code']}: {answer['error']['message']}", file=sys.stderr)


def main():
    arguments = argparse.ArgumentParser(description="Works on tasks of Fermata's inbox.")
    arguments.add_argument("--server", default=os.environ.get("FERMATA_SERVER", "http://127.0.0.1:7070"))
    arguments.add_argument("--queue", required=True, help="the queue; by default of a node it is the id of its workflow")
    arguments.add_argument("--worker", default=f"{socket.gethostname()}-{os.getpid()}")
    arguments.add_argument("--tasks", type=int, default=0, help="end after this many tasks; 0: never")
    given = arguments.parse_args()
    api = Api(given.server)
    claim = {"queue": given.queue, "worker": given.worker, "lease": f"{LEASE_SECONDS}s", "wait": f"{WAIT_SECONDS}s"}
    done = 0
    while given.tasks == 0 or done < given.tasks:
        status, answer = retry(lambda: api.post("/claim", claim, timeout=WAIT_SECONDS + 30))
        if status != 200:
            sys.exit(f"the claim was refused: {answer['error']['message']}")
        for task in answer["items"]:
            handle(api, task)
            done += 1


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        pass
