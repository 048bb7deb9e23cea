"""The fields of KubeRay's resources (ray.io/v1 of v1.6, from its API reference), as a JSON schema.

Closed at every level of KubeRay's own, so that a misspelt field is found. Pod templates are
Kubernetes' and checked by its own schemas.
"""

from typing import Any

TEXT: dict[str, Any] = {"type": "string"}
FLAG: dict[str, Any] = {"type": "boolean"}
COUNT: dict[str, Any] = {"type": "integer", "minimum": 0}
ANY: dict[str, Any] = {"type": "object"}
LIST: dict[str, Any] = {"type": "array"}
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
AUTOSCALER = closed(
    resources=ANY,
    image=TEXT,
    imagePullPolicy=one_of("Always", "IfNotPresent", "Never"),
    securityContext=ANY,
    idleTimeoutSeconds=COUNT,
    upscalingMode=one_of("Default", "Aggressive", "Conservative"),
    version=one_of("v1", "v2"),
    env=LIST,
    envFrom=LIST,
    volumeMounts=LIST,
)
HEAD = closed(
    ("template",),
    template=TEMPLATE,
    headService=ANY,
    enableIngress=FLAG,
    resources=TEXTS,
    labels=TEXTS,
    rayStartParams=TEXTS,
    serviceType=one_of("ClusterIP", "NodePort", "LoadBalancer"),
)
WORKERS = closed(
    ("groupName", "template"),
    groupName=TEXT,
    replicas=COUNT,
    minReplicas=COUNT,
    maxReplicas=COUNT,
    idleTimeoutSeconds=COUNT,
    numOfHosts=COUNT,
    suspend=FLAG,
    resources=TEXTS,
    labels=TEXTS,
    rayStartParams=TEXTS,
    template=TEMPLATE,
    scaleStrategy=ANY,
)
CLUSTER = closed(
    ("headGroupSpec",),
    authOptions=AUTH,
    suspend=FLAG,
    managedBy=TEXT,
    autoscalerOptions=AUTOSCALER,
    headServiceAnnotations=TEXTS,
    enableInTreeAutoscaling=FLAG,
    gcsFaultToleranceOptions=ANY,
    upgradeStrategy=ANY,
    headGroupSpec=HEAD,
    rayVersion=TEXT,
    workerGroupSpecs={"type": "array", "items": WORKERS},
)
JOB = closed(
    activeDeadlineSeconds=COUNT,
    preRunningDeadlineSeconds=COUNT,
    backoffLimit=COUNT,
    rayClusterSpec=CLUSTER,
    submitterPodTemplate=TEMPLATE,
    metadata=TEXTS,
    clusterSelector=TEXTS,
    submitterConfig=ANY,
    managedBy=TEXT,
    deletionStrategy=ANY,
    entrypoint=TEXT,
    runtimeEnvYAML=TEXT,
    jobId=TEXT,
    submissionMode=one_of("K8sJobMode", "HTTPMode", "InteractiveMode", "SidecarMode"),
    entrypointResources=TEXT,
    entrypointNumCpus={"type": "number"},
    entrypointNumGpus={"type": "number"},
    ttlSecondsAfterFinished=COUNT,
    shutdownAfterJobFinishes=FLAG,
    suspend=FLAG,
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
