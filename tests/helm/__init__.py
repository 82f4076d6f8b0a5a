"""The Helm chart: rendered by the real `helm`, read back by the service's own parsers."""
