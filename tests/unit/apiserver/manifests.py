"""Manifests of every kind with many fields: what tests change one value of."""

import base64
from typing import Any

from tests.unit.api.jobs import GANGJOB_FIELDS, template

from grange.api.meta import Document

METADATA: Document = {
    "name": "x",
    "labels": {"a": "b"},
    "annotations": {"a": "b"},
    "finalizers": ["a.b/c"],
    "ownerReferences": [
        {
            "apiVersion": "v1",
            "kind": "A",
            "name": "a",
            "uid": "u",
            "controller": True,
            "blockOwnerDeletion": True,
        }
    ],
    "uid": "",
    "resourceVersion": "",
    "creationTimestamp": None,
    "deletionTimestamp": None,
    "generation": 1,
    "managedFields": [{}],
}

TEMPLATE: Document = {
    "metadata": {"labels": {"a": "b"}},
    "spec": {"containers": [{"name": "a", "command": ["a"]}]},
}

PARTS: dict[str, Any] = {
    "Pod": {
        "spec": {
            "containers": [
                {
                    "name": "a",
                    "image": "i",
                    "command": ["a"],
                    "args": ["x"],
                    "env": [
                        {"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}
                    ],
                    "envFrom": [{"configMapRef": {"name": "x"}}],
                    "ports": [{"name": "p", "containerPort": 80, "hostPort": 1, "protocol": "TCP"}],
                    "resources": {"requests": {"cpu": "1"}, "limits": {"cpu": "1"}},
                    "volumeMounts": [{"name": "v", "mountPath": "/v", "subPath": "x"}],
                    "livenessProbe": {
                        "httpGet": {
                            "port": 80,
                            "path": "/",
                            "scheme": "HTTP",
                            "httpHeaders": [{"name": "a", "value": "b"}],
                        },
                        "periodSeconds": 1,
                    },
                    "lifecycle": {"preStop": {"exec": {"command": ["x"]}}},
                    "securityContext": {"runAsUser": 1},
                }
            ],
            "initContainers": [{"name": "i", "command": ["a"], "restartPolicy": "Always"}],
            "volumes": [
                {"name": "v", "configMap": {"name": "x", "items": [{"key": "a", "path": "b"}]}}
            ],
            "tolerations": [
                {"key": "a", "operator": "Exists", "tolerationSeconds": 1, "effect": "NoExecute"}
            ],
            "affinity": {
                "nodeAffinity": {
                    "requiredDuringSchedulingIgnoredDuringExecution": {
                        "nodeSelectorTerms": [
                            {
                                "matchExpressions": [
                                    {"key": "a", "operator": "In", "values": ["b"]}
                                ],
                                "matchFields": [
                                    {"key": "metadata.name", "operator": "In", "values": ["b"]}
                                ],
                            }
                        ]
                    },
                    "preferredDuringSchedulingIgnoredDuringExecution": [
                        {
                            "weight": 1,
                            "preference": {
                                "matchExpressions": [
                                    {"key": "a", "operator": "Gt", "values": ["1"]}
                                ]
                            },
                        }
                    ],
                },
                "podAntiAffinity": {
                    "requiredDuringSchedulingIgnoredDuringExecution": [
                        {
                            "topologyKey": "a",
                            "labelSelector": {
                                "matchExpressions": [
                                    {"key": "a", "operator": "In", "values": ["x"]}
                                ]
                            },
                            "namespaces": ["a"],
                            "namespaceSelector": {},
                            "matchLabelKeys": ["a"],
                            "mismatchLabelKeys": ["b"],
                        }
                    ]
                },
            },
            "topologySpreadConstraints": [
                {
                    "maxSkew": 1,
                    "topologyKey": "a",
                    "whenUnsatisfiable": "DoNotSchedule",
                    "labelSelector": {},
                    "minDomains": 1,
                    "matchLabelKeys": ["a"],
                }
            ],
            "nodeSelector": {"a": "b"},
            "schedulingGates": [{"name": "a/b"}],
            "terminationGracePeriodSeconds": 1,
            "activeDeadlineSeconds": 1,
            "restartPolicy": "Always",
            "hostname": "a",
            "priorityClassName": "",
            "overhead": {"cpu": "1"},
            "readinessGates": [{"conditionType": "a"}],
            "dnsPolicy": "Default",
            "securityContext": {},
            "imagePullSecrets": [{"name": "a"}],
            "hostAliases": [{"ip": "1.1.1.1", "hostnames": ["a"]}],
            "enableServiceLinks": True,
            "schedulerName": "grange",
            "serviceAccountName": "default",
        },
        "status": {
            "phase": "Running",
            "conditions": [
                {"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}
            ],
            "containerStatuses": [
                {
                    "name": "a",
                    "ready": True,
                    "restartCount": 1,
                    "image": "",
                    "imageID": "",
                    "state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}},
                }
            ],
        },
    },
    "ConfigMap": {"data": {"a": "b"}, "binaryData": {"b": "eA=="}, "immutable": False},
    "Secret": {"data": {"a": "eA=="}, "stringData": {"b": "x"}, "type": "Opaque"},
    "Namespace": {"spec": {"finalizers": ["kubernetes"]}, "status": {"phase": "Active"}},
    "Node": {
        "spec": {
            "taints": [{"key": "a", "value": "b", "effect": "NoSchedule", "timeAdded": None}],
            "unschedulable": True,
            "podCIDR": "",
            "providerID": "x",
        },
        "status": {
            "capacity": {"cpu": "1"},
            "allocatable": {"cpu": "1", "pods": "1"},
            "conditions": [{"type": "Ready", "status": "True"}],
            "addresses": [{"type": "InternalIP", "address": "1.1.1.1"}],
            "images": [{"names": ["a"], "sizeBytes": 1}],
        },
    },
    "Event": {
        "involvedObject": {"kind": "Pod", "name": "x", "namespace": "default"},
        "reason": "a",
        "message": "b",
        "count": 1,
        "firstTimestamp": "2026-01-01T00:00:00Z",
        "lastTimestamp": "2026-01-01T00:00:00Z",
        "eventTime": None,
        "type": "Normal",
        "source": {"component": "x"},
        "series": {"count": 1, "lastObservedTime": "2026-01-01T00:00:00.000000Z"},
        "action": "a",
        "reportingComponent": "x",
        "reportingInstance": "y",
        "regarding": {"kind": "Pod", "name": "x", "namespace": "default"},
        "note": "x",
    },
    "Lease": {
        "spec": {
            "holderIdentity": "a",
            "leaseDurationSeconds": 1,
            "acquireTime": "2026-01-01T00:00:00.000000Z",
            "renewTime": "2026-01-01T00:00:00.000000Z",
            "leaseTransitions": 1,
        }
    },
    "Service": {
        "spec": {
            "ports": [
                {
                    "name": "a",
                    "port": 80,
                    "targetPort": "x",
                    "protocol": "TCP",
                    "nodePort": 0,
                    "appProtocol": "x",
                }
            ],
            "selector": {"a": "b"},
            "type": "ClusterIP",
            "clusterIP": "",
            "clusterIPs": [],
            "externalName": "",
            "sessionAffinity": "None",
            "ipFamilies": ["IPv4"],
            "ipFamilyPolicy": "SingleStack",
            "externalIPs": ["1.1.1.1"],
            "internalTrafficPolicy": "Cluster",
            "publishNotReadyAddresses": True,
            "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": 1}},
            "healthCheckNodePort": 0,
            "loadBalancerIP": "",
            "externalTrafficPolicy": "Cluster",
        }
    },
    "CertificateSigningRequest": {
        "spec": {
            "request": base64.b64encode(b"-----BEGIN CERTIFICATE REQUEST-----\n").decode(),
            "signerName": "kubernetes.io/kubelet-serving",
            "usages": ["digital signature", "server auth"],
            "expirationSeconds": 3600,
            "username": "x",
            "groups": ["a"],
            "uid": "u",
            "extra": {"a": ["b"]},
        },
        "status": {
            "certificate": "YQ==",
            "conditions": [
                {
                    "type": "Approved",
                    "status": "True",
                    "reason": "a",
                    "message": "m",
                    "lastUpdateTime": "2026-01-01T00:00:00Z",
                    "lastTransitionTime": "2026-01-01T00:00:00Z",
                }
            ],
        },
    },
    **{
        kind: {
            "rules": [
                {
                    "verbs": ["get"],
                    "apiGroups": [""],
                    "resources": ["pods"],
                    "resourceNames": ["x"],
                    "nonResourceURLs": [],
                }
            ]
        }
        for kind in ("Role", "ClusterRole")
    },
    **{
        kind: {
            "roleRef": {
                "apiGroup": "rbac.authorization.k8s.io",
                "kind": "ClusterRole",
                "name": "view",
            },
            "subjects": [
                {"kind": "User", "name": "bob", "apiGroup": "rbac.authorization.k8s.io"},
                {"kind": "ServiceAccount", "name": "a", "namespace": "default"},
            ],
        }
        for kind in ("RoleBinding", "ClusterRoleBinding")
    },
    "PriorityClass": {
        "value": 1,
        "globalDefault": False,
        "preemptionPolicy": "Never",
        "description": "x",
    },
    "PodDisruptionBudget": {
        "spec": {
            "minAvailable": 1,
            "maxUnavailable": None,
            "selector": {
                "matchLabels": {"a": "b"},
                "matchExpressions": [{"key": "a", "operator": "In", "values": ["x"]}],
            },
            "unhealthyPodEvictionPolicy": "AlwaysAllow",
        },
        "status": {
            "disruptionsAllowed": 1,
            "currentHealthy": 1,
            "desiredHealthy": 1,
            "expectedPods": 1,
            "disruptedPods": {"a": "2026-01-01T00:00:00Z"},
            "observedGeneration": 1,
        },
    },
    "PodGroup": {
        "spec": {
            "minMember": 1,
            "minResources": {"cpu": "1"},
            "scheduleTimeoutSeconds": 1,
            "minTaskMember": {"a": 1},
            "queue": "x",
            "topology": {"key": "zone", "mode": "Required"},
        },
        "status": {"phase": "Pending", "scheduled": 1},
    },
    "Queue": {
        "spec": {
            "capacity": {"cpu": "1"},
            "weight": 1,
            "capability": {"cpu": "1"},
            "parent": "a",
            "reclaimable": True,
            "deserved": {"cpu": "1"},
            "guarantee": {"resource": {"cpu": "1"}},
        }
    },
    "Endpoints": {
        "subsets": [
            {
                "addresses": [
                    {
                        "ip": "1.1.1.1",
                        "targetRef": {"kind": "Pod"},
                        "nodeName": "x",
                        "hostname": "y",
                    }
                ],
                "notReadyAddresses": [],
                "ports": [{"name": "a", "port": 1, "protocol": "TCP"}],
            }
        ]
    },
    "EndpointSlice": {
        "addressType": "IPv4",
        "endpoints": [
            {
                "addresses": ["1.1.1.1"],
                "conditions": {"ready": True},
                "hostname": "x",
                "targetRef": {"kind": "Pod"},
                "nodeName": "n",
                "zone": "z",
                "hints": {"forZones": [{"name": "z"}]},
            }
        ],
        "ports": [{"name": "a", "port": 1, "protocol": "TCP", "appProtocol": "x"}],
    },
    "ServiceAccount": {
        "secrets": [{"name": "x"}],
        "imagePullSecrets": [{"name": "y"}],
        "automountServiceAccountToken": True,
    },
    "RollingUpdate": {
        "spec": {
            "old": "a",
            "new": "b",
            "desired": 1,
            "minimum": 1,
            "paused": False,
            "maxSurge": 1,
            "maxUnavailable": 1,
        }
    },
    "AuditRecord": {
        "spec": {"event": "RolloutStarted", "controller": "b", "time": "2026-01-01T00:00:00Z"}
    },
    "GangJob": {
        "spec": GANGJOB_FIELDS,
        "status": {
            "phase": "Running",
            "conditions": [{"type": "a", "status": "True"}],
            "replicaStatuses": {"worker": {"active": 1, "indexRestarts": {"0": 1}}},
            "progress": {"percent": 1.5},
        },
    },
    "Job": {
        "spec": {
            "completionMode": "Indexed",
            "completions": 2,
            "parallelism": 2,
            "backoffLimitPerIndex": 1,
            "podFailurePolicy": {
                "rules": [
                    {"action": "Count", "onExitCodes": {"operator": "In", "values": [1]}},
                    {"action": "Ignore", "onPodConditions": [{"type": "A", "status": "True"}]},
                ]
            },
            "successPolicy": {"rules": [{"succeededIndexes": "0", "succeededCount": 1}]},
            "template": template(restartPolicy="Never"),
        },
        "status": {"active": 1, "gangJob": {"phase": "Running"}},
    },
    "CronJob": {
        "spec": {
            "schedule": "* * * * *",
            "timeZone": "Etc/UTC",
            "jobTemplate": {"spec": {"template": template(restartPolicy="Never")}},
        },
        "status": {"active": [{"name": "a"}]},
    },
    "TFJob": {
        "spec": {
            "tfReplicaSpecs": {"Worker": {"template": template("tensorflow")}},
            "successPolicy": "AllWorkers",
            "enableDynamicWorker": True,
        },
    },
    "PyTorchJob": {
        "spec": {
            "pytorchReplicaSpecs": {"Worker": {"template": template("pytorch")}},
            "elasticPolicy": {
                "minReplicas": 1,
                "rdzvConf": [{"key": "a", "value": "b"}],
                "metrics": [{"type": "Resource"}],
            },
            "nprocPerNode": "2",
        },
    },
    "MachineLease": {
        "spec": {
            "machines": [{"pool": "workers", "count": 2}],
            "holder": {"kind": "TestSession", "name": "a", "uid": "b"},
            "priority": 1,
            "semaphores": ["licence"],
            "expectedSeconds": 10,
            "ttlSeconds": 10,
            "renewTime": "2026-01-01T00:00:00.000000Z",
            "cleaning": "Manual",
        },
        "status": {"phase": "Granted", "machines": [{"pool": "workers", "node": "a"}]},
    },
    "LeasePolicy": {
        "spec": {
            "order": "Backfill",
            "agingSeconds": 1,
            "paused": True,
            "drainingPools": ["workers"],
            "maxGranted": 1,
            "namespaceWeights": {"a": 1},
            "semaphores": {"licence": 1},
            "defaultPools": {"driver": "drivers"},
        },
    },
    "TestSession": {
        "spec": {
            "driver": {"command": ["a"], "env": [{"name": "A", "value": "b"}], "port": 1},
            "servers": [
                {
                    "name": "s",
                    "count": 2,
                    "pool": "workers",
                    "template": template(restartPolicy="Never"),
                    "artifacts": ["*.json"],
                }
            ],
            "clients": [
                {
                    "image": "a",
                    "args": ["b"],
                    "resources": {"requests": {"cpu": "1"}},
                    "readinessProbe": {"tcpSocket": {"port": 1}},
                }
            ],
            "roles": {"proxy": [{"command": ["a"]}]},
            "scenario": {"a": 1},
            "testName": "a",
            "semaphores": ["licence"],
            "concurrency": {"group": "a", "policy": "Queue"},
            "timeouts": {"queueSeconds": 1, "provisionSeconds": 1, "runSeconds": 1},
            "retries": {"infrastructure": 1, "failure": 1},
            "evidence": {
                "retentionSeconds": 1,
                "maxArtifactBytes": 1,
                "metrics": [{"name": "a", "jsonPath": "{.a}", "better": "Lower", "threshold": 0.5}],
            },
            "cancel": "Collect",
            "ttlSecondsAfterFinished": 1,
        },
        "status": {
            "phase": "Running",
            "components": [{"name": "driver"}],
            "events": [{"type": "QUEUE", "time": "2026-01-01T00:00:00.000000Z"}],
            "metrics": [{"name": "a", "value": 0.5}],
        },
    },
    "NodePool": {
        "spec": {
            "provider": "local",
            "providerConfig": {"a": 1},
            "mode": "Dedicated",
            "instanceTypes": ["a*"],
            "requirements": [{"key": "a", "operator": "In", "values": ["x"]}],
            "defaultInstanceType": "a",
            "spot": "Preferred",
            "weight": 2,
            "limits": {"machines": 3, "resources": {"cpu": "1"}, "pricePerHour": "1.5"},
            "standby": [
                {
                    "instanceType": "a",
                    "count": 1,
                    "spot": True,
                    "state": "Stopped",
                    "schedule": "0 8 * * 1-5",
                    "durationSeconds": 3600,
                }
            ],
            "bootImage": {"name": "a*"},
            "volume": {"defaultSize": "1Gi", "fixedSize": True},
            "template": {
                "labels": {"a": "b"},
                "annotations": {"a": "b"},
                "taints": [{"key": "a", "effect": "NoSchedule"}],
                "startupTaints": [{"key": "b", "effect": "NoSchedule"}],
            },
            "bootstrap": "UserData",
            "userData": "#cloud-config",
            "cleaning": "Wipe",
            "timeouts": {"bootSeconds": 1, "bootSecondsByType": {"a*": 2}, "idleSeconds": 0},
            "maxBootPerIteration": 1,
            "disruption": {
                "policy": "WhenEmpty",
                "consolidateAfterSeconds": 1,
                "expireAfterSeconds": 0,
                "terminationGracePeriodSeconds": 1,
                "minSavingsPercent": 1,
                "budgets": [{"nodes": "10%", "reasons": ["Empty"]}],
            },
        },
        "status": {"machines": {"Available": 1}, "resources": {"cpu": "1"}},
    },
    "Machine": {
        "spec": {
            "pool": "a",
            "provider": "local",
            "instanceType": "b",
            "bootImage": "c",
            "spot": True,
            "resources": {"cpu": "1", "memory": "1Gi", "privateIPOnly": True},
            "placement": {"zone": "z"},
            "candidates": [{"instanceType": "b", "zone": "z", "pricePerHour": "0.1"}],
            "labels": {"a": "b"},
            "taints": [{"key": "a", "effect": "NoSchedule"}],
            "templateHash": "d",
            "terminate": False,
        },
        "status": {
            "phase": "Created",
            "instanceID": "i",
            "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
            "boundPodName": "default/a",
            "history": [{"time": "2026-01-01T00:00:00.000000Z", "phase": "Creating"}],
        },
    },
    "ReplicationController": {
        "spec": {
            "replicas": 1,
            "template": {
                "metadata": {"labels": {"a": "b"}},
                "spec": {"containers": [{"name": "a", "command": ["a"]}]},
            },
            "nodeSelector": {
                "matchLabels": {"a": "b"},
                "matchExpressions": [{"key": "a", "operator": "In", "values": ["x"]}],
            },
            "strategy": "Static",
            "paused": False,
            "podLabels": {"a": "b"},
            "rollout": {
                "maxUnavailable": 1,
                "maxSurge": 1,
                "minReadySeconds": 1,
                "progressDeadlineSeconds": 100,
            },
            "placement": "Packed",
        },
        "status": {
            "replicas": 1,
            "conditions": [{"type": "a", "status": "True"}],
            "nodeTransfer": {},
        },
    },
}
