"""The manifests of configs/kubernetes, and what Dask's operator makes of them, beside the schemas of both."""

import importlib.util
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

CONFIGS = Path(__file__).parents[2] / "configs"
MANIFESTS = sorted((CONFIGS / "kubernetes").glob("*.yaml"))
DOCUMENTS = {path.stem: yaml.safe_load(path.read_text()) for path in MANIFESTS}


def variables(container: dict[str, Any]) -> dict[str, str]:
    return {entry["name"]: entry["value"] for entry in container["env"]}


def follows(document: dict[str, Any]) -> None:
    """Fail if a document breaks the schema of Kubernetes, or has a field that Kubernetes would drop silently."""
    kubernetes = pytest.importorskip("kubernetes_validate", reason="it has the schemas of Kubernetes")
    kubernetes.validate(document, kubernetes.latest_version(), strict=True)


def test_the_pods_are_closed_to_strangers() -> None:
    policy, cluster, job = (
        yaml.safe_load((CONFIGS / "kubernetes" / f"{name}.yaml").read_text())
        for name in ("network-policy", "cluster", "job")
    )
    label = {"dask.org/cluster-name": cluster["metadata"]["name"]}
    assert policy["spec"]["podSelector"]["matchLabels"] == label
    assert policy["spec"]["policyTypes"] == ["Ingress"]
    own, operator, metrics = policy["spec"]["ingress"]
    labels = [peer["podSelector"]["matchLabels"] for peer in own["from"]]
    assert labels == [label, job["spec"]["template"]["metadata"]["labels"]]
    assert {entry["port"] for entry in operator["ports"]} == {8786, 8787}
    # The scheduler's web server, and a port for each worker of a pod.
    (ports,) = metrics["ports"]
    worker = cluster["spec"]["worker"]["spec"]["containers"][0]
    first, last = map(int, variables(worker)["DASK_DBFS__METRICS_PORTS"].split(":"))
    assert (ports["port"], ports["endPort"]) == (8787, last) == (first - 1, last)
    assert last - first + 1 == int(worker["args"][worker["args"].index("--nworkers") + 1])


def strict(schema: Any) -> Any:
    """Return a schema that refuses unlisted fields, which Kubernetes would drop silently."""
    if isinstance(schema, list):
        return [strict(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    found = {key: strict(value) for key, value in schema.items()}
    if isinstance(found.get("properties"), dict) and not found.get("x-kubernetes-preserve-unknown-fields"):
        found.setdefault("additionalProperties", False)
    if found.get("x-kubernetes-int-or-string"):
        found.pop("type", None)
    return found


@pytest.mark.parametrize("manifest", MANIFESTS, ids=lambda manifest: manifest.name)
def test_manifests_follow_their_schemas(manifest: Path) -> None:
    jsonschema = pytest.importorskip("jsonschema")
    document = yaml.safe_load(manifest.read_text())
    if document["apiVersion"] != "kubernetes.dask.org/v1":
        follows(document)
        return
    package = importlib.util.find_spec("dask_kubernetes")
    if package is None or package.origin is None:
        pytest.skip("dask-kubernetes, which has the operator's schemas, is not installed")
    folder = Path(package.origin).parent / "operator/deployment/helm/dask-kubernetes-operator/crds"
    definition = yaml.load((folder / f"{document['kind'].lower()}.yaml").read_text(), yaml.CSafeLoader)
    schema = strict(definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"])
    schema["properties"] |= {"apiVersion": {}, "kind": {}, "metadata": {}}
    jsonschema.validate(document, schema)
    document["spec"]["worker"]["sepc"] = document["spec"]["worker"].pop("spec")
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(document, schema)


def rendered() -> dict[str, dict[str, Any]]:
    """The deployments and the service that Dask's operator makes of cluster.yaml and gpu-workers.yaml."""
    operator = pytest.importorskip("dask_kubernetes.operator.controller.controller")
    cluster, gpus = DOCUMENTS["cluster"], DOCUMENTS["gpu-workers"]
    name, spec = cluster["metadata"]["name"], cluster["spec"]

    def workers(group: str, of: dict[str, Any]) -> Any:
        return operator.build_worker_deployment_spec(group, "default", name, "0", of["worker"]["spec"], {}, {})

    return {
        "scheduler": operator.build_scheduler_deployment_spec(name, spec["scheduler"]["spec"], {}, {}),
        "service": operator.build_scheduler_service_spec(name, spec["scheduler"]["service"], {}, {}),
        "workers": workers(f"{name}-default", spec),
        "GPU workers": workers(gpus["metadata"]["name"], gpus["spec"]),
    }


@pytest.mark.parametrize("name", ["scheduler", "service", "workers", "GPU workers"])
def test_what_the_operator_makes_follows_the_schemas(name: str) -> None:
    follows(rendered()[name])


def test_pods_are_those_that_the_policy_and_the_affinity_mean() -> None:
    pods = {name: made["spec"]["template"] for name, made in rendered().items() if name != "service"}
    selected = DOCUMENTS["network-policy"]["spec"]["podSelector"]["matchLabels"]
    for pod in pods.values():
        assert selected.items() <= pod["metadata"]["labels"].items()
    (apart,) = pods["workers"]["spec"]["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    assert apart["labelSelector"]["matchLabels"].items() <= pods["workers"]["metadata"]["labels"].items()
    assert not apart["labelSelector"]["matchLabels"].items() <= pods["scheduler"]["metadata"]["labels"].items()


def test_every_pod_is_confined_and_has_what_it_reads() -> None:
    pods = [DOCUMENTS["cluster"]["spec"][part]["spec"] for part in ("scheduler", "worker")]
    pods += [DOCUMENTS["gpu-workers"]["spec"]["worker"]["spec"], DOCUMENTS["job"]["spec"]["template"]["spec"]]
    for pod in pods:
        (container,) = pod["containers"]
        assert pod["securityContext"]["runAsNonRoot"] and not pod["automountServiceAccountToken"]
        assert container["securityContext"] == {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
        folders = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
        assert folders.keys() == {volume["name"] for volume in pod["volumes"]}
        assert variables(container)["DASK_CONFIG"] == folders["tls"]
    claim = DOCUMENTS["volume"]["metadata"]["name"]
    assert pods[0]["volumes"][0]["persistentVolumeClaim"]["claimName"] == claim
    image = (CONFIGS / "kubernetes" / "Dockerfile").read_text()
    assert f"useradd --uid {pods[0]['securityContext']['runAsUser']} " in image and "USER 1000" in image


def test_the_page_makes_what_the_manifests_name() -> None:
    page = (CONFIGS / "kubernetes" / "README.md").read_text()
    volumes = DOCUMENTS["cluster"]["spec"]["scheduler"]["spec"]["volumes"]
    settings, secret = (entry for entry in volumes if "configMap" in entry or "secret" in entry)
    assert f"kubectl create configmap {settings['configMap']['name']} --from-file=configs/cluster.yaml" in page
    assert f"kubectl create secret generic {secret['secret']['secretName']} " in page
    for file in MANIFESTS:
        assert file.name in page


@pytest.mark.full
def test_a_scheduler_that_is_busy_passes_its_liveness_probe() -> None:
    scheduler = DOCUMENTS["cluster"]["spec"]["scheduler"]["spec"]["containers"][0]
    probe = scheduler["livenessProbe"]
    ports = {port["name"]: port["containerPort"] for port in scheduler["ports"]}
    assert (
        probe.keys() & {"tcpSocket", "httpGet", "exec"} == {"tcpSocket"} and ports[probe["tcpSocket"]["port"]] == 8786
    )
    assert scheduler["readinessProbe"]["httpGet"]["path"] == "/health"
    command = [sys.executable, "-m", "dask", "scheduler", "--host", "127.0.0.1", "--port", "0"]
    command += ["--dashboard-address", "127.0.0.1:0", "--no-dashboard"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        try:
            line = next(line for line in process.stderr if "Scheduler at:" in line)
            port = int(line.rpartition(":")[2])
            # As busy as a process can be.
            process.send_signal(signal.SIGSTOP)
            for _ in range(probe["failureThreshold"]):
                socket.create_connection(("127.0.0.1", port), timeout=probe["timeoutSeconds"]).close()
        finally:
            process.kill()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port), timeout=probe["timeoutSeconds"])


def test_the_image_has_its_lock_and_the_wheel() -> None:
    text = (CONFIGS / "kubernetes" / "Dockerfile").read_text()
    (lock,) = re.findall(r"^ARG LOCK=(\S+)$", text, re.MULTILINE)
    assert (CONFIGS.parent / "locks" / f"{lock}.txt").is_file()
    assert "--require-hashes" in text and text.index("USER 1000") < text.index("RUN dbfs warm-up")


def test_images_and_names_in_the_manifests_agree() -> None:
    documents = {path.stem: yaml.safe_load(path.read_text()) for path in MANIFESTS}
    name = documents["cluster"]["metadata"]["name"]
    assert documents["gpu-workers"]["spec"]["cluster"] == name
    assert f"tcp://{name}-scheduler:8786" in str(documents["job"])
    replicas = documents["cluster"]["spec"]["worker"]["replicas"]
    arguments = documents["cluster"]["spec"]["worker"]["spec"]["containers"][0]["args"]
    workers = int(arguments[arguments.index("--nworkers") + 1])
    job = documents["job"]["spec"]["template"]["spec"]["containers"][0]["command"]
    assert int(job[job.index("--ranks") + 1]) == replicas * workers
