"""The dashboard outside Grafana: its queries asked of a Prometheus, its panels drawn."""
