"""Fields of KubeRay's resources (ray.io/v1 of v1.6, from its API reference), as a JSON schema.

Those that `cluster/kuberay` uses, so that a misspelt field is found: look up another one in the
reference and add it. Pod templates are Kubernetes' and checked by its own schemas.
"""

from typing import Any

TEXT: dict[str, Any] = {"type": "string"}
FLAG: dict[str, Any] = {"type": "boolean"}
COUNT: dict[str, Any] = {"type": "integer", "minimum": 0}
ANY: dict[str, Any] = {"type": "object"}
TEXTS: dict[str, Any] = {"type": "object", "additionalProperties": TEXT}


def closed(required: tuple[str, ...] = (), **fields: Any) -> dict[str, Any]:
    """An object of these fields and no others."""
    return {
        "type": "object",
        "properties": fields,
        "required": list(required),
        "additionalProperties": False,
    }


def one_of(*values: str) -> dict[str, Any]:
    return {"enum": list(values)}


TEMPLATE = closed(("spec",), metadata=ANY, spec=ANY)
AUTH = closed(mode=one_of("disabled", "token"), secretName=TEXT, enableK8sTokenAuth=FLAG)
HEAD = closed(
    ("template",),
    template=TEMPLATE,
    rayStartParams=TEXTS,
    serviceType=one_of("ClusterIP", "NodePort", "LoadBalancer"),
)
WORKERS = closed(
    ("groupName", "template"),
    groupName=TEXT,
    replicas=COUNT,
    minReplicas=COUNT,
    maxReplicas=COUNT,
    rayStartParams=TEXTS,
    template=TEMPLATE,
)
CLUSTER = closed(
    ("headGroupSpec",),
    authOptions=AUTH,
    autoscalerOptions=closed(idleTimeoutSeconds=COUNT, resources=ANY, version=one_of("v1", "v2")),
    enableInTreeAutoscaling=FLAG,
    headGroupSpec=HEAD,
    rayVersion=TEXT,
    workerGroupSpecs={"type": "array", "items": WORKERS},
)
JOB = closed(
    activeDeadlineSeconds=COUNT,
    backoffLimit=COUNT,
    rayClusterSpec=CLUSTER,
    entrypoint=TEXT,
    submissionMode=one_of("K8sJobMode", "HTTPMode", "InteractiveMode", "SidecarMode"),
    ttlSecondsAfterFinished=COUNT,
    shutdownAfterJobFinishes=FLAG,
)


def resource(kind: str) -> dict[str, Any]:
    """The schema of a whole file: RayCluster or RayJob."""
    return closed(
        ("apiVersion", "kind", "metadata", "spec"),
        apiVersion={"const": "ray.io/v1"},
        kind={"const": kind},
        metadata=ANY,
        spec={"RayCluster": CLUSTER, "RayJob": JOB}[kind],
    )
