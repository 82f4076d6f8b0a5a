"""`make kubernetes`: the chart on a Kubernetes of one node, from `helm install` to a drained node.

Everything runs in namespaces of its own (network, mounts, processes), with its files in `.servers`:
when the command ends, the kernel takes away what is left.

    run ──▶ binaries (Go, once), images ──▶ unshare ──▶ init ──▶ inside
    inside ──▶ node (etcd to kube-proxy), checks ──▶ containers.load, kubectl
"""
