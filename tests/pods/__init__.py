"""Runs what helm renders: each pod in namespaces of its own, from the unpacked image, on one machine.

No Kubernetes and no docker is needed, but root, `ip` (iproute2), `unshare` and `nsenter` (util-linux), and openssl.
What Kubernetes does for the chart is here in small: StatefulSets with rolling updates, Services, DNS, probes, hooks,
volumes, and one GET of the API. Not here: NetworkPolicies, limits of resources, scheduling.

The package knows manifests and the image, but neither helm nor the clients of Forebay: a release and its load are in
tests/python/forebay_pods.py.
"""
