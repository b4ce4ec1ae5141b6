"""Not a real Kubernetes: an API of pods, and a kubelet that runs their commands as processes."""

from __future__ import annotations

import json
import os
import subprocess
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlsplit

if TYPE_CHECKING:
    from pathlib import Path

PODS = "/api/v1/namespaces/default/pods"


class Kubernetes:
    """Serves the pods of one namespace; ``secrets`` hold entries by the name of the Secret."""

    def __init__(self, root: Path, secrets: dict[str, dict[str, str]] | None = None) -> None:
        self.secrets = secrets or {}
        self.pods: dict[str, dict[str, Any]] = {}
        self.refusal: tuple[int, str] | None = None
        """What every request is answered with, if it is not to be served."""
        self.is_full = False
        """Whether no machine has room for another pod."""
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._lock = threading.Lock()
        self._root = root
        api = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self._answer("GET")

            def do_POST(self) -> None:
                self._answer("POST")

            def do_DELETE(self) -> None:
                self._answer("DELETE")

            def _answer(self, verb: str) -> None:
                length = int(self.headers.get("Content-Length") or 0)
                body = json.loads(self.rfile.read(length) or b"{}")
                with api._lock:
                    status, found = api._serve(verb, urlsplit(self.path), body)
                data = json.dumps(found).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *_: object) -> None:
                """Say nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))
        self._thread.start()
        self.kubeconfig = root / "kubeconfig"
        url = f"http://127.0.0.1:{self._server.server_port}"
        self.kubeconfig.write_text(
            json.dumps(
                {
                    "apiVersion": "v1",
                    "kind": "Config",
                    "clusters": [{"name": "x", "cluster": {"server": url}}],
                    "users": [{"name": "x", "user": {}}],
                    "contexts": [{"name": "x", "context": {"cluster": "x", "user": "x"}}],
                    "current-context": "x",
                }
            )
        )

    def _serve(self, verb: str, url: Any, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        if self.refusal is not None:
            status, message = self.refusal
            return status, {"kind": "Status", "message": message}
        name = url.path.removeprefix(PODS).strip("/")
        if verb == "POST":
            return self._make(body)
        if verb == "DELETE":
            return self._delete(name)
        (selector,) = parse_qs(url.query)["labelSelector"]
        label, _, value = selector.partition("=")
        chosen = [
            one for one in self.pods.values() if one["metadata"]["labels"].get(label) == value
        ]
        for one in chosen:
            self._look(one)
        return 200, {"kind": "PodList", "apiVersion": "v1", "items": chosen}

    def _make(self, pod: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        name = pod["metadata"]["name"]
        if name in self.pods:
            return 409, {"kind": "Status", "message": f'pods "{name}" already exists'}
        pod["status"] = {"phase": "Pending"}
        self.pods[name] = pod
        if self.is_full:
            pod["status"]["conditions"] = [
                {"type": "PodScheduled", "status": "False", "reason": "Unschedulable",
                 "message": "0/1 nodes are available"}
            ]  # fmt: skip
            return 201, pod
        container = pod["spec"]["containers"][0]
        variables = dict(os.environ)
        for one in container.get("env", ()):
            source = one["valueFrom"]["secretKeyRef"]
            variables[one["name"]] = self.secrets[source["name"]][source["key"]]
        with (self._root / f"{name}.log").open("w") as log:
            self._processes[name] = subprocess.Popen(
                container["command"], env=variables, stdout=log, stderr=log, start_new_session=True
            )
        return 201, pod

    def _look(self, pod: dict[str, Any]) -> None:
        process = self._processes.get(pod["metadata"]["name"])
        if process is None:
            return
        code = process.poll()
        if code is None:
            pod["status"] = {"phase": "Running"}
            return
        state = {"terminated": {"exitCode": code, "reason": "Error" if code else "Completed"}}
        status = {"name": "x", "image": "x", "imageID": "x", "ready": False, "restartCount": 0}
        pod["status"] = {
            "phase": "Failed" if code else "Succeeded",
            "containerStatuses": [status | {"state": state}],
        }

    def _delete(self, name: str) -> tuple[int, dict[str, Any]]:
        pod = self.pods.pop(name, None)
        if pod is None:
            return 404, {"kind": "Status", "message": f'pods "{name}" not found'}
        process = self._processes.pop(name, None)
        if process is not None and process.poll() is None:
            process.terminate()
            process.wait(20)
        return 200, pod

    def kill(self, name: str) -> None:
        """Let a machine fail under a pod."""
        self._processes[name].kill()
        self._processes[name].wait()

    def close(self) -> None:
        """End all pods, and the API."""
        for name in list(self.pods):
            self._delete(name)
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
